"""`audit run -- CMD`: a command under watch, in all Python processes that it starts, and what they waited for."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from dsv4prof.api.audit_watch_sections import facts, findings_of, metrics_of, notes_of, processes, sections_of
from dsv4prof.api.fault_record import fault_session
from dsv4prof.api.outputs import require_writable
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import OutputError, UsageError
from dsv4prof.faultrecord.layout import SUFFIX
from dsv4prof.model.finding import Finding
from dsv4prof.model.report import Check, Provenance, Report, Verdict
from dsv4prof.model.syncs import Direction, Kind, Layer
from dsv4prof.sync.exercised import encode_ran
from dsv4prof.sync.run_sources import with_sources
from dsv4prof.sync.runtime.hazards.watch import KEEP_ENV
from dsv4prof.sync.runtime.watch import orders
from dsv4prof.sync.runtime.watch.choice import ON_A_GPU, known_layers
from dsv4prof.sync.runtime.watch.orders import Orders
from dsv4prof.sync.runtime.watch.policy import disallowing
from dsv4prof.sync.runtime.watch.ran_log import Folder, read_folder
from dsv4prof.sync.runtime.watch.sites import Site, ran_of, sites_of

__all__ = ["ON_A_GPU", "Ending", "WatchRequest", "audit_run"]

INTERRUPTED = 130
_SIGNALLED = 128
_WAITING = frozenset(kind.value for kind in Kind if kind.waits)


class WatchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is watched; as SyncWatch. no_gpu: on shadow tensors, even where there is a GPU.

    regions are `module:function`. exercised: files and folders whose functions are noted when they run. export: where
    to write what the run proved. own_stdout: the command's standard output is ours; else it goes to standard error,
    so that a machine can read the report. sessions_dir holds the logs.
    """

    no_gpu: bool = False
    vendor: Literal["cuda", "hip"] = "cuda"
    layers: tuple[Layer, ...] | None = None
    max_syncs: int | None = None
    warmup: int = 0
    disallow: tuple[Direction, ...] = ()
    regions: tuple[str, ...] = ()
    hazards: bool = False
    exercised: tuple[str, ...] = ()
    export: Path | None = None
    fault_watch: bool = False
    fail_on: str = "never"
    own_stdout: bool = True
    sessions_dir: Path = Path("traces/local")


class Ending(msgspec.Struct, frozen=True):
    """How the command ended: its exit status as a shell counts it, and whether somebody pressed Ctrl-C."""

    status: int
    interrupted: bool = False


Run = Callable[[Sequence[str], Mapping[str, str], bool], Ending]


def audit_run(command: Sequence[str], request: WatchRequest, *, run: Run | None = None) -> Report:
    """Run a command to its end under watch, and report.

    The exit status is the command's; of one that ends with 0 it is 1 when a bound is broken or a finding is at or over
    `fail_on`, and 2 when nothing could be watched. Raises UsageError for a request that makes no sense or a command
    that is not there, OutputError where the logs or the export cannot be written; the command is not started then.
    """
    checked(command, request)
    folder = _folder(request.sessions_dir)
    told = Orders(
        folder=str(folder.resolve()),
        root=orders.root(),
        gpu=False if request.no_gpu else None,
        vendor=request.vendor,
        layers=None if request.layers is None else list(request.layers),
        max_syncs=request.max_syncs,
        warmup=request.warmup,
        disallow=list(request.disallow),
        regions=list(request.regions),
        hazards=request.hazards,
        fault_watch=request.fault_watch,
        entered=[str(Path(path).resolve()) for path in request.exercised],
    )
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        environment = orders.give(told, os.environ)
    except OSError as error:
        raise OutputError(
            f"the logs cannot be written to {folder}: {error.strerror}", hint="name another with --sessions-dir"
        ) from error
    ending = (run or run_command)(command, environment, request.own_stdout)
    seen = read_folder(folder)
    if request.export is not None:
        ran = ran_of(seen, run=folder.name, command=shlex.join(command), created=created)
        _write(request.export, encode_ran(with_sources(ran)))
    report = report_of(command, request, seen, ending, folder)
    return _with_fault(report, folder) if request.fault_watch and _fell(ending) else report


def _fell(ending: Ending) -> bool:
    return ending.status != 0 and not ending.interrupted


def _with_fault(report: Report, folder: Path) -> Report:
    """The report of a command that ended badly, with what its fault records tell in front."""
    if not any(folder.glob(f"*{SUFFIX}")):
        return msgspec.structs.replace(report, notes=[*report.notes, "no process kept a fault record"])
    fault = fault_session(folder)
    return msgspec.structs.replace(
        report,
        findings=[*fault.findings, *report.findings],
        sections=[*fault.sections, *report.sections],
        notes=[
            *fault.notes,
            f"with what the program printed: dsv4prof fault show {folder} --log FILE",
            *report.notes,
        ],
        data={**report.data, "fault": fault.data},
    )


def checked(command: Sequence[str], request: WatchRequest) -> None:
    """What can be refused before anything starts. Raises UsageError, OutputError."""
    if not command:
        raise UsageError("there is no command to watch", hint="dsv4prof audit run -- python script.py")
    if shutil.which(command[0]) is None:
        raise UsageError(f"there is no command {command[0]!r}", hint="name a program, such as python or pytest")
    disallowing(request.disallow)
    known_layers(request.layers or ())
    if request.no_gpu and request.layers not in (None, ("shadow",)):
        raise UsageError("--no-gpu watches on shadow tensors, which have no layers", hint="leave one of them out")
    for name in request.regions:
        if not all(name.partition(":")):
            raise UsageError(f"--region {name!r} is not MODULE:FUNCTION", hint="for example my.backend:build_metadata")
    for path in request.exercised:
        if not Path(path).exists():
            raise UsageError(f"--exercised: there is no {path}", hint="name files or folders of the program")
    verdict([], request.fail_on)
    if request.export is not None:
        require_writable(request.export, option="--export")


