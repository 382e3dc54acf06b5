"""Every setting, its value and where the value came from: CLI > DSV4PROF_* > [tool.dsv4prof] > default.

A mistyped key is an error with a suggestion, never silence: a profile taken with the wrong settings costs a night.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsv4prof.command_settings import AUDIT, SERVE
from dsv4prof.errors import InputError, UsageError
from dsv4prof.setting import ENV_PREFIX, Plain, Setting

if TYPE_CHECKING:
    from dsv4prof.recorder.plan import RecordPlan

# Variables with the prefix that are no settings: the recorder's hand-over between processes, and debugging.
INTERNAL_ENV = frozenset({"DSV4PROF_SESSION", "DSV4PROF_DEBUG", "DSV4PROF_CORE", "DSV4PROF_WATCH", "DSV4PROF_HAZARDS"})

_MOST_RANKS = 65_536
# A plan's own names for what the command line calls otherwise.
_ALIASES = {
    "active": "steps", "num_steps": "steps", "with_stack": "stack", "record_shapes": "shapes",
    "profile_memory": "memory", "with_flops": "flops", "with_modules": "modules",
}  # fmt: skip


def _table(*settings: Setting) -> dict[str, Setting]:
    return {setting.name: setting for setting in settings}


SETTINGS: dict[str, Setting] = _table(
    Setting(name="model", kind=str, default="dsv4-nano", help="Folder, or dsv4-nano[-fp4], dsv4-tiny"),
    Setting(name="device", kind=str, default="cpu", choices=("cpu", "cuda", "hip"), help="cpu, cuda or hip"),
    Setting(
        name="dtype",
        kind=str,
        default="float32",
        choices=("float32", "bfloat16"),
        help="Of the weights: float32 or bfloat16",
    ),
    Setting(name="tp", kind=int, default=2, minimum=1, help="Tensor-parallel ranks, a process each"),
    Setting(name="dp", kind=int, default=1, minimum=1, help="Attention-DP replicas, each of --tp ranks"),
    Setting(name="ep", kind=int, default=None, minimum=1, help="Blocks of experts; default: one a rank"),
    Setting(name="drafts", kind=int, default=3, minimum=0, help="MTP drafts a step; 0: no speculative decoding"),
    Setting(name="exact_num_tokens", kind=bool, default=False, help="Give output_size: the fix of sglang #29202"),
    Setting(name="backend", kind=str, default="reference", help="Attention backend"),
    Setting(name="page_size", kind=int, default=256, minimum=1, help="Tokens of a cache page"),
    Setting(name="cache_mb", kind=int, default=None, minimum=1, help="Caches, MiB; default: as needed"),
    Setting(name="radix", kind=bool, default=True, help="Keep prefixes for like requests"),
    Setting(name="mixed", kind=bool, default=False, help="Prefill steps decode as well"),
    Setting(name="overlap", kind=bool, default=None, help="Launch ahead of reading; default: on GPUs"),
    Setting(name="graphs", kind=bool, default=None, help="Capture phases; default: on GPUs"),
    Setting(name="draft_extend_graph", kind=bool, default=True, help="Capture draft-extend"),
    Setting(
        name="plan_on", kind=str, default="device", choices=("device", "host"), help="Where compress plans are made"
    ),
    Setting(name="faults", kind=str, default=None, metavar="A,B", help="Hazards on purpose: see docs/engine.md"),
    Setting(name="simulate_accept_len", kind=float, default=None, minimum=1, help="Mean tokens of a verify, forced"),
    Setting(name="requests", kind=int, default=8, minimum=1, help="Requests to serve; prompts repeat if fewer"),
    Setting(name="max_requests", kind=int, default=4, minimum=1, help="Requests running at the same time"),
    Setting(name="max_new_tokens", kind=int, default=48, minimum=1, help="Tokens to generate for each request"),
    Setting(name="chunk_tokens", kind=int, default=256, minimum=1, help="Most prompt tokens in one prefill step"),
    Setting(name="context_len", kind=int, default=None, minimum=2, help="Longest sequence; default: as needed"),
    Setting(
        name="prompts",
        kind=str,
        default=None,
        metavar="PATH",
        help="Prompts, between lines of ---; default: bundled",
    ),
    Setting(name="steps", kind=int, default=16, minimum=1, help="Steps to record in each rank"),
    Setting(name="wait", kind=int, default=None, minimum=0, help="Steps to pass first; default: to see every phase"),
    Setting(name="warmup", kind=int, default=0, minimum=0, help="Steps to trace silently before the window"),
    Setting(name="windows", kind=int, default=1, minimum=1, help="How often to wait, warm up and record"),
    Setting(
        name="stages",
        kind=str,
        default=None,
        metavar="A,B",
        help="A window for each stage, such as prefill,decode",
    ),
    Setting(name="ranks", kind=str, default="all", metavar="R,R", help="all, node (first of each) or numbers"),
    Setting(
        name="activities",
        kind=str,
        default="auto",
        metavar="A+B",
        help="cpu gpu mem nvtx cuda_profiler rpd rocprof",
    ),
    Setting(name="stack", kind=bool, default=True, help="Record Python stacks, to name functions"),
    Setting(name="shapes", kind=bool, default=False, help="Record operator shapes"),
    Setting(name="memory", kind=bool, default=False, help="Record allocations"),
    Setting(name="flops", kind=bool, default=False, help="Estimate FLOPs; switches shapes on"),
    Setting(name="modules", kind=bool, default=False, help="Name torch modules, where torch can"),
    Setting(name="size_limit_mb", kind=int, default=256, minimum=0, help="Growth that ends a window, MiB; 0: no limit"),
    Setting(name="time_limit_s", kind=float, default=0.0, minimum=0, help="Seconds that end a window; 0: no limit"),
    Setting(
        name="release",
        kind=str,
        default="collect",
        choices=("collect", "keep"),
        help="collect frees the profiler, or keep it",
    ),
    Setting(name="threads", kind=int, default=None, minimum=1, help="Torch threads of a rank; default: shared out"),
    Setting(name="port", kind=int, default=0, minimum=0, help="The ranks' port on 127.0.0.1; 0: a free one"),
    Setting(name="name", kind=str, default=None, help="Of the session's folder; default: the model's"),
    Setting(name="allow", kind=str, default=None, metavar="A;B", help="Intended syncs, as DSV106@FUNCTION=1: reason"),
    Setting(
        name="sessions_dir", kind=str, default="traces/local", metavar="PATH", help="Folder that holds the sessions"
    ),
    Setting(
        name="format",
        kind=str,
        default="text",
        choices=("text", "json", "concise", "jsonl", "sarif", "github", "markdown", "junit"),
        help="text, json, sarif, markdown or another",
    ),
    Setting(
        name="fail_on",
        kind=str,
        default="never",
        choices=("note", "warning", "error", "never"),
        help="Exit 1 from note, warning or error on",
    ),
    *AUDIT,
    *SERVE,
)
# Tables in [tool.dsv4prof] that hold the settings of one command, and the start of their names here.
_TABLES = {"audit": "audit_", "serve": "serve_"}
# Settings that name a file of the project.
_FILES = frozenset({"audit_baseline"})


@dataclass(frozen=True)
class Resolved:
    """A value and the place that decided it."""

    value: Plain
    source: str


@dataclass(frozen=True)
class Settings:
    """The resolved settings of one command."""

    values: dict[str, Resolved] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def with_sources(self) -> dict[str, list[Plain]]:
        """`{name: [value, source]}`, as a session's manifest keeps it."""
        return {name: [item.value, item.source] for name, item in self.values.items()}


