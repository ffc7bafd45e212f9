"""Mean protocols are ε-DP, draw what they state, and estimate without bias at the stated variance.

Statistical tests have a false-alarm rate of 1e-6 each.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet.errors import InvalidArgument
from discreet.mechanisms import local
from discreet.mechanisms.local import means
from tests.exact import FALSE_ALARM

KINDS = [local.OneBit, local.Piecewise, local.Hybrid]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.fixture
def coarse(monkeypatch):
    """A grid of nine levels, so that everything can be listed."""
    monkeypatch.setattr(means, "LEVELS", 4)


def payloads(protocol):
    """All payloads, except for those of `Hybrid` whose first byte is above 2."""
    tails = [bytes([code]) for code in range(256)]
    return tails if protocol.size == 1 else [bytes([head]) + tail for head in range(3) for tail in tails]


@every_kind
@pytest.mark.parametrize("epsilon", [Fraction(1, 5), Fraction(1), Fraction(3)])
def test_no_report_tells_two_values_apart_by_more_than_epsilon(kind, epsilon, coarse):
    protocol = kind(epsilon, (0, 1))
    worst, totals = 0.0, np.zeros(9)
    for payload in payloads(protocol):
        law = [protocol.probability(payload, level) for level in range(-4, 5)]
        totals += law
        assert (max(law) > 0) == bool(protocol.valid(np.frombuffer(payload, dtype=np.uint8)[None])[0])
        if max(law) > 0:
            worst = max(worst, math.log(max(law) / min(law)))
    assert worst <= float(epsilon) * (1 + 1e-12)
    assert worst > 0.99 * float(epsilon)
    assert totals == pytest.approx(1)


@every_kind
@pytest.mark.parametrize("level", [-4, 0, 3])
def test_reports_are_drawn_with_their_stated_probabilities(kind, level, coarse):
    protocol, people = kind(Fraction(1), (-4, 4)), 20_000
    drawn = [row.tobytes() for row in protocol.simulate([level] * people).payloads]
    law = {payload: chance for payload in payloads(protocol) if (chance := protocol.probability(payload, level)) > 0}
    observed = np.array([drawn.count(payload) for payload in law])
    expected = np.array(list(law.values())) * people
    assert observed.sum() == people
    assert np.sum((observed - expected) ** 2 / expected) < stats.chi2.isf(FALSE_ALARM, len(law) - 1)


@every_kind
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4)])
def test_means_are_unbiased_with_the_stated_variance(kind, epsilon):
    protocol = kind(epsilon, (10, 30))
    for value in (10.0, 17.0, 30.0):
        level = int(protocol.levels([value])[0])
        readings = protocol.readings(protocol.simulate([value] * 40_000).payloads)
        stated = protocol.spread(level)
        assert abs(readings.mean() - level / means.LEVELS) < 5.5 * math.sqrt(stated / readings.size)
        squares = (readings - readings.mean()) ** 2
        assert abs(squares.mean() - stated) < 6 * squares.std() / math.sqrt(readings.size)
        estimate = protocol.estimate(protocol.simulate([value] * 1000))
        assert abs(estimate.mean - value) < 6 * estimate.standard_error + 20 / (4 * means.LEVELS)
        low, high = estimate.interval()
        assert high - low == pytest.approx(2 * 1.96 * estimate.standard_error, rel=1e-3)


def test_the_variance_on_the_grid_is_near_the_continuous_one():
    """Wang et al. 2019, Lemma 1: x²/(e^{ε/2} − 1) + (e^{ε/2} + 3)/(3(e^{ε/2} − 1)²)."""
    for epsilon in (0.5, 1.0, 4.0):
        root = math.exp(epsilon / 2)
        for x in (0.0, 0.5, 1.0):
            published = x * x / (root - 1) + (root + 3) / (3 * (root - 1) ** 2)
            protocol = local.Piecewise(epsilon, (-1, 1))
            assert protocol.spread(round(x * means.LEVELS)) == pytest.approx(published, rel=2e-3)


def test_the_best_protocol_has_the_least_worst_case_variance():
    assert isinstance(local.best_mean_for(0.3), local.OneBit)
    assert isinstance(local.best_mean_for(2.0), local.Hybrid)


@every_kind
def test_values_outside_missing_and_infinite_are_clamped(kind):
    protocol = kind(1.0, (0, 10))
    found = protocol.levels([-5, 15, math.inf, -math.inf, math.nan, 0, 10, 5])
    top = means.LEVELS
    assert found.tolist() == [-top, top, top, -top, 0, -top, top, 0]
    assert protocol.influence() >= 1


@every_kind
def test_foreign_and_malformed_reports_are_rejected_and_counted(kind):
    protocol, other = kind(2.0, (0, 1)), kind(2.0, (0, 2))
    good = list(protocol.simulate([0.5] * 50))
    bad = [b"", good[0][:-1], good[0] + b"\x00", good[0][:5] + b"\xff" * protocol.size, *other.simulate([0.5] * 3)]
    estimate = protocol.estimate([*good, *bad])
    assert (estimate.reports, estimate.rejected) == (50, len(bad))
    assert protocol.client()(0.3)[:5] == good[0][:5]
    with pytest.raises(InvalidArgument, match="at least two valid ones"):
        protocol.estimate(bad)


def test_bounds_must_differ():
    with pytest.raises(InvalidArgument):
        local.OneBit(1.0, (1, 1))


def test_a_mutant_with_a_wider_window_draws_other_probabilities(coarse, monkeypatch):
    honest = means.samplers.uniform
    monkeypatch.setattr(means.samplers, "uniform", lambda bound, size, bits: honest(bound - 1, size, bits))
    with pytest.raises(AssertionError):
        test_reports_are_drawn_with_their_stated_probabilities(local.Piecewise, 0, None)
