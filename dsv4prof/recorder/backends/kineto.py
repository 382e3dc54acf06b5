"""torch.profiler behind one owner: no schedule, no handler, no cycle left behind, and no silent failure.

A stopped `torch.profiler.profile` stays in a reference cycle (its action table holds bound methods of itself) together
with C++ results that Python's collector cannot see; a later, random collection then destroys them wherever it happens
to run, which crashed servers (sglang #29202). So `release` breaks the cycle by hand, and reports what has to be dead
afterwards.
"""

from __future__ import annotations

import json
import os
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from dsv4prof.errors import LifetimeError, MissingExtraError, OutputError
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.fork import let_forks_exit
from dsv4prof.recorder.backends.guard import KinetoGuard, refuse_foreign
from dsv4prof.recorder.marks import step_name
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.repair import json_fault, repair_names


def import_torch() -> Any:
    """torch, or one sentence that says what to install."""
    try:
        import torch
        import torch.profiler
    except ImportError as error:
        raise MissingExtraError("torch", "engine", purpose="recording") from error
    return torch


class KinetoBackend:
    """One torch.profiler session of the thread that calls it (recording is per thread)."""

    _warm_in: ClassVar[int | None] = None
    _abandoned: ClassVar[list[Any]] = []

    def __init__(self, plan: RecordPlan, *, metadata: dict[str, object] | None = None) -> None:
        self._plan = plan
        self._metadata = metadata or {}
        self._torch = import_torch()
        self._profiler: Any = None
        self._mark: Any = None
        self._running = False
        self._guard = KinetoGuard(self._torch)

    def warm_up(self) -> None:
        """Kineto's first start in a process takes over a second, later ones half a millisecond.

        Raises LifetimeError for a foreign profiler, and in the fork of a process where Kineto has run: it would hang.
        """
        if KinetoBackend._warm_in not in (None, os.getpid()):
            raise LifetimeError(
                "this process was forked from one that has recorded, and torch's profiler does not survive a fork",
                hint="start the child with multiprocessing's spawn, or record in the child alone",
            )
        refuse_foreign(self._torch)
        if KinetoBackend._warm_in is not None:
            return
        throwaway = self._torch.profiler.profile(activities=self._activities())
        throwaway.start()
        throwaway.stop()
        _break_cycle(throwaway)
        KinetoBackend._warm_in = os.getpid()
        let_forks_exit()

    def prepare(self) -> None:
        refuse_foreign(self._torch)
        profiler = self._torch.profiler.profile(
            activities=self._activities(),
            record_shapes=self._plan.record_shapes,
            profile_memory=self._plan.profile_memory,
            with_stack=self._plan.with_stack,
        )
        # Metadata is pasted into the file unchecked: only our own JSON text goes there.
        profiler.preset_metadata_json("dsv4prof_rank", json.dumps(self._metadata))
        self._profiler = profiler
        profiler.prepare_trace()
        self._guard.close(profiler.profiler)

    def start(self) -> None:
        self._profiler.start_trace()
        self._running = True

    def mark(self, step: int | None) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)
        if step is not None:
            self._mark = self._torch.profiler.record_function(step_name(step))
            self._mark.__enter__()

    def stop(self) -> None:
        assert self._running, "the manager stops what it started"
        self.mark(None)
        self._running = False
        if not self._torch.autograd._profiler_enabled():
            # To stop or export what is not ours any more crashes; the process's flag would refuse all that come later.
            self._torch.autograd.profiler._run_on_profiler_stop()
            raise LifetimeError(
                "somebody else ended the recording: Kineto was switched off before its stop",
                hint="leave torch's profilers alone while dsv4prof records",
            )
        self._profiler.stop_trace()

    def export(self, path: Path) -> None:
        self._profiler.export_chrome_trace(str(path))
        # Kineto writes beside the file first, and leaves that behind when it fails.
        path.with_name(path.name + ".tmp").unlink(missing_ok=True)
        fault = json_fault(path)
        if fault is None:
            return
        if path.exists() and path.stat().st_size and repair_names(path) and json_fault(path) is None:
            return
        if self._export_with_python(path) and json_fault(path) is None:
            return
        raise OutputError(
            f"torch wrote a trace that is no JSON: {fault}",
            hint="a full disk, a removed folder, or a quote or control character in an annotation's name",
        )

    def abandon(self) -> None:
        # Kept for as long as the process lives, because destroying C++ results here may wait for Kineto's threads.
        KinetoBackend._abandoned.append((self._profiler, self._mark))
        self._profiler = self._mark = None
        self._running = False

    def release(self) -> list[Remains]:
        if self._running:
            # Dropped while it runs, Kineto would stay on for the rest of the process.
            with suppress(LifetimeError):
                self.stop()
        self._guard.open()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return []
        remains = [Remains("torch.profiler.profile", weakref.ref(profiler))]
        inner = getattr(profiler, "profiler", None)
        for label, owner in (("autograd profiler", inner), ("kineto results", getattr(inner, "kineto_results", None))):
            if owner is not None:
                remains.append(Remains(label, weakref.ref(owner)))
        _break_cycle(profiler)
        return remains

    def _export_with_python(self, path: Path) -> bool:
        """torch >= 2.13 has a second exporter, slower, that escapes names; Kineto's own cannot save twice."""
        try:
            self._profiler.export_chrome_trace(str(path), use_python_export=True)
        except (TypeError, RuntimeError, OSError):
            return False
        return True

    def _activities(self) -> list[Any]:
        torch = self._torch
        cpu = torch.profiler.ProfilerActivity.CPU
        supported = torch.profiler.supported_activities()
        if self._plan.activities == "cpu":
            return [cpu]
        gpu = [activity for activity in supported if activity != cpu and _device_present(torch, activity)]
        if self._plan.activities == "cpu+gpu" and not gpu:
            raise LifetimeError(
                "there is no accelerator here that torch can trace", hint="record with activities='auto' or 'cpu'"
            )
        return [cpu, *gpu]


def _device_present(torch: Any, activity: Any) -> bool:
    """`supported_activities` says what torch was built for, not what is plugged in."""
    module = getattr(torch, str(activity).rsplit(".", 1)[-1].lower(), None)
    available = getattr(module, "is_available", None)
    return bool(available()) if available is not None else False


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
