"""One case run under a detector, in names of its own."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from dsv4prof.model.syncs import Observation
from dsv4prof.sync.measured import Case
from dsv4prof.sync.runtime.judging.detector import Detector
from dsv4prof.sync.runtime.judging.verdicts import Verdict, verdict


class PreludeError(Exception):
    """What every case starts with failed."""


def judged(case: Case, prelude: str, detector: Detector) -> Verdict:
    """A case that raises gets a verdict of what was seen before, with `error`. Uses nothing that was measured."""
    seen: list[Observation] = []
    error = ""
    detector.between()
    try:
        # What a case prints is not ours to show.
        with contextlib.redirect_stdout(io.StringIO()):
            _run(case, prelude, detector, seen)
            if detector.again():
                seen.clear()
                detector.between()
                _run(case, prelude, detector, seen)
    except Exception as problem:  # noqa: BLE001  a case is any code at all, and the others still count
        error = f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else ''}"
    return verdict(case.id, detector.names(), seen, error=error)


def _run(case: Case, prelude: str, detector: Detector, seen: list[Observation]) -> None:
    setup = compile(case.setup, f"<setup of {case.id}>", "exec")
    call = compile(case.call, f"<{case.id}>", "exec")
    after = compile(case.after, f"<after {case.id}>", "exec")
    names = namespace(case.needs)
    try:
        exec(compile(prelude, "<prelude>", "exec"), names)
    except Exception as problem:
        raise PreludeError(f"{type(problem).__name__}: {problem}") from problem
    exec(setup, names)
    failures: list[Exception] = []
    try:
        seen.extend(detector.judge(lambda: _noting(call, names, failures)))
    finally:
        exec(after, names)
        _forget_settings()
    if failures:
        raise failures[0]


def _forget_settings() -> None:
    """What a case set for its whole process would decide about the next ones."""
    import torch

    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.cuda.set_device(0)


def _noting(call: Any, names: dict[str, Any], failures: list[Exception]) -> None:
    """What was seen before an error counts, so the error waits until the detector has answered."""
    try:
        exec(call, names)
    except Exception as problem:  # noqa: BLE001  a case is any code at all
        failures.append(problem)


def namespace(needs: str) -> dict[str, Any]:
    """The names that every case may use, on the current device."""
    import copy
    import logging
    import math
    import operator
    import pickle

    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import distributed as dist

    if needs == "nccl" and not dist.is_initialized():
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    device = torch.device("cuda", torch.cuda.current_device())
    names: dict[str, Any] = {"torch": torch, "np": np, "F": F, "dist": dist, "dev": device}
    for module in (copy, io, logging, math, operator, pickle):
        names[module.__name__] = module
    names["pin"] = lambda tensor: tensor.pin_memory()
    return names
