"""torch.profiler behind one owner: no schedule, no handler, no cycle left behind, and no silent failure.

A stopped `torch.profiler.profile` stays in a reference cycle (its action table holds bound methods of itself) together
with C++ results that Python's collector cannot see; a later, random collection then destroys them wherever it happens
to run, which crashed servers (sglang #29202). So `release` breaks the cycle by hand, and reports what has to be dead
afterwards; or it keeps all of it for good, where the destructor itself is what crashes.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from dsv4prof.errors import LifetimeError, OutputError
from dsv4prof.recorder.backends import Remains, forked_export
from dsv4prof.recorder.backends.device import DeviceWait, leave_out_sync
from dsv4prof.recorder.backends.fork import let_forks_exit
from dsv4prof.recorder.backends.guard import KinetoGuard, refuse_foreign
from dsv4prof.recorder.backends.kept import count_profiler, keep_forever
from dsv4prof.recorder.backends.loading import import_torch
from dsv4prof.recorder.backends.metadata import pasteable
from dsv4prof.recorder.backends.prepared import living_profilers_lock
from dsv4prof.recorder.backends.stepmark import StepMark
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.release import resident_bytes
from dsv4prof.recorder.repair import json_fault, repair_names

# Saving takes 0.38 to 0.47 of the stop's CPU time for 300,000 events, and more for few (torch 2.13 and 2.14, CPU).
_EXPORT_PER_STOP = 0.4


class KinetoBackend:
    """One torch.profiler session of the thread that calls it (recording is per thread).

    Once `stop` has returned, export and release may happen on any thread, also while the next one records.
    """

    writes_trace = True
    # What Kineto has recorded in this process already: later starts take half a millisecond. By process, for forks.
    _warm: ClassVar[tuple[int, frozenset[str]] | None] = None

    def __init__(
        self, plan: RecordPlan, *, metadata: dict[str, object] | None = None, wait: DeviceWait | None = None
    ) -> None:
        self.notes: list[str] = []
        self._plan = plan
        self._metadata = metadata or {}
        self._torch = import_torch()
        self._profiler: Any = None
        self._device: str | None = None
        self._wait = wait
        self._mark = StepMark(self._torch)
        self._running = False
        self._stop_s = 0.0
        self._guard = KinetoGuard(self._torch)

    def warm_up(self) -> None:
        """Kineto's first start in a process takes over a second, later ones half a millisecond.

        Raises LifetimeError for a foreign profiler, and in the fork of a process where Kineto has run: it would hang.
        """
        owner, known = KinetoBackend._warm or (os.getpid(), frozenset())
        if owner != os.getpid():
            raise LifetimeError(
                "this process was forked from one that has recorded, and torch's profiler does not survive a fork",
                hint="start the child with multiprocessing's spawn, or record in the child alone",
            )
        refuse_foreign(self._torch)
        # The first look at the memory imports psutil: 40 ms that a window would pay when it opens.
        resident_bytes()
        activities = self._activities()
        wanted = frozenset(map(str, activities))
        if wanted <= known:
            return
        throwaway = self._torch.profiler.profile(activities=activities)
        throwaway.start()
        self._end(throwaway)
        if self._plan.release == "keep":
            _keep(throwaway)
        else:
            _break_cycle(throwaway)
        if KinetoBackend._warm is None:
            let_forks_exit()
        KinetoBackend._warm = (os.getpid(), known | wanted)

    def prepare(self) -> None:
        refuse_foreign(self._torch)
        plan = self._plan
        profiler = self._torch.profiler.profile(
            activities=self._activities(),
            record_shapes=plan.record_shapes or plan.with_flops,
            profile_memory=plan.profile_memory,
            with_stack=plan.with_stack,
            with_flops=plan.with_flops,
            with_modules=plan.with_modules,
        )
        profiler.preset_metadata_json("dsv4prof_rank", pasteable(self._metadata))
        self._profiler = profiler
        profiler.prepare_trace()
        self._guard.close(profiler.profiler)

    def start(self) -> None:
        self._profiler.start_trace()
        self._running = True

    def mark(self, step: int | None) -> None:
        self._mark.move(step)

    def stop(self) -> None:
        assert self._running, "the manager stops what it started"
        self._mark.move(None)
        self._running = False
        try:
            if not self._torch.autograd._profiler_enabled():
                # To stop or export what is not ours any more crashes; the process's flag would refuse all later ones.
                self._torch.autograd.profiler._run_on_profiler_stop()
                raise LifetimeError(
                    "somebody else ended the recording: Kineto was switched off before its stop",
                    hint="leave torch's profilers alone while dsv4prof records",
                )
            began = time.thread_time()
            self._end(self._profiler)
            self._stop_s = time.thread_time() - began
        finally:
            self._guard.open()

    def export(self, path: Path) -> None:
        """Kineto's own file where it is good or can be mended, else torch's second exporter's (torch >= 2.13)."""
        if self._profiler is None:
            raise OutputError(f"nothing was recorded that could be written to {path.name}")
        fault = self._fault_of_kinetos(path)
        if fault is None or (path.parent.is_dir() and self._fault_of_pythons(path) is None):
            return
        raise _unusable(path, fault)

    def export_files(self, base: Path) -> dict[str, Path]:
        return {}

    def abandon(self) -> None:
        # Destroying C++ results in the child of a fork may wait for Kineto's threads, which only the parent has.
        keep_forever(self._mark.forget())
        if self._profiler is not None:
            _keep(self._profiler)
        self._profiler = None
        self._running = False

    def release(self, *, keep: bool = False) -> list[Remains]:
        if self._running:
            # Dropped while it runs, Kineto would stay on for the rest of the process.
            with suppress(LifetimeError, RuntimeError):
                self.stop()
        self._guard.open()
        with living_profilers_lock():
            # In a frame of its own, so that its last references go before the lock does.
            return self._drop(keep)

    def _drop(self, keep: bool) -> list[Remains]:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return []
        remains = [Remains("torch.profiler.profile", weakref.ref(profiler))]
        inner = getattr(profiler, "profiler", None)
        results = getattr(inner, "kineto_results", None)
        for label, owner in (("autograd profiler", inner), ("kineto results", results)):
            if owner is not None:
                remains.append(Remains(label, weakref.ref(owner)))
        # Without results there is no destructor to fear, and a profiler that never started looks like a foreign one.
        if keep and results is not None:
            _keep(profiler)
            count_profiler()
        else:
            _break_cycle(profiler)
        return remains

    def _end(self, profiler: Any) -> None:
        """Stop, with a wait for the device that has an end in place of torch's own."""
        if self._device is not None:
            wait = self._wait if self._wait is not None and self._device == "cuda" else None
            wait = wait or DeviceWait(self._torch, self._device)
            finished = wait.finished()
            if not finished:
                self.notes.append(wait.sentence)
            if not leave_out_sync(profiler.profiler) and not finished:
                self.notes.append("this torch's own wait for the GPU could not be left out: its stop may take long")
        profiler.stop_trace()

    def _fault_of_kinetos(self, path: Path) -> str | None:
        try:
            self._save(path)
            fault = json_fault(path)
            if fault is not None and path.exists() and path.stat().st_size and repair_names(path):
                fault = json_fault(path)
        except (RuntimeError, OSError) as error:
            return str(error)
        finally:
            _kinetos_part(path).unlink(missing_ok=True)
        return fault

    def _save(self, path: Path) -> None:
        """By Kineto, in a copy of this process where that spares the program a stall."""
        save = partial(self._profiler.export_chrome_trace, str(path))
        export_s = self._stop_s * _EXPORT_PER_STOP
        if forked_export.is_worth_it(export_s) and forked_export.is_safe(self._torch):
            fault = forked_export.save_in_fork(save, path, export_s)
            if fault is None:
                return
            self.notes.append(f"saving the trace held the program up: a copy of it was to do that, but {fault}")
            _kinetos_part(path).unlink(missing_ok=True)
        save()

    def _fault_of_pythons(self, path: Path) -> str | None:
        """torch >= 2.13 has a second exporter, slower, that escapes names; Kineto's own cannot save twice."""
        try:
            self._profiler.export_chrome_trace(str(path), use_python_export=True)
            return json_fault(path)
        except (TypeError, ValueError, RuntimeError, OSError) as error:
            return str(error)

    def _activities(self) -> list[Any]:
        """torch's activities for the plan's words, and `_device` as torch names its module."""
        torch = self._torch
        words = set(self._plan.sources)
        cpu = torch.profiler.ProfilerActivity.CPU
        supported = sorted(torch.profiler.supported_activities(), key=str)
        gpu = [each for each in supported if each != cpu and _device_present(torch, each)]
        if "gpu" in words and not gpu:
            raise LifetimeError(
                "there is no accelerator here that torch can trace", hint="record with activities='auto' or 'cpu'"
            )
        if words.isdisjoint({"auto", "gpu"}):
            gpu = []
        self._device = _module_name(gpu[0]) if gpu else None
        return [*([] if words.isdisjoint({"auto", "cpu"}) else [cpu]), *gpu]


