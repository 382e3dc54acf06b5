"""A worker without a model: tokens follow from what the caches hold, so a wrong page, ring or tail changes the answer.

Memory is as on a device: pages by the request table, rings by slot, tails by row. A step works on it when launched, in
stream order, and its tokens can be read later. It checks what a real model would silently get wrong: a row that was not
written for this prefix, a ring that holds other positions, a table entry that is written twice in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dsv4_engine.plan import Chunk, StepOutcome, StepPlan, TailSave
from dsv4_engine.request import TokenLogprobs

VOCAB = 7
WINDOW = 3
Row = tuple[int, int]  # position, token


def mixed(*values: int) -> int:
    state = 0x9E3779B9
    for value in values:
        state = (state ^ (value + 1)) * 0x01000193 % 2**32
        state ^= state >> 15
    return state


def next_token(tokens: Sequence[int]) -> int:
    """What the fake model says after a prefix; few tokens repeat it, so prefixes of prompts collide often."""
    return mixed(*tokens) % VOCAB


def continuation(prompt: Sequence[int], count: int) -> tuple[int, ...]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tuple(tokens[len(prompt) :])


@dataclass
class Tail:
    window: list[Row]
    drafts: list[Row]


@dataclass
class Slot:
    """cached: tokens below which everything is true. window: main rows, drafts: the draft layer's, both rings."""

    cached: int = 0
    newest: int = -1
    window: dict[int, Row] = field(default_factory=dict)
    drafts: dict[int, Row] = field(default_factory=dict)
    accept_lens: list[int] = field(default_factory=list)


@dataclass
class Pending:
    outcome: StepOutcome
    log: list[str]
    index: int

    def read(self) -> StepOutcome:
        self.log.append(f"read {self.index}")
        return self.outcome


class FakeLauncher:
    """`drafts`: drafts of a step; whether they are right follows from the draft layer's rows."""

    def __init__(self, *, page_size: int, drafts: int, logprobs: bool = False) -> None:
        self.page_size, self._drafts, self._logprobs = page_size, drafts, logprobs
        self._ring = WINDOW + drafts
        self._pages: dict[tuple[int, int], int] = {}  # (page, offset) -> token
        self._table: dict[tuple[int, int], int] = {}
        self._slots: dict[int, Slot] = {}
        self._tails: dict[int, Tail] = {}
        self.log: list[str] = []
        self.plans: list[StepPlan] = []
        self.computed = 0

    @property
    def rows_per_request(self) -> int:
        return self._drafts + 1

    def launch(self, plan: StepPlan) -> Pending:
        index = len(self.plans)
        self.log.append(f"launch {index}")
        self.plans.append(plan)
        written = [(write.slot, write.column) for write in plan.table_writes]
        assert len(set(written)) == len(written), "a column is written twice in a step"
        self._table |= {(write.slot, write.column): write.page for write in plan.table_writes}
        for load in plan.tail_loads:
            self._load(load.slot, load.boundary, load.tail)
        tokens = [self._chunk(chunk, plan.tail_saves) for chunk in plan.chunks]
        accepted = []
        for running in plan.running:
            assert running.request.slot is not None
            slot = self._slots[running.request.slot]
            assert slot.cached <= running.max_cached, "the host's bound is too low"
            gained = self._decode(running.request.slot, slot, plan.tail_saves)
            accepted.append(len(gained))
            tokens.append(gained)
        known = tuple(tuple(TokenLogprobs(logprob=-float(token)) for token in row) for row in tokens)
        outcome = StepOutcome(
            tokens=tuple(tokens),
            accept_lens=tuple(accepted) if self._drafts else (),
            logprobs=known if self._logprobs else (),
        )
        return Pending(outcome, self.log, index)

    def _chunk(self, chunk: Chunk, saves: Sequence[TailSave]) -> tuple[int, ...]:
        number, tokens = chunk.request.slot, chunk.request.tokens
        assert number is not None and number > 0
        slot = self._slots.setdefault(number, Slot())
        if chunk.start == 0:
            slot.cached = 0
        assert slot.cached == chunk.start, (slot.cached, chunk)
        answer = -1
        for position in range(chunk.start, chunk.end):
            answer = self._row(number, slot, position, tokens[position])
            following = tokens[position + 1] if position + 1 < len(tokens) else answer
            slot.drafts[position % self._ring] = (position, following)
            slot.cached = position + 1
            self._save(number, slot, saves, position + 1)
        if not chunk.completes:
            return ()
        slot.newest = answer
        return (answer,)

    def _decode(self, number: int, slot: Slot, saves: Sequence[TailSave]) -> tuple[int, ...]:
        """Verify as many right drafts as the draft layer's rows say, then the first wrong one."""
        start, token, gained = slot.cached, slot.newest, []
        recent = self._recent(slot.drafts, start)
        right = mixed(*(token for _, token in recent)) % (self._drafts + 1)
        for offset in range(self._drafts + 1):
            answer = self._row(number, slot, start + offset, token)
            slot.drafts[(start + offset) % self._ring] = (start + offset, answer)
            if offset <= right:
                gained.append(answer)
                slot.newest = answer
                slot.cached = start + offset + 1
            # A wrong draft is what the next row is computed from; its answer counts for nothing.
            token = answer if offset < right else (answer + 1) % VOCAB
        for boundary in range(start + 1, slot.cached + 1):
            self._save(number, slot, saves, boundary)
        slot.accept_lens.append(len(gained))
        return tuple(gained)

    def _row(self, number: int, slot: Slot, position: int, token: int) -> int:
        """Write the row, then read the whole prefix: through the table, and its end in the ring as well."""
        self.computed += 1
        column, offset = divmod(position, self.page_size)
        self._pages[self._table.get((number, column), 0), offset] = token
        slot.window[position % self._ring] = (position, token)
        prefix = []
        for earlier in range(position + 1):
            column, offset = divmod(earlier, self.page_size)
            prefix.append(self._pages.get((self._table.get((number, column), 0), offset), -1))
        if position < slot.cached + 1:  # rows of rejected drafts may see anything, as long as nobody believes them
            recent = self._recent(slot.window, position + 1)
            assert [t for _, t in recent] == prefix[-len(recent) :], "ring and pages disagree"
        return next_token(prefix)

    def _recent(self, ring: dict[int, Row], end: int) -> list[Row]:
        rows = [ring.get(position % self._ring, (-1, -1)) for position in range(max(end - WINDOW, 0), end)]
        assert [position for position, _ in rows] == list(range(max(end - WINDOW, 0), end)), "a ring of another prefix"
        return rows

    def _save(self, number: int, slot: Slot, saves: Sequence[TailSave], boundary: int) -> None:
        for save in saves:
            if (save.slot, save.boundary) == (number, boundary):
                assert save.tail > 0
                self._tails[save.tail] = Tail(self._recent(slot.window, boundary), self._recent(slot.drafts, boundary))

    def _load(self, number: int, boundary: int, tail: int) -> None:
        kept = self._tails[tail]
        assert kept.window[-1][0] == boundary - 1, "the tail of another prefix"
        slot = self._slots.setdefault(number, Slot())
        slot.cached = boundary
        for ring, rows in ((slot.window, kept.window), (slot.drafts, kept.drafts)):
            ring |= {position % self._ring: (position, token) for position, token in rows}
