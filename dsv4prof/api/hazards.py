"""What syncs protect: the engine run under a watch for hazards, and a recorded run judged again without one sync."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.api.hazard_sections import explanation_sections, hazard_section
from dsv4prof.api.hazard_source import source_notes
from dsv4prof.api.verdicts import verdict
from dsv4prof.api.words import plural
from dsv4prof.errors import InterruptedRunError, OutputError, RankFailedError, UsageError
from dsv4prof.model.report import Check, Metric, Provenance, Report, Verdict
from dsv4prof.sync.runtime.hazards.explain import Explanation, explain
from dsv4prof.sync.runtime.hazards.findings import findings_of
from dsv4prof.sync.runtime.hazards.locating import Located, located, waits_in_file
from dsv4prof.sync.runtime.hazards.log import Log, load
from dsv4prof.sync.runtime.hazards.replay import Place
from dsv4prof.sync.runtime.hazards.sites import DEEPEST
from dsv4prof.target.hazard_run import REFUSED, HazardSpec

Progress = Callable[[str], None]
_UNSAFE = ("protects", "size would be padded")
_TAIL_LINES = 12


def hazards(
    spec: HazardSpec, *, output: Path | None = None, fail_on: str = "warning", progress: Progress = lambda event: None
) -> Report:
    """Run the engine's workload and report its hazards; `output` keeps the run for `hazards_explain`.

    Exit status by `fail_on`. Raises UsageError for what the engine cannot do, OutputError where `output` cannot be
    written, RankFailedError where the process ended without a word, InterruptedRunError for Ctrl-C.
    """
    log = run_watched(spec, output=output, progress=progress)
    return hazards_report(log, fail_on=fail_on, output=output)


def hazards_of_run(ran: Path, *, fail_on: str = "warning") -> Report:
    """The same report of a run that was kept. Raises InputError."""
    return hazards_report(load(ran), fail_on=fail_on, output=ran)


def hazards_explain(
    location: str,
    *,
    ran: Path | None = None,
    spec: HazardSpec | None = None,
    output: Path | None = None,
    progress: Progress = lambda event: None,
) -> Report:
    """Whether the syncs of FILE:LINE or FILE:FUNCTION may go, by the run of `ran`, or else by one of `spec` made now.

    Exit status 0: it is an answer, not a judgement of the program. Raises UsageError for what names no place, and as
    `hazards` and `hazards_of_run`.
    """
    place = Place.parse(location)
    if ran is not None:
        log = load(ran)
    elif spec is not None:
        log = run_watched(spec, output=output, progress=progress)
    else:
        raise UsageError("there is no run to judge", hint="--ran FILE, or options of a run")
    spot = located(place, log)
    return _explained(explain(log, spot.place), log, spot, ran=ran)


def run_watched(spec: HazardSpec, *, output: Path | None, progress: Progress) -> Log:
    """The engine in a process of its own: a fault may end it, and this process stays without torch."""
    from dsv4prof.target.engine import check

    check(spec.run)
    if output is not None:
        _check_target(output)
    progress(f"watching {spec.run.model}" + ("" if spec.gpu else " on shadow tensors where no GPU is used"))
    with tempfile.TemporaryDirectory(prefix="dsv4prof-hazards-") as scratch:
        asked, out = Path(scratch) / "spec.json", output or Path(scratch) / "run.hazards.json.gz"
        asked.write_bytes(msgspec.json.encode(spec))
        command = [sys.executable, "-m", "dsv4prof.target.hazard_run", str(asked), str(out)]
        before = out.stat().st_mtime_ns if out.exists() else None
        child = _finished(command)
        if not out.exists() or out.stat().st_mtime_ns == before:
            raise _lost(child)
        return load(out)


def _finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            "interrupted; what was watched is lost", hint="give --steps to end it early"
        ) from None


def _lost(child: subprocess.CompletedProcess[str]) -> RankFailedError | UsageError:
    lines = [line for line in (child.stderr or "").splitlines() if line.strip()][-_TAIL_LINES:]
    last = lines[-1] if lines else "nothing was said"
    if child.returncode == REFUSED and last.startswith("{"):
        return UsageError(**json.loads(last))
    ended = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
    return RankFailedError(
        f"the watched engine ended with {ended} before it could say what it saw: {last}",
        hint="dsv4prof run --fault-watch names the kernel; --no-gpu watches the same run without a device",
    )


def _check_target(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise OutputError(f"cannot write {path}: {folder} is no folder that takes files", hint="name another file")


def hazards_report(log: Log, *, fail_on: str, output: Path | None) -> Report:
    found = findings_of(log.found)
    return Report(
        kind="hazards",
        provenance=Provenance(command="hazards", versions={"dsv4prof": __version__}),
        checks=_checks(log),
        sections=[hazard_section(log.found)] if log.found else [],
        metrics=[Metric("steps", "steps watched", log.steps)],
        findings=found,
        notes=_notes(log),
        verdict=verdict(found, fail_on),
        next_command=_next(log, output),
        data={"watched_on": _where(log), "hazards": msgspec.to_builtins(log.found), "ended": log.ended},
    )


def _checks(log: Log) -> list[Check]:
    if log.ended:
        return [Check("run", False, f"the engine failed, and was watched until then: {log.ended}")]
    return [Check("run", True, f"{plural(log.steps, 'step')} on {_where(log)}, to their end")]


def _notes(log: Log) -> list[str]:
    notes = []
    if not log.gpu:
        notes.append("no device was used: order and memory are as on one, timing is not needed")
    if log.lost:
        notes.append(f"the first {plural(log.lost, 'event')} are no longer in the log; what they showed was judged")
    if log.unheard:
        notes.append(f"{plural(log.unheard, 'sum')} of the device never arrived, so those sizes were not compared")
    return notes


def _where(log: Log) -> str:
    return "a GPU" if log.gpu else "shadow tensors"


def _next(log: Log, output: Path | None) -> str:
    kept = f" --ran {output}" if output else ""
    if log.found:
        return f"dsv4prof rule {log.found[0].code}"
    return f"dsv4prof hazards explain FILE:LINE{kept}"


def _elsewhere(found: Explanation, log: Log, place: Place) -> list[str]:
    """Of a place where nobody waited: where the host did wait in that file, and what the run cannot say."""
    if found.waits:
        return []
    near = waits_in_file(log, place)
    lines = [f"in {place.file} the host waited at {', '.join(near)}"] if near else []
    if found.answer == "not exercised" and any(len(stack) >= DEEPEST for stack in log.sites):
        lines.append(f"stacks are kept {DEEPEST} calls deep, and some were deeper: it may lie further out")
    return lines


def _alone(found: Explanation) -> list[str]:
    """Two waits may each be enough to order the same memory: then neither alone protects it, and both together do."""
    if not found.waits or found.protects:
        return []
    return ["judged alone, every other wait in place: FILE:FUNCTION of a caller judges all that wait below it together"]


def _explained(found: Explanation, log: Log, spot: Located, *, ran: Path | None) -> Report:
    notes = source_notes(spot)
    findings = findings_of(found.protects)
    exercised = "not exercised" if found.answer == "not exercised" else "exercised"
    steps = f": {plural(log.steps, 'step')}" if log.steps else ","
    run = f"{exercised} in {ran or 'this run'}{steps} on {_where(log)}"
    return Report(
        kind="hazards-explain",
        provenance=Provenance(
            command="hazards explain",
            inputs=[found.place, *([str(ran)] if ran else [])],
            versions={"dsv4prof": __version__},
        ),
        checks=[Check("place", False if found.answer in _UNSAFE else None, found.sentence)],
        sections=explanation_sections(found, notes),
        findings=findings,
        notes=[run, *spot.notes, *_elsewhere(found, log, spot.place), *_alone(found), *notes.lines, *_notes(log)],
        verdict=Verdict(0, f"{found.place}: {found.sentence}"),
        next_command=f"dsv4prof rule {findings[0].code}" if findings else None,
        data={
            "place": found.place,
            "answer": found.answer,
            "safe_to_remove": False if found.answer in _UNSAFE else None,
            "exercised": found.answer != "not exercised",
            "instead": found.instead,
            "waits": msgspec.to_builtins(found.waits),
            "protects": msgspec.to_builtins(found.protects),
            "own": msgspec.to_builtins(found.own),
            "exact_totals": msgspec.to_builtins(found.exact),
            "padded_totals": msgspec.to_builtins(found.padded),
            "source": notes.facts,
        },
    )
