"""Private prediction: one person moves one bounded vector, answers are charged first, and post-processing is free."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning import pate
from discreet.learning.pate.prediction import _STEPS, clipped


class Fixed:
    """Says the same about every question."""

    def __init__(self, logits, classes=None):
        self.answer = logits
        if classes is not None:
            self.classes_ = np.array(classes)

    def logits(self, inputs):
        return np.tile(self.answer, (len(inputs), 1))


class Broken:
    def logits(self, inputs):
        raise RuntimeError("rows of ann")


class Halves:
    classes_ = np.array([0, 1])

    def decision_function(self, inputs):
        return np.full(len(inputs), 4.0)


class Chances:
    classes_ = np.array([0, 1])

    def predict_proba(self, inputs):
        return np.tile([0.0, 1.0], (len(inputs), 1))


QUESTIONS = np.zeros((3, 2))


def predictor(members, classes=(0, 1, 2), noise=1e-6, **options):
    return pate.PrivatePredictor(pate.Teachers(classes, tuple(members)), clip_norm=2.0, noise=noise, **options)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(width=64), min_size=3, max_size=3), min_size=1, max_size=5), st.floats(1e-3, 1e3))
def test_no_logits_are_longer_than_the_clip_norm(rows, clip_norm):
    """A mutant that clips each coordinate instead of the length fails here."""
    grid = clipped(np.array(rows, dtype=np.float64), clip_norm)
    assert all(sum(int(x) ** 2 for x in row) <= _STEPS**2 for row in grid)


def test_one_teacher_moves_the_sum_by_at_most_the_stated_distance():
    some = [Fixed([5.0, -3.0, 0.0]), Fixed([1.0, 2.0, 0.5]), Fixed([-100.0, 300.0, 7.0])]
    before = predictor(some)._sums(QUESTIONS)
    limit = predictor(some)._bounded(before[0]).sensitivity().l2_squared
    for other in (None, Broken(), Fixed([math.nan, 1, 2]), Fixed([math.inf, -math.inf, 0]), Fixed([-1e308, 1e308, 0])):
        after = predictor([other, *some[1:]])._sums(QUESTIONS)
        assert ((after - before) ** 2).sum(1).max() <= limit
    opposite = predictor([Fixed([100.0, -100, 0])])._sums(QUESTIONS) - predictor([Fixed([-100.0, 100, 0])])._sums(
        QUESTIONS
    )
    assert (opposite[0] ** 2).sum() == pytest.approx(limit, rel=1e-5)  # and it is attained


def test_answers_are_charged_before_the_teachers_are_asked(tmp_path, monkeypatch):
    account = dp.Ledger(tmp_path / "x.ledger").account("digits", budget=dp.ApproxDP(1.0, 1e-6))
    mine = predictor([Fixed([1.0, 0, 0])] * 4, noise=40.0, account=account)
    found = mine.predict(QUESTIONS)
    (line,) = account.statement().lines
    assert line.event == found.event == ev.Repeated(ev.Gaussian(20.0), 3)
    assert found.epsilon(1e-6).upper == pytest.approx(dp.accounting.epsilon(found.event, 1e-6).upper)
    monkeypatch.setattr(pate.PrivatePredictor, "_sums", lambda *_: pytest.fail("the teachers were asked"))
    with pytest.raises(BudgetExceeded):
        mine.predict(np.zeros((10_000, 2)))
    assert len(account.statement().lines) == 1


def test_scores_have_the_stated_noise():
    """3,000 scores: false alarm 1e-7; 15% less noise is seen with probability above 0.999."""
    found = predictor([Fixed([1.0, 0, 0])] * 4, noise=3.0).predict(np.zeros((1000, 2)))
    noise = (found.scores - np.array([2 / 3, -1 / 3, -1 / 3])).ravel() / (3.0 * 2.0 / 4)
    assert found.standard_error == pytest.approx(1.5)
    assert stats.chi2.ppf(1e-7, 3000) < (noise**2).sum() < stats.chi2.isf(1e-7, 3000)


def test_scores_come_from_any_estimator_that_has_them():
    found = predictor([Halves(), Chances()], classes=(0, 1)).predict(QUESTIONS)
    assert found.labels == (1, 1, 1)
    lacking = predictor([Fixed([3.0, 1.0], classes=[2, 0])]).predict(QUESTIONS)  # class 1 was not in its shard
    assert lacking.labels == (2, 2, 2)
    assert lacking.scores[0, 1] == pytest.approx(lacking.scores[0, 0], abs=1e-4)
    silent = predictor([Broken(), None, object()]).predict(QUESTIONS)
    assert np.abs(silent.scores).max() < 1e-4


def test_what_is_done_with_scores_costs_nothing_more():
    found = pate.Predictions((0, 1), np.array([[2.0, -2.0], [0.5, -0.5], [-1.0, 1.0]]), 0.1, 2.0, ev.Gaussian(3.0))
    sure, unsure = found.probabilities(0.5), found.probabilities(5.0)
    assert (sure.max(1) > unsure.max(1)).all()
    assert sure.sum(1) == pytest.approx(np.ones(3))
    assert set(np.round(found.quantized(2), 6).ravel()) <= {-2.0, 0.0, 2.0}
    assert np.abs(found.quantized(12) - found.scores).max() < 1e-3
    right, wrong = found.calibrated_temperature([0, 0, 1]), found.calibrated_temperature([1, 0, 0])
    assert right < 0.1 < wrong
    assert found.epsilon(1e-5) == dp.accounting.epsilon(ev.Gaussian(3.0), 1e-5)
    with pytest.raises(InvalidArgument, match="labels must be known"):
        found.calibrated_temperature([0, 5, 1])


@pytest.mark.parametrize("bad", [{"clip_norm": 0}, {"noise": 0}, {"noise": math.nan}, {"clip_norm": -1}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InvalidArgument, match=next(iter(bad))):
        pate.PrivatePredictor(pate.Teachers((0, 1), ()), **{"clip_norm": 1.0, "noise": 1.0, **bad})
