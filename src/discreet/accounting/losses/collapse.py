"""Events in their simplest form: nothing nested, equal parts merged and counted.

`collapse` turns an event into the ways in which a unit can meet it. There are several ways only where parts run in
parallel: a unit lies in one part or, if it is replaced, leaves one part and joins another. The worst way is the price.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from itertools import combinations, combinations_with_replacement

from discreet.accounting.losses import groups
from discreet.accounting.prices.price import is_priced, price_of
from discreet.accounting.refusal import check_fixed_size, check_poisson, unknown
from discreet.events import (
    Claimed,
    Composed,
    Event,
    Gaussian,
    Group,
    Insecure,
    L2Laplace,
    Laplace,
    MayFail,
    NonPrivate,
    Parallel,
    PoissonSampled,
    Repeated,
    SampledWithoutReplacement,
    ShuffledEpoch,
)
from discreet.neighbors import ADD_REMOVE, Relation

# Leaves with how often each runs; hashable, so that equal ways count once.
Way = frozenset[tuple[Event, int]]

# Every way is priced by itself, so this bounds the time that one price takes.
_MOST_WAYS = 64

#: The name of this accountant in refusals.
ACCOUNTANT = "tight accounting"


def collapse(event: Event, relation: Relation = ADD_REMOVE) -> tuple[Way, ...]:
    """The distinct ways in which a unit that is added, removed or replaced, as `relation` says, can meet `event`.

    >>> [sorted(way, key=repr) for way in collapse(Repeated(Repeated(Gaussian(2.0), 2), 2))]
    [[(Gaussian(noise_multiplier=1.0), 1)]]
    """
    return tuple(_pruned(_gaussians_merged(way) for way in _ways(event, relation)))


def _ways(event: Event, relation: Relation) -> list[Counter[Event]]:
    match event:
        case Insecure():
            return [Counter({NonPrivate(): 1})]
        case MayFail(probability, inner):
            # An infinite loss with this probability, and the event's own loss otherwise: the sum of two losses.
            return _ways(Composed((Claimed(0.0, probability), inner)) if probability > 0 else inner, relation)
        case Repeated(inner, count):
            return _repeated(event, _ways(inner, relation), count)
        case Composed(parts):
            ways: list[Counter[Event]] = [Counter()]
            for part, count in Counter(parts).items():
                more = _repeated(event, _ways(part, relation), count)
                if len(ways) == 1 and len(more) == 1:
                    ways[0].update(more[0])
                    continue
                _check_number(event, len(ways) * len(more))
                ways = [first + second for first in ways for second in more]
            return ways
        case Parallel(parts):
            alternatives = [way for part in _touched(parts, relation) for way in _ways(part, relation)]
            merged = _pruned(_gaussians_merged(way) for way in alternatives)
            return [Counter(dict(way)) for way in merged] or [Counter()]
        case PoissonSampled(rate, inner):
            check_poisson(event, relation, ACCOUNTANT)
            return [
                _sampled(rate, _gaussians_merged(way))
                for way in _pruned(map(_gaussians_merged, _ways(inner, relation)))
            ]
        case SampledWithoutReplacement(size, population, inner):
            check_fixed_size(event, relation, ACCOUNTANT)
            inside = _pruned(map(_gaussians_merged, _ways(inner, relation)))
            return [_subset(size, population, way) for way in inside]
        case ShuffledEpoch(_, _, inner) if relation is not ADD_REMOVE:
            return _ways(inner, relation)  # every unit is in exactly one batch, and which one is not hidden
        case Group() if (single := groups.spread(event)) is not None:
            return _ways(single, relation)
        case Gaussian(multiplier) | Laplace(multiplier) | L2Laplace(multiplier) if math.isinf(multiplier):
            return [Counter()]
        case _ if is_priced(event) and not price_of(event, ACCOUNTANT).has_losses:
            return _ways(price_of(event, ACCOUNTANT).simpler(event, relation, ACCOUNTANT), relation)
        case _:
            return [Counter({event: 1})]


def _touched(parts: tuple[Event, ...], relation: Relation) -> Iterable[Event]:
    """The disjoint parts that one unit can touch: one, or two where it is replaced."""
    distinct = Counter(parts)
    if groups.parts_touched(relation) == 1 or distinct.total() < 2:
        return distinct
    twice = [Repeated(part, 2) for part, count in distinct.items() if count > 1]
    return [*twice, *(Composed(pair) for pair in combinations(distinct, 2))]


def _repeated(event: Event, ways: list[Counter[Event]], count: int) -> list[Counter[Event]]:
    if count == 0:
        return [Counter()]
    if len(ways) == 1:
        return [Counter({leaf: count * times for leaf, times in ways[0].items()})]
    _check_number(event, math.comb(count + len(ways) - 1, count))
    return [sum(chosen, Counter()) for chosen in combinations_with_replacement(ways, count)]


def _check_number(event: Event, ways: int) -> None:
    if ways > _MOST_WAYS:
        raise unknown(event, ACCOUNTANT, f"its parallel parts combine in more than {_MOST_WAYS} ways")


def _gaussians_merged(way: Iterable[tuple[Event, int]] | Counter[Event]) -> Way:
    """Gaussians compose to one with 1/σ² = Σ 1/σᵢ²: their losses are normal and add (Dong, Roth & Su 2022)."""
    pairs = way.items() if isinstance(way, Counter) else way
    leaves = [(leaf, count) for leaf, count in pairs if not isinstance(leaf, Gaussian)]
    terms = [(leaf, count) for leaf, count in pairs if isinstance(leaf, Gaussian)]
    if len(terms) == 1 and terms[0][1] == 1:
        leaves += terms
    elif terms:
        mu_squared = math.fsum(count / float(leaf.noise_multiplier) ** 2 for leaf, count in terms)
        leaves.append((Gaussian(1 / math.sqrt(mu_squared)), 1))
    return frozenset(leaves)


def _sampled(rate: float, way: Way) -> Counter[Event]:
    if rate <= 0 or not way:
        return Counter()
    if float(rate) >= 1:
        return Counter(dict(way))
    if len(way) == 1:
        ((leaf, count),) = way
        if isinstance(leaf, PoissonSampled) and count == 1:
            return Counter({PoissonSampled(rate * leaf.rate, leaf.event): 1})
        return Counter({PoissonSampled(rate, _again(leaf, count)): 1})
    leaves = tuple(sorted((_again(leaf, count) for leaf, count in way), key=repr))
    return Counter({PoissonSampled(rate, Composed(leaves)): 1})


def _subset(size: int, population: int, way: Way) -> Counter[Event]:
    if not way:
        return Counter()
    if size == population:
        return Counter(dict(way))
    leaves = tuple(sorted((_again(leaf, count) for leaf, count in way), key=repr))
    return Counter(
        {SampledWithoutReplacement(size, population, leaves[0] if len(leaves) == 1 else Composed(leaves)): 1}
    )


def _again(leaf: Event, count: int) -> Event:
    return leaf if count == 1 else Repeated(leaf, count)


def _pruned(ways: Iterable[Way]) -> list[Way]:
    """Distinct ways, without those that another one plainly dominates: the same kind of noise, only more of it."""
    distinct = list(dict.fromkeys(ways))
    kept: dict[object, tuple[float, Way]] = {}
    for way in distinct:
        key, noise = _family(way)
        if key not in kept or noise < kept[key][0]:
            kept[key] = (noise, way)
    if len(kept) > 1:
        kept = {key: value for key, value in kept.items() if value[1]}
    return [way for _, way in kept.values()]


def _family(way: Way) -> tuple[object, float]:
    """A way's family and its noise: ways of one family differ in their noise alone, and less noise costs more."""
    if len(way) == 1:
        ((leaf, count),) = way
        if isinstance(leaf, Gaussian | Laplace):
            return (type(leaf), count), leaf.noise_multiplier
        if isinstance(leaf, PoissonSampled) and isinstance(leaf.event, Gaussian):
            return (leaf.rate, count), leaf.event.noise_multiplier
    return way, 0.0
