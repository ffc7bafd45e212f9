"""Discrete Gaussians between two Gaussians: in several coordinates, and too wide for their atoms to be summed."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from discreet.accounting import delta, epsilon
from discreet.accounting.losses import wide
from discreet.errors import UnknownEvent
from discreet.events import Composed, DiscreteGaussian, Gaussian, Laplace, PoissonSampled, Repeated


@pytest.mark.parametrize("z", [0, 17])
def test_a_discrete_gaussian_is_made_from_a_gaussian_of_less_noise(z):
    with mp.workdps(25):
        variance, spread = mpf(32), mpf(2)

        def rounded_here(y):
            chance = mp.exp(-((z - y) ** 2) / (2 * spread)) / _sum(y, spread, z, 26)
            return mp.npdf(y, 0, mp.sqrt(variance - spread)) * chance

        made = mp.quad(rounded_here, mp.linspace(z - 14, z + 14, 8))
        wanted = mp.exp(-(mpf(z) ** 2) / (2 * variance)) / _sum(0, variance, 0, 120)
        losses = wide.gaussian(DiscreteGaussian(2, Fraction(32), 2), upper=True)
        assert losses is not None
        assert abs(mp.log(made / wanted)) <= losses.inflation / 2  # of which there are two coordinates
        assert losses.inflation < 1e-15


@pytest.mark.parametrize("t", [0.0, 0.31, 12.5])
def test_a_gaussian_of_more_noise_is_made_from_a_discrete_one(t):
    with mp.workdps(40):
        variance, spread = mpf(4096), mpf(3)
        reach = range(int(t) - 40, int(t) + 41)
        normal = _sum(0, variance, 0, 1100)
        made = mp.fsum(mp.exp(-(mpf(z) ** 2) / (2 * variance)) / normal * mp.npdf(t, z, mp.sqrt(spread)) for z in reach)
        losses = wide.gaussian(DiscreteGaussian(10**12, Fraction(4096)), upper=False)
        assert losses is not None
        assert abs(mp.log(made / mp.npdf(t, 0, mp.sqrt(variance + spread)))) <= losses.inflation


def _sum(center, variance, around, reach):
    return mp.fsum(mp.exp(-((k - center) ** 2) / (2 * variance)) for k in range(around - reach, around + reach + 1))


def _two_coordinates(moves: tuple[int, int], variance: float, at: float) -> float:
    x = np.arange(-90, 91, dtype=np.float64)
    weights = np.exp(-x * x / (2 * variance))

    def moved(by: int) -> np.ndarray:
        return np.exp(-((x - by) ** 2) / (2 * variance)) / weights.sum()

    p, q = np.outer(moved(0), moved(0)), np.outer(moved(moves[0]), moved(moves[1]))
    return float(np.sum(np.maximum(p - math.exp(at) * q, 0.0)))


@pytest.mark.parametrize("at", [0.0, 0.3, 1.0])
def test_two_coordinates_cost_no_less_than_any_moves_and_hardly_more(at):
    truth = max(_two_coordinates(moves, 40.0, at) for moves in ((2, 2), (2, 1), (1, 2), (2, 0), (0, 2), (-2, 2)))
    found = delta(DiscreteGaussian(8, Fraction(40), 2), at)
    assert found.lower <= truth <= found.upper
    # 2/40 of the variance is given away, and ρ alone gives away far more.
    assert found.upper <= delta(Gaussian(math.sqrt(38 / 8)), at).upper * (1 + 1e-9)


def test_a_spread_on_the_wrong_side_would_be_caught(monkeypatch):
    monkeypatch.setattr(wide, "_SMALL_SPREAD", -2)
    monkeypatch.setattr(wide, "_LOG_FACTOR", 0.0)
    assert delta(DiscreteGaussian(8, Fraction(40), 2), 1.0).upper < _two_coordinates((2, 2), 40.0, 1.0)


@pytest.mark.parametrize("count", [1, 30])
def test_the_wide_price_is_that_of_the_atoms(count, monkeypatch):
    event = Repeated(DiscreteGaussian(1, Fraction(6_000_000)), count)
    by_atoms = epsilon(event, 1e-6)
    monkeypatch.setattr(wide, "MOST_ATOMS", 10)
    compared = epsilon(event, 1e-6)
    assert compared.lower <= by_atoms.lower * (1 + 1e-9)
    assert by_atoms.upper <= compared.upper * (1 + 1e-9)
    assert compared.width <= 1e-6 * compared.upper


def test_thousands_of_wide_counts_cost_what_gaussians_cost():
    # Each costs a part in a billion; the atoms of one alone would be a million.
    events = [DiscreteGaussian(1, Fraction(10**8 + 10**4 * k)) for k in range(2000)]
    found = epsilon(Composed(tuple(events)), 1e-6)
    mu_squared = math.fsum(1 / float(event.variance) for event in events)
    assert found.contains(epsilon(Gaussian(1 / math.sqrt(mu_squared)), 1e-6).upper)
    assert found.width < 1e-6 * found.upper
    mixed = epsilon(Composed((*events, Repeated(Laplace(1000.0), 50))), 1e-6)
    assert mixed.width < 3e-4 * mixed.upper


def test_samples_of_several_coordinates_have_a_price_from_enough_noise_on():
    sampled = Repeated(PoissonSampled(0.01, DiscreteGaussian(16, Fraction(1600), 9)), 100)
    found = epsilon(sampled, 1e-6)
    assert found.contains(epsilon(Repeated(PoissonSampled(0.01, Gaussian(10.0)), 100), 1e-6).upper)
    assert found.width < 1e-3 * found.upper
    with pytest.raises(UnknownEvent, match="this little noise"):
        epsilon(PoissonSampled(0.01, DiscreteGaussian(16, Fraction(16), 9)), 1e-6)
