"""Minimization with a certificate: a point whose gradient is provably no longer than a public tolerance.

Nobody reaches the exact minimizer, and the theorems about exact minimizers protect nothing else. Here the gradient at
the point that is reached is bounded in exact arithmetic: its computed norm, plus a bound on every rounding error of its
computation (docs/proofs/convex-minima.md). The bound that was certified is public; the norm itself is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from discreet.errors import DiscreetError
from discreet.learning.convex.losses import Floats, Loss
from discreet.numeric.rounding import SLACK, UNIT

#: Rows that are summed at a time: the error of a sum grows with its length.
CHUNK = 1024
#: Newton's steps, each of which may be halved this many times, and the gradient steps that follow if none helps.
_MOST_STEPS, _HALVINGS, _GRADIENT_STEPS = 2_000, 40, 50
#: Absolute error of what φ′ computes from a score before it multiplies by β₀, such as 1 + width − ys, where φ″ ≠ 0.
_ARGUMENT_ERROR = 8 * UNIT
#: More than the round-off of the error bound itself.
_BOUND_MARGIN = 1 + 1e-6


class NotReached(DiscreetError):
    """The tolerance was not reached. Nothing was released, and what was charged stays charged."""


@dataclass(frozen=True, eq=False)
class Objective:
    """Σ φ(xᵢ·θ; yᵢ) + (Λ/2)‖θ‖² + b·θ, over rows with an L2 norm of at most `feature_norm`."""

    rows: Floats
    targets: Floats
    loss: Loss
    regularization: float
    linear: Floats
    feature_norm: float

    def gradient(self, at: Floats) -> Floats:
        """The gradient, rounded."""
        total = np.zeros(self.rows.shape[1])
        for rows, targets in self._chunks():
            total += rows.T @ self.loss.first(rows @ at, targets)
        return total + self.regularization * at + self.linear

    def certified_norm(self, at: Floats, gradient: Floats) -> float:
        """An upper bound on the norm of the exact gradient at `at`, given the computed one."""
        columns = len(at)
        norm = float(np.linalg.norm(gradient)) * (1 + (columns + 8) * UNIT)
        point_norm, linear = (float(np.linalg.norm(v)) * (1 + (columns + 8) * UNIT) for v in (at, self.linear))
        error = gradient_error(
            len(self.rows), columns, self.loss, self.feature_norm, self.regularization, point_norm, linear
        )
        return norm + error

    def hessian(self, at: Floats) -> Floats:
        """The second derivative, or a limit of it at kinks."""
        total = self.regularization * np.eye(self.rows.shape[1])
        for rows, targets in self._chunks():
            total += rows.T @ (rows * self.loss.second(rows @ at, targets)[:, None])
        return total

    def _chunks(self) -> Iterator[tuple[Floats, Floats]]:
        for begin in range(0, len(self.rows), CHUNK):
            yield self.rows[begin : begin + CHUNK], self.targets[begin : begin + CHUNK]


def gradient_error(
    rows: int, columns: int, loss: Loss, feature_norm: float, regularization: float, point_norm: float, linear: float
) -> float:
    """How far the computed gradient may be from the exact one, at a point of norm `point_norm`.

    With u the unit round-off and γ_k = ku/(1 − ku), a dot product of length k in any order errs by at most γ_k Σ|aᵢbᵢ|
    (Higham 2002, section 3.1). A score errs by γ_d R‖θ‖, so φ′ errs by β₀ times that and by its own evaluation, which
    `_ARGUMENT_ERROR` and `SLACK` cover. Chunks of c rows and their n/c sums err by (γ_{c+1} + γ_{n/c}) n L₀ R in norm.
    The last sums err by less than 8u of their terms.
    """
    slope, curvature = float(loss.slope), float(loss.curvature)
    chunks = rows // CHUNK + 1
    of_score = _gamma(columns + 1) * feature_norm * point_norm + _ARGUMENT_ERROR
    of_slope = curvature * of_score + SLACK * slope
    of_sums = (_gamma(min(rows, CHUNK) + 1) + _gamma(chunks + 1)) * slope * feature_norm
    terms = rows * slope * feature_norm + regularization * point_norm + linear
    return _BOUND_MARGIN * (rows * (of_slope * feature_norm + of_sums) + 8 * UNIT * terms)


def _gamma(length: int) -> float:
    return length * UNIT / (1 - length * UNIT)


def minimize(objective: Objective, tolerance: float) -> Floats:
    """A point at which the exact gradient is no longer than `tolerance`.

    Newton's method, halving steps until the gradient gets shorter. The objective is Λ-strongly convex, so the Jacobian
    of its gradient is invertible, and gradient steps, which follow where Newton's don't help, converge from everywhere.

    Guarantee:
        Looks at all rows; the result is not private. How long it takes depends on the data.
    """
    at = np.zeros(objective.rows.shape[1])
    gradient = objective.gradient(at)
    smoothness = (
        len(objective.rows) * float(objective.loss.curvature) * objective.feature_norm**2 + objective.regularization
    )
    for _ in range(_MOST_STEPS):
        if objective.certified_norm(at, gradient) <= tolerance:
            return at
        moved = _newton(objective, at, gradient)
        if moved is None:
            for _ in range(_GRADIENT_STEPS):
                at = at - gradient / smoothness
                gradient = objective.gradient(at)
        else:
            at, gradient = moved
    raise NotReached(
        f"The gradient did not get below {tolerance:.3g} in {_MOST_STEPS} steps: nothing was released, and the charge "
        "stays; use a larger tolerance"
    )


def _newton(objective: Objective, at: Floats, gradient: Floats) -> tuple[Floats, Floats] | None:
    """One step, halved until the gradient is shorter; None if it never is."""
    try:
        direction = np.linalg.solve(objective.hessian(at), -gradient)
    except np.linalg.LinAlgError:  # singular in floats, if Λ is tiny
        return None
    length, step = math.sqrt(float(gradient @ gradient)), 1.0
    for _ in range(_HALVINGS):
        there = at + step * direction
        new = objective.gradient(there)
        if math.sqrt(float(new @ new)) <= (1 - step / 8) * length:
            return there, new
        step /= 2
    return None