def resolve(
    names: Iterable[str],
    cli: Mapping[str, object],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    defaults: Mapping[str, Plain] | None = None,
) -> Settings:
    """The settings `names`, from the strongest source that has each; `cli` values of None were not given. `defaults`
    are a command's own, where they differ.
    """
    environment = os.environ if env is None else env
    check_env(environment)
    project, table = load_project(Path.cwd() if cwd is None else cwd)
    values: dict[str, Resolved] = {}
    for name in names:
        setting = SETTINGS[name]
        if cli.get(name) is not None:
            values[name] = Resolved(setting.parse(cli[name], setting.flag), setting.flag)
        elif setting.env in environment:
            values[name] = Resolved(setting.parse(environment[setting.env], setting.env), setting.env)
        elif name in table:
            value = _placed(setting.parse(table[name], str(project)), name, project)
            values[name] = Resolved(value, _source(project, name))
        else:
            values[name] = Resolved((defaults or {}).get(name, setting.default), "default")
    return Settings(values)


def _placed(value: Plain, name: str, project: Path | None) -> Plain:
    """A file that pyproject.toml names lies beside it, from whatever folder it is asked for."""
    if name not in _FILES or project is None or not isinstance(value, str) or not value:
        return value
    return os.path.relpath(project.parent / value)


