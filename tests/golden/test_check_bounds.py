"""Bounds fit the set: plain at the committed one's magnitudes, in proportion beyond; and tokens too close to call."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from dsv4_engine.check.__main__ import main
from dsv4_engine.check.bounds import REFERENCE_MAGNITUDES, Bounds, close_call
from engine_batches import GOLDEN
from golden_sets import Tensors, change, small_copy
from remembered_forwards import remember_forwards

SCALE = 128.0
"""A power of two, by which a bfloat16 head can grow without rounding."""


def golden_tensors() -> list[tuple[str, torch.Tensor]]:
    golden, trace = load_file(GOLDEN / "golden.safetensors"), load_file(GOLDEN / "trace.safetensors")
    quant = load_file(GOLDEN / "quant" / "golden_weight_dequant_only.safetensors")
    named = [(key.split(".", 1)[1], tensor) for key, tensor in golden.items()]
    named += [(f"trace {key.split('.', 1)[-1]}", tensor) for key, tensor in trace.items()]
    named += [(f"quant {key.split('.', 1)[1]}", tensor) for key, tensor in quant.items()]
    return [(quantity, tensor) for quantity, tensor in named if tensor.is_floating_point()]


def test_the_reference_magnitudes_are_those_of_the_reference_set():
    measured: dict[str, float] = {}
    for quantity, tensor in golden_tensors():
        measured[quantity] = max(measured.get(quantity, 0.0), float(tensor.abs().max()))
    assert measured.keys() == REFERENCE_MAGNITUDES.keys()
    for quantity, largest in measured.items():
        assert largest <= REFERENCE_MAGNITUDES[quantity] <= 1.01 * largest, quantity


def test_the_reference_set_gets_the_plain_bounds():
    bounds = Bounds(golden_tensors())
    plain = dict.fromkeys(REFERENCE_MAGNITUDES, 1e-4)
    plain |= {f"trace {half}_hc.{name}": 5e-6 for half in ("attn", "ffn") for name in ("comb", "post")}
    plain |= {f"trace {half}_hc.collapsed": 3e-5 for half in ("attn", "ffn")} | {"trace router_weights": 5e-6}
    assert {quantity: bounds.of(quantity) for quantity in REFERENCE_MAGNITUDES} == plain


def test_bounds_grow_with_the_largest_number_of_all_places_and_never_shrink():
    bounds = Bounds([("logits", torch.tensor([1.0])), ("logits", torch.tensor([-90.9, 3.0]))])
    assert bounds.of("logits") == pytest.approx(1e-3) and bounds.of("greedy_logits") == 1e-4
    collapsed = "trace attn_hc.collapsed"
    assert Bounds([(collapsed, torch.tensor([97.8]))]).of(collapsed) == pytest.approx(6e-5)
    assert Bounds([("trace moe_out", torch.tensor([25.9]))]).of(collapsed) == pytest.approx(3e-4)
    assert Bounds([("trace moe_out", torch.tensor([25.9]))]).of("trace attn_hc.comb") == 5e-6
    assert Bounds([("logits", torch.tensor([0.001]))]).of("logits") == 1e-4
    assert Bounds([]).of("trace never_seen") == 1e-4


@pytest.mark.parametrize("wrong", [float("inf"), float("-inf"), float("nan")])
def test_what_is_not_finite_widens_nothing(wrong):
    assert Bounds([("logits", torch.tensor([wrong, 2.0]))]).of("logits") == 1e-4


def scale_logits(tensors: Tensors) -> Tensors:
    return {key: value * SCALE if key.endswith("logits") else value for key, value in tensors.items()}


@pytest.fixture
def scaled(tmp_path, monkeypatch):
    """The committed model with a head, and so with logits, many times as large."""
    remember_forwards(monkeypatch)
    folder = small_copy(tmp_path / "set")
    change(folder, "model", lambda t: t | {"head.weight": t["head.weight"] * SCALE})
    change(folder, "golden", scale_logits)
    change(folder, "trace", scale_logits)
    return folder


def row(printed: str, quantity: str) -> str:
    return next(line for line in printed.splitlines() if line.startswith(f"{quantity} "))


def test_a_correct_engine_passes_where_logits_are_large(scaled, capsys):
    status, printed = main([str(scaled)]), capsys.readouterr().out
    assert status == 0, printed
    worst, bound = (float(row(printed, "greedy_logits").split()[column]) for column in (2, 4))
    assert 1e-4 < worst < bound < 1e-4 * SCALE
    assert row(printed, "last_streams").split()[4] == "1e-04"


def test_a_wrong_one_does_not(scaled, capsys):
    def nudge(tensors):
        tensors["p33.logits"][3, 3] += 2 * 1e-4 * SCALE

    change(scaled, "golden", nudge)
    assert main([str(scaled)]) == 1
    assert capsys.readouterr().out.rstrip().endswith("MISMATCH in logits")


def test_the_margin_of_the_first_wrong_token_is_told_where_it_is_small():
    logits = torch.tensor([[5.0, 1.0, 0.0], [2.0, 2.00005, 0.0], [0.0, 3.0, 1.0]])
    expected = torch.tensor([0, 1, 1])
    assert close_call(torch.tensor([0, 0, 2]), expected, logits, 1e-4).startswith("margin 5.0e-05 at token 1")
    for actual in ([0, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0]):
        assert close_call(torch.tensor(actual), expected, logits, 1e-4) == "", actual
    assert close_call(torch.tensor([0, 0, 2]), expected, logits, 1e-5) == ""
    assert close_call(torch.tensor([0, 0, 2]), None, logits, 1e-4) == ""
    assert close_call(torch.tensor([0, 0, 2]), expected, None, 1e-4) == ""
    assert close_call(torch.tensor([0, 1, 0]), expected, logits[:2], 1e-4) == ""


def test_a_wrong_token_stays_a_mismatch_however_close(tmp_path, capsys, monkeypatch):
    remember_forwards(monkeypatch)

    def swap(tensors):
        logits, best = tensors["p33.greedy_logits"][-1], int(tensors["p33.greedy"][-1])
        other = int(logits.topk(2).indices[1])
        logits[other] = logits[best] + 3e-5
        tensors["p33.greedy"][-1] = other

    folder = small_copy(tmp_path / "set")
    change(folder, "golden", swap)
    assert main([str(folder)]) == 1
    printed = capsys.readouterr().out
    for quantity in ("plain tokens", "mtp tokens"):
        assert "MISMATCH (p33: margin 3" in row(printed, quantity) and "at token 39" in row(printed, quantity)
