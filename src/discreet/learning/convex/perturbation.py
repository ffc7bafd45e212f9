"""Private linear models without clipping gradients: noise on the minimizer, or on the objective before minimizing it.

Rows are scaled to a bounded norm once, before training. A loss of a linear score then has bounded gradients everywhere,
so nothing is clipped while training, and noise is drawn once, not at every step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from discreet import _check, events
from discreet.accounting.closed_forms import gaussian_noise_multiplier
from discreet.accounting.prices.objectives import objective_multiplier, volume_change
from discreet.bounded import LARGEST, Bounded, Sensitivity
from discreet.guarantees import ApproxDP, PureDP
from discreet.learning.convex.losses import Floats, Logistic, Loss
from discreet.learning.convex.minimize import Objective, gradient_error, minimize
from discreet.learning.convex.model import LinearModel
from discreet.learning.convex.rows import bounded_rows, table
from discreet.ledger import Account
from discreet.mechanisms import Gaussian, Laplace
from discreet.mechanisms.additive import Additive
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Neighbors, Relation, Rows
from discreet.neighbors import relation as as_relation
from discreet.numeric.rounding import float_down, float_root_up, float_up, root_up

#: The default tolerance on the gradient, as a share of the largest gradient of one row.
_TOLERANCE = Fraction(1, 100_000)
#: The share of ε and δ that pays for the distance between the point that is reached and the exact minimizer.
_FOR_DISTANCE = Fraction(1, 100)
#: The share of ε that the default regularization leaves to the change of volume, κ = ln(1 + β/Λ), and the most that κ
#: gets: beyond it, less regularization gains little and few rows overfit.
_FOR_VOLUME, _MOST_VOLUME = 0.1, 1.0
#: Grids are this much finer than the tolerance, so that rounding to them takes little of it.
_FINER = 16
#: Whether a tolerance can be certified is decided for this many rows, or for 4, 16, … times as many if there are more:
#: the number of rows is private, and an error that depended on it would tell it to whoever tries tolerances.
_SMALLEST_TABLE = 1 << 16
#: b is longer than σ(√d + 12) with a probability below e^{−72}, whatever the data.
_LONGEST_NOISE = 12


@dataclass(frozen=True)
class _Task:
    """The public side of a training: everything that is known before the rows are looked at."""

    loss: Loss
    columns: int
    norm: Fraction
    regularization: Fraction
    tolerance: Fraction
    intercept: bool

    @property
    def slope(self) -> Fraction:
        """L: the largest norm of one row's gradient."""
        return self.loss.slope * self.norm

    @property
    def curvature(self) -> Fraction:
        """β: the largest curvature of one row's loss."""
        return self.loss.curvature * self.norm**2

    @property
    def step(self) -> Fraction:
        """The grid on which weights are released, a power of 2."""
        return _power_of_two(self.tolerance / self.regularization / _FINER / _root(self.columns))

    def moved(self, relation: Relation) -> Fraction:
        """How far one unit moves the point that is reached, without noise in the objective (Theorem 3)."""
        gradients = 2 if relation is REPLACE_ONE else 1
        return (gradients * self.slope + 2 * self.tolerance) / self.regularization

    def bounded(self, weights: Floats, moved: Fraction, relation: Relation) -> Bounded:
        """Weights on the grid, when before rounding one unit moves them by at most `moved`."""
        # Rounding moves each of two neighbors' weights by at most half a step in each coordinate: √d/2 each in norm.
        distance = math.ceil(moved / self.step) + math.isqrt(self.columns) + 1
        sum_of_moves = min(self.columns * distance, math.isqrt(self.columns * distance * distance) + 1)
        sensitivity = Sensitivity(self.columns, sum_of_moves, distance * distance, distance)
        values = np.rint(weights / float(self.step)).astype(np.int64)
        return Bounded(values, self.step, {relation: sensitivity}, "weights")

    def check_rows(self, rows: int, linear: float) -> None:
        """Refuse more rows than the tolerance can be certified for, before anything is charged.

        At the minimizer Λ‖θ‖² ≤ n·pull + ‖b‖‖θ‖, so ‖θ‖ ≤ ‖b‖/Λ + √(n·pull/Λ).
        """
        regular, size = float(self.regularization), _SMALLEST_TABLE
        while size < rows:
            size *= 4
        most = linear / regular + math.sqrt(size * float(self.loss.pull) / regular) + 1
        error = gradient_error(size, self.columns, self.loss, float(self.norm), regular, most, linear)
        too_fine = most / float(self.step) > LARGEST / 2
        if error > float(self.tolerance) / 4 or too_fine:
            remedy = f"floats cannot certify it for tables of up to {size} rows with {self.columns} columns"
            raise _check.fail("tolerance", "be larger for a table of this size", float(self.tolerance), remedy)

    def reached(self, rows: Floats, targets: Floats, linear: Floats) -> Floats:
        """A point whose gradient is certified to be within the tolerance."""
        objective = Objective(rows, targets, self.loss, float(self.regularization), linear, float(self.norm))
        return minimize(objective, float_down(self.tolerance))

    def model(self, weights: Any, event: events.Event, guarantee: Any, receipt: Any) -> LinearModel:
        return LinearModel(
            np.asarray(weights, dtype=np.float64),
            self.loss,
            float(self.norm),
            self.intercept,
            float(self.regularization),
            float(self.tolerance),
            event,
            guarantee,
            receipt,
        )


