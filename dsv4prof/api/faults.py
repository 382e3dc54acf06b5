"""What plain torch.profiler does here when it is used slightly wrong, whether dsv4prof survives the same, and which
release this machine bears. Everything is tried in child processes.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.diagnosis import PROBE_TIMEOUT_S, TorchFacts, installed, probe_torch
from dsv4prof.api.words import plural
from dsv4prof.errors import LifetimeError, MissingExtraError
from dsv4prof.model.report import Check, Column, Metric, Provenance, Report, Section, Verdict
from dsv4prof.recorder.environment import Advice
from dsv4prof.recorder.faults import FaultResult, run_faults
from dsv4prof.recorder.faults.trial import ReleaseTrial, StartCosts, measure_starts, try_releases

Progress = Callable[[str], None]
# A server records more than once and replays graphs: that is what advice is for. Asked of a child, as torch is.
_ASK_ADVICE = """
import msgspec
from dsv4prof.recorder.environment import advise_here
print(msgspec.json.encode(advise_here(cuda_graphs=True, sessions_planned=2)).decode())
"""


def profiler_doctor(progress: Progress = lambda line: None) -> Report:
    """Run the fault list, the release trial and the advice for this machine; takes a minute or two.

    The verdict is 1 when dsv4prof does not survive a fault, or no release does. Raises MissingExtraError without torch,
    LifetimeError where it does not import.
    """
    if installed("torch") is None:
        raise MissingExtraError("torch", "engine", purpose="trying its profiler")
    facts, problem = probe_torch()
    if facts is None:
        raise LifetimeError(problem or "torch gave no facts", hint="mend the installation of torch first")
    faults = run_faults(progress=progress)
    progress("trying the release of a stopped profiler")
    release = try_releases()
    progress("measuring the first start")
    return fault_report(facts, faults, release, measure_starts(), _advice())


def fault_report(
    facts: TorchFacts,
    faults: Sequence[FaultResult],
    release: ReleaseTrial,
    starts: StartCosts,
    advice: Sequence[Advice],
) -> Report:
    """The report of what was tried."""
    lost = [fault for fault in faults if not fault.survived]
    checks = [_survival_check(faults, lost), _release_check(release)]
    failed = [check for check in checks if check.ok is False]
    present = sum(not fault.plain.survived for fault in faults)
    summary = f"plain torch shows {present} of {plural(len(faults), 'fault')}, dsv4prof survives all"
    return Report(
        kind="doctor",
        provenance=Provenance(
            command="doctor",
            versions={"dsv4prof": __version__, "python": platform.python_version(), "torch": facts.torch},
        ),
        checks=checks,
        sections=[_table(facts, faults)],
        metrics=_start_metrics(starts),
        notes=[f"{item.message}: {item.hint}" for item in advice],
        verdict=Verdict(exit_code=1 if failed else 0, summary=failed[0].message if failed else summary),
        next_command=_next(release),
        data={
            "torch": msgspec.to_builtins(facts),
            "faults": [{**msgspec.to_builtins(fault), "survived": fault.survived} for fault in faults],
            "release": msgspec.to_builtins(release),
            "first_start": msgspec.to_builtins(starts),
            "advice": msgspec.to_builtins(list(advice)),
        },
    )


def _survival_check(faults: Sequence[FaultResult], lost: Sequence[FaultResult]) -> Check:
    present = sum(not fault.plain.survived for fault in faults)
    if not lost:
        message = f"dsv4prof survives all {len(faults)} faults, of which plain torch shows {present} here"
        return Check(key="faults", ok=True, message=message)
    named = "; ".join(f"{fault.sentence}: {fault.ours.verdict}" for fault in lost)
    return Check(key="faults", ok=False, message=f"dsv4prof does not survive {len(lost)} of {len(faults)} ({named})")


def _release_check(release: ReleaseTrial) -> Check:
    tried = {attempt.way: attempt.verdict for attempt in release.attempts}
    if release.recommended == "collect":
        message = "a stopped profiler can be destroyed here: release=collect, the default"
        return Check(key="release", ok=True, message=message)
    words = "; ".join(f"{way}: {verdict}" for way, verdict in tried.items())
    if release.recommended is None:
        return Check(key="release", ok=False, message=f"no release of a stopped profiler survives here ({words})")
    message = (
        f"destroying a stopped profiler ends the process here ({words}): keep it, with --release {release.recommended} "
        f'or release = "{release.recommended}" under [tool.dsv4prof] in pyproject.toml'
    )
    return Check(key="release", ok=True, message=message)


def _table(facts: TorchFacts, faults: Sequence[FaultResult]) -> Section:
    rows: list[dict[str, Any]] = [
        {"fault": fault.sentence, "plain": fault.plain.verdict, "ours": fault.ours.verdict} for fault in faults
    ]
    columns = [
        Column("fault", "fault"),
        Column("plain", f"plain torch {facts.torch}"),
        Column("ours", "the same through dsv4prof"),
    ]
    return Section(key="faults", title="Faults of torch.profiler", columns=columns, rows=rows)


def _start_metrics(starts: StartCosts) -> list[Metric]:
    """A cost and no fault. Seconds as nanoseconds, like every time of a report."""
    plain, ours = starts.plain, starts.ours
    found = (
        ("first_start.plain", "first start in a process, plain torch:", plain.first_s if plain else None),
        ("first_start.plain_later", "a later start, plain torch:", plain.later_s if plain else None),
        ("first_start.ours", "opening of the first window, dsv4prof:", ours.first_s if ours else None),
    )
    return [
        Metric(key, title, None, "ns", "the attempt failed")
        if value is None
        else Metric(key, title, round(value * 1e9), "ns")
        for key, title, value in found
    ]


def _next(release: ReleaseTrial) -> str:
    return "dsv4prof run --profile" + (" --release keep" if release.recommended == "keep" else "")


def _advice() -> list[Advice]:
    """Empty where the child fails: what is wrong with torch, the list has shown."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _ASK_ADVICE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
        )
        return msgspec.json.decode(child.stdout.strip().splitlines()[-1], type=list[Advice])
    except (subprocess.SubprocessError, IndexError, msgspec.DecodeError):
        return []
