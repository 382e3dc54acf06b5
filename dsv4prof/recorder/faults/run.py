"""Runs the list, one half at a time and each with a limit on its time, and judges what each left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from dsv4prof.errors import LifetimeError
from dsv4prof.recorder.faults import groups
from dsv4prof.recorder.faults.fault import Fault
from dsv4prof.recorder.faults.judge import Ended, HalfResult, judge, last_words
from dsv4prof.recorder.faults.nursery import SERVE, Answer, Job
from dsv4prof.recorder.faults.table import FAULTS

Progress = Callable[[str], None]
# Where this package is found: its children work in other folders.
_HOME = str(Path(__file__).resolve().parents[3])
_MODULE = ("-m", "dsv4prof.recorder.faults")
# A rank's or a launcher's variables would make the children its ranks.
_NOT_INHERITED = ("DSV4PROF_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_")


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    sentence: str
    plain: HalfResult
    ours: HalfResult

    @property
    def survived(self) -> bool:
        return self.ours.survived


def run_faults(
    faults: Sequence[Fault] = FAULTS, *, python: str = sys.executable, progress: Progress = lambda line: None
) -> list[FaultResult]:
    """Try `faults` on the torch of the interpreter `python`: half a minute, a third of it in hangs of plain torch.

    Nothing that a half does reaches this process, and everything that they leave behind is removed. Raises
    LifetimeError when torch or dsv4prof cannot be loaded there.
    """
    results = []
    with tempfile.TemporaryDirectory(prefix="dsv4prof-faults-") as scratch, Nursery(Path(scratch), python) as nursery:
        for fault in faults:
            plain, ours = (
                judge(fault, *nursery.run(fault.name, half, patience), ours=half == "ours")
                for half, patience in (("plain", fault.plain_patience_s), ("ours", fault.patience_s))
            )
            results.append(FaultResult(name=fault.name, sentence=fault.sentence, plain=plain, ours=ours))
            progress(f"{fault.sentence}: {plain.verdict}; with dsv4prof: {ours.verdict}")
    return results


class Nursery:
    """The process that has loaded torch, and forks a half whenever it is asked for one."""

    def __init__(self, scratch: Path, python: str = sys.executable) -> None:
        self._scratch = scratch
        self._errors = scratch / "nursery-stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, *_MODULE, SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=scratch,
                env=environment(os.environ),
                start_new_session=True,
            )

    def run(self, name: str, half: str, patience_s: float) -> tuple[Ended, Path]:
        """How a half ended, and the folder with what it left."""
        folder, temporary, errors = (self._scratch / name / f"{half}{suffix}" for suffix in ("", "-tmp", "-stderr"))
        folder.mkdir(parents=True)
        temporary.mkdir()
        answer = self._ask(Job(name, half, str(folder), str(temporary), str(errors), patience_s))
        return Ended(answer.status, answer.seconds, errors.read_text(errors="replace")), folder

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        """It ends, with the half that it waits for, when nobody can ask it any more."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, job: Job) -> Answer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with suppress(BrokenPipeError):
            stdin.write(msgspec.json.encode(job) + b"\n")
            stdin.flush()
        line = stdout.readline()
        if not line:
            words = last_words(self._errors.read_text(errors="replace"))
            raise LifetimeError(
                f"no fault can be tried, because loading torch and dsv4prof failed: {words or 'without a message'}",
                hint="python -c 'import torch, torch.profiler' has to work",
            )
        return msgspec.json.decode(line, type=Answer)


def run_fresh(name: str, half: str, folder: Path, patience_s: float, *, python: str = sys.executable) -> Ended:
    """Run a program in a process that loads everything itself: for what a fork would change, and for its cost."""
    folder.mkdir(parents=True)
    errors = folder.with_name(folder.name + "-stderr")
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            [python, *_MODULE, name, half, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            cwd=folder,
            env=environment(os.environ),
            start_new_session=True,
        )
    status, seconds = groups.await_end(process.pid, patience_s)
    # It has been waited for already; without this the object would look for it again.
    process.returncode = -1 if status is None else status
    return Ended(status, seconds, errors.read_text(errors="replace"))


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """This process's, without what would make a rank of the child, and with this package to be found first."""
    kept = {key: value for key, value in inherited.items() if not key.startswith(_NOT_INHERITED)}
    path = os.pathsep.join(part for part in (_HOME, inherited.get("PYTHONPATH", "")) if part)
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
