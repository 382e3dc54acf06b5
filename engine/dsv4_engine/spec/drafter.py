"""Who proposes the drafts of a step: the model's MTP layer, or whatever takes its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from dsv4_engine.batching import DecodeState
from dsv4_engine.graphs.dispatch import GraphDispatch
from dsv4_engine.hooks import StepHooks
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Running
from dsv4_engine.spec.programs import DraftProgram
from dsv4_engine.spec.relay import Relay


class Drafter(Protocol):
    """Replaceable as `Worker.drafter`; drafts change speed, never text.

    Given the running requests of the plan and where they stand by the device, (B, num_drafts) int64 guesses of the
    tokens after the newest one. With overlap the requests' own records are a step old: go by `state.starts`.
    """

    def __call__(self, running: tuple[Running, ...], state: DecodeState) -> torch.Tensor: ...


@dataclass(frozen=True, kw_only=True)
class MtpDrafter:
    """Extends the relayed first guess to a chain; a chain of one needs no forward."""

    program: DraftProgram
    relay: Relay
    graphs: GraphDispatch
    hooks: StepHooks

    def __call__(self, running: tuple[Running, ...], state: DecodeState) -> torch.Tensor:
        more = self.program.num_drafts - 1
        if more == 0:
            return self.relay.first_draft[state.slots][:, None]
        count = state.num_requests
        route = self.graphs.route(Phase.DRAFT, requests=count, width=1, peer_requests=state.peer_requests)
        with self.hooks.phase(
            Phase.DRAFT, requests=count, rows=count * more, captured=route.captured, reason=route.reason
        ):
            padded = state.padded(route.requests, peer_requests=route.peer_requests)
            inputs = self.program.inputs(
                padded,
                self.relay.first_draft[padded.slots],
                self.relay.streams[padded.slots],
                max_seq_len=self.program.capture.max_seq_len if route.captured else None,
            )
            drafts: torch.Tensor = self.graphs.run(route, inputs)
            return drafts[:count]
