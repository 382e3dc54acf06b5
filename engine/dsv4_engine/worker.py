"""Computes planned steps: prompts, running requests or both at once, with drafts or without.

The problem it solves is that a step must be launched before the one before it has been read. So all that a step hands
to the next stays on the device (`spec.relay`), the host only ever bounds lengths, and the single wait of a step is that
for its tokens, when `PendingStep.read` is called.

The output is the target model's own, greedy or drawn, token for token, however good or bad the drafts are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.batching import DecodeState
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.graphs.cpu import CpuGraphMaker
from dsv4_engine.graphs.dispatch import GraphDispatch, Route
from dsv4_engine.graphs.gate import GateFacts, make_buckets
from dsv4_engine.graphs.graph import GraphMaker, Program
from dsv4_engine.graphs.stats import GraphStats
from dsv4_engine.hooks import StepHooks
from dsv4_engine.phase import Phase
from dsv4_engine.plan import StepOutcome, StepPlan, TailSave
from dsv4_engine.readback import Answered, PendingStep, ReadbackStep
from dsv4_engine.runner import ModelRunner
from dsv4_engine.spec.accept import require_accept_len
from dsv4_engine.spec.drafter import Drafter, MtpDrafter
from dsv4_engine.spec.judge import Judge, Verdict
from dsv4_engine.spec.prefill import PrefillPass
from dsv4_engine.spec.programs import Capture, DraftExtendInputs, DraftExtendProgram, DraftProgram, TargetProgram
from dsv4_engine.spec.relay import Relay, SlotUploads, decode_state
from dsv4_engine.spec.tails import RunningTails


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """num_drafts: 0 decodes plainly. lengths_known: `Running.max_cached` is exact, since every step is read before the
    next is planned; then the host's lengths go with the batches.

    graphs: "auto" (on for GPUs), True or False. draft_extend_graph: whether draft-extend may be captured.
    capture_at_start: capture all graphs at once instead of each on first use. poison_graphs: a CPU's graphs overwrite
    their buffers before each replay, for tests. simulate_accept_len: mean tokens gained by a verify whatever the drafts
    are, for benchmarks; the text is meaningless then. with_peers: other ranks compute the same steps, and all must
    take the same graphs. shared_experts: data-parallel replicas share experts: every plan names its peers' load.
    """

    num_drafts: int
    max_requests: int
    lengths_known: bool = True
    graphs: bool | str = "auto"
    draft_extend_graph: bool = True
    capture_at_start: bool = False
    poison_graphs: bool = False
    simulate_accept_len: float | None = None
    with_peers: bool = False
    shared_experts: bool = False

    def __post_init__(self) -> None:
        if self.graphs not in ("auto", True, False):
            raise EngineError(f"graphs is {self.graphs!r}", hint="choose auto, True or False")
        if self.simulate_accept_len is not None:
            require_accept_len(self.simulate_accept_len, num_drafts=self.num_drafts)


class Worker:
    """One rank's computing of steps. `model` and `drafter` may be replaced between steps, which tests do."""

    def __init__(
        self,
        model: ModelRunner,
        *,
        config: ModelConfig,
        settings: WorkerSettings,
        device: torch.device,
        dtype: torch.dtype,
        hooks: StepHooks,
        backend: str,
        environment: Mapping[str, str],
    ) -> None:
        self.model = model
        self._settings, self._hooks = settings, hooks
        self.relay = Relay.allocate(
            slots=model.layout.num_slots,
            hc_mult=config.hc_mult if settings.num_drafts else 0,
            hidden_size=config.hidden_size,
            device=device,
            dtype=dtype,
        )
        self._slots = SlotUploads(device)
        self._tails = RunningTails(self, self.relay, device)
        self._judge = Judge(
            num_slots=model.layout.num_slots,
            vocab_size=config.vocab_size,
            device=device,
            simulate_accept_len=settings.simulate_accept_len,
        )
        self._prefill = PrefillPass(self, self.relay, self._judge, hooks=hooks, device=device)
        self._capture = Capture(
            max_seq_len=model.layout.max_positions,
            streams=(config.hc_mult, config.hidden_size),
            device=device,
            dtype=dtype,
            shared_experts=settings.shared_experts,
        )
        programs = self._programs()
        facts = GateFacts(
            backend=backend,
            device=device.type,
            environment=environment,
            graphs=settings.graphs,
            draft_extend_graph=settings.draft_extend_graph,
            buckets=make_buckets(settings.max_requests),
            widths={program.phase: program.width for program in programs},
            host_reads=model.reads_on_host,
        )
        self._graphs = GraphDispatch(
            facts,
            _maker(device, poison=settings.poison_graphs),
            programs,
            with_peers=settings.with_peers or settings.shared_experts,
        )
        self.drafter: Drafter = MtpDrafter(
            program=DraftProgram(holder=self, capture=self._capture, num_drafts=settings.num_drafts),
            relay=self.relay,
            graphs=self._graphs,
            hooks=hooks,
        )
        if settings.capture_at_start:
            with torch.inference_mode():
                self._graphs.capture_all()

    @property
    def rows_per_request(self) -> int:
        """Query rows of a running request in a step's target forward."""
        return self._settings.num_drafts + 1

    def graph_stats(self) -> GraphStats:
        return self._graphs.stats()

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> PendingStep:
        """Queue the step's work; nothing waits for the device here."""
        self.model.apply(plan.table_writes)
        self.model.load_tails(plan.tail_loads)
        peers = plan.peers
        if plan.chunks or (peers is not None and peers.chunk_rows):
            assert peers is None or not plan.running, "replicas do not mix prompts and running requests"
            state, windows = self._windows(plan) if plan.running else (None, None)
            verdict = self._prefill_step(plan, state, windows)
        else:
            assert plan.running or peers is not None, "a plan without work"
            state, windows = self._windows(plan)
            verdict = self._decode_step(plan, state, windows)
        if not plan.running and not any(chunk.completes for chunk in plan.chunks):
            return Answered(StepOutcome(tokens=((),) * len(plan.requests)))
        return ReadbackStep(
            chunks=plan.chunks,
            first_tokens=verdict.first_tokens,
            accept_lens=verdict.accept_lens,
            predicted=verdict.predicted,
            logprobs=verdict.logprobs,
            logprob_rows=verdict.logprob_rows,
            speculative=self._settings.num_drafts > 0,
            hooks=self._hooks,
            in_flight=(state, windows),
        )

    def _windows(self, plan: StepPlan) -> tuple[DecodeState, torch.Tensor]:
        """Where running requests stand, and the (B, n) ids that the target judges: the newest token and its drafts."""
        state = decode_state(
            self.relay,
            self._slots.get(plan.running),
            plan.running,
            lengths_known=self._settings.lengths_known,
            peer_requests=plan.peers.running if plan.peers else None,
        )
        windows = state.newest[:, None]
        if self._settings.num_drafts:
            windows = torch.cat((windows, self.drafter(plan.running, state)), dim=1)
        return state, windows

    def _prefill_step(self, plan: StepPlan, state: DecodeState | None, windows: torch.Tensor | None) -> Verdict:
        rows = sum(chunk.length for chunk in plan.chunks) + len(plan.running) * self.rows_per_request
        route = self._graphs.route(Phase.PREFILL, requests=len(plan.requests), width=0)
        saves = self._tails.begin(_running_saves(plan))
        with self._phase(route, requests=len(plan.requests), rows=rows):
            verdict = self._prefill(plan, state, windows, guesses=self._settings.num_drafts > 0)
        self._tails.finish(saves)
        return verdict

    def _decode_step(self, plan: StepPlan, state: DecodeState, windows: torch.Tensor) -> Verdict:
        count, width = windows.shape
        saves = self._tails.begin(plan.tail_saves)
        phase = Phase.TARGET_VERIFY if self._settings.num_drafts else Phase.DECODE
        route = self._graphs.route(phase, requests=count, width=width, peer_requests=state.peer_requests)
        with self._phase(route, requests=count, rows=count * width):
            step = self.model.prepare(self._batch(route, state, windows), compress=True)
            output = self._graphs.run(route, step)
            verdict = self._judge(
                output.logits[: count * width],
                state.positions(width),
                completing=(),
                running=plan.running,
                state=state,
                windows=windows,
            )
            self.relay.advance(state.slots, state.starts + verdict.accept_lens, verdict.newest)
        if self._settings.num_drafts:
            self._draft_extend(state, verdict, output.streams)
        self._tails.finish(saves)
        return verdict

    def _draft_extend(self, state: DecodeState, verdict: Verdict, streams: torch.Tensor) -> None:
        count, width = verdict.predicted.shape
        route = self._graphs.route(Phase.DRAFT_EXTEND, requests=count, width=width, peer_requests=state.peer_requests)
        with self._phase(route, requests=count, rows=count * width):
            step = self.model.prepare(self._batch(route, state, verdict.predicted), compress=False)
            first_rows = torch.arange(route.requests, device=streams.device) * width
            accept_lens = _rows(verdict.accept_lens, route.requests, fill=1)
            inputs = DraftExtendInputs(
                step=step, streams=_rows(streams, route.requests * width), rows=first_rows + accept_lens - 1
            )
            guess = self._graphs.run(route, inputs)
            self.relay.guess(state.slots, guess.first[:count], guess.streams[:count])

    def _batch(self, route: Route, state: DecodeState, ids: torch.Tensor) -> ForwardBatch:
        bound = self._capture.max_seq_len if route.captured else None
        padded = state.padded(route.requests, peer_requests=route.peer_requests)
        return padded.window(route.phase, _rows(ids, route.requests), max_seq_len=bound)

    def _phase(self, route: Route, *, requests: int, rows: int) -> AbstractContextManager[object]:
        return self._hooks.phase(
            route.phase, requests=requests, rows=rows, captured=route.captured, reason=route.reason
        )

    def _programs(self) -> list[Program]:
        width = self.rows_per_request
        if width == 1:
            return [TargetProgram(holder=self, capture=self._capture, phase=Phase.DECODE, width=1)]
        verify = TargetProgram(holder=self, capture=self._capture, phase=Phase.TARGET_VERIFY, width=width)
        extend = DraftExtendProgram(holder=self, capture=self._capture, width=width)
        if width == 2:
            return [verify, extend]
        return [verify, extend, DraftProgram(holder=self, capture=self._capture, num_drafts=width - 1)]


def _maker(device: torch.device, *, poison: bool) -> GraphMaker:
    if device.type == "cpu":
        return CpuGraphMaker(poison=poison)
    from dsv4_engine.graphs.cuda import CudaGraphMaker

    return CudaGraphMaker(device)


def _running_saves(plan: StepPlan) -> Sequence[TailSave]:
    """Those that the prefill batch does not make itself."""
    chunked = {chunk.request.slot for chunk in plan.chunks}
    return tuple(save for save in plan.tail_saves if save.slot not in chunked)


def _rows(tensor: torch.Tensor, rows: int, *, fill: int = 0) -> torch.Tensor:
    """The first `rows` rows, or all and then padding."""
    missing = rows - len(tensor)
    if missing <= 0:
        return tensor[:rows]
    return torch.cat((tensor, tensor.new_full((missing, *tensor.shape[1:]), fill)))
