"""Trade-off curves: certified from both sides, against curves that are known and tests that attain them."""

import math
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.accounting import TradeOff, _trade_off, trade_off
from discreet.accounting.tight import delta
from discreet.errors import InvalidArgument, MissingExtra, UnknownEvent
from discreet.events import (
    Claimed,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    MayFail,
    NonPrivate,
    Parallel,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
    Shuffled,
    ShuffledEpoch,
)
from discreet.neighbors import REPLACE_ONE

ALPHA = np.concatenate(([0.0, 1e-12, 1e-6], np.linspace(0.001, 0.999, 333), [1 - 1e-6, 1.0]))
ROUNDING = 1e-12


def laplace_curve(alpha, epsilon):
    """Dong, Roth & Su 2022, Lemma A.6."""
    middle = np.exp(-epsilon) / (4 * np.maximum(alpha, 1e-300))
    steep, flat = 1 - np.exp(epsilon) * alpha, np.exp(-epsilon) * (1 - alpha)
    return np.where(alpha < np.exp(-epsilon) / 2, steep, np.where(alpha <= 0.5, middle, flat))


@pytest.mark.parametrize(
    ("event", "truth", "width"),
    [
        (Gaussian(1.0), lambda a: stats.norm.cdf(stats.norm.isf(a) - 1.0), 1e-3),
        (Gaussian(0.2), lambda a: stats.norm.cdf(stats.norm.isf(a) - 5.0), 5e-3),
        (Repeated(Gaussian(10.0), 4), lambda a: stats.norm.cdf(stats.norm.isf(a) - 0.2), 1e-3),
        (Laplace(1.0), lambda a: laplace_curve(a, 1.0), 1e-3),
        (Laplace(0.25), lambda a: laplace_curve(a, 4.0), 1e-3),
        (
            RandomizedResponse(Fraction(1)),
            lambda a: np.maximum(0, np.maximum(1 - math.e * a, (1 - a) / math.e)),
            1e-6,
        ),
        (
            Claimed(0.5, 0.125),
            lambda a: np.maximum(0, np.maximum(0.875 - math.exp(0.5) * a, math.exp(-0.5) * (0.875 - a))),
            1e-6,
        ),
        (NonPrivate(), lambda a: 0 * a, 1e-9),
        (Composed(()), lambda a: 1 - a, 1e-9),
        (MayFail(0.25, Composed(())), lambda a: np.maximum(0, 0.75 - a), 1e-6),
    ],
    ids=lambda value: "curve" if callable(value) else repr(value),
)
def test_known_curves_lie_between_both_ends(event, truth, width):
    curve = trade_off(event)
    lower, upper = curve.lower(ALPHA), curve.upper(ALPHA)
    assert np.all(lower <= truth(ALPHA) + ROUNDING)
    assert np.all(upper >= truth(ALPHA) - ROUNDING)
    assert np.max(upper - lower) < width


def test_each_direction_is_the_curve_of_the_best_test():
    # The likelihood ratio grows in x, so the best tests have a threshold.
    rate, threshold = 0.2, np.linspace(-6.0, 8.0, 700)
    below = stats.norm.cdf(threshold)
    mixture = (1 - rate) * below + rate * stats.norm.cdf(threshold - 1)
    event = PoissonSampled(rate, Gaussian(1.0))
    removing, adding = trade_off(event, direction="removing"), trade_off(event, direction="adding")
    for curve, alpha, beta in ((removing, 1 - below, mixture), (adding, mixture, 1 - below)):
        lower, upper = curve.lower(np.clip(alpha, 0.0, 1.0)), curve.upper(np.clip(alpha, 0.0, 1.0))
        assert np.all(lower <= beta + ROUNDING)
        assert np.all(upper >= beta - ROUNDING)
        assert np.max(upper - lower) < 2e-3
    either = trade_off(event)
    assert np.all(either.lower(ALPHA) <= np.minimum(removing.lower(ALPHA), adding.lower(ALPHA)) + ROUNDING)
    # Exchanging the directions would be noticed: the two curves differ.
    assert np.max(removing.lower(ALPHA) - adding.upper(ALPHA)) > 0.005


@pytest.mark.parametrize(
    "event",
    [
        Repeated(PoissonSampled(0.01, Gaussian(1.0)), 500),
        Composed((Repeated(Laplace(5.0), 20), DiscreteGaussian(1, Fraction(100)), DiscreteLaplace(3, Fraction(10)))),
        Repeated(DiscreteLaplace(1, Fraction(4)), 30),
    ],
    ids=["training", "mixed", "discrete"],
)
def test_lines_at_other_points_stay_below_the_upper_end(event):
    # Every δ(ε) that the tight accountant certifies from below gives a line that the tight curve attains or exceeds.
    curve = trade_off(event)
    for epsilon in (0.05, 0.4, 1.3):
        found = delta(event, epsilon)
        line = np.maximum(1 - found.upper - math.exp(epsilon) * ALPHA, math.exp(-epsilon) * (1 - found.upper - ALPHA))
        assert np.all(line <= curve.upper(ALPHA) + ROUNDING)
    assert np.max(curve.upper(ALPHA) - curve.lower(ALPHA)) < 2e-3


