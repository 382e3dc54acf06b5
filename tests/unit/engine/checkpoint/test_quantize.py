"""Rounding to fp8 and mxfp4: by hand, against torch's own fp8 type, and against every scale that there is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.checkpoint.dequantize import dequantize_fp4, dequantize_fp8, fp4_scale_shape, packed_shape
from dsv4_engine.checkpoint.layout import TensorSpec
from dsv4_engine.checkpoint.quantize import fake_fp4, fake_fp8, fake_quantise, is_fp4, quantize_fp4, quantize_fp8

FP4 = torch.tensor((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0))
FP4_GRID = torch.cat((-FP4.flip(0)[:-1], FP4))
FP8_GRID = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
FP8_GRID = FP8_GRID[FP8_GRID.isfinite()].unique()
EXPERT = TensorSpec(shape=(4, 64), quantised=True, expert=0)
SHARED = TensorSpec(shape=(4, 64), quantised=True)


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    torch.set_num_threads(1)
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def back4(weight: torch.Tensor) -> torch.Tensor:
    return dequantize_fp4(*quantize_fp4(weight), weight.shape[1])


def back8(weight: torch.Tensor, block: tuple[int, int] = (128, 128)) -> torch.Tensor:
    return dequantize_fp8(*quantize_fp8(weight, block), block)


def nearest_error(block: torch.Tensor, grid: torch.Tensor) -> float:
    """The least squared error that one power of two for the whole block can give, all of them tried."""
    values = block.double().flatten()
    largest = values.abs().max()
    if largest == 0:
        return 0.0
    middle = int(torch.log2(largest / grid.max()).floor())
    scales = [2.0**e for e in range(max(middle - 6, -126), max(middle, -126) + 8)]
    grid = grid.double()
    return min(float((values[:, None] - s * grid).abs().min(1).values.square().sum()) for s in scales)


def test_nibbles_and_scales_by_hand():
    weight = torch.tensor([[0.0, 0.5, 1.0, 1.5, -2.0, -3.0, 4.0, -6.0, 0.24, -0.26, 5.1]])
    codes, scale = quantize_fp4(weight)
    assert codes.dtype == torch.int8 and scale.dtype == torch.float8_e8m0fnu
    assert codes.view(torch.uint8).tolist() == [[0x10, 0x32, 0xDC, 0xF6, 0x90, 0x07]]
    assert scale.view(torch.uint8).tolist() == [[127]]
    codes, scale = quantize_fp4(weight * 2.0**-9)
    assert codes.view(torch.uint8).tolist() == [[0x10, 0x32, 0xDC, 0xF6, 0x90, 0x07]]
    assert scale.view(torch.uint8).tolist() == [[118]]


def test_ties_go_to_the_even_fraction():
    ties = torch.tensor([[0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.75, 6.0]])
    assert back4(ties).tolist() == [[0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -1.0, 6.0]]


def test_fp8_rounds_as_torch_does_where_nothing_is_cut():
    # Between all neighbours of the format: the middles, and a little to both sides.
    middles = (FP8_GRID[1:] + FP8_GRID[:-1]) / 2
    points = torch.cat((FP8_GRID, middles, middles * (1 + 1e-6), middles * (1 - 1e-6)))
    weight = torch.cat((points, points.new_tensor([448.0])))[None]
    codes, scale = quantize_fp8(weight, (128, len(weight[0])))
    assert scale.view(torch.uint8).tolist() == [[127]]
    assert torch.equal(codes.float(), weight.to(torch.float8_e4m3fn).float())


def test_a_large_value_is_cut_where_the_others_gain_more():
    # 6.4 needs a scale of 2, under which 31 halves become 0 or 1; cut to 6 it costs 0.16.
    weight = torch.full((1, 32), 0.5)
    weight[0, 3] = 6.4
    assert quantize_fp4(weight)[1].view(torch.uint8).item() == 127
    assert back4(weight)[0, 3] == 6
    weight[0, 3] = 11.0
    assert quantize_fp4(weight)[1].view(torch.uint8).item() == 128


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 70),
    seed=st.integers(0, 10**6),
    exponent=st.integers(-140, 110),
    outliers=st.floats(0, 6),
)
def test_no_other_scale_is_closer_in_fp4(rows, columns, seed, exponent, outliers):
    weight = torch.ldexp(drawn(rows, columns, seed=seed), torch.tensor(exponent))
    weight = weight * torch.exp2(outliers * drawn(rows, columns, seed=seed + 1).clamp(min=0).floor())
    codes, scale = quantize_fp4(weight)
    assert tuple(codes.shape) == packed_shape(weight.shape) and tuple(scale.shape) == fp4_scale_shape(weight.shape)
    values = dequantize_fp4(codes, scale, columns)
    for row in range(rows):
        for start in range(0, columns, 32):
            block, ours = weight[row, start : start + 32], values[row, start : start + 32]
            error = float((block.double() - ours.double()).square().sum())
            assert error <= nearest_error(block, FP4_GRID) * (1 + 1e-5)


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 9), columns=st.integers(1, 12), seed=st.integers(0, 10**6), exponent=st.integers(-130, 110))
def test_no_other_scale_is_closer_in_fp8(rows, columns, seed, exponent):
    weight = torch.ldexp(drawn(rows, columns, seed=seed), torch.tensor(exponent))
    values = back8(weight, (4, 5))
    for top in range(0, rows, 4):
        for left in range(0, columns, 5):
            block, ours = weight[top : top + 4, left : left + 5], values[top : top + 4, left : left + 5]
            error = float((block.double() - ours.double()).square().sum())
            assert error <= nearest_error(block, FP8_GRID) * (1 + 1e-5)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 140), columns=st.integers(1, 300), seed=st.integers(0, 10**6))
def test_what_was_rounded_once_stays(rows, columns, seed):
    weight = drawn(rows, columns, seed=seed) * torch.exp2(3 * drawn(rows, columns, seed=seed + 1))
    for back in (back4, back8):
        once = back(weight)
        assert torch.equal(back(once), once)
        assert torch.equal(once.to(torch.bfloat16).float(), once)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 140), columns=st.integers(1, 300), seed=st.integers(0, 10**6))
def test_fake_values_are_those_that_the_bytes_give_back(rows, columns, seed):
    weight = drawn(rows, columns, seed=seed, scale=0.02)
    assert torch.equal(fake_fp4(weight), back4(weight))
    assert torch.equal(fake_fp8(weight), back8(weight))
    assert torch.equal(fake_fp8(weight, (3, 64)), back8(weight, (3, 64)))


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 2.0**-126, 1e-38, 1e38, -(2.0**127)])
def test_zeros_and_the_ends_of_fp32(value):
    weight = torch.zeros(3, 40)
    weight[1, 5] = value
    for back in (back4, back8):
        values = back(weight)
        assert values.isfinite().all() and (values[0] == 0).all()
        # Relative to the value, or to the least scale's step where that is larger.
        assert abs(values[1, 5].item() - value) <= max(abs(value) / 3.9, 2.0**-127)


def test_errors_are_those_of_the_formats():
    weight = drawn(256, 256, scale=0.05)
    # fp8: half a step of 2^-3, relative; below the normal range half of 2^-9 scales.
    scale = back_scale = quantize_fp8(weight, (128, 128))[1].float().max()
    error = (back8(weight) - weight).abs()
    assert (error <= (weight.abs() / 16).clamp(min=2.0**-10 * float(back_scale)) + 1e-12).all() and scale > 0
    relative = (back4(weight) - weight).norm() / weight.norm()
    assert 0.05 < relative < 0.13


def test_stacked_experts_are_rounded_one_by_one():
    stacked = drawn(2, 3, 48, 80, seed=4)
    for fake in (fake_fp4, fake_fp8):
        assert torch.equal(fake(stacked)[1, 2], fake(stacked[1, 2]))
        assert fake(stacked).shape == stacked.shape and fake(stacked).dtype == torch.float32
    assert torch.equal(fake_fp4(stacked.bfloat16())[0, 0], fake_fp4(stacked[0, 0].bfloat16().float()))


def test_what_a_spec_becomes():
    weight = drawn(4, 64)
    assert is_fp4(EXPERT) and not is_fp4(SHARED)
    assert torch.equal(fake_quantise(EXPERT, weight), back4(weight))
    assert torch.equal(fake_quantise(SHARED, weight, (2, 32)), back8(weight, (2, 32)))
    assert torch.equal(fake_quantise(TensorSpec(shape=(4, 64)), weight), weight.bfloat16().float())
    assert fake_quantise(TensorSpec(shape=(4, 64), fp32=True), weight) is weight


def test_the_host_never_looks_and_no_gradient_passes():
    weight = drawn(8, 64).requires_grad_()
    straight = weight + (fake_fp4(weight) - weight).detach()
    straight.sum().backward()
    assert torch.equal(weight.grad, torch.ones(8, 64))
    # A fake tensor has no values to look at.
    with torch._subclasses.FakeTensorMode():
        for fake in (fake_fp4, fake_fp8):
            assert fake(torch.empty(130, 70)).shape == (130, 70)


@pytest.mark.slow
@pytest.mark.parametrize("fake", [fake_fp4, fake_fp8])
def test_compiled_gives_the_same_bits(fake):
    weight = drawn(3, 130, 96, seed=9, scale=0.1)
    assert torch.equal(torch.compile(fake, fullgraph=True)(weight), fake(weight))


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("fake", [fake_fp4, fake_fp8])
def test_a_gpu_gives_the_same_bits(fake, compiled):
    weight = drawn(3, 130, 96, seed=9, scale=0.1)
    run = torch.compile(fake, fullgraph=True) if compiled else fake
    assert torch.equal(run(weight.cuda()).cpu(), fake(weight))
