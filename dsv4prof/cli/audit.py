"""`dsv4prof audit`: host syncs, before anybody pays for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import audit_run, console
from dsv4prof.cli.audit_trace import trace
from dsv4prof.cli.help import Command, Group, add, examples, show_help_without_command
from dsv4prof.cli.options import FailOn, Format, SessionsDir, ShowSettings, choose, setting
from dsv4prof.errors import UsageError

if TYPE_CHECKING:
    from dsv4prof.api.auditing import AuditRequest
    from dsv4prof.settings import Settings

NAMES = (
    "audit_level", "audit_select", "audit_ignore", "audit_hot_only", "audit_exclude", "audit_mirrors", "audit_hot",
    "audit_cold", "audit_torch", "audit_baseline", "audit_jobs", "audit_cache", "sessions_dir", "format", "fail_on",
)  # fmt: skip
_FIX, _DIFF, _PREVIEW, _BASELINE = "--fix", "--diff", "--preview", "--baseline"

Words = list[str] | None


class AuditCommand(Command):
    """With --fix, `--diff` is a question about the fix: show it instead of writing it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _FIX in args:
            args = [_PREVIEW if word == _DIFF else word for word in args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    lines = (
        "dsv4prof audit code . --hot-only",
        "dsv4prof audit code . --diff origin/main --format markdown",
    )
    group = typer.Typer(
        cls=Group,
        help="Find host syncs: in source, in traces and as a program runs.",
        epilog=examples(*lines),
        rich_markup_mode=None,
    )
    group.command("code", cls=AuditCommand, epilog=examples(*lines))(code)
    add(group, "trace", trace, "dsv4prof audit trace latest", "dsv4prof audit trace latest --format json")
    audit_run.register(group)
    group.callback(invoke_without_command=True)(show_help_without_command)
    app.add_typer(group, name="audit")


def code(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATHS", help="Python files and folders [.]", show_default=False)
    ] = None,
    diff: Annotated[
        str | None, typer.Option(_DIFF, metavar="REV", help="Only code changed since a git revision")
    ] = None,
    baseline: Annotated[str | None, setting("audit_baseline")] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="Write every finding as known")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option("--labels", metavar="FILE", help="JSONL of judged lines: recall and false")
    ] = None,
    level: Annotated[str | None, setting("audit_level")] = None,
    select: Annotated[Words, setting("audit_select")] = None,
    ignore: Annotated[Words, setting("audit_ignore")] = None,
    hot_only: Annotated[bool | None, setting("audit_hot_only")] = None,
    exclude: Annotated[Words, setting("audit_exclude")] = None,
    mirror: Annotated[Words, setting("audit_mirrors")] = None,
    hot: Annotated[Words, setting("audit_hot")] = None,
    cold: Annotated[Words, setting("audit_cold")] = None,
    torch: Annotated[str | None, setting("audit_torch")] = None,
    fix: Annotated[bool, typer.Option(_FIX, help="Write proven fixes; with --diff only show them")] = False,
    preview: Annotated[bool, typer.Option(_PREVIEW, hidden=True)] = False,
    statistics: Annotated[bool, typer.Option("--statistics", help="Counts by rule and folder instead")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Audit again on changes; Ctrl-C ends")] = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", help="Join the costs that a session recorded")
    ] = None,
    ran: Annotated[
        Words, typer.Option("--ran", metavar="FILE", help="Say what a run exercised: an export, or a session")
    ] = None,
    jobs: Annotated[int | None, setting("audit_jobs")] = None,
    cache: Annotated[bool | None, setting("audit_cache")] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Find where the host waits for the device."""
    given = {
        "audit_level": level, "audit_select": select or None, "audit_ignore": ignore or None,
        "audit_hot_only": hot_only, "audit_exclude": exclude or None, "audit_mirrors": mirror or None,
        "audit_hot": hot or None, "audit_cold": cold or None, "audit_torch": torch, "audit_baseline": baseline,
        "audit_jobs": jobs, "audit_cache": cache, "sessions_dir": sessions_dir, "format": format, "fail_on": fail_on,
    }  # fmt: skip
    chosen = choose(NAMES, given, show=show_settings)
    if watch and (fix or write_baseline):
        raise UsageError("--watch only reads", hint="fix or write the baseline without --watch")
    request = _request(chosen, labels, write_baseline, diff, session, ran or (), fix, statistics)
    if preview:
        return _show_fixes(paths or [], request)
    if watch:
        return _watch(paths or [], request, chosen["format"])
    from dsv4prof import api

    return console.emit(api.audit_code(paths or [], request), chosen["format"])


def _request(
    chosen: Settings,
    labels: Path | None,
    write_baseline: Path | None,
    diff: str | None,
    session: str | None,
    ran: Sequence[str],
    fix: bool,
    statistics: bool,
) -> AuditRequest:
    from dsv4prof.api.auditing import AuditOptions, AuditRequest, cache_folder

    options = AuditOptions(
        mirrors=_words(chosen["audit_mirrors"]),
        hot=_words(chosen["audit_hot"]),
        cold=_words(chosen["audit_cold"]),
        torch_version=chosen["audit_torch"],
        jobs=chosen["audit_jobs"],
        cache_dir=cache_folder() if chosen["audit_cache"] else None,
        exclude=_words(chosen["audit_exclude"]),
    )
    known = Path(chosen["audit_baseline"]) if chosen["audit_baseline"] else None
    if known is not None and write_baseline is not None and chosen.values["audit_baseline"].source != _BASELINE:
        # What is written anew is not compared with what it replaces; a configured one may not be there yet.
        known = None
    return AuditRequest(
        level=chosen["audit_level"],
        select=_words(chosen["audit_select"]),
        ignore=_words(chosen["audit_ignore"]),
        hot_only=chosen["audit_hot_only"],
        labels=labels,
        baseline=known,
        write_baseline=write_baseline,
        diff=diff,
        session=session,
        ran=ran,
        sessions_dir=Path(chosen["sessions_dir"]),
        fix=fix,
        edits=chosen["format"] == "sarif",
        statistics=statistics,
        # Not asked for at all, a baseline may decide.
        fail_on=None if chosen.values["fail_on"].source == "default" else chosen["fail_on"],
        options=options,
    )


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _show_fixes(paths: list[str], request: AuditRequest) -> int:
    """The diff alone is the result, so that it can be applied."""
    missing = next((path for path in paths if not Path(path).exists()), None)
    if missing is not None:
        raise UsageError(
            f"there is no file or folder {missing}", hint="beside --fix, --diff shows the fixes and takes no revision"
        )
    from dsv4prof.api.auditing import preview_fixes

    diff, notes = preview_fixes(paths, request)
    if diff:
        console.result(diff)
    for line in notes:
        console.note(line)
    return 0


def _watch(paths: list[str], request: AuditRequest, fmt: str) -> int:
    from dsv4prof.api.audit_watch import watch

    try:
        for report in watch(paths, request):
            console.emit(report, fmt)
            console.note("watching; Ctrl-C ends")
    except KeyboardInterrupt:
        raise console.EndedError from None
    return 0