def _folder(root: Path) -> Path:
    """A folder of its own for the logs; no session, for nothing was recorded."""
    name = f"audit-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
    try:
        (root / name).mkdir(parents=True)
    except OSError as error:
        raise OutputError(
            f"the logs cannot be written below {root}: {error.strerror}", hint="name another with --sessions-dir"
        ) from error
    return root / name


def run_command(command: Sequence[str], environment: Mapping[str, str], own_stdout: bool) -> Ending:
    """Run it with our streams. A Ctrl-C reaches it from the terminal as it reaches us: it decides how it ends, and a
    second one ends it.
    """
    try:
        process = subprocess.Popen(list(command), env=dict(environment), stdout=None if own_stdout else 2)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error.strerror}", hint="is it a program?") from error
    interrupted = False
    while True:
        try:
            status = process.wait()
            break
        except KeyboardInterrupt:
            if interrupted:
                process.kill()
            else:
                # One that came to us alone, not from a terminal.
                process.send_signal(signal.SIGINT)
            interrupted = True
    return Ending(status if status >= 0 else _SIGNALLED - status, interrupted)


def report_of(command: Sequence[str], request: WatchRequest, seen: Folder, ending: Ending, folder: Path) -> Report:
    """What the processes wrote, as a report."""
    sites = sites_of(seen)
    findings = findings_of(sites, seen)
    violations = [text for log in seen.logs if log.total is not None for text in log.total.violations]
    decided = _decided(findings, request, ending, violations, seen, sites)
    return Report(
        kind="audit-run",
        provenance=Provenance(
            command=f"audit run -- {shlex.join(command)}",
            inputs=[str(folder)],
            versions={"torch": seen.logs[0].head.torch} if seen.logs else {},
        ),
        checks=_checks(request, ending, violations, seen),
        sections=sections_of(seen, sites),
        metrics=metrics_of(seen),
        findings=findings,
        notes=[*notes_of(seen), *_quiet(request, findings, seen)],
        verdict=decided,
        next_command=_next(command, request, sites),
        data=facts(seen, sites, status=ending.status, folder=folder),
    )


def _checks(request: WatchRequest, ending: Ending, violations: Sequence[str], seen: Folder) -> list[Check]:
    checks = []
    if ending.status and not ending.interrupted:
        checks.append(Check("command", False, f"the command ended with {ending.status}"))
    if not seen.logs:
        checks.append(Check("watched", False, _unwatched(seen)))
    elif request.max_syncs is not None or request.disallow:
        checks.append(Check("bounds", not violations, _broken(violations)))
    return checks


def _broken(violations: Sequence[str]) -> str:
    if not violations:
        return "every bound was kept"
    return violations[0] + (f" (and {len(violations) - 1:,} more)" if len(violations) > 1 else "")


def _unwatched(seen: Folder) -> str:
    if seen.problems:
        return seen.problems[0]
    if not seen.started:
        return "no Python process could be watched: the command started none, or one that ignores PYTHONPATH"
    return f"nothing with torch ran: {processes(seen.started)} started and none imported it"


def _quiet(request: WatchRequest, findings: Sequence[Finding], seen: Folder) -> list[str]:
    """That hazards were looked for and none appeared, which is no word on a run with fewer waits."""
    if not request.hazards or not seen.logs or any(finding.code.startswith("DSV2") for finding in findings):
        return []
    return [
        "no hazard in this run; its waits may hide one: dsv4prof hazards explain FILE:FUNCTION, of a caller of them all"
    ]


def _decided(
    findings: list[Finding],
    request: WatchRequest,
    ending: Ending,
    violations: Sequence[str],
    seen: Folder,
    sites: Sequence[Site],
) -> Verdict:
    judged = verdict(findings, request.fail_on)
    waits = sum(site.times for site in sites if site.event.kind.waits and not site.event.allowed_by)
    summary = f"{plural(waits, 'wait')} at {plural(_waiting(findings), 'place')}"
    hazards = sum(finding.code.startswith("DSV2") for finding in findings)
    if request.hazards:
        summary += f", {plural(hazards, 'hazard')}"
    if ending.interrupted:
        return Verdict(INTERRUPTED, f"interrupted; until then {summary}")
    if ending.status:
        return Verdict(ending.status, f"the command ended with {ending.status}; {summary}")
    if not seen.logs:
        return Verdict(0 if seen.started and not seen.problems else 2, _unwatched(seen))
    return Verdict(1 if violations or judged.exit_code else 0, summary)


def _waiting(findings: Sequence[Finding]) -> int:
    return sum(finding.evidence.get("kind") in _WAITING for finding in findings)


def _next(command: Sequence[str], request: WatchRequest, sites: Sequence[Site]) -> str | None:
    """What a wait protects can be told of a run that was kept: the command that keeps it, or the question to it."""
    place = next((site.frame for site in sites if site.frame is not None and site.event.kind.waits), None)
    if place is None:
        return None
    kept = os.environ.get(KEEP_ENV)
    if kept and Path(kept).is_file():
        where = f"{os.path.relpath(place.file)}:{place.line}"
        return f"dsv4prof hazards explain {where} --ran {shlex.quote(os.path.relpath(kept))}"
    shadows = "--no-gpu " if request.no_gpu else ""
    return f"dsv4prof hazards {shadows}-o run.hazards.json.gz -- {shlex.join(command)}"


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"--export: {path} cannot be written: {error.strerror}", hint="name another file") from error
