"""Zero-concentrated DP: the smallest known ρ with Rényi divergence at most ρα at every order α > 1."""

from __future__ import annotations

import math
from fractions import Fraction

from discreet import events as ev
from discreet.accounting.forms.pure import pure
from discreet.accounting.losses.groups import caused_together, spread
from discreet.accounting.prices.price import price_of
from discreet.accounting.refusal import check_fixed_size, check_poisson
from discreet.events import Event
from discreet.guarantees import ZCDP
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import (
    added,
    exact,
    exp_minus_linear,
    float_up,
    infinite,
    reciprocal_up,
    reported,
    times_up,
    total_up,
    up,
)

_NAME = "zCDP accounting"

# From this 1/scale on, 1 − t/sinh(t) is 1 to within 1e-11, and 1 is above it.
_COARSE_GRID = 30
# Below this 1/scale the series of `_near` is used: its terms up to t^24/25! leave out less than 2⁻¹⁰⁰.
_FINE_GRID, _LAST_POWER = 0.5, 24


def zcdp(event: Event, relation: Relation = ADD_REMOVE) -> ZCDP:
    """The ρ of ρ-zCDP that `event` has, rounded up; inf where no finite one exists.

    Gaussian noise: 1/(2σ²) (Bun & Steinke 2016, Proposition 1.6); discrete Gaussian: Δ₂²/(2σ²) (Canonne, Kamath &
    Steinke 2020, Theorem 4); Laplace noise under an L2 bound: Δ₂²/(2λ²) (arXiv 2408.07021). Laplace noise has
    ρ = ε − 1 + e^{−ε}, its discrete form ρ = ε − (1 − e^{−ε})·t/sinh(t) with t = 1/scale, and every other ε-DP event
    ρ = ε·tanh(ε/2): all three are exact (Harrison & Manurangsi, arXiv 2510.25746, and a proof of our own in
    docs/proofs/zcdp-of-pure-mechanisms.md). The exponential mechanism is of bounded range: ρ = ε²/8 (Cesar & Rogers
    2021, Lemma 3.4).

    Sampling does not lower ρ, because ρ bounds all orders: a sample costs what its event costs, or what its amplified
    pure ε costs. Composition adds (Bun & Steinke 2016, Lemma 1.7), a group of k costs k²ρ (Proposition 1.9).

    >>> zcdp(ev.Repeated(ev.Gaussian(2.0), 8))
    ZCDP(rho=1.0)
    """
    total = exact_rho(event, relation)
    return ZCDP(math.inf if total is None else reported(float_up(total)))


def pure_rho(epsilon: float) -> float:
    """ρ = ε·tanh(ε/2), rounded up, of any ε-DP event: exact for randomized response, below ε²/2."""
    if math.isinf(epsilon):
        return math.inf
    return min(up(epsilon * math.tanh(epsilon / 2)), half_square(epsilon))


def half_square(value: float) -> float:
    """`value`²/2, exact and then rounded up."""
    return math.inf if math.isinf(value) else float_up(Fraction(value) ** 2 / 2)


def laplace_rho(epsilon: float) -> float:
    """ρ = ε − 1 + e^{−ε}, rounded up, of Laplace noise with ε = Δ₁/b: its Kullback-Leibler divergence."""
    return math.inf if math.isinf(epsilon) else min(half_square(epsilon), up(up(float(exp_minus_linear(-epsilon)))))


def _gaussian_rho(multiplier: float) -> float:
    return 0.0 if infinite(multiplier) else float_up(1 / (2 * exact(multiplier) ** 2))


def _discrete_laplace_rho(sensitivity: int, scale: Fraction) -> float:
    epsilon, step = float_up(sensitivity / scale), float_up(1 / scale)
    if math.isinf(epsilon):
        return math.inf
    # 1 − t/sinh(t) = (sinh(t) − t)/sinh(t), with sinh(t) − t as half a sum of two differences that keep their digits.
    if step > _COARSE_GRID:
        grid = 1.0
    elif step > _FINE_GRID:
        grid = float(exp_minus_linear(step) - exp_minus_linear(-step)) / 2 / math.sinh(step)
    else:
        grid = _near(step)
    rho = up(up(float(exp_minus_linear(-epsilon)))) + up(up(-math.expm1(-epsilon) * up(grid)))
    return min(pure_rho(epsilon), up(rho))


