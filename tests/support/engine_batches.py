"""Small models and hand-made batches for tests of the engine's forward passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.config import ModelConfig
from dsv4_engine.hooks import NullHooks, StepHooks
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.phase import Phase
from dsv4_engine.plan import TailSave
from dsv4_engine.runner import CacheShape, ModelRunner

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dsv4_tiny"
CPU = torch.device("cpu")

Part = tuple[int, int, torch.Tensor]
"""One request's rows: cache slot (1 and up; 0 is padding's), position of the first row, token ids."""


def make_batch(
    *parts: Part,
    phase: Phase = Phase.PREFILL,
    device: torch.device = CPU,
    max_seq_len: int | None = None,
    known: bool = True,
    tail_saves: Sequence[TailSave] = (),
) -> ForwardBatch:
    """known: whether the host knows the lengths, as it does without overlap."""
    assert all(slot for slot, _, _ in parts), "slot 0 belongs to padding"
    extend = tuple(len(ids) for _, _, ids in parts)
    ends = tuple(start + len(ids) for _, start, ids in parts)
    return ForwardBatch(
        phase=phase,
        input_ids=torch.cat([ids for _, _, ids in parts]).to(device),
        positions=torch.cat([torch.arange(start, start + len(ids)) for _, start, ids in parts]).to(device),
        req_slots=torch.tensor([slot for slot, _, _ in parts], device=device),
        seq_lens=torch.tensor(ends, device=device),
        extend_lens=torch.tensor(extend, device=device),
        num_tokens=sum(extend),
        extend_lens_host=extend,
        seq_lens_host=ends if known else None,
        max_seq_len=max_seq_len or max(ends),
        tail_saves=tuple(tail_saves),
    )


def make_runner(
    config: ModelConfig,
    weights: dict[str, torch.Tensor],
    *,
    context_len: int = 400,
    max_requests: int = 4,
    num_draft_tokens: int = 4,
    exact: bool = True,
    hooks: StepHooks | None = None,
    groups: ParallelGroups | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
    page_size: int = 256,
    num_pages: int | None = None,
    num_tails: int = 0,
    **options: Any,
) -> ModelRunner:
    torch.set_num_threads(1)
    return ModelRunner(
        config,
        weights,
        groups=groups or ParallelGroups.single(),
        device=device,
        dtype=dtype,
        cache=CacheShape(
            max_requests=max_requests,
            context_len=context_len,
            num_draft_tokens=num_draft_tokens,
            page_size=page_size,
            num_pages=num_pages,
            num_tails=num_tails,
        ),
        exact_num_tokens=exact,
        hooks=hooks or NullHooks(),
        **options,
    )


def golden_runner(**options: object) -> ModelRunner:
    config, weights = load_checkpoint(GOLDEN)
    return make_runner(config, weights, **options)  # type: ignore[arg-type]


def poison(runner: ModelRunner) -> None:
    """Fill every cache with NaN: whatever reads a row that its request has not written shows it."""
    for pool in runner.layer_pools:
        for tensor in pool.tensors():
            tensor.fill_(float("nan"))


def run_chunks(
    runner: ModelRunner,
    ids: torch.Tensor,
    sizes: Iterable[int],
    *,
    slot: int = 1,
    start: int = 0,
    phase: Phase = Phase.PREFILL,
) -> torch.Tensor:
    """Logits (T, V) of `ids` computed in chunks of the given sizes, the last one repeated until all is done."""
    logits, size, remaining = [], 0, iter(sizes)
    while start < len(ids):
        size = next(remaining, size)
        chunk = ids[start : start + size]
        logits.append(runner.forward_target(make_batch((slot, start, chunk), phase=phase)).logits)
        start += len(chunk)
    return torch.cat(logits)


def worst(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest absolute difference; NaN anywhere counts as infinitely wrong."""
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    return (actual - expected).abs().nan_to_num(nan=float("inf")).max().item()


def random_ids(length: int, vocab: int = 320, *, seed: int) -> torch.Tensor:
    return torch.randint(0, vocab, (length,), generator=torch.Generator().manual_seed(seed))


class SpanHooks(NullHooks):
    """Enters the context manager that `inside` makes within each span of one name, and counts the spans."""

    def __init__(self, name: str, inside: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.name, self.entered, self._inside = name, 0, inside

    @contextmanager
    def span(self, name):
        if name == self.name:
            self.entered += 1
        with self._inside() if name == self.name else nullcontext():
            yield


class OperatorLog:
    """Names of all operators called inside it, for example `aten::_local_scalar_dense`.

    Recorded by the profiler, because a dispatch mode does not see what an operator calls from within its kernel.
    """

    def __init__(self) -> None:
        self.names: list[str] = []

    def __enter__(self) -> OperatorLog:
        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._profile.__exit__(*exc_info)
        self.names += [event.name for event in self._profile.events()]

    def count(self, name: str) -> int:
        return self.names.count(name)

    @property
    def reads(self) -> list[str]:
        """Operators that make the host wait for a GPU, by value or by the shape of their result."""
        waiting = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "bincount", "equal"}
        return [name for name in self.names if name.removeprefix("aten::") in waiting]
