"""Settings of one command: a table of their own in [tool.dsv4prof], and flags without the command's name."""

from __future__ import annotations

from dsv4prof.setting import Setting

AUDIT = (
    Setting(
        name="audit_level",
        kind=str,
        default="likely",
        choices=("certain", "likely", "possible"),
        option="--level",
        help="Least sure: certain, likely, possible",
    ),
    Setting(
        name="audit_select",
        kind=str,
        default=None,
        metavar="A,B",
        option="--select",
        help="Only these rules: DSV105,DSV2",
    ),
    Setting(name="audit_ignore", kind=str, default=None, metavar="A,B", option="--ignore", help="All but these rules"),
    Setting(name="audit_hot_only", kind=bool, default=False, option="--hot-only", help="Only what a hot path reaches"),
    Setting(
        name="audit_exclude",
        kind=str,
        default=None,
        metavar="A,B",
        option="--exclude",
        help="Files or folders to leave out, as globs",
    ),
    Setting(
        name="audit_mirrors",
        kind=str,
        default=None,
        metavar="A,B",
        option="--mirror",
        help="More names of host copies, as globs",
    ),
    Setting(
        name="audit_hot", kind=str, default=None, metavar="A,B", option="--hot", help="More hot roots: module:function"
    ),
    Setting(
        name="audit_cold", kind=str, default=None, metavar="A,B", option="--cold", help="Where no hot path goes on"
    ),
    Setting(
        name="audit_torch",
        kind=str,
        default=None,
        metavar="VERSION",
        option="--torch",
        help="Of torch; default: newest",
    ),
    Setting(
        name="audit_baseline",
        kind=str,
        default=None,
        metavar="FILE",
        option="--baseline",
        help="Report and fail on what is not in it",
    ),
    Setting(name="audit_jobs", kind=int, default=0, minimum=0, option="--jobs", help="Processes; 0: as many as pay"),
    Setting(name="audit_cache", kind=bool, default=True, option="--cache", help="Keep what was read of files"),
)
# Besides these a server has `tp`, `port` and what the engine is asked for, which it shares with `run`. No key: settings
# are printed and kept in manifests.
SERVE = (
    Setting(
        name="serve_host", kind=str, default="127.0.0.1", metavar="HOST", option="--host", help="Address to listen on"
    ),
    Setting(
        name="serve_model_name",
        kind=str,
        default=None,
        option="--model-name",
        help="For clients; default: the folder's name",
    ),
    Setting(
        name="serve_max_queue",
        kind=int,
        default=256,
        minimum=0,
        option="--max-queue",
        help="Requests that may wait; more get 429",
    ),
    Setting(
        name="serve_max_body_mb", kind=int, default=16, minimum=1, option="--max-body-mb", help="Of a request, MiB"
    ),
    Setting(
        name="serve_grace",
        kind=float,
        default=5,
        minimum=0,
        option="--grace",
        help="Seconds to finish requests at the end",
    ),
)
