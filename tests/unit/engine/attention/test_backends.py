"""The attention backends: which there are, and the reference one against loops over keys in pools full of NaN."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.attention.backends.base import REGISTRY, load_backend
from dsv4_engine.attention.backends.reference import ReferenceBackend
from dsv4_engine.attention.blocks import row_blocks
from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from engine_batches import golden_runner, make_batch, random_ids, worst
from metadata_cases import batches, built, each_row, layouts, make_context

torch.set_num_threads(1)
DIM, HEADS, SCALE = 6, 2, 0.3
PHASES = st.sampled_from((Phase.PREFILL, Phase.TARGET_VERIFY, Phase.DECODE)).flatmap(batches)
REFERENCE = ReferenceBackend()


class Case:
    """A batch over a pool that holds what earlier steps left, and NaN everywhere else."""

    def __init__(self, batch, layout, ratio: int, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        if batch.phase is not Phase.PREFILL:  # what is stored first must leave the first row's window alone
            ring = layout.window + max(batch.extend_lens_host) - 1
            layout = replace(layout, window_ring=max(layout.window_ring, ring))
        self.layout, self.ratio = layout, ratio
        self.meta = built(batch, layout)
        self.rows = list(each_row(batch, make_context(layout).table.pages))
        self.query, self.sink = self.normal(len(self.rows), HEADS, DIM), self.normal(HEADS)
        self.unified = torch.full((layout.swa_pages + layout.compressed_rows(ratio), DIM), float("nan"))
        self.keys = {(row.slot, row.position): self.normal(DIM) for row in self.rows}
        self.entries: dict[tuple[int, int], torch.Tensor] = {}
        for row in self.rows:
            for position in range(max(0, row.start - layout.window_ring), row.start):
                key = self.keys.setdefault((row.slot, position), self.normal(DIM))
                self.unified[row.slot * layout.window_ring + position % layout.window_ring] = key
            for entry in range((row.position + 1) // ratio if ratio else 0):
                key = self.entries.setdefault((row.slot, entry), self.normal(DIM))
                self.unified[layout.swa_pages + row.compressed_row(entry, layout, ratio)] = key
        self.chosen = [self.choose(row) for row in self.rows]

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def choose(self, row) -> list[int]:
        """Entries to attend; of a ratio-4 layer as many as the indexer may, in any order, handed to the metadata."""
        visible = (row.position + 1) // self.ratio if self.ratio else 0
        if self.ratio != 4:
            return list(range(visible))
        index = self.rows.index(row)
        core, streams = self.meta.core, self.meta.unified.streams
        count = int(core.c4_sparse_topk_lengths_raw[index])
        chosen = torch.randperm(visible, generator=self.generator)[:count].tolist()
        for place, entry in enumerate(chosen):
            address = row.compressed_row(entry, self.layout, 4)
            core.c4_sparse_page_indices[index, place] = address
            if streams is not None:
                streams.csa_indices[streams.csa_tail_loc[index, place]] = self.layout.swa_pages + address
        return chosen

    def actual(self) -> torch.Tensor:
        plan = REFERENCE.plan(self.meta)
        kv = torch.stack([self.keys[row.slot, row.position] for row in self.rows])
        streams = self.meta.unified.streams is not None
        if streams:
            REFERENCE.store(self.unified, kv, self.meta, plan)
        output = REFERENCE.attend(
            self.query, kv, self.unified, self.meta, plan, ratio=self.ratio, sink=self.sink, scale=SCALE
        )
        if not streams:
            REFERENCE.store(self.unified, kv, self.meta, plan)
        return output

    def expected(self) -> torch.Tensor:
        outputs = []
        for row, query, chosen in zip(self.rows, self.query, self.chosen, strict=True):
            positions = range(max(0, row.position - self.layout.window + 1), row.position + 1)
            keys = [self.keys[row.slot, position] for position in positions]
            keys = torch.stack(keys + [self.entries[row.slot, entry] for entry in chosen]).double()
            scores = torch.cat((query.double() @ keys.T * SCALE, self.sink.double()[:, None]), 1)
            outputs.append(torch.softmax(scores, 1)[:, :-1] @ keys)
        return torch.stack(outputs).float()

    def check_ring(self) -> None:
        """After the step, the ring holds the last positions of each request."""
        ring = self.layout.window_ring
        for row in self.rows:
            if row.end - 1 - row.position < ring:
                stored = self.unified[row.slot * ring + row.position % ring]
                assert torch.equal(stored, self.keys[row.slot, row.position])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(PHASES, layouts(ratios=((4, 128),)), st.sampled_from((0, 4, 128)), st.integers(0, 99))
def test_each_row_attends_its_window_and_entries_and_nothing_else(batch, layout, ratio, seed):
    case = Case(batch, layout, ratio, seed)
    assert worst(case.actual(), case.expected()) < 1e-5
    case.check_ring()


def test_a_sink_takes_weight_and_gives_nothing():
    layout = golden_runner(num_draft_tokens=1).layout
    case = Case(make_batch((1, 0, torch.zeros(6, dtype=torch.int64))), layout, 0, 3)
    case.sink = torch.full((HEADS,), 50.0)
    assert case.actual().abs().max() < 1e-12
    case.sink = torch.full((HEADS,), float("-inf"))
    assert worst(case.actual()[0], case.keys[1, 0].expand(HEADS, DIM)) < 1e-6


@settings(max_examples=10, deadline=None, derandomize=True)
@given(PHASES, layouts(ratios=((4, 128),)), st.sampled_from((0, 4, 128)), st.integers(1, 3000))
def test_blocks_of_rows_change_nothing(batch, layout, ratio, elements):
    whole = Case(batch, layout, ratio, 1).actual()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsv4_engine.attention.blocks._BLOCK_ELEMENTS", elements)
        assert worst(Case(batch, layout, ratio, 1).actual(), whole) < 1e-6


def test_row_blocks_cover_every_row_once_and_never_hold_nothing():
    for rows, cost in ((1, 10**12), (7, 1 << 22), (300, 1), (5, 0)):
        blocks = row_blocks(rows, cost)
        assert [row for block in blocks for row in range(rows)[block]] == list(range(rows))
        assert all(block.stop > block.start for block in blocks)


def test_a_runner_uses_the_backend_it_was_told():
    class Counting(ReferenceBackend):
        name, calls = "counting", 0

        def attend(self, *arguments, **options):
            Counting.calls += 1
            return super().attend(*arguments, **options)

    sys.modules["counting_backend"] = type(sys)("counting_backend")
    sys.modules["counting_backend"].Counting = Counting
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, "counting", "counting_backend:Counting")
        runner = golden_runner(backend="counting")
    assert runner.backend == "counting" and golden_runner().backend == "reference"
    batch = make_batch((1, 0, random_ids(20, seed=1)))
    assert torch.equal(runner.forward_target(batch).logits, golden_runner().forward_target(batch).logits)
    assert Counting.calls == 4
    del sys.modules["counting_backend"]


def test_backends_that_are_not_there_are_refused_by_name():
    for name in ("triton", "aiter"):
        with pytest.raises(EngineError, match=f"'{name}' is not built yet") as caught:
            load_backend(name)
        assert caught.value.hint == "use reference"
    with pytest.raises(EngineError, match="'flash' is unknown") as caught:
        golden_runner(backend="flash")
    assert caught.value.hint == "known: reference"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(REGISTRY, "broken", "no_such_module:Backend")
        with pytest.raises(EngineError, match="'broken' cannot be loaded: No module named 'no_such_module'"):
            load_backend("broken")