def test_a_chord_between_the_points_would_be_caught(monkeypatch):
    # The mutant bounds D from below by the chord between two points, which is above a convex function.
    def chords(at, least, most, *, first_slope, skipped):
        return at[skipped], least[skipped]

    truth = stats.norm.cdf(stats.norm.isf(ALPHA) - 1.0)
    monkeypatch.setattr(_trade_off, "_corners", chords)
    assert np.any(trade_off(Gaussian(1.0)).upper(ALPHA) < truth - ROUNDING)


def test_a_curve_is_convex_falling_and_below_guessing():
    curve = trade_off(Composed((Laplace(2.0), Repeated(PoissonSampled(0.1, Gaussian(2.0)), 50))), direction="adding")
    alpha = np.linspace(0.0, 1.0, 5001)
    for values in (curve.lower(alpha), curve.upper(alpha)):
        assert np.all(np.diff(values) <= ROUNDING)
        assert np.all(values <= 1 - alpha + ROUNDING)
    assert np.all(np.diff(curve.lower(alpha), 2) >= -ROUNDING)


def test_curves_compose_as_their_events_do():
    first, second = trade_off(Gaussian(2.0)), trade_off(Gaussian(1.0))
    both = first.compose(second)
    assert both == trade_off(Composed((Gaussian(2.0), Gaussian(1.0))))
    truth = stats.norm.cdf(stats.norm.isf(ALPHA) - math.sqrt(1.25))
    assert np.all(both.lower(ALPHA) <= truth + ROUNDING)
    assert np.all(both.upper(ALPHA) >= truth - ROUNDING)
    with pytest.raises(InvalidArgument, match="same relation"):
        first.compose(trade_off(Gaussian(1.0), REPLACE_ONE))
    with pytest.raises(InvalidArgument):
        first.compose(Gaussian(1.0))


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Exponential(Fraction(1)), None),
        (Parallel((Gaussian(1.0), Laplace(2.0))), REPLACE_ONE),
        (Group(Laplace(4.0), 3), None),
        (Shuffled(1000, RandomizedResponse(Fraction(1))), REPLACE_ONE),
    ],
    ids=lambda value: "curve" if callable(value) else repr(value),
)
def test_the_guaranteed_end_holds_for_the_certified_profile(event, relation):
    chosen = {} if relation is None else {"relation": relation}
    curve = trade_off(event, **chosen)
    lower, upper = curve.lower(ALPHA), curve.upper(ALPHA)
    assert np.all(lower <= upper + ROUNDING)
    for epsilon in (0.1, 0.6):
        # δ(ε) is the largest 1 − β − e^ε α of the curve.
        found = delta(event, epsilon, **chosen)
        assert np.max(1 - upper - math.exp(epsilon) * ALPHA) <= found.upper + ROUNDING
        assert np.max(1 - lower - math.exp(epsilon) * ALPHA) >= found.lower - 2e-3


@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, "x", [[0.1, 0.2]], [None]])
def test_type_1_errors_that_are_no_probabilities_are_refused(bad):
    curve = trade_off(Gaussian(1.0))
    with pytest.raises(InvalidArgument):
        curve.lower(bad)
    with pytest.raises(InvalidArgument):
        curve.upper(bad)


def test_bad_arguments_are_refused():
    with pytest.raises(InvalidArgument):
        trade_off(1.0)
    with pytest.raises(InvalidArgument):
        trade_off(Gaussian(1.0), direction="sideways")
    with pytest.raises(UnknownEvent):
        trade_off(ShuffledEpoch(2, 9, Gaussian(1.0)))


def test_a_curve_is_plotted_and_says_what_it_needs(monkeypatch):
    pytest.importorskip("matplotlib")
    curve = trade_off(Composed((Gaussian(1.0), Laplace(3.0))))
    axes = curve.plot()
    assert "type I" in axes.get_xlabel()
    assert curve.plot(axes) is axes
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match="matplotlib"):
        curve.plot()


def test_a_curve_shows_its_event_and_not_its_tables():
    assert "Pair" not in repr(trade_off(Gaussian(1.0)))
    assert isinstance(trade_off(Gaussian(1.0)), TradeOff)
