"""A price that may be published: it is an upper bound of the secret one, charged by itself, and labelled."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import discreet as dp
from discreet import accounting
from discreet.accounting import pate as bounds
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import pate
from discreet.learning.pate.publishing import _noisy, publishing_event

DELTA = 1e-5
TEACHERS = pate.Teachers((0, 1, 2), (None,) * 250)
VOTING = pate.ConfidentVoting(40.0, threshold=150, check_noise=200.0)
COUNTS = np.array([[250, 0, 0]] * 90 + [[230, 20, 0]] * 10)


def answered(voting=VOTING):
    return pate.Answers((0,) * 100, pate.voting_event(voting, 100), (), COUNTS)


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "x.ledger").account("census", budget=dp.ApproxDP(9.0, 1e-4), aside=1e-5)


def test_it_is_charged_by_itself_and_never_in_place_of_the_answers(account):
    price = pate.publish_price(answered(), pate.Ensemble(TEACHERS, VOTING, account=account), DELTA)
    assert (
        [line.event for line in account.statement().lines] == [price.event] == [publishing_event(5.0, 0.01, DELTA / 10)]
    )
    assert price.data_independent == accounting.epsilon(answered().event, DELTA).upper
    assert "data-dependent, published with noise, not charged" in str(price)
    assert "data-independent, charged" in str(price)
    assert price.receipt.purpose == "price of labels by PATE"


def test_it_lies_above_the_secret_price_as_often_as_stated():
    """150 draws, 97.7% expected: 88% or less has probability below 1e-7. Without the shift it would be about 50%."""
    few = pate.Ensemble(pate.Teachers((0, 1, 2), (None,) * 25), pate.GaussianVoting(4.0))
    counts = np.array([[25, 0, 0]] * 90 + [[22, 3, 0]] * 10)
    exact = 90 * bounds.gap_rdp(25, 3, 4.0, 20.0) + 10 * bounds.gap_rdp(19, 3, 4.0, 20.0)
    drawn = np.array([_noisy(counts, few, 20.0, 5.0, 0.01) for _ in range(150)])
    assert np.mean(drawn >= exact) > 0.88


def test_noise_that_scales_with_the_votes_costs_more_than_noise_of_a_fixed_scale():
    """The center moves by more than one sensitivity, and the scale moves too, so a plain Gaussian is a lower bound."""
    for noise in (2.0, 5.0, 20.0):
        price = publishing_event(noise, 0.01, 1e-6)
        assert price.epsilon > accounting.epsilon(dp.events.Gaussian(noise), 1e-6).lower
    assert publishing_event(5.0, 0.02, 1e-6).epsilon > publishing_event(5.0, 0.01, 1e-6).epsilon


def test_what_can_be_known_before_is_refused_before_the_charge(account):
    ensemble = pate.Ensemble(TEACHERS, VOTING, account=account)
    laplace = pate.Ensemble(TEACHERS, pate.LaplaceVoting(20.0), account=account)
    for given, asked, words in (
        (dataclasses.replace(answered(), counts=None), ensemble, "hold their votes"),
        (answered(), laplace, "Gaussian noise"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            pate.publish_price(given, asked, DELTA)
    for bad in ({"beta": 1.0}, {"order": 1.0}, {"noise": 0.0}):
        with pytest.raises(InvalidArgument, match=next(iter(bad))):
            pate.publish_price(answered(), ensemble, DELTA, **bad)
    assert not account.statement().lines
    with pytest.raises(BudgetExceeded):
        pate.publish_price(answered(), ensemble, DELTA, noise=0.1)


@pytest.mark.parametrize("leads", [[0, 125, 125], [126, 124, 0], [250, 0, 0]], ids=str)
@pytest.mark.parametrize(("questions", "noise"), [(1, 1e-3), (3000, 1e3)])
def test_no_votes_make_it_fail(leads, questions, noise):
    voting = pate.GaussianVoting(2.0)
    event = pate.voting_event(voting, questions)
    answers = pate.Answers((0,) * questions, event, (), np.tile([leads], (questions, 1)))
    assert pate.publish_price(answers, pate.Ensemble(TEACHERS, voting), DELTA, noise=noise).epsilon >= 0
