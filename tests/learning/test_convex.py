"""Convex training without clipping: bounds in exact arithmetic, sensitivities by trying, and what is charged."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, InvalidArgument
from discreet.learning.convex import (
    Huber,
    Logistic,
    SmoothHinge,
    minima_perturbation,
    output_perturbation,
    perturbation,
)
from discreet.learning.convex import minimize as minimizing
from discreet.learning.convex.minimize import NotReached, Objective, minimize
from discreet.learning.convex.rows import bounded_rows
from discreet.neighbors import REPLACE_ONE

LOSSES = [Logistic(), SmoothHinge(), SmoothHinge(0.1), Huber((-2, 3), 0.7)]
floats = st.floats(allow_nan=True, allow_infinity=True, width=64)


def examples(rows=200, columns=4, seed=0):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, columns))
    labels = (features @ np.arange(1, columns + 1) + generator.normal(size=rows) > 0).astype(int)
    return features, labels


def objective(loss, rows=60, columns=3, seed=1, regularization=2.0):
    features, labels = examples(rows, columns, seed)
    linear = np.random.default_rng(seed).normal(size=columns + 1) * 5
    return Objective(bounded_rows(features, 1.0, True), loss.targets(labels), loss, regularization, linear, 1.0)


# --- losses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_keeps_to_its_constants_and_its_derivatives_are_its_derivatives(loss):
    scores = np.linspace(-60, 60, 24_001)
    for target in (-1.0, 1.0, 2.5):
        targets = np.full_like(scores, target if isinstance(loss, Huber) else math.copysign(1.0, target))
        first, second = loss.first(scores, targets), loss.second(scores, targets)
        assert np.all(np.abs(first) <= float(loss.slope))
        assert np.all((second >= 0) & (second <= float(loss.curvature)))
        assert np.all(np.diff(first) >= 0)  # convex
        assert np.all(np.diff(first) / np.diff(scores) <= float(loss.curvature) * (1 + 1e-9))
        assert np.all(-first * scores <= float(loss.pull))
        slopes = np.diff(loss.value(scores, targets)) / np.diff(scores)
        assert np.all((slopes >= first[:-1] - 1e-9) & (slopes <= first[1:] + 1e-9))


def test_every_label_has_a_target():
    assert Logistic().targets(np.array([0, 1, 7, np.nan, -np.inf])).tolist() == [-1, 1, -1, -1, -1]
    assert Huber((0, 10)).targets(np.array([-5, 20, np.nan, 3])).tolist() == [0, 10, 5, 3]


# --- rows ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (3, 5), elements=floats), st.sampled_from([1.0, 0.3, 7.5, 1e-3]), st.booleans())
def test_a_row_is_never_longer_than_the_norm_in_exact_arithmetic(features, norm, intercept):
    with np.errstate(all="ignore"):
        rows = bounded_rows(features, norm, intercept)
    assert rows.shape == (3, 5 + intercept)
    for row in rows:
        assert sum(Fraction(float(value)) ** 2 for value in row) <= Fraction(norm) ** 2


def test_a_short_row_stays_as_it_is_and_a_long_one_keeps_its_direction():
    rows = bounded_rows(np.array([[0.3, 0.4], [3.0, 4.0], [1e300, 1e300], [np.nan, 1.0]]), 1.0, False)
    assert rows[0].tolist() == [0.3, 0.4]
    assert rows[1] == pytest.approx([0.6, 0.8])
    assert rows[2] == pytest.approx([0.5**0.5, 0.5**0.5])
    assert rows[3].tolist() == [0.0, 0.0]


# --- the certificate ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [SmoothHinge(), SmoothHinge(0.001), Huber((-2, 3), 0.7)])
@pytest.mark.parametrize("at", [0.0, 1.0, 1e6])
def test_the_certified_norm_exceeds_the_exact_gradient(loss, at):
    """φ′ of these losses is piecewise linear, so the exact gradient is a rational."""
    task = objective(loss, seed=3)
    point = at * np.random.default_rng(0).normal(size=4)
    exact = [
        Fraction(float(b)) + Fraction(task.regularization) * Fraction(float(t))
        for b, t in zip(task.linear, point, strict=True)
    ]
    for row, target in zip(task.rows, task.targets, strict=True):
        score = sum((Fraction(float(x)) * Fraction(float(t)) for x, t in zip(row, point, strict=True)), Fraction(0))
        slope = exact_slope(loss, score, Fraction(float(target)))
        exact = [total + slope * Fraction(float(x)) for total, x in zip(exact, row, strict=True)]
    computed = task.gradient(point)
    difference = math.sqrt(float(sum((Fraction(float(c)) - e) ** 2 for c, e in zip(computed, exact, strict=True))))
    bound = task.certified_norm(point, computed)
    assert math.sqrt(float(sum(e * e for e in exact))) <= bound
    assert difference <= bound - float(np.linalg.norm(computed)) * (1 - 1e-12)
    assert bound <= float(np.linalg.norm(computed)) * (1 + 1e-12) + 1e-7 * (1 + at)


def exact_slope(loss, score, target):
    if isinstance(loss, Huber):
        threshold = Fraction(loss.threshold)
        return min(max(score - target, -threshold), threshold)
    width = Fraction(loss.width)
    return -target * min(max((1 + width - target * score) / (2 * width), Fraction(0)), Fraction(1))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("regularization", [1e-3, 1.0, 1e4])
def test_the_minimizer_is_reached_within_the_tolerance(loss, regularization):
    task = objective(loss, regularization=regularization)
    point = minimize(task, 1e-9)
    assert np.linalg.norm(task.gradient(point)) <= 1e-9
    nearby = point + 1e-3 * np.random.default_rng(0).normal(size=len(point))

    def height(theta):
        losses = loss.value(task.rows @ theta, task.targets).sum()
        return losses + regularization / 2 * theta @ theta + task.linear @ theta

    assert height(point) <= height(nearby)


def test_separable_rows_converge_too():
    features = np.array([[1.0, 0.0], [-1.0, 0.0]] * 50)
    rows = bounded_rows(features, 1.0, False)
    targets = np.array([1.0, -1.0] * 50)
    point = minimize(Objective(rows, targets, Logistic(), 1e-6, np.zeros(2), 1.0), 1e-8)
    assert point[0] > 5


def test_a_tolerance_below_round_off_is_refused_before_the_charge(tmp_path):
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(3.0, 1e-5))
    features, labels = examples()
    with pytest.raises(InvalidArgument, match="tolerance must be larger"):
        minima_perturbation(features, labels, epsilon=1.0, delta=1e-6, tolerance=1e-14, account=account)
    assert [entry.kind for entry in account.history()] == ["open"]


def test_a_point_that_is_not_certified_is_not_released(monkeypatch):
    monkeypatch.setattr(minimizing, "_MOST_STEPS", 1)
    features, labels = examples()
    with pytest.raises(NotReached, match="nothing was released"):
        minima_perturbation(features, labels, epsilon=1.0, delta=1e-6)


# --- sensitivities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("relation", [dp.ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize(("rows", "regularization"), [(6, 0.01), (1, 10.0)])
def test_no_neighbor_moves_the_point_further_than_its_sensitivity(loss, relation, rows, regularization):
    """Mutants that fail: half the sensitivity, or that of add/remove for a replaced row."""
    features, labels = examples(rows, columns=2, seed=5)
    kept, targets = bounded_rows(features, 1.0, False), loss.targets(labels)
    task = perturbation._task(loss, kept, Fraction(1), regularization, 1e-6, False)

    def reached(rows, targets):
        return task.reached(rows, targets, np.zeros(2))

    start = 1 if relation is REPLACE_ONE else 0
    before, farthest = reached(kept, targets), 0.0
    for angle in np.linspace(0, 2 * math.pi, 12, endpoint=False):
        for label in (0, 1):
            row = bounded_rows(np.array([[math.cos(angle), math.sin(angle)]]), 1.0, False)
            more = np.vstack((kept[start:], row)), np.concatenate((targets[start:], loss.targets(np.array([label]))))
            farthest = max(farthest, float(np.linalg.norm(reached(*more) - before)))
    assert farthest <= float(task.moved(relation))
    if rows == 1 and isinstance(loss, SmoothHinge):  # straight near 0: a single row moves it all the way
        assert farthest > 0.95 * float(task.moved(relation))


def test_the_sensitivity_that_travels_with_the_weights_is_the_proved_one():
    task = perturbation._task(Logistic(), np.zeros((0, 3)), Fraction(2), 0.5, 1e-3, True)
    bounded = task.bounded(np.zeros(4), task.moved(dp.ADD_REMOVE), dp.ADD_REMOVE)
    distance = math.sqrt(bounded.sensitivity().l2_squared) * float(bounded.granularity)
    assert distance >= (2.0 + 2e-3) / 0.5 + math.sqrt(4) * float(bounded.granularity)
    assert distance <= ((2.0 + 2e-3) / 0.5) * (1 + 1e-3)
    assert bounded.sensitivity().l1 >= math.isqrt(4 * bounded.sensitivity().l2_squared)


def test_the_events_say_what_was_added():
    features, labels = examples()
    model = minima_perturbation(features, labels, epsilon=1.0, delta=1e-6, regularization=5.0, feature_norm=2.0)
    objective_event, distance = model.event.events
    assert objective_event.curvature == pytest.approx(0.25 * 4 / 5)
    assert isinstance(distance, ev.Gaussian)
    price = dp.accounting.epsilon(model.event, 1e-6)
    assert 0.9 < price.upper <= 1.0
    assert str(model.guarantee) == "(1, 1e-06)-DP, add or remove one row"
    replaced = output_perturbation(features, labels, epsilon=1.0, delta=1e-6, regularization=5.0, relation=REPLACE_ONE)
    assert dp.accounting.epsilon(replaced.event, 1e-6, REPLACE_ONE).upper <= 1.0 + 1e-9
    pure = output_perturbation(features, labels, epsilon=1.0, regularization=5.0)
    assert dp.accounting.pure(pure.event).epsilon <= 1.0
    assert dp.accounting.pure(pure.event).epsilon > 1 - 1e-6


def test_the_noise_of_the_objective_has_the_deviation_that_is_charged(monkeypatch):
    """b is drawn with σ = L·noise_multiplier. The mutant with 0.9 of it is seen: 4000 draws, 6 deviations, 2e-9."""
    drawn = []
    original = perturbation.Gaussian.draw

    def draw(self, granularity, size, bits):
        noise = original(self, granularity, size, bits)
        drawn.append(noise * float(granularity))
        return noise

    monkeypatch.setattr(perturbation.Gaussian, "draw", draw)
    features, labels = np.zeros((1, 4000)), np.array([1])
    monkeypatch.setattr(perturbation._Task, "reached", lambda self, rows, targets, linear: 0 * linear)
    model = minima_perturbation(features, labels, epsilon=1.0, delta=1e-6, feature_norm=3.0, intercept=False)
    sigma = 3.0 * model.event.events[0].noise_multiplier
    assert np.mean(drawn[0] ** 2) == pytest.approx(sigma**2, rel=6 * math.sqrt(2 / 4000))


# --- the whole ----------------------------------------------------------------------------------------------------


def test_a_model_is_learned_charged_and_used(tmp_path):
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(8.0, 1e-5))
    features, labels = examples(rows=4000)
    model = minima_perturbation(features, labels, epsilon=3.0, delta=1e-6, account=account)
    assert model.receipt is not None
    # Without noise the accuracy is 0.94; at ε = 3 the noise moves it by less than 0.02. 0.8 is far below.
    assert np.mean(model.predict(features) == labels) > 0.8
    with pytest.raises(BudgetExceeded):
        minima_perturbation(features, labels, epsilon=9.0, delta=1e-6, account=account)
    pure = dp.Ledger(tmp_path / "y.ledger").account("y", budget=dp.PureDP(1.0))
    output_perturbation(features, labels, epsilon=1.0, regularization=10.0, account=pure)
    with pytest.raises(BudgetExceeded):
        output_perturbation(features, labels, epsilon=0.1, regularization=10.0, account=pure)


def test_a_regression_is_learned():
    features, _ = examples(rows=4000)
    truth = features @ np.array([0.5, -0.5, 0.2, 0.0])
    model = minima_perturbation(features, truth, epsilon=3.0, delta=1e-6, loss=Huber((-3, 3)), feature_norm=3.0)
    assert np.mean(np.abs(model.predict(features) - truth)) < 0.5 * np.mean(np.abs(truth - truth.mean()))


def test_rows_that_hold_anything_raise_nothing():
    features, labels = examples()
    features[0] = [np.nan, np.inf, -np.inf, 1e308]
    features[1] = 1e308
    features[2] = 5e-324
    odd = labels.astype(float)
    odd[3:6] = [np.nan, np.inf, -7]
    model = minima_perturbation(features, odd, epsilon=1.0, delta=1e-6)
    assert np.all(np.isfinite(model.weights))
    empty = minima_perturbation(features[:0], odd[:0], epsilon=1.0, delta=1e-6)
    assert np.all(np.isfinite(empty.weights))


def test_a_seed_repeats_the_noise_and_promises_nothing(tmp_path):
    features, labels = examples()
    one, two = (minima_perturbation(features, labels, epsilon=1.0, delta=1e-6, insecure_seed=3) for _ in range(2))
    assert one.weights.tolist() == two.weights.tolist()
    assert isinstance(one.event, ev.Insecure)
    assert one.guarantee.epsilon == math.inf
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(3.0, 1e-5))
    with pytest.raises(dp.errors.DiscreetError):
        minima_perturbation(features, labels, epsilon=1.0, delta=1e-6, insecure_seed=3, account=account)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon must"),
        ({"epsilon": math.nan}, "epsilon must"),
        ({"delta": 1}, "delta must"),
        ({"feature_norm": 0}, "feature_norm must"),
        ({"feature_norm": math.inf}, "feature_norm must"),
        ({"regularization": -1}, "regularization must"),
        ({"regularization": 1e-3}, "regularization must be >"),
        ({"tolerance": 0}, "tolerance must"),
        ({"loss": "logistic"}, "loss must"),
        ({"features": np.zeros(5)}, "features must"),
        ({"features": np.array([["a"]] * 200)}, "features must"),
        ({"features": np.zeros((200, 0))}, "features must"),
        ({"labels": np.zeros(3)}, "labels must"),
        ({"labels": np.array(["yes"] * 200)}, "labels must"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    features, labels = examples()
    asked = {"features": features, "labels": labels, "epsilon": 1.0, "delta": 1e-6, **change}
    with pytest.raises(InvalidArgument, match=message):
        minima_perturbation(asked.pop("features"), asked.pop("labels"), **asked)


@pytest.mark.parametrize("width", [0, -1, math.nan, 5])
def test_a_corner_has_a_sensible_width(width):
    with pytest.raises(InvalidArgument, match="width must"):
        SmoothHinge(width)


def test_trying_tolerances_does_not_tell_the_number_of_rows():
    """A mutant that compares with the number of rows itself refuses 5000 and takes 10 somewhere."""

    def refused(rows, tolerance):
        task = perturbation._Task(Logistic(), 3, Fraction(1), Fraction(1), Fraction(tolerance), True)
        try:
            task.check_rows(rows, 10.0)
        except InvalidArgument:
            return True
        return False

    for tolerance in np.geomspace(1e-12, 1e-2, 60):
        assert refused(10, tolerance) == refused(5000, tolerance) == refused(1 << 16, tolerance)
        assert refused((1 << 16) + 1, tolerance) == refused(1 << 18, tolerance)
    assert refused(10, 1e-12)
    assert not refused(1 << 18, 1e-4)
