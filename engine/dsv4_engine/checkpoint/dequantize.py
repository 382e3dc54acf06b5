"""Weights as numbers again: fp8 e4m3 in scaled blocks, and mxfp4 (OCP Microscaling formats, MX v1.0).

Both keep their scales as e8m0, a bare power of two, so each product has at most four significant bits and is exact in
bfloat16 as well as in fp32.
"""

from __future__ import annotations

import math

import torch

FP4_BLOCK = 32
"""Elements along the input dimension that share an mxfp4 scale."""

_FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_BYTE_DTYPES = (torch.uint8, torch.int8)


def packed_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The stored shape of an (out, in) mxfp4 weight: two elements to a byte."""
    return shape[0], math.ceil(shape[1] / 2)


def fp4_scale_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """The shape of an mxfp4 weight's scales: one for each row and 32 inputs, the last group perhaps shorter."""
    return shape[0], math.ceil(shape[1] / FP4_BLOCK)


def fp8_scale_shape(shape: tuple[int, ...], block: tuple[int, int]) -> tuple[int, int]:
    """The shape of an fp8 weight's scales: one for each block, those at the edges perhaps cut."""
    return math.ceil(shape[0] / block[0]), math.ceil(shape[1] / block[1])


def scale_values(scale: torch.Tensor) -> torch.Tensor:
    """Scales as fp32: e8m0 under its own dtype or as raw bytes means 2^(byte - 127); floats mean themselves."""
    if scale.dtype in _BYTE_DTYPES:
        scale = scale.view(torch.float8_e8m0fnu)
    return scale.to(torch.float32)


def dequantize_fp8(weight: torch.Tensor, scale: torch.Tensor, block: tuple[int, int]) -> torch.Tensor:
    """(out, in) e4m3, under its own dtype or as raw bytes, times a scale a block -> (out, in) fp32."""
    if weight.dtype in _BYTE_DTYPES:
        weight = weight.view(torch.float8_e4m3fn)
    rows, columns = weight.shape
    factors = scale_values(scale).repeat_interleave(block[0], 0)[:rows].repeat_interleave(block[1], 1)[:, :columns]
    return weight.to(torch.float32) * factors


def dequantize_fp4(weight: torch.Tensor, scale: torch.Tensor, columns: int) -> torch.Tensor:
    """(out, ceil(in/2)) bytes, even input in the low nibble, times a scale a 32 inputs -> (out, columns) fp32."""
    codes = weight.view(torch.uint8)
    nibbles = torch.stack((codes & 0xF, codes >> 4), dim=-1).flatten(1)[:, :columns].long()
    magnitudes = torch.tensor(_FP4_VALUES, dtype=torch.float32)
    values = torch.cat((magnitudes, -magnitudes))[nibbles]
    return values * scale_values(scale).repeat_interleave(FP4_BLOCK, 1)[:, :columns]
