"""The whole price of an event: δ at every ε, and what an attacker's best test can do.

δ(ε) and the trade-off curve say the same: (ε, δ)-DP bounds the type II error β at the type I error α by
β ≥ 1 − δ − e^ε α (Wasserman & Zhou 2010; Dong, Roth & Su 2022), and the curve is the largest of these bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.accounting import tight
from discreet.accounting.interval import Interval
from discreet.events import Event
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Curve:
    """Certified bounds on a function at several points."""

    at: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class Profile:
    """The privacy profile of one event under one relation.

    >>> from discreet.events import Gaussian
    >>> curve = Profile(Gaussian(1.0)).delta([0.0, 1.0, 2.0])
    >>> [round(float(upper), 4) for upper in curve.upper]
    [0.3829, 0.1269, 0.0209]
    """

    event: Event
    relation: Relation = ADD_REMOVE

    def delta(self, epsilons: ArrayLike) -> Curve:
        """δ at each of `epsilons`."""
        at = _points("epsilons", epsilons)
        found = [tight.delta(self.event, float(epsilon), self.relation) for epsilon in at]
        return _curve(at, found)

    def epsilon(self, deltas: ArrayLike) -> Curve:
        """ε at each of `deltas`."""
        at = _points("deltas", deltas)
        return _curve(at, [tight.epsilon(self.event, float(delta), self.relation) for delta in at])

    def trade_off(self, type_1: ArrayLike) -> Curve:
        """The least type II error of any test with each type I error, that is how private the event is.

        `lower` is what is guaranteed: no attacker errs less. Some attacker errs no more than `upper`.
        With D the upper end of δ at the ε of a grid, the guaranteed curve is the largest max(0, 1 − D − e^ε α,
        e^{−ε}(1 − D − α)).
        """
        at = _points("type_1", type_1)
        if np.any((at < 0) | (at > 1)):
            raise _check.fail("type_1", "lie in [0, 1]", type_1, "it is a probability of a false alarm")
        epsilons, deltas = self._grid()
        upper = np.array([each.upper for each in deltas])
        lower = np.array([each.lower for each in deltas])
        guaranteed = supporting_lines(at, epsilons, upper)
        # The true curve is the largest of these lines over all ε, not only those of the grid: between two points of
        # the grid δ is at least the lower end of the next one, and e^ε at least that of the one before.
        relaxed = _supporting_between(at, epsilons, lower)
        return Curve(at, np.clip(guaranteed, 0.0, 1.0), np.clip(relaxed, 0.0, 1.0))

    def _grid(self) -> tuple[Floats, list[Interval]]:
        """A grid of ε out to where δ is below 1e-9, or as far as ε goes."""
        most = tight.epsilon(self.event, 1e-9, self.relation).upper
        if math.isinf(most):
            most = tight.epsilon(self.event, 0.999, self.relation).upper
        if math.isinf(most):
            most = 1.0
        inside = max(most, 1e-9) * np.linspace(0.0, 1.0, 65) ** 1.5
        epsilons = np.append(inside, 10 * inside[-1] + 50.0)  # far out, what remains is an infinite loss
        return epsilons, [tight.delta(self.event, float(epsilon), self.relation) for epsilon in epsilons]


def profile(event: Event, relation: Relation = ADD_REMOVE) -> Profile:
    """The profile of `event`: δ at an array of ε, ε at an array of δ, and the trade-off of test errors."""
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    return Profile(event, as_relation(relation))


def _points(name: str, values: ArrayLike) -> Floats:
    at = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if at.ndim != 1 or not np.all(np.isfinite(at)):
        raise _check.fail(name, "be a list of finite numbers", values, "give the points to evaluate at")
    return at


def _curve(at: Floats, found: Sequence[Interval]) -> Curve:
    return Curve(at, np.array([each.lower for each in found]), np.array([each.upper for each in found]))


def supporting_lines(alpha: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """The least type II error at each type I error α that (ε, δ)-DP at each of these pairs leaves to any test.

    max over ε of max(1 − δ − e^ε α, e^{−ε}(1 − δ − α), 0): every one of them holds.

    >>> supporting_lines(np.array([0.0, 0.5]), np.array([1.0]), np.array([0.0])).round(4).tolist()
    [1.0, 0.1839]
    """
    growth = np.exp(np.minimum(epsilons, 700.0))
    steep = 1 - deltas - growth * alpha[:, None]
    flat = (1 - deltas - alpha[:, None]) / growth
    return np.asarray(np.maximum(0.0, np.maximum(steep.max(axis=1), flat.max(axis=1))))


def _supporting_between(alpha: Floats, epsilons: Floats, lower: Floats) -> Floats:
    """An upper bound on the same maximum over all ε ≥ 0, from lower bounds on δ at the grid."""
    growth = np.exp(np.minimum(epsilons, 700.0))
    next_delta = np.append(lower[1:], 0.0)
    steep = 1 - next_delta - growth * alpha[:, None]
    flat = (1 - next_delta - alpha[:, None]) / growth
    return np.asarray(np.maximum(0.0, np.maximum(steep.max(axis=1), flat.max(axis=1))))
