"""The model against the golden set: numbers that two other implementations agree on."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from engine_batches import GOLDEN, golden_runner, make_batch, poison, worst

LOGITS, STATISTICS, COLLAPSED = 2e-5, 5e-6, 3e-5
"""Bounds: the set itself asks 1e-4 of logits; the others are too small to be seen in logits."""


@pytest.fixture(scope="module")
def golden():
    return load_file(GOLDEN / "golden.safetensors")


@pytest.fixture(scope="module")
def runner():
    return golden_runner()


def lengths(golden) -> list[int]:
    return sorted({int(key.split(".")[0][1:]) for key in golden})


def test_logits_and_streams_of_every_prompt(golden, runner):
    assert len(lengths(golden)) == 22
    for length in lengths(golden):
        poison(runner)
        output = runner.forward_target(make_batch((1, 0, golden[f"p{length}.input_ids"])))
        assert worst(output.logits, golden[f"p{length}.logits"]) < LOGITS, length
        assert worst(output.streams[-1], golden[f"p{length}.last_streams"]) < LOGITS, length


def test_greedy_decode_is_the_golden_continuation(golden, runner):
    for length in (1, 5, 33, 129):
        ids = golden[f"p{length}.input_ids"]
        rows = [runner.forward_target(make_batch((1, 0, ids)), logits_rows=torch.tensor([length - 1])).logits[0]]
        greedy = golden[f"p{length}.greedy"]
        for step, token in enumerate(greedy[:-1]):
            assert rows[-1].argmax() == token
            rows.append(runner.forward_target(make_batch((1, length + step, token[None]))).logits[0])
        assert worst(torch.stack(rows), golden[f"p{length}.greedy_logits"]) < LOGITS, length


def test_mtp_logits_and_draft_chains_of_every_prompt(golden, runner):
    for length in lengths(golden):
        poison(runner)
        ids, first = golden[f"p{length}.input_ids"], golden[f"p{length}.greedy"][:1]
        streams = runner.forward_target(make_batch((2, 0, ids)), logits_rows=torch.tensor([0])).streams
        output = runner.forward_mtp(make_batch((2, 0, torch.cat((ids[1:], first)))), streams)
        assert worst(output.logits, golden[f"p{length}.mtp_logits"]) < LOGITS, length
        assert worst(output.streams[-1], golden[f"p{length}.mtp_last_streams"]) < LOGITS, length
        chain, chain_logits = golden[f"p{length}.mtp_chain"], [output.logits[-1]]
        for step in range(len(chain) - 1):
            token = chain_logits[-1].argmax()[None]
            output = runner.forward_mtp(make_batch((2, length + step, token)), output.streams[-1:])
            chain_logits.append(output.logits[0])
        assert [int(row.argmax()) for row in chain_logits] == chain.tolist(), length
        assert worst(torch.stack(chain_logits), golden[f"p{length}.mtp_chain_logits"]) < LOGITS, length


def test_every_traced_quantity_of_every_layer(runner):
    trace = load_file(GOLDEN / "trace.safetensors")
    ids = trace.pop("input_ids")
    poison(runner)
    actual = runner.trace_target(make_batch((3, 0, ids)))
    assert set(actual) == set(trace)
    for name, expected in trace.items():
        if name.endswith(("router_indices", "index_topk")):
            assert torch.equal(actual[name].sort(-1).values, expected.sort(-1).values), name
        else:
            statistic = name.endswith((".post", ".comb", "router_weights"))
            bound = STATISTICS if statistic else COLLAPSED
            assert worst(actual[name], expected) < bound, name


def test_router_weights_belong_to_their_experts(runner):
    trace = load_file(GOLDEN / "trace.safetensors")
    actual = runner.trace_target(make_batch((1, 0, trace["input_ids"])))
    for layer in range(4):
        names = f"L{layer}.router_indices", f"L{layer}.router_weights"
        dense = [torch.zeros(140, 8).scatter_(1, *(values[name] for name in names)) for values in (actual, trace)]
        assert worst(*dense) < STATISTICS
