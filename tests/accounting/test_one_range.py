"""One selection of bounded range by its formula, and thousands of different ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf

from discreet.accounting import delta, epsilon
from discreet.accounting.losses import ranges
from discreet.accounting.losses.families import RangeFamily
from discreet.accounting.losses.one_range import RangeLoss
from discreet.events import Composed, Exponential, Laplace


@pytest.mark.parametrize("loss", [1e-4, 0.3, 4.0, 90.0])
def test_the_cells_hold_the_masses_of_the_profile(loss):
    # An expectation of the hockey stick at each edge is the profile (√E − √y)²/(E − 1).
    edges = np.linspace(-1.2 * loss, 1.2 * loss, 801)
    cells = RangeLoss(loss).cells(edges)
    assert np.sum(cells.p) == pytest.approx(1.0, rel=1e-12)
    assert np.sum(cells.q) == pytest.approx(1.0, rel=1e-12)
    assert np.all((cells.upper_share >= 0) & (cells.upper_share <= cells.p))
    for k in (120, 400, 555):
        beyond = float(np.sum(cells.p[k:]) - np.exp(edges[k]) * np.sum(cells.q[k:]))
        with mp.workdps(30):
            e, y = mp.exp(mpf(loss)), mp.exp(mpf(float(edges[k])))
            assert beyond == pytest.approx(float((mp.sqrt(e) - mp.sqrt(y)) ** 2 / (e - 1)), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("loss", [1e-6, 0.02, 3.0, 60.0])
@pytest.mark.parametrize("tilt", [1e-3, 2.0, 400.0])
def test_the_moments_are_those_of_sixty_digits(loss, tilt):
    family = RangeFamily(np.array([loss, loss]), np.array([1.0, 2.0]))
    omega = np.array([0.0, 0.7, 30.0, 4e4])
    with mp.workdps(60):

        def moment(z):
            return mp.sinh((z + mpf(1) / 2) * mpf(loss)) / ((2 * z + 1) * mp.sinh(mpf(loss) / 2))

        assert family.cumulants(tilt)[0] == pytest.approx(float(3 * mp.log(moment(mpf(tilt)))), rel=1e-13, abs=1e-14)
        ratio, error = family.ratio(tilt, omega)
        for k, at in enumerate(omega):
            truth = (moment(mp.mpc(tilt, at)) / moment(mpf(tilt))) ** 3
            assert abs(mp.mpc(ratio[k]) - truth) <= error[k]
        slope = float(3 * mp.diff(lambda z: mp.log(moment(z)), mpf(tilt)))
        bend = float(3 * mp.diff(lambda z: mp.log(moment(z)), mpf(tilt), 2))
    assert family.cumulants(tilt)[1] == pytest.approx(slope, rel=1e-4)
    assert family.cumulants(tilt)[2] == pytest.approx(bend, rel=1e-4)


def test_different_ranges_one_by_one_cost_what_their_tabulated_pairs_cost(monkeypatch):
    event = Composed((*(Exponential(Fraction(k, 2000)) for k in range(1, 16)), Laplace(5.0), Laplace(7.0)))
    by_formula = delta(event, 0.2).upper
    monkeypatch.setattr(ranges, "_alone", ranges.single)
    assert by_formula == pytest.approx(delta(event, 0.2).upper, rel=1e-3)


def test_a_narrower_density_would_be_caught():
    # 0.9 of the range has a smaller profile than an attack on one selection attains.
    attained = delta(Exponential(Fraction(1, 2)), 0.1).lower
    p, q = (getattr(RangeLoss(0.45).cells(np.array([0.1, 0.45])), side)[0] for side in "pq")
    assert p - np.exp(0.1) * q < 0.9 * attained


def test_hundreds_of_different_selections_have_both_ends():
    event = Composed(tuple(Exponential(Fraction(20 + k, 100_000)) for k in range(400)))
    found = epsilon(event, 1e-6)
    # All of the smallest range cost less, all of the largest range more.
    least, most = (epsilon(Composed((Exponential(Fraction(k, 100_000)),) * 400), 1e-6) for k in (20, 419))
    assert least.lower <= found.upper <= most.upper
    assert found.width <= 0.1 * found.upper
