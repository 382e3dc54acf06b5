"""Quantised weights by hand: each code and nibble, ragged blocks, and every way in which files store the bytes."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.checkpoint.dequantize import dequantize_fp4, dequantize_fp8, scale_values

E8M0 = torch.float8_e8m0fnu


def exponents(*rows: tuple[int, ...]) -> torch.Tensor:
    """Raw e8m0 bytes: 127 is 1, 128 is 2, 126 is a half."""
    return torch.tensor(rows, dtype=torch.uint8)


def test_fp4_has_the_even_input_in_the_low_nibble():
    weight = torch.tensor([[0x10, 0x32, 0x54, 0x76], [0x98, 0xBA, 0xDC, 0xFE]], dtype=torch.uint8)
    expected = [[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], [-0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]]
    assert dequantize_fp4(weight, exponents((127,), (127,)), 8).tolist() == expected
    assert dequantize_fp4(weight.view(torch.int8), exponents((128,), (126,)), 8).tolist() == [
        [2 * value for value in expected[0]],
        [value / 2 for value in expected[1]],
    ]


def test_fp4_scales_each_32_inputs_and_ends_with_a_shorter_group():
    weight = torch.full((1, 35), 0x22, dtype=torch.uint8)
    values = dequantize_fp4(weight, exponents((127, 130, 120)), 69)
    assert values.shape == (1, 69)
    assert values[0].tolist() == [1.0] * 32 + [8.0] * 32 + [2.0**-7] * 5


@pytest.mark.parametrize("shape", [(3, 5), (128, 128), (129, 260), (300, 127)])
def test_fp8_blocks_may_be_cut_at_both_edges(shape):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
    blocks = -(-shape[0] // 128), -(-shape[1] // 128)
    scale = torch.randint(115, 135, blocks, generator=generator, dtype=torch.uint8)
    values = dequantize_fp8(weight, scale, (128, 128))
    for row in range(0, shape[0], 37):
        for column in range(0, shape[1], 31):
            factor = 2.0 ** (int(scale[row // 128, column // 128]) - 127)
            assert values[row, column] == float(weight[row, column].float()) * factor
    assert torch.equal(dequantize_fp8(weight.view(torch.uint8), scale, (128, 128)), values)
    assert torch.equal(values.to(torch.bfloat16).float(), values)


def test_scales_mean_the_same_however_they_are_stored():
    raw = exponents((1, 126, 127, 128, 254))
    expected = [[2.0**-126, 0.5, 1.0, 2.0, 2.0**127]]
    floats = torch.tensor(expected)
    for stored in (raw, raw.view(torch.int8), raw.view(E8M0), floats, floats.bfloat16()):
        assert scale_values(stored).tolist() == expected, stored.dtype
    assert scale_values(exponents((0,))).item() == 2.0**-127
    assert scale_values(exponents((255,))).isnan().all()
