"""Every answer of the graph gate, with its sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dsv4_engine.graphs.backends import BACKEND_CLASSES, known_backend, resolve
from dsv4_engine.graphs.gate import BatchShape, GateFacts, Memory, graph_decision, make_buckets
from dsv4_engine.phase import Phase

GPU = GateFacts(
    backend="reference",
    device="cuda",
    environment={},
    graphs="auto",
    draft_extend_graph=True,
    buckets=(1, 2, 4, 6),
    widths={Phase.TARGET_VERIFY: 4, Phase.DRAFT: 1, Phase.DRAFT_EXTEND: 4},
)
SHAPE = BatchShape(requests=3, width=4)
MIB = 2**20


@pytest.mark.parametrize(
    ("phase", "changes", "shape", "memory", "reason"),
    [
        (Phase.TARGET_VERIFY, {}, SHAPE, None, "captured: bucket of 4"),
        (Phase.DRAFT_EXTEND, {}, BatchShape(requests=6, width=4), None, "captured: bucket of 6"),
        (Phase.DRAFT, {}, BatchShape(requests=1, width=1), Memory(needed=5, free=5), "captured: bucket of 1"),
        (Phase.TARGET_VERIFY, {"device": "cpu", "graphs": True}, SHAPE, None, "captured: bucket of 4"),
        (Phase.PREFILL, {}, SHAPE, None, "eager: the rows of a prefill step differ from step to step"),
        (Phase.TARGET_VERIFY, {"backend": "odd"}, SHAPE, None, "eager: backend odd is not in the gate"),
        (
            Phase.DRAFT_EXTEND,
            {"environment": {"DSV4_GRAPH_GATE_WITHOUT": "triton, reference"}, "device": "cpu"},
            SHAPE,
            None,
            "eager: backend reference is not in the gate",
        ),
        (
            Phase.TARGET_VERIFY,
            {"backend": "triton"},
            SHAPE,
            None,
            "eager: backend triton cannot be imported: No module named 'dsv4_engine.attention.backends.triton'",
        ),
        (Phase.TARGET_VERIFY, {"graphs": False}, SHAPE, None, "eager: graphs are off (option graphs)"),
        (
            Phase.TARGET_VERIFY,
            {"device": "cpu"},
            SHAPE,
            None,
            "eager: graphs are off on a CPU (option graphs turns them on)",
        ),
        (
            Phase.DRAFT_EXTEND,
            {"environment": {"DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH": "1"}},
            SHAPE,
            None,
            "eager: DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH is set",
        ),
        (
            Phase.DRAFT_EXTEND,
            {"environment": {"DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH": "0"}},
            SHAPE,
            None,
            "captured: bucket of 4",
        ),
        (
            Phase.TARGET_VERIFY,
            {"environment": {"DSV4_DISABLE_DRAFT_EXTEND_CUDA_GRAPH": "1"}},
            SHAPE,
            None,
            "captured: bucket of 4",
        ),
        (
            Phase.DRAFT_EXTEND,
            {"draft_extend_graph": False},
            SHAPE,
            None,
            "eager: the draft-extend graph is off (option draft_extend_graph)",
        ),
        (Phase.TARGET_VERIFY, {"draft_extend_graph": False}, SHAPE, None, "captured: bucket of 4"),
        (
            Phase.DRAFT,
            {"host_reads": "40 experts on a rank"},
            BatchShape(requests=1, width=1),
            None,
            "eager: the model reads on the host: 40 experts on a rank",
        ),
        (
            Phase.TARGET_VERIFY,
            {},
            BatchShape(requests=7, width=4),
            None,
            "eager: 7 requests are more than the largest bucket of 6",
        ),
        (
            Phase.DRAFT_EXTEND,
            {},
            BatchShape(requests=2, width=3),
            None,
            "eager: 3 rows a request differ from the 4 of the capture",
        ),
        (Phase.DECODE, {}, BatchShape(requests=2, width=1), None, "eager: no graph of decode was planned"),
        (
            Phase.TARGET_VERIFY,
            {},
            SHAPE,
            Memory(needed=300 * MIB, free=100 * MIB),
            "eager: a graph may take 300 MiB, and the device has 100 MiB free",
        ),
    ],
)
def test_decision_and_sentence(phase, changes, shape, memory, reason):
    decision = graph_decision(phase, replace(GPU, **changes), shape, memory=memory)
    assert decision.reason == reason
    assert decision.captured == reason.startswith("captured: ")


def test_a_backend_is_known_by_its_class_and_imported_only_when_asked():
    assert known_backend("reference", {}) is None
    assert resolve(BACKEND_CLASSES["reference"]).__name__ == "ReferenceBackend"
    missing = known_backend("mine", {}, {"mine": "dsv4_engine.phase:Nothing"})
    assert missing is not None and missing.startswith("backend mine cannot be imported: ")
    assert known_backend("mine", {}, {"mine": "dsv4_engine.phase:Phase"}) is None


def test_a_backend_taken_out_of_the_registry_is_not_in_the_gate(monkeypatch):
    monkeypatch.delitem(BACKEND_CLASSES, "reference")
    assert graph_decision(Phase.DRAFT_EXTEND, GPU, SHAPE).reason == "eager: backend reference is not in the gate"


@pytest.mark.parametrize(
    ("most", "buckets"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (9, (1, 2, 4, 8, 9))]
)
def test_buckets_end_with_the_largest_batch(most, buckets):
    assert make_buckets(most) == buckets