def minima_perturbation(
    features: Any,
    labels: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    loss: Loss | None = None,
    feature_norm: float = 1.0,
    regularization: float | None = None,
    intercept: bool = True,
    tolerance: float | None = None,
    account: Account | None = None,
    purpose: str = "approximate minima perturbation",
    insecure_seed: int | None = None,
) -> LinearModel:
    """Train a linear model with (ε, δ)-DP: noise in the objective, and a little on the point that is reached.

    Minimizes Σ φ(xᵢ·θ; yᵢ) + (Λ/2)‖θ‖² + b·θ with b ~ N(0, σ²I), until the gradient is certified to be no longer than
    `tolerance`, and adds Gaussian noise for the distance to the exact minimizer, which no float reaches (Iyengar, Near,
    Song, Thakkar, Thakurta & Wang 2019). Theorems 1 and 2 of docs/proofs/convex-minima.md prove the constants.

    Args:
        features: one row of numbers for each example. Scale the columns with public constants first.
        labels: 0 or 1 for each row; numbers for `Huber`.
        epsilon: ε.
        delta: δ.
        loss: `Logistic()` by default, `SmoothHinge()` or `Huber(bounds)`.
        feature_norm: the L2 norm that longer rows are scaled down to.
        regularization: Λ, for the sum over all rows. By default what leaves nine tenths of ε to the noise.
        intercept: add a constant to each row.
        tolerance: the norm of the gradient to reach; by default 1e-5 of one row's largest.
        account: the account to charge, before the rows are looked at.
        purpose: what the ledger records.
        insecure_seed: repeatable noise, for tests only.

    Guarantee:
        (ε, δ)-DP for one row, added or removed. Enforced by scaling rows; a row with a value that is not finite counts
        as zeros. The event is `PerturbedObjective` and `Gaussian`. Not protected: the number and the types of the
        columns, how long it takes, and, beyond 65,536 rows, their number up to a factor of 4, which a tolerance that is
        too small tells. The tolerance that was reached is public, the gradient is not: it is not kept.
    """
    rows, given = _examples(features, labels)
    loss = _loss(loss)
    total, slack = _check.epsilon(epsilon), _check.delta(delta)
    norm = _check.positive("feature_norm", feature_norm, "it is the largest norm of a row")
    if regularization is None:
        regularization = float(loss.curvature * norm**2) / math.expm1(min(_FOR_VOLUME * float(total), _MOST_VOLUME))
    task = _task(loss, rows, norm, regularization, tolerance, intercept)
    curvature = float_up(task.curvature / task.regularization)
    for_noise = float_down(total * (1 - _FOR_DISTANCE))
    if volume_change(curvature) >= for_noise:
        least = float(task.curvature) / math.expm1(for_noise)
        remedy = "the curvature of one row may not exceed what ε allows, whatever the noise"
        raise _check.fail("regularization", f"be > {least:.4g} at this ε", regularization, remedy)
    multiplier = objective_multiplier(for_noise, float_down(slack * (1 - _FOR_DISTANCE)), curvature)
    deviation = root_up((Fraction(multiplier) * task.slope) ** 2)
    grid = _power_of_two(task.tolerance / _FINER / _root(task.columns))
    # With the noise b as drawn from N(0, σ²I), the gradient is longer by at most √d/2 steps: b is rounded to the grid.
    reached = task.tolerance + grid * Fraction(math.isqrt(task.columns) + 1, 2)
    empty = task.bounded(np.zeros(task.columns), 2 * reached / task.regularization, ADD_REMOVE)
    apart = gaussian_noise_multiplier(float_down(total * _FOR_DISTANCE), float_down(slack * _FOR_DISTANCE))
    output = Gaussian(root_up(Fraction(apart) ** 2 * empty.sensitivity().l2_squared) * empty.granularity)
    event = events.Composed(
        (
            events.PerturbedObjective(float_down(deviation / task.slope), curvature),
            output.event(empty),
        )
    )
    longest = float(deviation) * (math.sqrt(task.columns) + _LONGEST_NOISE)
    task.check_rows(len(rows), longest)
    promise = ApproxDP(float_up(total), float_up(slack))
    return _released(
        task, rows, given, event, promise, ADD_REMOVE, output, 2 * reached / task.regularization, account, purpose,
        insecure_seed, (deviation, grid),
    )  # fmt: skip


