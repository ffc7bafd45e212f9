"""Pure differential privacy: the largest privacy loss that an event can cause; inf where losses are unbounded."""

from __future__ import annotations

import math
from fractions import Fraction

from discreet import events as ev
from discreet.accounting.losses.groups import caused_together, spread
from discreet.accounting.prices.price import price_of
from discreet.accounting.refusal import check_fixed_size, check_poisson
from discreet.events import Event
from discreet.guarantees import PureDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation
from discreet.numeric.rounding import added, exact, float_up, infinite, reciprocal_up, reported, times_up, total_up, up

_NAME = "pure DP accounting"

# From here on e^ε is factored out of ln(1 + q(e^ε − 1)), which would overflow later. Both forms keep their digits here.
_LARGE_EPSILON = 30


def pure(event: Event, relation: Relation = ADD_REMOVE) -> PureDP:
    """The ε of ε-DP that `event` has, rounded up; ε = inf where no finite one exists (Gaussian noise, a δ > 0).

    Composition adds (Dwork et al. 2006); disjoint parts cost the largest (McSherry 2009); a group of k costs kε. A
    Poisson sample costs ln(1 + q(e^ε − 1)) under add/remove and zero-out, a sample without replacement the same under
    replace-one (Balle, Barthe & Gaboardi 2018, Theorems 8 and 9). Otherwise a sample costs what its event costs.

    >>> pure(ev.Composed((ev.Laplace(2.0), ev.Exponential(Fraction(1, 4)))))
    PureDP(epsilon=0.75)
    >>> pure(ev.Gaussian(1.0))
    PureDP(epsilon=inf)
    """
    total = exact_pure(event, relation)
    return PureDP(math.inf if total is None else reported(float_up(total)))


def exact_pure(event: Event, relation: Relation = ADD_REMOVE) -> Fraction | None:
    """The same as a rational, None where it is infinite: ten times one tenth is exactly one.

    >>> exact_pure(ev.Repeated(ev.DiscreteLaplace(1, Fraction(10)), 10))
    Fraction(1, 1)
    """
    match event:
        case ev.Laplace(multiplier) if not infinite(multiplier):
            return 1 / exact(multiplier)
        case ev.DiscreteLaplace(sensitivity, scale):
            return sensitivity / scale
        case ev.Exponential(epsilon) | ev.NoisyMax(epsilon) | ev.SparseVector(epsilon) | ev.RandomizedResponse(epsilon):
            return epsilon
        case ev.Claimed(epsilon, delta) if delta <= 0:
            return exact(epsilon)
        case ev.MayFail(probability, inner):
            return exact_pure(inner, relation) if probability <= 0 else None
        case ev.Repeated(inner, count):
            return added([exact_pure(inner, relation)], count)
        case ev.Composed(parts):
            return added([exact_pure(part, relation) for part in parts])
        case _:
            epsilon = _epsilon(event, relation)
            return None if math.isinf(epsilon) else Fraction(epsilon)


def amplified(epsilon: float, rate: float) -> float:
    """ln(1 + q(e^ε − 1)), rounded up: the ε of an ε-DP event on a sample that one unit joins with probability q."""
    if rate <= 0 or epsilon <= 0:
        return 0.0
    if rate >= 1 or math.isinf(epsilon):
        return epsilon
    if epsilon < _LARGE_EPSILON:
        return min(epsilon, up(math.log1p(up(rate * up(math.expm1(epsilon))))))
    return min(epsilon, up(epsilon + up(math.log(up(rate + up((1 - rate) * math.exp(-epsilon)))))))


def _epsilon(event: Event, relation: Relation) -> float:
    match event:
        case ev.Gaussian(multiplier):
            return 0.0 if infinite(multiplier) else math.inf
        case ev.DiscreteGaussian() | ev.NonPrivate() | ev.Insecure():
            return math.inf
        case ev.Laplace(multiplier):
            return reciprocal_up(multiplier)
        case ev.L2Laplace(multiplier, by_l1, shift):
            # Under an L2 bound alone the number of coordinates, and with it the L1 norm, is unbounded.
            bounds = [0.0 if infinite(multiplier) else math.inf]
            bounds += [] if by_l1 is None else [reciprocal_up(by_l1)]
            bounds += [] if shift is None else [float_up(sum((exact(distance) for distance in shift), Fraction(0)))]
            return min(bounds)
        case ev.DiscreteLaplace(sensitivity, scale):
            return float_up(sensitivity / scale)
        case ev.Exponential(epsilon) | ev.NoisyMax(epsilon) | ev.SparseVector(epsilon) | ev.RandomizedResponse(epsilon):
            return float_up(epsilon)
        case ev.Claimed(epsilon, delta):
            return float_up(exact(epsilon)) if delta <= 0 else math.inf
        case ev.MayFail(probability, inner):
            return _epsilon(inner, relation) if probability <= 0 else math.inf
        case ev.PoissonSampled(rate, inner):
            check_poisson(event, relation, _NAME)
            loss = _epsilon(inner, relation)
            return loss if relation is REPLACE_ONE else amplified(loss, float_up(exact(rate)))
        case ev.SampledWithoutReplacement(size, population, inner):
            check_fixed_size(event, relation, _NAME)
            loss = _epsilon(inner, relation)
            return loss if relation is ZERO_OUT else amplified(loss, float_up(Fraction(size, population)))
        case ev.Shuffled(_, inner) | ev.ShuffledEpoch(_, _, inner):
            check_fixed_size(event, relation, _NAME)
            return _epsilon(inner, relation)
        case ev.Repeated(inner, count):
            return times_up(count, _epsilon(inner, relation))
        case ev.Composed(parts):
            return total_up(_epsilon(part, relation) for part in parts)
        case ev.Parallel(parts):
            return total_up(caused_together([_epsilon(part, relation) for part in parts], relation))
        case ev.Group(inner, people):
            plain = spread(event)
            return times_up(people, _epsilon(inner, relation)) if plain is None else _epsilon(plain, relation)
        case _:
            price = price_of(event, _NAME)
            given = price.pure(event, relation)
            return _epsilon(price.simpler(event, relation, _NAME), relation) if given is None else given
