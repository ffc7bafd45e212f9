"""PATE on scikit-learn's digits: a small version of the benchmark on MNIST."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import discreet as dp
from discreet.learning import pate

PRIVATE, PUBLIC = 1200, 300
DELTA = 1e-5


@pytest.fixture(scope="module")
def digits():
    inputs, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(inputs))
    return inputs[order] / 16, labels[order]


@pytest.fixture(scope="module")
def teachers(digits):
    inputs, labels = digits
    nearest = KNeighborsClassifier(1)
    return pate.train_teachers(
        nearest, inputs[:PRIVATE], labels[:PRIVATE], teachers=40, classes=range(10), progress=False
    )


def test_a_student_learns_digits_from_released_labels(digits, teachers, tmp_path):
    """Typically 97% of the answers are right, and 85% of the student's guesses.

    For less than 80% right answers, noise of 4 votes would have to change 25 of 150 winners, most of which lead by 20.
    """
    inputs, labels = digits
    asked, truth = inputs[PRIVATE : PRIVATE + PUBLIC], labels[PRIVATE : PRIVATE + PUBLIC]
    account = dp.Ledger(tmp_path / "x.ledger").account("digits", budget=dp.ApproxDP(60.0, DELTA))
    voting = pate.ConfidentVoting(noise=4.0, threshold=20, check_noise=8.0)
    answers = pate.Ensemble(teachers, voting, account=account).ask(asked, answers=150)
    given = answers.answered
    assert 100 < given.sum() <= 150
    assert np.mean(np.array(answers.labels)[given] == truth[given]) > 0.8
    student = pate.train_student(LogisticRegression(max_iter=200), asked, answers, rounds=1)
    assert np.mean(student.predict(inputs[PRIVATE + PUBLIC :]) == labels[PRIVATE + PUBLIC :]) > 0.6
    price = pate.data_dependent(answers, voting, DELTA)
    assert 0 < price.epsilon < price.data_independent == answers.epsilon(DELTA).upper


def test_scores_of_scikit_learn_s_estimators_are_released_too(digits, teachers):
    """Noise of 1/20 clip norm on a mean over 40 teachers: at least 60 of 100 labels right, typically 88."""
    inputs, labels = digits
    predictor = pate.PrivatePredictor(teachers, clip_norm=5.0, noise=2.0)
    found = predictor.predict(inputs[PRIVATE : PRIVATE + 100])
    assert np.mean(np.array(found.labels) == labels[PRIVATE : PRIVATE + 100]) > 0.6
