"""Numbers as weights: fp8 e4m3 in scaled blocks, and mxfp4 (OCP Microscaling formats, MX v1.0), as `dequantize` reads.

A block's scale is the power of two with the least squared error. Let s be the smallest one under which the block's
largest magnitude is not cut. Twice s only makes the small values coarser. Half of s cuts the largest values and makes
the small ones finer, which may be worth it. A quarter of s cuts so far that it never is: with u = s / 2 a cut value
costs at least 9 u^2 in mxfp4, and 31 others gain at most 2 u^2 (in fp8 the gap is far wider). So two are tried.

All of it is arithmetic on tensors, which the host never looks into: training runs `fake_quantise` on every weight in
every step, on GPUs and compiled. Rounding does not go through torch's fp8 type, so that any device gives the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from dsv4_engine.checkpoint.dequantize import FP4_BLOCK
from dsv4_engine.checkpoint.layout import TensorSpec

_EXPONENT_BITS = 0x7F800000
_MANTISSA_BITS = 23
_LEAST_SCALE = 2.0**-126
"""The least power of two that every device keeps: it is no subnormal number of fp32."""


@dataclass(frozen=True, kw_only=True)
class _Format:
    """A small float: fraction bits after the leading one, the least normal and the largest magnitude."""

    fraction_bits: int
    least_normal: float
    largest: float

    @property
    def largest_power(self) -> float:
        """The power of two of the largest magnitude."""
        return 2.0 ** math.floor(math.log2(self.largest))


_E4M3 = _Format(fraction_bits=3, least_normal=2.0**-6, largest=448.0)
_E2M1 = _Format(fraction_bits=1, least_normal=1.0, largest=6.0)
_FP4_BLOCK_SHAPE = (1, FP4_BLOCK)


def is_fp4(spec: TensorSpec) -> bool:
    """Whether a quantised checkpoint holds this tensor as mxfp4: the routed experts. Other quantised ones are fp8."""
    return spec.quantised and spec.expert is not None


def quantize_fp8(weight: torch.Tensor, block: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, in) fp32 of at most 2^127 -> e4m3 of the same shape, and e8m0 scales (ceil(out/rows), ceil(in/columns))."""
    codes, scale = _quantised(weight, block, _E4M3)
    return codes.to(torch.float8_e4m3fn), _e8m0(scale)


def quantize_fp4(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, in) fp32 of at most 2^127 -> int8 (out, ceil(in/2)), the even input in the low nibble, and e8m0 scales
    (out, ceil(in/32)).

    A code is a sign bit and the index into 0, .5, 1, 1.5, 2, 3, 4, 6; zero has no sign.
    """
    values, scale = _quantised(weight, _FP4_BLOCK_SHAPE, _E2M1)
    size = values.abs()
    # Indices of the magnitudes: twice the value up to 2, then one a unit up to 4, then 6.
    index = torch.where(size <= 2, 2 * size, torch.where(size <= 4, size + 2, 7.0)).to(torch.uint8)
    codes = index | ((values < 0).to(torch.uint8) << 3)
    pairs = F.pad(codes, (0, codes.shape[-1] % 2)).unflatten(-1, (-1, 2))
    return (pairs[..., 0] | (pairs[..., 1] << 4)).view(torch.int8), _e8m0(scale)


def fake_fp8(weight: torch.Tensor, block: tuple[int, int] = (128, 128)) -> torch.Tensor:
    """(..., out, in) float -> fp32, as it comes back from fp8. No gradient passes, as in all of this module."""
    codes, scale = _quantised(weight, block, _E4M3)
    return codes * _expanded(scale, block, weight.shape)


def fake_fp4(weight: torch.Tensor) -> torch.Tensor:
    """(..., out, in) float -> fp32, as it comes back from mxfp4."""
    codes, scale = _quantised(weight, _FP4_BLOCK_SHAPE, _E2M1)
    return codes * _expanded(scale, _FP4_BLOCK_SHAPE, weight.shape)


def fake_quantise(spec: TensorSpec, weight: torch.Tensor, block: tuple[int, int] = (128, 128)) -> torch.Tensor:
    """The values, in fp32, that a quantised checkpoint gives back for this tensor of `layout.tensor_specs`.

    Leading dimensions are allowed, so that experts may be stacked as (E, out, in). What is never quantised comes back
    as bfloat16 or fp32 would keep it. Every result is exact in bfloat16, but for those that stay in fp32.
    """
    if is_fp4(spec):
        return fake_fp4(weight)
    if spec.quantised:
        return fake_fp8(weight, block)
    return weight if spec.fp32 or spec.integer else weight.to(torch.bfloat16).to(torch.float32)


def _quantised(weight: torch.Tensor, block: tuple[int, int], form: _Format) -> tuple[torch.Tensor, torch.Tensor]:
    """(..., out, in) -> values of the format, fp32 of the same shape, and a scale a block, powers of two."""
    rows, columns = weight.shape[-2:]
    padded = F.pad(weight.detach().to(torch.float32), (0, -columns % block[1], 0, -rows % block[0]))
    blocks = padded.unflatten(-1, (-1, block[1])).unflatten(-3, (-1, block[0]))
    scale = _covering_scale(blocks.abs().amax(dim=(-3, -1), keepdim=True), form)
    # Error in units of the scale, whose squares neither vanish nor overflow.
    covered = blocks / scale
    error = (_rounded(covered, form) - covered).square().sum(dim=(-3, -1), keepdim=True)
    error_of_half = (_rounded(2 * covered, form) / 2 - covered).square().sum(dim=(-3, -1), keepdim=True)
    scale = torch.where((error_of_half < error) & (scale > _LEAST_SCALE), scale / 2, scale)
    codes = _rounded(blocks / scale, form).flatten(-4, -3).flatten(-2, -1)
    return codes[..., :rows, :columns], scale.squeeze(-1).squeeze(-2)


def _covering_scale(largest: torch.Tensor, form: _Format) -> torch.Tensor:
    """The smallest power of two times which the format's largest value is not less than `largest`; 1 for zero."""
    scale = _power_below(largest) / form.largest_power
    scale = torch.where(largest > form.largest * scale, 2 * scale, scale)
    return torch.where(largest == 0, 1.0, scale.clamp(min=_LEAST_SCALE))


def _rounded(values: torch.Tensor, form: _Format) -> torch.Tensor:
    """The nearest values of the format, ties to the even fraction, larger magnitudes cut to the largest."""
    step = _power_below(values).clamp(min=form.least_normal) * 2.0**-form.fraction_bits
    return ((values / step).round() * step).clamp(-form.largest, form.largest)


def _power_below(values: torch.Tensor) -> torch.Tensor:
    """The largest power of two not above each magnitude; 0 for zero and subnormal numbers."""
    return (values.contiguous().view(torch.int32) & _EXPONENT_BITS).view(torch.float32)


def _expanded(scale: torch.Tensor, block: tuple[int, int], shape: torch.Size) -> torch.Tensor:
    """A factor for each weight: (..., blocks of rows, blocks of columns) -> (..., out, in)."""
    rows, columns = shape[-2:]
    wide = scale[..., :, None, :, None].expand(*scale.shape[:-1], block[0], scale.shape[-1], block[1])
    return wide.flatten(-4, -3).flatten(-2, -1)[..., :rows, :columns]


def _e8m0(scale: torch.Tensor) -> torch.Tensor:
    """Powers of two as e8m0, whose byte is the exponent field of an fp32 number."""
    return (scale.contiguous().view(torch.int32) >> _MANTISSA_BITS).to(torch.uint8).view(torch.float8_e8m0fnu)
