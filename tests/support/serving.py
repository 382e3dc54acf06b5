"""Engines on the golden model, run to their end, for tests of the serving loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.phase import Phase
from dsv4_engine.request import RequestResult
from dsv4_engine.runner import ModelRunner
from engine_batches import GOLDEN, random_ids

Drafter = Callable[["Progress"], Sequence[int]]
"""Given a running request, the tokens to propose after its newest one; short answers are filled up."""


def make_engine(*, hooks=None, groups: ParallelGroups | None = None, **options: object) -> Engine:
    torch.set_num_threads(1)
    settings = {"model": str(GOLDEN), "context_len": 400} | options
    return Engine(EngineOptions(**settings), hooks=hooks, groups=groups)  # type: ignore[arg-type]


def run(engine: Engine, prompts: Sequence[Sequence[int]], *, max_new_tokens=12, ignore_eos=True) -> list[RequestResult]:
    """All results, after the engine has let go of every slot. `max_new_tokens`: one number, or one a prompt."""
    limits = [max_new_tokens] * len(prompts) if isinstance(max_new_tokens, int) else max_new_tokens
    ids = [
        engine.add(prompt, max_new_tokens=limit, ignore_eos=ignore_eos)
        for prompt, limit in zip(prompts, limits, strict=True)
    ]
    while engine.has_work:
        engine.step()
    assert engine.num_free_slots == engine.options.max_requests
    return [engine.result(request) for request in ids]


def serve(prompts: Sequence[Sequence[int]], *, max_new_tokens=12, ignore_eos=True, **options) -> list[RequestResult]:
    return run(make_engine(**options), prompts, max_new_tokens=max_new_tokens, ignore_eos=ignore_eos)


def tokens_of(results: Sequence[RequestResult]) -> list[tuple[int, ...]]:
    return [result.tokens for result in results]


def random_prompts(lengths: Sequence[int], *, seed: int = 0) -> list[list[int]]:
    return [random_ids(length, seed=1000 * seed + length).tolist() for length in lengths]


def runner_of(engine: Engine) -> ModelRunner:
    return engine.runner


@dataclass(frozen=True)
class Progress:
    """A running request as a drafter sees it. output: as long as what the device has produced, the newest included."""

    prompt: tuple[int, ...]
    output: Sequence[int]


def replace_drafts(engine: Engine, drafter: Drafter) -> None:
    """Let `drafter` propose in place of the MTP layer, whatever that would have guessed."""
    width = engine.options.num_drafts

    def draft(running, state):
        rows = []
        for each, start in zip(running, state.starts.tolist(), strict=True):
            prompt = each.request.prompt
            rows.append((*drafter(Progress(prompt, range(start - len(prompt) + 1))), *[0] * width)[:width])
        return torch.tensor(rows)

    engine.worker.drafter = draft


class RecordingHooks:
    """Every announcement in order, each with the names of those that it is nested in."""

    def __init__(self) -> None:
        self.entered: list[tuple[str, tuple[str, ...]]] = []
        self.steps: list[dict[str, object]] = []
        self.phases: list[dict[str, object]] = []
        self.acceptances: list[tuple[int, int]] = []
        self._open: list[str] = []

    @contextmanager
    def _nested(self, name: str) -> Iterator[None]:
        self.entered.append((name, tuple(self._open)))
        self._open.append(name)
        try:
            yield
        finally:
            assert self._open.pop() == name

    def step(self, index, *, kind, requests, rows):
        self.steps.append({"index": index, "kind": kind, "requests": requests, "rows": rows})
        return self._nested(f"step {index}")

    def phase(self, phase: Phase, *, requests, rows, captured, reason):
        self.phases.append({"phase": phase, "requests": requests, "rows": rows, "captured": captured, "reason": reason})
        return self._nested(phase.value)

    def span(self, name):
        return self._nested(name)

    def accepted(self, *, requests, tokens):
        self.entered.append(("accepted", tuple(self._open)))
        self.acceptances.append((requests, tokens))

    @property
    def open(self) -> tuple[str, ...]:
        """What was entered and not left yet."""
        return tuple(self._open)

    def inside(self, step: int) -> list[tuple[str, tuple[str, ...]]]:
        """What was announced within one step, with the nesting below the step."""
        return [(name, path[1:]) for name, path in self.entered if path and path[0] == f"step {step}"]
