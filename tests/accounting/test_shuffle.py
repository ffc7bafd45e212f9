"""Shuffling: a certified upper bound, never below the theorem's own sum."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest

from discreet import events as ev
from discreet.accounting import shuffle
from discreet.accounting.shuffle import Clones, clones, clones_delta, shuffled_delta, shuffled_epsilon
from discreet.errors import UnknownEvent
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT


def _report(loss: float) -> ev.Event:
    return ev.Laplace(1 / loss)


def _direct(others: int, rate: float, loss: float, epsilon: float) -> mpmath.mpf:
    """The sum over all counts of clones and all outcomes, as the theorem states it."""
    p, half, e = mpmath.mpf(rate), mpmath.mpf(1) / 2, mpmath.exp(mpmath.mpf(loss))
    stays, factor = e / (1 + e), mpmath.exp(mpmath.mpf(epsilon))
    whole = mpmath.mpf(0)
    for c in range(others + 1):
        chance = mpmath.binomial(others, c) * p**c * (1 - p) ** (others - c)
        for a in range(c + 2):
            up = mpmath.binomial(c, a - 1) * half**c if a else 0
            keep = mpmath.binomial(c, a) * half**c if a <= c else 0
            left, right = stays * up + (1 - stays) * keep, (1 - stays) * up + stays * keep
            whole += chance * max(0, left - factor * right)
    return whole


@pytest.mark.parametrize("others", [0, 1, 2, 17, 60])
@pytest.mark.parametrize(("loss", "epsilon"), [(1.0, 0.0), (1.0, 0.3), (1.0, 0.9), (3.0, 1.0), (0.2, 0.05)])
def test_delta_is_the_sum_of_the_theorem_from_above(others: int, loss: float, epsilon: float) -> None:
    with mpmath.workdps(40):
        for rate in (math.exp(-loss), 2 / (1 + math.exp(loss))):
            truth = _direct(others, rate, loss, epsilon)
            ours = mpmath.mpf(clones_delta(Clones(others, rate, loss), epsilon))
            assert truth <= ours <= truth * (1 + mpmath.mpf(10) ** -7) + mpmath.mpf(10) ** -9


@pytest.mark.parametrize(
    ("reports", "loss", "theirs"),
    [
        (10_000, 1.0, 0.0535),
        (10_000, 2.0, 0.159),
        (10_000, 4.0, 0.891),
        (100_000, 1.0, 0.0155),
        (100_000, 2.0, 0.0452),
        (100_000, 4.0, 0.173),
    ],
)
def test_the_published_computation_is_an_upper_bound_on_ours(reports: int, loss: float, theirs: float) -> None:
    ours = shuffled_epsilon(ev.Shuffled(reports, _report(loss)), 1e-6)
    assert ours <= theirs
    # Its coarse steps lose little, except at ε₀ = 4 with few clones.
    assert ours >= (0.6 if loss == 4.0 and reports == 10_000 else 0.97) * theirs


def test_epsilon_and_delta_fit_together() -> None:
    event = ev.Shuffled(1000, _report(1.0))
    epsilon = shuffled_epsilon(event, 1e-6)
    assert shuffled_delta(event, epsilon) <= 1e-6
    assert shuffled_delta(event, 0.999 * epsilon) > 1e-6
    assert shuffled_delta(event, 1.0) == 0.0


def test_more_reports_hide_better_and_one_report_not_at_all() -> None:
    prices = [shuffled_epsilon(ev.Shuffled(n, _report(2.0)), 1e-6) for n in (1, 10, 100, 1000, 10**4, 10**6)]
    assert prices == sorted(prices, reverse=True)
    assert prices[0] == pytest.approx(2.0, rel=1e-5)
    assert prices[-1] < 0.02


def test_blocks_of_counts_only_round_up() -> None:
    fine, coarse = Clones(200_000, 0.3, 1.0), Clones(199_000, 0.3, 1.0)
    assert clones_delta(fine, 0.01) <= clones_delta(coarse, 0.01)


def test_randomized_response_uses_its_own_clones() -> None:
    binary = ev.Shuffled(10_000, ev.RandomizedResponse(Fraction(1)))
    general = ev.Shuffled(10_000, ev.Exponential(Fraction(1)))
    assert shuffled_epsilon(binary, 1e-6) < shuffled_epsilon(general, 1e-6)
    assert clones(binary).rate == pytest.approx(2 / (1 + math.e))
    many = clones(ev.Shuffled(10, ev.RandomizedResponse(Fraction(1), 10)))
    assert many.rate == pytest.approx(2 / (math.e + 9))
    assert many.share == pytest.approx((math.e + 1) / (math.e + 9))


def test_three_categories_are_covered_by_the_blanket() -> None:
    """Direct enumeration of the histogram of three reports of 3-ary randomized response."""
    loss, reports = 1.0, 3
    whole = math.exp(loss) + 2
    keep, other = math.exp(loss) / whole, 1 / whole

    def histogram(values: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        law = {(0, 0, 0): 1.0}
        for value in values:
            after: dict[tuple[int, ...], float] = {}
            for counts, chance in law.items():
                for answer in range(3):
                    step = tuple(count + (i == answer) for i, count in enumerate(counts))
                    after[step] = after.get(step, 0.0) + chance * (keep if answer == value else other)
            law = after
        return law

    event = ev.Shuffled(reports, ev.RandomizedResponse(Fraction(1), 3))
    for epsilon in (0.0, 0.2, 0.5, 0.8):
        bound = shuffled_delta(event, epsilon)
        for rest in [(a, b) for a in range(3) for b in range(3)]:
            left, right = histogram((0, *rest)), histogram((1, *rest))
            truth = sum(max(0.0, left[key] - math.exp(epsilon) * right[key]) for key in left)
            assert truth <= bound * (1 + 1e-9)


def test_only_pure_reports_under_a_public_number_of_them_are_amplified() -> None:
    with pytest.raises(UnknownEvent, match="Gaussian"):
        shuffled_epsilon(ev.Shuffled(10, ev.Gaussian(1.0)), 1e-6)
    with pytest.raises(UnknownEvent, match="Shuffled"):
        shuffled_epsilon(ev.Shuffled(10, _report(1.0)), 1e-6, ADD_REMOVE)
    event = ev.Shuffled(10_000, _report(1.0))
    assert shuffled_epsilon(event, 1e-6, ZERO_OUT) == shuffled_epsilon(event, 1e-6, REPLACE_ONE)


def test_what_lies_outside_of_the_window_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = float(_direct(60, 0.2, 2.0, 0.5))
    for outside in (1e-14, 1e-3, 0.1, 0.4):
        monkeypatch.setattr(shuffle, "_OUTSIDE", outside)
        assert clones_delta(Clones(60, 0.2, 2.0), 0.5) >= truth


def test_shuffling_reports_that_hide_nothing_is_priced_as_one_report() -> None:
    assert shuffled_epsilon(ev.Shuffled(100, ev.Claimed(712.0)), 1e-5) <= 712.0 * (1 + 1e-9)
    assert shuffled_delta(ev.Shuffled(100, ev.Claimed(800.0)), 1.0) <= 1.0
