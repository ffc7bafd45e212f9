"""Events with a δ of their own, split into a pure part and that δ."""

from __future__ import annotations

from fractions import Fraction

from discreet import events as ev
from discreet.accounting.losses.groups import parts_touched
from discreet.accounting.prices.price import price_of
from discreet.events import Event
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import exact


def without_delta(event: Event, relation: Relation = ADD_REMOVE) -> tuple[Event, Fraction]:
    """`event` with every claimed (ε, δ) replaced by (ε, 0) and no failures, and a bound on the sum of their δ.

    An (ε, δ)-DP mechanism is a post-processing of one that reveals everything with probability δ and is ε-DP otherwise
    (Kairouz, Oh & Viswanath 2015, Theorem 3.4). Claims inside of samples and
    groups stay as they are, and have no finite price.

    >>> without_delta(ev.Repeated(ev.Claimed(0.5, 0.25), 2))
    (Repeated(event=Claimed(epsilon=0.5, delta=0.0), count=2), Fraction(1, 2))
    """
    match event:
        case ev.Claimed(epsilon, delta):
            return ev.Claimed(epsilon), exact(delta)
        case ev.MayFail(probability, inner):
            plain, claimed = without_delta(inner, relation)
            return plain, exact(probability) + (1 - exact(probability)) * claimed
        case ev.TruncatedPoissonSampled():
            return without_delta(price_of(event, "accounting").simpler(event, relation, "accounting"), relation)
        case ev.Repeated(inner, count):
            plain, claimed = without_delta(inner, relation)
            return ev.Repeated(plain, count), count * claimed
        case ev.Composed(parts):
            split = [without_delta(part, relation) for part in parts]
            return ev.Composed(tuple(plain for plain, _ in split)), sum((d for _, d in split), Fraction(0))
        case ev.Parallel(parts):
            split = [without_delta(part, relation) for part in parts]
            largest = sorted((d for _, d in split), reverse=True)[: parts_touched(relation)]
            return ev.Parallel(tuple(plain for plain, _ in split)), sum(largest, Fraction(0))
        case _:
            return event, Fraction(0)
