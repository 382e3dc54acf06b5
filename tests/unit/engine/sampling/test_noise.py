"""The noise is a pure function of seed, position and token, and as good as random."""

from __future__ import annotations

import math

import pytest
import torch

from dsv4_engine.sampling.noise import gumbel, mix, signed, uniform


def ints(*values: int) -> torch.Tensor:
    return torch.tensor([signed(value) for value in values])


def test_the_mixer_is_splitmix64():
    """The first numbers of the published generator started at 0."""
    gamma = 0x9E3779B97F4A7C15
    mixed = mix(ints(gamma, 2 * gamma, 3 * gamma))
    assert mixed.tolist() == ints(0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F).tolist()


@pytest.mark.parametrize("value", [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**70 + 5, -(2**63), -(2**65) - 3])
def test_any_integer_is_a_seed(value):
    assert -(2**63) <= signed(value) < 2**63
    assert (signed(value) - value) % 2**64 == 0


def test_values_lie_strictly_between_0_and_1_and_all_bits_vary():
    values = uniform(torch.arange(50), torch.arange(50) * 7, 1000)
    assert 0 < values.min().item() < 1e-3 and 1 - 1e-3 < values.max().item() < 1
    assert values.unique().numel() == values.numel()
    bits = (values * 2.0**52).long()
    for bit in range(52):
        share = (bits >> bit & 1).double().mean().item()
        assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(bits.numel()), bit


@pytest.mark.parametrize("axis", ["seed", "position", "token"])
def test_the_distribution_is_uniform_along_every_axis(axis):
    """Chi-square over 100 cells; 149 is the 0.1 % quantile of 99 degrees of freedom."""
    count = 100_000
    moving, still = torch.arange(count), torch.full((count,), 3)
    values = {
        "seed": lambda: uniform(moving, still, 1)[:, 0],
        "position": lambda: uniform(still, moving, 1)[:, 0],
        "token": lambda: uniform(still[:1], still[:1], count)[0],
    }[axis]()
    cells = torch.histc(values, bins=100, min=0, max=1)
    assert (((cells - count / 100) ** 2) / (count / 100)).sum().item() < 149
    centred = values - 0.5
    neighbours = (centred[1:] * centred[:-1]).mean().item() / centred.square().mean().item()
    assert abs(neighbours) < 4 / math.sqrt(count)


def test_seed_and_position_do_not_stand_for_each_other():
    swapped = uniform(ints(5, 9), ints(9, 5), 16)
    assert not torch.equal(swapped[0], swapped[1])
    sums = uniform(ints(5, 6), ints(6, 5), 16)
    assert not torch.equal(sums[0], sums[1])


def test_a_row_does_not_depend_on_its_batch():
    seeds, positions = torch.arange(8) * 31, torch.arange(8) + 100
    together = gumbel(seeds, positions, 64)
    for row in range(8):
        assert torch.equal(gumbel(seeds[row : row + 1], positions[row : row + 1], 64)[0], together[row])


def test_gumbel_has_the_mean_and_variance_of_a_gumbel():
    values = gumbel(torch.arange(200), torch.arange(200), 1000)
    assert torch.isfinite(values).all()
    assert values.mean().item() == pytest.approx(0.5772, abs=0.015)
    assert values.var().item() == pytest.approx(math.pi**2 / 6, abs=0.03)