def _source(project: Path | None, name: str) -> str:
    """The file and the key in it, since that is what is to be changed."""
    start = next((each for each, start in _TABLES.items() if name.startswith(start)), "")
    if not start:
        return f"{project} [tool.dsv4prof]"
    return f"{project} [tool.dsv4prof.{start}] {name.removeprefix(_TABLES[start])}"


# The settings that make a plan, wherever one is made.
PLAN_NAMES = (
    "steps", "wait", "warmup", "windows", "stages", "ranks", "activities", "stack", "shapes", "memory", "flops",
    "modules", "size_limit_mb", "time_limit_s", "release",
)  # fmt: skip


def load_plan(cwd: Path | None = None, *, env: Mapping[str, str] | None = None) -> RecordPlan:
    """The plan that DSV4PROF_* variables and the nearest pyproject.toml's [tool.dsv4prof] ask for.

    Raises UsageError for a plan that is impossible, naming no source more than the settings do.
    """
    return plan_of(resolve(PLAN_NAMES, {}, env=env, cwd=cwd))


def plan_of(chosen: Settings) -> RecordPlan:
    """The plan of resolved settings. Raises UsageError for an impossible one."""
    from dsv4prof.recorder.plan import RecordPlan
    from dsv4prof.recorder.stages import parse_stages

    return RecordPlan(
        wait=chosen["wait"],
        warmup=chosen["warmup"],
        active=chosen["steps"],
        windows=chosen["windows"],
        stages=parse_stages(_words(chosen["stages"])),
        ranks=_ranks(chosen["ranks"]),
        activities=chosen["activities"],
        with_stack=chosen["stack"],
        record_shapes=chosen["shapes"],
        profile_memory=chosen["memory"],
        with_flops=chosen["flops"],
        with_modules=chosen["modules"],
        size_limit_mb=chosen["size_limit_mb"] or None,
        time_limit_s=chosen["time_limit_s"] or None,
        release=chosen["release"],
    )


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _ranks(text: str) -> Any:
    """`all`, `node`, or numbers and ranges of them: `0,2,4-7`."""
    if text in ("all", "node"):
        return text
    ranks: list[int] = []
    for word in _words(text):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"ranks = {text!r} is no list of ranks", hint="all, node, or numbers such as 0,2,4-7")
        if int(last or first) - int(first) > _MOST_RANKS:
            raise UsageError(f"ranks = {text!r} names too many ranks", hint=f"at most {_MOST_RANKS}")
        ranks += range(int(first), int(last or first) + 1)
    return tuple(ranks)


def check_env(environment: Mapping[str, str]) -> None:
    """Refuse a DSV4PROF_ variable that nobody reads."""
    known = {setting.env for setting in SETTINGS.values()} | INTERNAL_ENV
    for key in environment:
        if key.startswith(ENV_PREFIX) and key not in known:
            raise UsageError(f"unknown environment variable {key}", hint=_suggest(key, known))


def load_project(cwd: Path) -> tuple[Path | None, dict[str, Any]]:
    """The nearest pyproject.toml above `cwd` that has [tool.dsv4prof], and that table, keys checked."""
    for folder in (cwd, *cwd.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            table = _table_of(path, _read_toml(path).get("tool", {}), "tool").get("dsv4prof")
            if table is not None:
                return path, _checked(path, table)
    return None, {}


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="mend the file, or run from another folder") from error


def _table_of(path: Path, value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{path}: {name} is not a table", hint="mend the file, or run from another folder")
    return value


def _checked(path: Path, table: object) -> dict[str, Any]:
    known = _normalised(_table_of(path, table, "[tool.dsv4prof]"))
    for name, start in _TABLES.items():
        inner = _normalised(_table_of(path, known.pop(name, {}), f"[tool.dsv4prof.{name}]"))
        allowed = [key.removeprefix(start) for key in SETTINGS if key.startswith(start)]
        _check_keys(path, inner, allowed, f"[tool.dsv4prof.{name}]")
        known |= {start + key: value for key, value in inner.items()}
    _check_keys(path, known, SETTINGS, "[tool.dsv4prof]")
    return known


def _normalised(table: dict[str, Any]) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in table.items()}


def _check_keys(path: Path, table: dict[str, Any], known: Iterable[str], name: str) -> None:
    for key in table:
        if key not in known:
            raise UsageError(f"{path}: unknown key {key!r} in {name}", hint=_suggest(key, known))


def _suggest(word: str, known: Iterable[str]) -> str:
    if word in _ALIASES:
        return f"here it is called {_ALIASES[word]}"
    candidates = sorted(known)
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else "known: " + ", ".join(candidates)
