"""The privacy profile of an event: δ at every ε, ε at every δ, and the trade-off of test errors that they imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.accounting import exceedance, tight
from discreet.accounting._trade_off import trade_off
from discreet.accounting.interval import Interval
from discreet.events import Event
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CurveBounds:
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

    def delta(self, epsilons: ArrayLike) -> CurveBounds:
        """δ at each of `epsilons`."""
        at = _points("epsilons", epsilons)
        return _curve(at, [tight.delta(self.event, epsilon, self.relation) for epsilon in at])

    def epsilon(self, deltas: ArrayLike) -> CurveBounds:
        """ε at each of `deltas`."""
        at = _points("deltas", deltas)
        return _curve(at, [tight.epsilon(self.event, delta, self.relation) for delta in at])

    def loss_exceeds(self, epsilon: float) -> Interval:
        """P(privacy loss > ε), in the worse direction: how often a result changes the odds by more than e^ε.

        It is at least δ(ε), which also weighs by how much the loss exceeds ε, and is often many times δ(ε). It is for
        the neighbors at which the noise hides least. Raises `UnknownEvent` where only a bound on the losses is known,
        as for `events.Claimed`.

        >>> from discreet.events import Gaussian
        >>> round(Profile(Gaussian(4.22467889)).loss_exceeds(1.0).upper, 7)
        2.01e-05
        """
        return exceedance.loss_exceeds(self.event, epsilon, self.relation)

    def trade_off(self, type_1: ArrayLike) -> CurveBounds:
        """The least type II error of any test with each type I error.

        `lower` is guaranteed: no attacker errs less. The tight curve does not exceed `upper`. `accounting.trade_off`
        gives the same curve as a value to keep, for one direction if wanted.
        """
        at = np.array(_points("type_1", type_1), dtype=np.float64)
        if np.any((at < 0) | (at > 1)):
            raise _check.fail("type_1", "lie in [0, 1]", type_1, "it is a probability of a false alarm")
        curve = trade_off(self.event, self.relation)
        return CurveBounds(at, curve.lower(at), curve.upper(at))


def profile(event: Event, relation: Relation = ADD_REMOVE) -> Profile:
    """The profile of `event`: δ at an array of ε, ε at an array of δ, and the trade-off of test errors."""
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    return Profile(event, as_relation(relation))


def _points(name: str, values: ArrayLike) -> list[Any]:
    """One number or a list of them, each as the Python number that it is."""
    at = np.atleast_1d(np.asarray(values, dtype=object))
    if at.ndim != 1:
        raise _check.fail(name, "be a list of finite numbers", values, "give the points to evaluate at")
    return [_check.settled(_check.real, name, value, "give the points to evaluate at") for value in at]


def _curve(points: Sequence[_check.Number], intervals: Sequence[Interval]) -> CurveBounds:
    at = np.array(points, dtype=np.float64)
    return CurveBounds(at, np.array([each.lower for each in intervals]), np.array([each.upper for each in intervals]))