def _near(step: float) -> float:
    """1 − t/sinh(t) for 0 ≤ t ≤ 1/2, by the series of sinh(t)/t − 1 = t²/3! + t⁴/5! + … + t²⁴/25!."""
    excess, term, square = 0.0, 1.0, step * step
    for k in range(2, _LAST_POWER + 1, 2):
        term *= square / (k * (k + 1))
        excess += term
    return up(excess / (1 + excess))


def exact_rho(event: Event, relation: Relation = ADD_REMOVE) -> Fraction | None:
    """ρ as a rational, None where it is infinite: exact for Gaussian noise, else the rounded-up price.

    >>> exact_rho(ev.Repeated(ev.DiscreteGaussian(1, Fraction(10)), 10))
    Fraction(1, 2)
    """
    match event:
        case ev.Gaussian(multiplier) if not infinite(multiplier):
            return 1 / (2 * exact(multiplier) ** 2)
        case ev.DiscreteGaussian(squared, variance):
            return squared / (2 * variance)
        case ev.MayFail(probability, inner):
            return exact_rho(inner, relation) if probability <= 0 else None
        case ev.Repeated(inner, count):
            return added([exact_rho(inner, relation)], count)
        case ev.Composed(parts):
            return added([exact_rho(part, relation) for part in parts])
        case _:
            rho = _rho(event, relation)
            return None if math.isinf(rho) else Fraction(rho)


def _rho(event: Event, relation: Relation) -> float:
    match event:
        case ev.Gaussian(multiplier):
            return _gaussian_rho(multiplier)
        case ev.DiscreteGaussian(squared, variance):
            return float_up(squared / (2 * variance))
        case ev.Laplace(multiplier):
            return laplace_rho(reciprocal_up(multiplier))
        case ev.L2Laplace(multiplier, by_l1, shift):
            bounds = [_gaussian_rho(multiplier)]
            bounds += [] if by_l1 is None else [laplace_rho(reciprocal_up(by_l1))]
            bounds += [] if shift is None else [total_up(laplace_rho(float_up(exact(distance))) for distance in shift)]
            return min(bounds)
        case ev.DiscreteLaplace(sensitivity, scale):
            return _discrete_laplace_rho(sensitivity, scale)
        case ev.Exponential(epsilon):
            return min(float_up(epsilon**2 / 8), pure_rho(float_up(epsilon)))
        case ev.NoisyMax() | ev.SparseVector() | ev.RandomizedResponse() | ev.Claimed():
            return pure_rho(pure(event, relation).epsilon)
        case ev.NonPrivate() | ev.Insecure():
            return math.inf
        case ev.MayFail(probability, inner):
            return _rho(inner, relation) if probability <= 0 else math.inf
        case ev.PoissonSampled(rate, inner):
            check_poisson(event, relation, _NAME)
            return 0.0 if rate <= 0 else min(_rho(inner, relation), pure_rho(pure(event, relation).epsilon))
        case ev.SampledWithoutReplacement(_, _, inner):
            check_fixed_size(event, relation, _NAME)
            return min(_rho(inner, relation), pure_rho(pure(event, relation).epsilon))
        case ev.Shuffled(_, inner) | ev.ShuffledEpoch(_, _, inner):
            check_fixed_size(event, relation, _NAME)
            return _rho(inner, relation)
        case ev.Repeated(inner, count):
            return times_up(count, _rho(inner, relation))
        case ev.Composed(parts):
            return total_up(_rho(part, relation) for part in parts)
        case ev.Parallel(parts):
            return total_up(caused_together([_rho(part, relation) for part in parts], relation))
        case ev.Group(inner, people):
            plain = spread(event)
            if plain is not None:
                return _rho(plain, relation)
            return min(times_up(people**2, _rho(inner, relation)), pure_rho(pure(event, relation).epsilon))
        case _:
            price = price_of(event, _NAME)
            given = price.zcdp(event, relation)
            return _rho(price.simpler(event, relation, _NAME), relation) if given is None else given
