"""Curves of δ at every ε: formulas against grids, and curves against single answers."""

import math
from fractions import Fraction

import pytest
from mpmath import mp

from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import collapse
from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift
from discreet.accounting.losses.of_events import View
from discreet.accounting.methods import answer, curves, single
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.target import Target
from discreet.events import Composed, DiscreteLaplace, Gaussian, Laplace, PoissonSampled, RandomizedResponse, Repeated
from discreet.neighbors import ADD_REMOVE


@pytest.mark.parametrize("loss", [1e-9, 0.3, 4.0, 300.0])
@pytest.mark.parametrize("share", [-1.5, -1.0, -0.2, 0.0, 0.5, 1 - 1e-9, 1.0, 1.7])
def test_the_profile_of_laplace_noise_at_every_real_epsilon(loss, share):
    epsilon = share * loss
    with mp.workdps(60):
        exact = mp.mpf(epsilon)
        inside = 1 - mp.exp((exact - loss) / 2) if exact > -loss else 1 - mp.exp(exact)
        truth = max(mp.mpf(0), inside)
    lower, upper = single.laplace(epsilon, loss)
    assert lower <= truth <= upper
    assert upper - lower <= 1e-12 * (loss + 1) * float(truth) + 1e-13 * loss


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(("rate", "loss", "epsilon"), [(0.1, 1.0, 0.02), (0.5, 3.0, 0.3), (0.01, 5.0, 0.004)])
def test_laplace_noise_on_one_sample_by_formula_and_on_a_grid(adding, rate, loss, epsilon):
    by_formula = single.sampled(lambda e: single.laplace(e, loss), epsilon, rate, adding=adding)
    parts = [(ContinuousLoss(LaplaceShift(loss), rate, adding), 1)]
    on_grid = grid.bounds(parts, Target(epsilon=epsilon))
    assert on_grid[0] <= by_formula[1]
    assert by_formula[0] <= on_grid[1]
    assert by_formula[1] - by_formula[0] <= 1e-11 * by_formula[1]


@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(
    "event",
    [
        Composed((Repeated(Laplace(5.0), 8), Gaussian(4.0))),
        Composed((Repeated(PoissonSampled(0.1, Laplace(1.0)), 10), DiscreteLaplace(1, Fraction(3)))),
        Repeated(PoissonSampled(0.02, Gaussian(1.0)), 100),
        Composed((Repeated(RandomizedResponse(Fraction(1, 3)), 4), RandomizedResponse(Fraction(1, 7)))),
    ],
    ids=["closed", "grid", "sampled", "atoms"],
)
def test_a_curve_agrees_with_single_answers_far_from_where_it_was_made(event, adding):
    (way,) = collapse(event)
    losses = of_events.losses(way, View(ADD_REMOVE, adding, True, 0))
    curve = curves.near(losses, Target(delta=1e-3), adding)
    assert curve is not None
    for epsilon in (0.0, 0.1, 0.7, 1.4):
        low, high = curve(epsilon)
        alone = answer.of_losses(losses, Target(epsilon=epsilon), adding)
        assert low <= alone[1] * (1 + 1e-12)
        assert alone[0] <= high * (1 + 1e-12)
    middle = curves.reach(losses, 1e-3, adding)
    if math.isfinite(middle) and middle > 0:
        low, high = curve(middle)
        assert high - low <= 0.01 * high
