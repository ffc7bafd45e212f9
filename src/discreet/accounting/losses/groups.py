"""Groups of people: a group's event as an event of one unit, and which disjoint parts one unit can touch."""

from __future__ import annotations

import math
from dataclasses import replace

from discreet import events as ev
from discreet.events import Event
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.numeric.rounding import exact, float_down, float_up, infinite


def spread(event: ev.Group) -> Event | None:
    """A group's event as an event of one unit that costs the same or more; None where only a group theorem applies.

    Additive noise under a metric sensitivity: k people move the value k times as far, so the noise multiplier is
    divided by k (rounded down). A composition on the same data is priced part by part. A `Parallel` is not: k people
    may sit in different parts.

    >>> from fractions import Fraction
    >>> spread(ev.Group(ev.DiscreteLaplace(2, Fraction(10)), 3))
    DiscreteLaplace(sensitivity=6, scale=Fraction(10, 1))
    """
    inner, k = event.event, event.people
    if k == 1:
        return inner
    match inner:
        case ev.Gaussian(multiplier):
            return ev.Gaussian(_divided(multiplier, k))
        case ev.Laplace(multiplier):
            return ev.Laplace(_divided(multiplier, k))
        case ev.L2Laplace(multiplier, by_l1, shift):
            return ev.L2Laplace(
                _divided(multiplier, k),
                None if by_l1 is None else _divided(by_l1, k),
                None if shift is None or len(shift) > 1 else (float_up(k * exact(shift[0])),),
            )
        case ev.DiscreteGaussian(squared, _, coordinates):
            return replace(inner, sensitivity_squared=k * k * squared, coordinates=k * coordinates)
        case ev.DiscreteLaplace(sensitivity, _):
            return replace(inner, sensitivity=k * sensitivity)
        case ev.Exponential(epsilon):  # ranges add up along a path from one dataset to the other
            return ev.Exponential(k * epsilon)
        case ev.DeclaredExponentials(epsilon, count):
            return ev.DeclaredExponentials(k * epsilon, count)
        case ev.MayFail(probability, child):  # it fails whatever the data are
            return ev.MayFail(probability, ev.Group(child, k))
        case ev.SelectedFromRepeats(child, _):  # its price follows from that of one run, for a group too
            return replace(inner, event=ev.Group(child, k))
        case ev.Group(child, people):
            return ev.Group(child, people * k)
        case ev.Repeated(child, count):
            return ev.Repeated(ev.Group(child, k), count)
        case ev.Composed(parts):
            return ev.Composed(tuple(ev.Group(child, k) for child in parts))
        case ev.Insecure() | ev.NonPrivate():
            return inner
        case _:
            return None


def _divided(multiplier: float, people: int) -> float:
    return math.inf if infinite(multiplier) else float_down(exact(multiplier) / people)


def parts_touched(relation: Relation) -> int:
    """How many of several disjoint parts one unit can change at once.

    One unit lies in one part. A replacement may also take it out of one part and put it into another; the price of a
    part must then cover a unit that leaves or joins it.
    """
    return 2 if relation is REPLACE_ONE else 1


def caused_together(prices: list[float], relation: Relation) -> list[float]:
    """The prices, out of one for each disjoint part, that one unit can cause together."""
    return sorted(prices, reverse=True)[: parts_touched(relation)]