def output_perturbation(
    features: Any,
    labels: ArrayLike,
    *,
    epsilon: float,
    regularization: float,
    delta: float | None = None,
    loss: Loss | None = None,
    feature_norm: float = 1.0,
    intercept: bool = True,
    tolerance: float | None = None,
    relation: Relation | str = ADD_REMOVE,
    account: Account | None = None,
    purpose: str = "output perturbation",
    insecure_seed: int | None = None,
) -> LinearModel:
    """Train a linear model with ε-DP or (ε, δ)-DP: noise on the minimizer of a strongly convex objective.

    One row moves the minimizer of Σ φ(xᵢ·θ; yᵢ) + (Λ/2)‖θ‖² by at most L/Λ (2L/Λ if it is replaced), and the point that
    is reached by 2·tolerance/Λ more (Chaudhuri, Monteleoni & Sarwate 2011, for the exact minimizer; Theorem 3 of
    docs/proofs/convex-minima.md). With δ the noise is Gaussian, without it Laplace.

    Args:
        features: one row of numbers for each example. Scale the columns with public constants first.
        labels: 0 or 1 for each row; numbers for `Huber`.
        epsilon: ε.
        regularization: Λ, for the sum over all rows. The noise is proportional to 1/Λ, so it must grow as ε falls.
        delta: δ; None for pure ε-DP.
        loss: `Logistic()` by default, `SmoothHinge()` or `Huber(bounds)`.
        feature_norm: the L2 norm that longer rows are scaled down to.
        intercept: add a constant to each row.
        tolerance: the norm of the gradient to reach; by default 1e-5 of one row's largest.
        relation: which neighbors to protect.
        account: the account to charge, before the rows are looked at.
        purpose: what the ledger records.
        insecure_seed: repeatable noise, for tests only.

    Guarantee:
        ε-DP, or (ε, δ)-DP, for one row under `relation`. Enforced by scaling rows; a row with a value that is not
        finite counts as zeros. Not protected: the number and the types of the columns, how long it takes, and, beyond
        65,536 rows, their number up to a factor of 4, which a tolerance that is too small tells.
    """
    rows, given = _examples(features, labels)
    norm = _check.positive("feature_norm", feature_norm, "it is the largest norm of a row")
    task = _task(_loss(loss), rows, norm, regularization, tolerance, intercept)
    wanted = as_relation(relation)
    moved = task.moved(wanted)
    empty = task.bounded(np.zeros(task.columns), moved, wanted)
    mechanism: Additive
    promise: PureDP | ApproxDP
    if delta is None:
        mechanism, promise = Laplace.for_epsilon(empty, epsilon), PureDP(float_up(_check.epsilon(epsilon)))
    else:
        mechanism = Gaussian.for_epsilon(empty, epsilon, delta)
        promise = ApproxDP(float_up(_check.epsilon(epsilon)), float_up(_check.delta(delta)))
    task.check_rows(len(rows), 0.0)
    return _released(
        task, rows, given, mechanism.event(empty), promise, wanted, mechanism, moved, account, purpose, insecure_seed
    )