def _kinetos_part(path: Path) -> Path:
    """Kineto writes beside the file first, and leaves that behind when it fails."""
    return path.with_name(path.name + ".tmp")


def _unusable(path: Path, fault: str) -> OutputError:
    if not path.exists():
        return OutputError(
            "torch wrote no trace: is the folder gone or the disk full?", hint=f"it was to be written in {path.parent}"
        )
    if path.stat().st_size == 0:
        return OutputError("torch wrote an empty trace: is the disk full?", hint=f"it was written in {path.parent}")
    return OutputError(
        f"torch wrote a trace that is no JSON: {fault}",
        hint="a disk that is full, or a quote or control character in an annotation's name",
    )


def _module_name(activity: Any) -> str:
    return str(activity).rsplit(".", 1)[-1].lower()


def _device_present(torch: Any, activity: Any) -> bool:
    """`supported_activities` says what torch was built for, not what is plugged in."""
    available = getattr(getattr(torch, _module_name(activity), None), "is_available", None)
    return bool(available()) if available is not None else False


def _keep(profiler: Any) -> None:
    """Nobody destroys it or its results any more, whatever is cleared around them."""
    inner = getattr(profiler, "profiler", None)
    keep_forever(profiler, inner, getattr(inner, "kineto_results", None))


def _break_cycle(profiler: Any) -> None:
    """The attributes that tie a profiler to itself and to its results; which exist depends on the torch version."""
    if hasattr(profiler, "profiler"):
        profiler.profiler = None
    actions = getattr(profiler, "action_map", None)
    if actions is not None:
        actions.clear()
    for name in ("on_trace_ready", "schedule", "step_rec_fn"):
        if hasattr(profiler, name):
            setattr(profiler, name, None)
