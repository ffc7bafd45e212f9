"""Advice on searches: prices are the accountant's, and the expected winner is what one gets on average."""

from __future__ import annotations

import math

import numpy as np
import pytest

from discreet import accounting
from discreet import events as ev
from discreet.errors import InvalidArgument
from discreet.learning.selection import trials, worth_trying
from discreet.learning.selection.advice import _below, _expected, _laws

RUN = ev.Gaussian(8.0)


@pytest.mark.parametrize("mean", [1.5, 2.0, 10.0, 100.0])
def test_the_laws_have_the_stated_mean(mean):
    for law in _laws(mean).values():
        slope = (trials.generating(law, np.ones(1)) - trials.generating(law, np.ones(1) - 1e-7)) / 1e-7
        assert slope[0] == pytest.approx(mean, rel=1e-4)
        assert trials.generating(law, np.ones(1))[0] == pytest.approx(1.0)


def test_the_expected_winner_is_that_of_known_cases():
    normal = _below(None)
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 10: 1.5387527, 100: 2.5075936}
    for count, best in known.items():  # order statistics of the normal law
        assert _expected(lambda share, count=count: share**count, normal)[0] == pytest.approx(best, abs=1e-4)
    best, none = _expected(lambda share: trials.generating(ev.PoissonTrials(2), share), _below([0.0, 1.0]))
    assert none == pytest.approx(math.exp(-2))
    # Both candidates are drawn with probability 1/2 each time, so candidate 1 is absent with probability e^{-1}.
    assert best == pytest.approx((1 - math.exp(-1)) / (1 - math.exp(-2)))


def test_prices_are_the_accountant_s_and_the_best_that_fits_wins():
    advice = worth_trying(RUN, 1e-6, epsilon=1.0, means=[5, 20])
    for one in advice.searches:
        event = ev.Repeated(RUN, int(one.mean)) if one.trials is None else ev.SelectedFromRepeats(RUN, one.trials)
        assert one.epsilon == accounting.epsilon(event, 1e-6).upper
    assert advice.worth.epsilon <= 1.0
    assert advice.worth.best == max(one.best for one in advice.searches if one.epsilon <= 1.0)
    assert "all in the open" not in advice.worth.law
    assert worth_trying(RUN, 1e-6, epsilon=0.01, means=[5]).worth is None
    lines = advice.plot().lines
    assert len(lines) == 6  # four ways to search, one run, and the budget


@pytest.mark.parametrize("bad", [{"means": []}, {"means": [1]}, {"scores": []}, {"epsilon": 0}, {"scores": [math.nan]}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        worth_trying(RUN, 1e-6, **bad)