def _released(
    task: _Task,
    rows: Floats,
    labels: ArrayLike,
    event: events.Event,
    promise: PureDP | ApproxDP,
    relation: Relation,
    mechanism: Additive,
    moved: Fraction,
    account: Account | None,
    purpose: str,
    insecure_seed: int | None,
    objective_noise: tuple[Fraction, Fraction] | None = None,
) -> LinearModel:
    """Charge, then minimize, then add noise."""
    neighbors = Neighbors(relation, Rows())
    guarantee: PureDP | ApproxDP = promise.protecting(neighbors)
    if insecure_seed is not None:
        event, guarantee = events.Insecure(event), PureDP(math.inf, protects=neighbors)
    receipt = None if account is None else account.spend(event, purpose, neighbors=neighbors)
    bits = entropy.bits(insecure_seed)
    linear = np.zeros(task.columns)
    if objective_noise is not None:
        deviation, grid = objective_noise
        # A product of an integer and a power of 2: exact, unless the noise is beyond 2^53 steps.
        linear = Gaussian(deviation).draw(grid, task.columns, bits).astype(np.float64) * float(grid)
    bounded_table = bounded_rows(rows, float_down(task.norm), task.intercept)
    reached = task.reached(bounded_table, task.loss.targets(labels), linear)
    weights = task.bounded(reached, moved, relation)
    noise = mechanism.draw(weights.granularity, task.columns, bits)
    released = (weights.values + noise).astype(np.float64) * float(weights.granularity)
    return task.model(released, event, guarantee, receipt)


def _examples(features: Any, labels: ArrayLike) -> tuple[Floats, ArrayLike]:
    rows, given = table(features), np.asarray(labels)
    if given.ndim != 1 or len(given) != len(rows) or given.dtype.kind not in "fiub":
        shape = f"{given.dtype} of {given.ndim} dimensions"
        raise _check.fail("labels", "be numbers, one for each row", shape, "encode classes as 0 and 1")
    return rows, given


def _loss(loss: object) -> Loss:
    if loss is None:
        return Logistic()
    if not isinstance(loss, Loss):
        raise _check.fail("loss", "be a loss of a linear score", loss, "see discreet.learning.convex")
    return loss


def _task(
    loss: Loss, rows: Floats, norm: Fraction, regularization: object, tolerance: object, intercept: bool
) -> _Task:
    regular = _check.positive("regularization", regularization, "it is the Λ of (Λ/2)‖θ‖²")
    wanted = _TOLERANCE * loss.slope * norm if tolerance is None else tolerance
    exact = _check.positive("tolerance", wanted, "it is the norm of the gradient to reach")
    return _Task(loss, rows.shape[1] + bool(intercept), norm, Fraction(float_down(regular)), exact, bool(intercept))


def _root(count: int) -> Fraction:
    return Fraction(float_root_up(Fraction(count)))


def _power_of_two(most: Fraction) -> Fraction:
    """The largest power of 2 that is at most `most`."""
    return Fraction(2) ** (math.frexp(float_down(most))[1] - 1)
