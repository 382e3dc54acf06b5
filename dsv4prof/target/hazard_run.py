"""The embedded engine with its hazards watched, in a process of its own: a fault may end it.

`python -m dsv4prof.target.hazard_run SPEC OUT` serves the workload of a RunSpec on one rank and writes the log of what
happened, also where the engine fails. Without a GPU, or told so, the engine runs on shadow tensors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.model.session import RankCoordinates
from dsv4prof.sync.runtime.hazards.log import save
from dsv4prof.sync.runtime.hazards.watch import HazardWatch
from dsv4prof.target.engine import prepared
from dsv4prof.target.hooks import PhaseName
from dsv4prof.target.spec import RunSpec

REFUSED = 2


class HazardSpec(msgspec.Struct, frozen=True, kw_only=True):
    """steps: how many to make; the workload is served again until then, and once where it is None.

    gpu: False says shadow tensors, None lets the machine decide.
    """

    run: RunSpec
    steps: int | None = None
    gpu: bool | None = None


class WatchedHooks:
    """Step hooks that tell the watch where the engine is."""

    def __init__(self, watch: HazardWatch) -> None:
        self._watch = watch
        self._step: int | None = None
        self._regions = [""]

    @contextmanager
    def step(self, index: int, *, kind: str, requests: int, rows: int) -> Iterator[None]:
        self._step = index
        with self._region(kind):
            yield

    def phase(
        self, phase: PhaseName, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        return self._region(phase.value)

    def span(self, name: str) -> AbstractContextManager[object]:
        return self._region(name)

    def accepted(self, *, requests: int, tokens: int) -> None:
        return None

    @contextmanager
    def _region(self, name: str) -> Iterator[None]:
        self._regions.append(name)
        self._watch.enter(step=self._step, region=name)
        try:
            yield
        finally:
            self._regions.pop()
            self._watch.enter(step=self._step, region=self._regions[-1])


def watch_engine(spec: HazardSpec, *, keep_log: bool = True) -> tuple[HazardWatch, str]:
    """Serve the workload under a watch, and return it with the sentence of the engine's failure, "" where it did not.

    Raises what the engine raises before its first step.
    """
    import torch

    torch.set_num_threads(spec.run.threads_of_a_rank())
    gpu = torch.cuda.is_available() if spec.gpu is None else spec.gpu
    watch = HazardWatch(gpu=gpu, keep_log=keep_log)
    with nullcontext() if gpu else _shadows(spec.run, watch), watch:
        failure = _served(spec, watch)
    return watch, failure


def _shadows(run: RunSpec, watch: HazardWatch) -> AbstractContextManager[object]:
    from dsv4prof.sync.runtime.shadow import ShadowDevice

    return ShadowDevice("hip" if run.device == "hip" else "cuda", lambda _: None, watch.listener)


def _served(spec: HazardSpec, watch: HazardWatch) -> str:
    from dsv4_engine.engine import Engine

    me = RankCoordinates(rank=0, world_size=1)
    run = spec.run
    if not watch.on_gpu and run.graphs is None:
        # Shadow tensors capture none.
        run = msgspec.structs.replace(run, graphs=False)
    options, prompts = prepared(run, me)
    engine = Engine(options, hooks=WatchedHooks(watch))
    steps = 0
    try:
        while steps < (spec.steps or 1):
            engine.flush_cache()
            for prompt in prompts:
                engine.add(prompt, max_new_tokens=spec.run.max_new_tokens, ignore_eos=True)
            while engine.has_work and (spec.steps is None or steps < spec.steps):
                engine.step()
                _check_plans(engine, watch)
                steps += 1
            if spec.steps is None:
                break
    except Exception as error:  # noqa: BLE001 - what the fault did to the engine is part of the result, not of ours
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


def _check_plans(engine: Any, watch: HazardWatch) -> None:
    """Where staging is faulty on purpose the engine keeps what the host had planned, to be compared."""
    from torch.utils._python_dispatch import _disable_current_modes

    from dsv4_engine.cache.staging import checksum_of

    contracts = watch.tracker.contracts
    place = watch.tracker.place()
    for plan in engine.runner.staged_plans:
        with _disable_current_modes():
            actual = checksum_of(contracts.inner_of(plan.plan_c))
        contracts.plan_differs(f"compress plan of ratio {plan.ratio}", actual, plan.checksum, at=place)


def main(arguments: list[str]) -> int:
    """The exit status is 0 also where the engine failed later on: that is in the log."""
    from dsv4_engine.errors import EngineError

    spec_path, out = map(Path, arguments)
    spec = msgspec.json.decode(spec_path.read_bytes(), type=HazardSpec)
    try:
        watch, failure = watch_engine(spec)
    except EngineError as error:
        # The last line is for whoever started this.
        print(json.dumps({"message": error.message, "hint": error.hint}), file=sys.stderr)
        return REFUSED
    log = watch.log(command=" ".join(spec.run.command))
    log.ended, log.gpu = failure, watch.on_gpu
    save(log, out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
