"""The contract of every mechanism that adds noise, as checks that take the mechanism as an argument.

Each raises AssertionError for a mechanism that breaks its promise; `test_additive.py` runs them on the real ones and on
mutants. Statistical checks have a false-alarm rate of 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from discreet import events
from discreet.accounting import closed_forms
from discreet.bounded import Bounded, Sensitivity
from discreet.guarantees import ApproxDP, PureDP
from discreet.mechanisms.additive import Additive
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE
from tests import exact

DRAWS = 200_000

#: A vector in which all norms differ and so do the relations, on a grid whose step is not 1.
SENSITIVITY = {ADD_REMOVE: Sensitivity(100, 120, 150, 6), REPLACE_ONE: Sensitivity(200, 240, 600, 12)}
STEP = Fraction(1, 8)


def zeros(size: int, step: Fraction = STEP) -> Bounded:
    return Bounded(np.zeros(size, dtype=np.int64), step, SENSITIVITY, "zeros")


@dataclass(frozen=True)
class Case:
    """A mechanism for the contract: how to calibrate it, and to what."""

    name: str
    calibrate: Callable[[Bounded, Any], Additive]
    epsilon: float
    delta: float
    norm: str


def noise_of(mechanism: Additive, size: int = DRAWS) -> np.ndarray:
    """Noise integers, in grid units, from one release of zeros."""
    grid = np.asarray(mechanism.release(zeros(size)).value) / float(STEP)
    assert np.all(grid == np.rint(grid)), "released values leave the grid"
    return grid.astype(np.int64)


def check_event_is_what_ran(mechanism: Additive) -> None:
    """The noise has exactly the distribution that the event states, for the sensitivity of the value."""
    bounded = zeros(DRAWS)
    event, sensitivity = mechanism.event(bounded), bounded.sensitivity()
    if isinstance(event, events.DiscreteLaplace):
        assert event.sensitivity == sensitivity.l1
        pmf, reach = exact.discrete_laplace_pmf(float(event.scale)), 30 * float(event.scale)
    elif isinstance(event, events.DiscreteGaussian):
        assert event.sensitivity_squared == sensitivity.l2_squared
        assert event.coordinates == sensitivity.l0
        sigma = math.sqrt(event.variance)
        pmf, reach = exact.discrete_gaussian_pmf(sigma), 9 * sigma
    elif isinstance(event, events.Gaussian):
        sigma = event.noise_multiplier * math.sqrt(sensitivity.l2_squared)
        pmf, reach = exact.rounded_gaussian_pmf(sigma), 9 * sigma
    else:
        assert isinstance(event, events.L2Laplace)
        scale = event.noise_multiplier * math.sqrt(sensitivity.l2_squared)
        assert event.l1_noise_multiplier is not None
        assert math.isclose(event.l1_noise_multiplier * sensitivity.l1, scale, rel_tol=1e-9)
        pmf, reach = exact.rounded_laplace_pmf(scale), 30 * scale
    exact.assert_fits(noise_of(mechanism), pmf, int(reach) + 30)


def check_price_is_within_what_was_asked(case: Case, mechanism: Additive, relation: Any = ADD_REMOVE) -> None:
    """By the textbook formula for the event, with the sensitivity of the value, the cost is at most ε (and δ)."""
    event = mechanism.event(zeros(1), relation)
    sensitivity = zeros(1).sensitivity(relation)
    if isinstance(event, events.DiscreteLaplace):
        assert sensitivity.l1 / event.scale <= Fraction(case.epsilon)
        assert event.sensitivity == sensitivity.l1
    elif isinstance(event, events.DiscreteGaussian):
        assert sensitivity.l2_squared / (2 * event.variance) <= Fraction(case.epsilon)
    elif isinstance(event, events.Gaussian):
        assert closed_forms.gaussian_delta(case.epsilon, 1 / event.noise_multiplier) <= case.delta
    elif isinstance(event, events.L2Laplace):
        cost = closed_forms.l2_laplace_epsilon(case.delta, event.noise_multiplier, event.l1_noise_multiplier)
        assert cost <= case.epsilon * (1 + 1e-9)


def check_noise_is_not_wasted(case: Case, mechanism: Additive) -> None:
    """With a thousandth less noise the promise would break: the calibration is tight."""
    event = mechanism.event(zeros(1))
    less = 0.999
    if isinstance(event, events.DiscreteLaplace):
        assert event.sensitivity / (float(event.scale) * less) > case.epsilon
    elif isinstance(event, events.DiscreteGaussian):
        assert event.sensitivity_squared / (2 * float(event.variance) * less**2) > case.epsilon
    elif isinstance(event, events.Gaussian):
        assert closed_forms.gaussian_delta(case.epsilon, 1 / (less * event.noise_multiplier)) > case.delta
    elif isinstance(event, events.L2Laplace):
        assert event.l1_noise_multiplier is not None
        cost = closed_forms.l2_laplace_epsilon(
            case.delta, less * event.noise_multiplier, less * event.l1_noise_multiplier
        )
        assert cost > case.epsilon


def check_noise_is_fresh(mechanism: Additive) -> None:
    """Two releases differ, and so do a release's coordinates; neighbors in the vector are uncorrelated."""
    first, second = noise_of(mechanism), noise_of(mechanism)
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) > 10
    for a, b in ((first, second), (first[1:], first[:-1]), (first[: DRAWS // 2], first[DRAWS // 2 :])):
        correlation = np.mean((a - a.mean()) * (b - b.mean())) / (a.std() * b.std())
        assert abs(correlation) < 4.9 / math.sqrt(len(a)), "noise is reused"


def check_noise_is_integer_on_any_grid(mechanism: Additive) -> None:
    """On a grid that floats cannot represent, the released value is still (value + integer) times the step."""
    step = Fraction(1, 3)
    bounded = Bounded(np.array([10, -3], dtype=np.int64), step, SENSITIVITY, "thirds")
    for _ in range(50):
        released = mechanism.release(bounded)
        assert released.error is not None
        assert released.error.noisy.dtype == np.int64
        assert np.array_equal(released.value, released.error.noisy * float(step))


def check_value_is_kept(mechanism: Additive) -> None:
    """The noise is centered on the value: the mean of many releases is within 4.9 standard errors."""
    value = 1_000_003
    bounded = Bounded(np.full(DRAWS, value, dtype=np.int64), STEP, SENSITIVITY, "constant")
    released = mechanism.release(bounded)
    spread = mechanism.standard_error(bounded) / math.sqrt(DRAWS)
    assert abs(np.mean(released.value) - value * float(STEP)) < 4.9 * spread


def check_stated_error_is_the_real_one(mechanism: Additive) -> None:
    """The stated standard error is within 3% of the sample's, and the 95% interval covers at least 95%."""
    bounded = zeros(DRAWS)
    released = mechanism.release(bounded)
    assert math.isclose(np.std(released.value), released.standard_error[0], rel_tol=0.03)
    for level in (0.5, 0.95, 0.999):
        low, high = released.confidence_interval(level)
        covered = np.mean((low <= 0) & (high >= 0))
        # 5.6 standard errors: of the 200 draws beyond 99.9%, as of a Poisson number, 280 have a probability of 1e-7.
        assert covered > level - 5.6 * math.sqrt(level * (1 - level) / DRAWS)


def check_seeded_noise_is_marked_and_repeats(mechanism: Additive) -> None:
    first, second = (mechanism.release(zeros(100), insecure_seed=4) for _ in range(2))
    assert np.array_equal(first.value, second.value)
    assert isinstance(first.event, events.Insecure)
    assert first.event.event == mechanism.event(zeros(100))
    assert first.guarantee.epsilon == math.inf  # type: ignore[attr-defined]
    assert events.is_secure(mechanism.release(zeros(1)).event)


def check_guarantee_names_whom_it_protects(mechanism: Additive) -> None:
    for relation in SENSITIVITY:
        protects = mechanism.release(zeros(1), relation=relation).guarantee.protects
        assert protects is not None
        assert protects.relation is relation


def promise(case: Case) -> Any:
    return PureDP(case.epsilon) if not case.delta else ApproxDP(case.epsilon, case.delta)
