"""Which rows of a step's logits need more than an argmax, worked out once for a batch and kept while it lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.batching import upload, upload_floats
from dsv4_engine.request import Request
from dsv4_engine.sampling.noise import signed
from dsv4_engine.sampling.penalties import PenalisedRows

Asking = tuple[Request, int]
"""A request and how many consecutive rows of the logits are its own."""


@dataclass(frozen=True, kw_only=True)
class SampledRows:
    """rows: (S,) int64. seeds, top_k: (S,) int64. temperature, top_p, min_p: (S,) float64.

    filtered: whether any row filters at all.
    """

    rows: torch.Tensor
    seeds: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    filtered: bool


@dataclass(frozen=True, kw_only=True)
class LogprobRows:
    """rows: (L,) int64 of requests that want log-probabilities; `most` is the most alternatives that any of them asks.

    wanted: by request of the batch, None or (first of its rows within L, alternatives).
    """

    rows: torch.Tensor
    most: int
    wanted: tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, kw_only=True)
class SamplingRows:
    """None for what no row needs."""

    sampled: SampledRows | None
    penalised: PenalisedRows | None
    logprobs: LogprobRows | None

    @classmethod
    def of(cls, asking: Sequence[Asking], vocab_size: int, device: torch.device) -> SamplingRows:
        """For logits whose rows belong to `asking` in order."""
        rows, first = [], 0
        for request, count in asking:
            rows.append((request, range(first, first + count)))
            first += count
        return cls(
            sampled=_sampled(rows, vocab_size, device),
            penalised=_penalised(rows, device),
            logprobs=_logprobs(rows, device),
        )


class SamplingRowsCache:
    """The rows of the last batch, so that a decode batch that stays the same uploads nothing."""

    def __init__(self, vocab_size: int, device: torch.device) -> None:
        self._vocab_size, self._device = vocab_size, device
        self._key: tuple[tuple[int, int | None, int], ...] | None = None
        self._rows = SamplingRows(sampled=None, penalised=None, logprobs=None)

    def get(self, asking: Sequence[Asking]) -> SamplingRows:
        key = tuple((request.id, request.slot, count) for request, count in asking)
        if key != self._key:
            self._rows, self._key = SamplingRows.of(asking, self._vocab_size, self._device), key
        return self._rows


_Owned = list[tuple[Request, range]]


def _sampled(owned: _Owned, vocab_size: int, device: torch.device) -> SampledRows | None:
    chosen = [(request, row) for request, rows in owned if not request.sampling.greedy for row in rows]
    if not chosen:
        return None
    integers = upload(
        (
            [row for _, row in chosen],
            [signed(request.seed) for request, _ in chosen],
            [request.sampling.top_k or vocab_size for request, _ in chosen],
        ),
        device,
    )
    sampling = [request.sampling for request, _ in chosen]
    floats = upload_floats(
        ([each.temperature for each in sampling], [each.top_p for each in sampling], [each.min_p for each in sampling]),
        device,
    )
    return SampledRows(
        rows=integers[0],
        seeds=integers[1],
        top_k=integers[2],
        temperature=floats[0],
        top_p=floats[1],
        min_p=floats[2],
        filtered=any(each.top_k or each.top_p < 1 or each.min_p for each in sampling),
    )


def _penalised(owned: _Owned, device: torch.device) -> PenalisedRows | None:
    chosen = [(request, row) for request, rows in owned if request.sampling.penalised for row in rows]
    if not chosen:
        return None
    integers = upload(([row for _, row in chosen], [request.slot or 0 for request, _ in chosen]), device)
    sampling = [request.sampling for request, _ in chosen]
    floats = upload_floats(
        (
            [each.frequency_penalty for each in sampling],
            [each.presence_penalty for each in sampling],
            [each.repetition_penalty for each in sampling],
        ),
        device,
    ).float()
    return PenalisedRows(
        rows=integers[0], slots=integers[1], frequency=floats[0], presence=floats[1], repetition=floats[2]
    )


def _logprobs(owned: _Owned, device: torch.device) -> LogprobRows | None:
    chosen: list[int] = []
    wanted: list[tuple[int, int] | None] = []
    for request, rows in owned:
        top = request.sampling.logprobs
        wanted.append(None if top is None else (len(chosen), top))
        if top is not None:
            chosen += rows
    if not chosen:
        return None
    return LogprobRows(
        rows=upload(chosen, device), most=max(top for _, top in filter(None, wanted)), wanted=tuple(wanted)
    )
