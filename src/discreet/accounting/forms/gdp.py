"""Gaussian DP: the μ for which neighbors are at least as hard to tell apart as N(0, 1) and N(μ, 1)."""

from __future__ import annotations

import math
from fractions import Fraction

from scipy import special

from discreet import events as ev
from discreet.accounting.forms.pure import pure
from discreet.accounting.losses.groups import parts_touched, spread
from discreet.accounting.prices.price import is_priced, price_of
from discreet.accounting.refusal import check_fixed_size, unknown
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import GDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import added, down, exact, float_root_up, infinite, reported, up

_NAME = "GDP accounting"

# From here on 1/(1 + e^ε) is below 1e-13, and its logarithm is used instead. Both forms keep their digits around here.
_LARGE_EPSILON = 30
# math.expm1 overflows above 709.
_LARGEST_EXPONENT = 700


def gdp(event: Event, relation: Relation = ADD_REMOVE) -> GDP:
    """The μ of μ-GDP that `event` has, rounded up; refused where no theorem gives a finite one.

    Gaussian noise: μ = Δ₂/σ; composition: √Σμ² (Dong, Roth & Su, arXiv 1905.02383, Theorem 2.7 and Corollary 3.3); a
    group of k: kμ. Any ε-DP event is μ-GDP with Φ(−μ/2) = 1/(1 + e^ε), exact for randomized response (Liu, Sun, Jiang &
    Kong, arXiv 2210.09269): the trade-off curve of ε-DP consists of the two chords of the convex curve G_μ that meet at
    its fixed point. Sampled Gaussians, discrete Gaussians and Laplace noise under an L2 bound alone are refused: no μ
    is known to be valid for them.

    >>> gdp(ev.Repeated(ev.Gaussian(2.0), 16))
    GDP(mu=2.0)
    """
    return GDP(reported(mu_up(mu_squared(event, relation))))


def mu_squared(event: Event, relation: Relation = ADD_REMOVE) -> Fraction | None:
    """An exact rational that is at least μ²; None where μ is infinite (no privacy at all)."""
    match event:
        case ev.Gaussian(multiplier):
            return Fraction(0) if infinite(multiplier) else 1 / exact(multiplier) ** 2
        case ev.NonPrivate() | ev.Insecure():
            return None
        case ev.MayFail(probability, inner) if probability <= 0:
            return mu_squared(inner, relation)
        case ev.Repeated(inner, count):
            return Fraction(0) if count == 0 else added([mu_squared(inner, relation)], count)
        case ev.Composed(parts):
            return added([mu_squared(part, relation) for part in parts])
        case ev.Parallel(parts):
            squares = [mu_squared(part, relation) for part in parts]
            squares.sort(key=lambda squared: math.inf if squared is None else squared, reverse=True)
            return added(squares[: parts_touched(relation)])
        case ev.Group(inner, people):
            plain = spread(event)
            if plain is not None:
                return mu_squared(plain, relation)
            squared = mu_squared(inner, relation)
            return None if squared is None else people**2 * squared
        case ev.Shuffled(_, inner) | ev.ShuffledEpoch(_, _, inner):
            check_fixed_size(event, relation, _NAME)
            return mu_squared(inner, relation)
        case _ if is_priced(event):
            price = price_of(event, _NAME)
            mu = price.gdp(event, relation)
            if mu is None:
                return mu_squared(price.simpler(event, relation, _NAME), relation)
            return None if math.isinf(mu) else Fraction(mu) ** 2
        case _:
            epsilon = pure(event, relation).epsilon
            if math.isinf(epsilon):
                raise unknown(event, _NAME, "no μ is known to be valid for it")
            return Fraction(pure_mu(epsilon)) ** 2


def pure_mu(epsilon: float) -> float:
    """The μ with Φ(−μ/2) = 1/(1 + e^ε), rounded up: every ε-DP event is μ-GDP."""
    if epsilon <= 0 or math.isinf(epsilon):
        return epsilon
    if epsilon > _LARGE_EPSILON:
        # ln(1/(1 + e^ε)) = −ε − ln(1 + e^{−ε}); the quantile of a logarithm keeps its digits.
        tail = -epsilon - math.log1p(math.exp(-epsilon))
        return up(up(-2 * float(special.ndtri_exp(tail))))
    # tanh(ε/2) = erf(μ/√8) keeps its digits near 0, and the normal quantile keeps them far from 0.
    if epsilon < 1:
        return up(up(math.sqrt(8) * float(special.erfinv(up(math.tanh(epsilon / 2))))))
    return up(up(-2 * float(special.ndtri(down(1 / (1 + math.exp(epsilon)))))))


def gaussian_multiplier(event: Event, relation: Relation = ADD_REMOVE) -> float | None:
    """The σ/Δ of the one Gaussian that `event` amounts to, rounded down; None if it has any other part."""
    match event:
        case ev.Gaussian():
            pass
        case ev.Group() if (plain := spread(event)) is not None:
            return gaussian_multiplier(plain, relation)
        case ev.Repeated(inner, count) if count > 0 and gaussian_multiplier(inner, relation) is not None:
            pass
        case ev.Composed(parts) if parts and all(gaussian_multiplier(part, relation) is not None for part in parts):
            pass
        case _:
            return None
    squared = mu_squared(event, relation)
    if squared is None or squared == 0:
        return None
    return math.nextafter(1 / mu_up(squared), 0.0)


def limit(event: Event) -> float:
    """μ of the central limit theorem for Poisson-sampled Gaussians: an **approximation**, not a bound.

    μ = q√(T(e^{1/σ²} − 1)) (Bu, Dong, Long & Su 2020), squares added over different steps. It may lie below the truth
    at any finite T. It is for comparison only; nothing may be charged by it.
    """
    return math.sqrt(_limit_squared(event))


def _limit_squared(event: Event) -> float:
    match event:
        case ev.Repeated(inner, count):
            return count * _limit_squared(inner)
        case ev.Composed(parts):
            return sum(_limit_squared(part) for part in parts)
        case ev.PoissonSampled(rate, inner) if (multiplier := gaussian_multiplier(inner)) is not None:
            exponent = multiplier**-2
            return math.inf if exponent > _LARGEST_EXPONENT else float(rate) ** 2 * math.expm1(exponent)
        case _ if (multiplier := gaussian_multiplier(event)) is not None:
            return multiplier**-2
        case _:
            raise UnknownEvent(f"the GDP limit is stated for Poisson-sampled Gaussians alone, not for {event!r}")


def mu_up(squared: Fraction | None) -> float:
    """The μ of a μ², rounded up; inf for None."""
    return math.inf if squared is None else float_root_up(squared)
