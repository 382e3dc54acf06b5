"""The phases of a decode step as functions of tensors alone, in the form that a graph can capture.

Metadata is built outside, by `runner.prepare`, and copied into the graph with the other inputs. In a graph every shape
is fixed, so `max_seq_len` is the longest context that the caches can hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.batching import DecodeState
from dsv4_engine.model.step import StepInputs
from dsv4_engine.phase import Phase
from dsv4_engine.sampling.greedy import greedy


class ForwardOutput(Protocol):
    """logits: (R, V) fp32 of the rows asked for. streams: (T, hc, D) before the head's mix."""

    @property
    def logits(self) -> torch.Tensor: ...

    @property
    def streams(self) -> torch.Tensor: ...


class Model(Protocol):
    """The part of `runner.ModelRunner` that computes; `logits_rows` None asks for every row."""

    def prepare(self, batch: ForwardBatch, *, compress: bool) -> StepInputs: ...

    def target(self, step: StepInputs, logits_rows: torch.Tensor | None) -> ForwardOutput: ...

    def mtp(self, step: StepInputs, streams: torch.Tensor, logits_rows: torch.Tensor | None) -> ForwardOutput: ...


class ModelHolder(Protocol):
    """Who has the model; programs ask at each call, because a test may put another in its place."""

    @property
    def model(self) -> Model: ...


@dataclass(frozen=True, kw_only=True)
class Capture:
    """What examples for a capture need. max_seq_len: longest length a step may have. streams: (hc, D) of the model.

    shared_experts: data-parallel replicas compute every step together.
    """

    max_seq_len: int
    streams: tuple[int, int]
    device: torch.device
    dtype: torch.dtype
    shared_experts: bool = False

    def state(self, requests: int) -> DecodeState:
        """Padding requests alone."""
        return DecodeState.padding(requests, self.device, peer_requests=requests if self.shared_experts else None)

    def empty_streams(self, rows: int) -> torch.Tensor:
        return torch.zeros(rows, *self.streams, device=self.device, dtype=self.dtype)

    def window(self, phase: Phase, requests: int, width: int, *, offset: int = 0) -> ForwardBatch:
        ids = torch.zeros(requests, width, dtype=torch.int64, device=self.device)
        return self.state(requests).window(phase, ids, offset=offset, max_seq_len=self.max_seq_len)


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """logits: (B * n, V) float32. streams: (B * n, hc, D)."""

    logits: torch.Tensor
    streams: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class TargetProgram:
    """Target verify, or plain decoding with a width of 1: StepInputs -> TargetResult of all rows."""

    holder: ModelHolder
    capture: Capture
    phase: Phase
    width: int

    def example(self, requests: int) -> StepInputs:
        return self.holder.model.prepare(self.capture.window(self.phase, requests, self.width), compress=True)

    def __call__(self, inputs: StepInputs) -> TargetResult:
        output = self.holder.model.target(inputs, None)
        return TargetResult(logits=output.logits, streams=output.streams)


@dataclass(frozen=True, kw_only=True)
class DraftInputs:
    """first: (B,) int64 first drafts. streams: (B, hc, D) of the rows that made them. steps: by index, each draft
    step's own metadata; its ids are not used."""

    first: torch.Tensor
    streams: torch.Tensor
    steps: Mapping[int, StepInputs]


@dataclass(frozen=True, kw_only=True)
class DraftProgram:
    """All draft steps in one graph: DraftInputs -> (B, num_drafts) int64.

    Guess i + 1 is made at position start + i by the MTP layer's own streams, since the target's are not known yet
    (DeepSeek-V4 report, section on MTP). The keys that these forwards leave behind are approximate; draft-extend
    replaces those of accepted drafts.
    """

    holder: ModelHolder
    capture: Capture
    num_drafts: int
    phase: Phase = Phase.DRAFT
    width: int = 1

    def inputs(
        self, state: DecodeState, first: torch.Tensor, streams: torch.Tensor, *, max_seq_len: int | None
    ) -> DraftInputs:
        steps = {
            offset: self.holder.model.prepare(
                state.window(self.phase, first[:, None], offset=offset, max_seq_len=max_seq_len), compress=False
            )
            for offset in range(self.num_drafts - 1)
        }
        return DraftInputs(first=first, streams=streams, steps=steps)

    def example(self, requests: int) -> DraftInputs:
        state = self.capture.state(requests)
        streams = self.capture.empty_streams(requests)
        return self.inputs(state, state.newest, streams, max_seq_len=self.capture.max_seq_len)

    def __call__(self, inputs: DraftInputs) -> torch.Tensor:
        drafts, streams = [inputs.first], inputs.streams
        for step in inputs.steps.values():
            output = self.holder.model.mtp(replace(step, input_ids=drafts[-1]), streams, None)
            drafts.append(greedy(output.logits))
            streams = output.streams
        return torch.stack(drafts, dim=1)


@dataclass(frozen=True, kw_only=True)
class DraftExtendInputs:
    """step: ids are the target's tokens. streams: (B * n, hc, D), the target's. rows: (B,) last accepted rows."""

    step: StepInputs
    streams: torch.Tensor
    rows: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class Guess:
    """first: (B,) int64, the next first drafts. streams: (B, hc, D) of the rows that made them."""

    first: torch.Tensor
    streams: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class DraftExtendProgram:
    """Bring the MTP layer's cache up to what was accepted and make the next first guess: DraftExtendInputs -> Guess.

    Every request has n rows whatever was accepted, so that shapes are known without a read. Rows past the accepted run
    leave keys at positions that the next step writes again before anything can see them.
    """

    holder: ModelHolder
    capture: Capture
    width: int
    phase: Phase = Phase.DRAFT_EXTEND

    def example(self, requests: int) -> DraftExtendInputs:
        batch = self.capture.window(self.phase, requests, self.width)
        return DraftExtendInputs(
            step=self.holder.model.prepare(batch, compress=False),
            streams=self.capture.empty_streams(requests * self.width),
            rows=torch.arange(requests, device=self.capture.device) * self.width,
        )

    def __call__(self, inputs: DraftExtendInputs) -> Guess:
        output = self.holder.model.mtp(inputs.step, inputs.streams, inputs.rows)
        return Guess(first=greedy(output.logits), streams=output.streams[inputs.rows])
