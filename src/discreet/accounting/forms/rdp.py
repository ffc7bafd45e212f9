"""Rényi DP: the divergence at each order. Divergences of composed steps add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from discreet import _check
from discreet import events as ev
from discreet.accounting.forms import renyi, sampled_renyi
from discreet.accounting.forms.gdp import gaussian_multiplier
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.zcdp import zcdp
from discreet.accounting.losses.groups import caused_together, spread
from discreet.accounting.prices.price import price_of
from discreet.accounting.refusal import check_fixed_size, check_poisson
from discreet.events import Event
from discreet.guarantees import RDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation
from discreet.numeric.rounding import Floats, exact, float_up, raised, reciprocal_up, reported, times_up, total_up

_NAME = "RDP accounting"

#: Orders that suit most events: dense where the best orders of trainings lie, sparse up to those of pure mechanisms.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1 + k / 10 for k in range(1, 10)),
    *(2 + k / 5 for k in range(45)),
    *(float(k) for k in range(11, 64)),
    *(float(round(64 * 2 ** (k / 4))) for k in range(30)),
)

# Samples of leaves sum over all integers up to an order. Samples of nested events do so up to this order, because each
# term prices the whole nested event, and use cheaper bounds above it.
_NESTED_ORDERS = 512

# A sampled event that costs anything costs at least this much: a bound must not underflow to 0.
_LEAST_COST = 1e-300
# Roundings of a log-moment divided by α − 1.
_DIVISION_ROUNDINGS = 4

_Leaf = (
    ev.Gaussian
    | ev.Laplace
    | ev.L2Laplace
    | ev.DiscreteGaussian
    | ev.DiscreteLaplace
    | ev.RandomizedResponse
    | ev.Exponential
    | ev.NoisyMax
    | ev.SparseVector
    | ev.Claimed
)

# x ↦ shift − x (or swapping two categories) exchanges the laws with and without the unit.
_Symmetric = ev.Gaussian | ev.Laplace | ev.L2Laplace | ev.DiscreteGaussian | ev.DiscreteLaplace | ev.RandomizedResponse


def rdp(event: Event, orders: Sequence[float] = DEFAULT_ORDERS, relation: Relation = ADD_REMOVE) -> RDP:
    """The Rényi divergence of each order α in `orders` that `event` can cause, rounded up; inf where unbounded.

    Closed forms where there is one (`renyi`), samples by `sampled_renyi`, composition by addition (Mironov 2017,
    Proposition 1), disjoint parts by the largest, groups by scaling the noise, by ρ-zCDP, or by Mironov's
    Proposition 2. Under add/remove both directions are covered. A Poisson sample under replace-one, and a sample
    without replacement under zero-out, get the bound by convexity: ln(1 − q + q e^{(α−1)D_α})/(α−1).

    >>> print(rdp(ev.Repeated(ev.Gaussian(2.0), 4), (2.0, 8.0)))
    RDP at (α, ε) = (2, 1), (8, 4)
    """
    alphas = np.array([float(_check.real("orders", order, "Rényi orders are finite")) for order in orders])
    if alphas.size == 0 or not np.all(alphas > 1):
        raise _check.fail("orders", "be > 1, at least one", tuple(orders), "Rényi DP is defined for orders α > 1")
    values = _curve(event, alphas, relation)
    return RDP(tuple(float(order) for order in alphas), tuple(reported(float(value)) for value in values))


def curve(event: Event, relation: Relation) -> Floats:
    """The divergences of `rdp` at the default orders, as an array."""
    return _curve(event, np.array(DEFAULT_ORDERS, dtype=np.float64), relation)


def _curve(event: Event, orders: Floats, relation: Relation) -> Floats:
    match event:
        case ev.Gaussian() | ev.DiscreteGaussian():
            return renyi.linear(orders, zcdp(event, relation).rho)
        case ev.Laplace(multiplier):
            return renyi.laplace(orders, reciprocal_up(multiplier))
        case ev.L2Laplace(multiplier, by_l1, shift):
            bounds = [renyi.linear(orders, zcdp(ev.Gaussian(multiplier)).rho)]
            bounds += [] if by_l1 is None else [renyi.laplace(orders, reciprocal_up(by_l1))]
            bounds += (
                []
                if shift is None
                else [_sum([renyi.laplace(orders, float_up(exact(distance))) for distance in shift], orders)]
            )
            return _least(bounds)
        case ev.DiscreteLaplace(sensitivity, scale):
            return renyi.discrete_laplace(orders, sensitivity, scale)
        case ev.RandomizedResponse(epsilon, categories):
            return renyi.randomized_response(orders, float_up(epsilon), categories)
        case ev.Exponential(epsilon):
            return renyi.bounded_range(orders, float_up(epsilon))
        case ev.NoisyMax() | ev.SparseVector() | ev.Claimed():
            return renyi.pure(orders, pure(event, relation).epsilon)
        case ev.NonPrivate() | ev.Insecure():
            return np.full_like(orders, np.inf)
        case ev.MayFail(probability, inner):
            return _curve(inner, orders, relation) if probability <= 0 else np.full_like(orders, np.inf)
        case ev.PoissonSampled():
            return _poisson(event, orders, relation)
        case ev.SampledWithoutReplacement():
            return _without_replacement(event, orders, relation)
        case ev.Shuffled(_, inner) | ev.ShuffledEpoch(_, _, inner):
            check_fixed_size(event, relation, _NAME)
            return _curve(inner, orders, relation)
        case ev.Repeated(inner, count):
            if count == 0:
                return np.zeros_like(orders)
            return np.array([times_up(count, float(value)) for value in _curve(inner, orders, relation)])
        case ev.Composed(parts):
            return _sum([_curve(part, orders, relation) for part in parts], orders)
        case ev.Parallel(parts):
            curves = [_curve(part, orders, relation) for part in parts]
            columns = [[float(curve[i]) for curve in curves] for i in range(orders.size)]
            return np.array([total_up(caused_together(column, relation)) for column in columns])
        case ev.Group():
            return _group(event, orders, relation)
        case _:
            price = price_of(event, _NAME)
            given = price.rdp(event, orders, relation)
            return _curve(price.simpler(event, relation, _NAME), orders, relation) if given is None else given


def _least(curves: list[Floats]) -> Floats:
    return np.asarray(np.min(np.stack(curves), axis=0), dtype=np.float64)


def _sum(curves: list[Floats], orders: Floats) -> Floats:
    return np.array([total_up(float(curve[i]) for curve in curves) for i in range(orders.size)])


def _poisson(event: ev.PoissonSampled, orders: Floats, relation: Relation) -> Floats:
    check_poisson(event, relation, _NAME)
    rate, inner = float_up(exact(event.rate)), event.event
    while isinstance(inner, ev.PoissonSampled):
        check_poisson(inner, relation, _NAME)
        rate, inner = min(1.0, float_up(Fraction(rate) * exact(inner.rate))), inner.event
    unsampled = _curve(inner, orders, relation)
    if rate <= 0 or not np.any(unsampled > 0):
        return np.zeros_like(orders)
    if rate >= 1:
        return unsampled
    if relation is REPLACE_ONE:
        return np.minimum(
            unsampled, _per_order(orders, lambda a, d: sampled_renyi.convex(a, rate, (a - 1) * d), unsampled)
        )
    bounds = [unsampled, renyi.pure(orders, pure(event, relation).epsilon)]
    if (multiplier := gaussian_multiplier(inner, relation)) is not None:
        sigma = multiplier
        return np.minimum(unsampled, _per_order(orders, lambda a, _: sampled_renyi.gaussian(a, rate, sigma), unsampled))
    bounds.append(sampled_renyi.symmetric_pure(orders, pure(inner, relation).epsilon, rate))
    moments = _log_moments(inner, orders, relation)
    second = float(moments[0])
    symmetric = isinstance(inner, _Symmetric)

    def both(order: float, divergence: float) -> float:
        if math.ceil(order) - 1 > moments.size:
            return math.inf
        out = sampled_renyi.interpolated(order, lambda k: sampled_renyi.mixture(k, rate, moments[: k - 1]))
        if symmetric:
            return out
        return max(out, sampled_renyi.toward_mixture(order, rate, second, (order - 1) * divergence))

    bounds.append(_per_order(orders, both, unsampled))
    # Keep underflowed costs positive so the bound stays an upper bound.
    return np.where(unsampled > 0, np.maximum(_least(bounds), _LEAST_COST), 0.0)


def _without_replacement(event: ev.SampledWithoutReplacement, orders: Floats, relation: Relation) -> Floats:
    check_fixed_size(event, relation, _NAME)
    inner, rate = event.event, float_up(Fraction(event.size, event.population))
    unsampled = _curve(inner, orders, relation)
    if event.size == event.population or not np.any(unsampled > 0):
        return unsampled
    bounds = [unsampled, _per_order(orders, lambda a, d: sampled_renyi.convex(a, rate, (a - 1) * d), unsampled)]
    if relation is not ZERO_OUT:
        bounds.append(renyi.pure(orders, pure(event, relation).epsilon))
        epsilon, moments = pure(inner, relation).epsilon, _log_moments(inner, orders, relation)

        def sampled(order: float, _: float) -> float:
            if math.ceil(order) - 1 > moments.size:
                return math.inf
            return sampled_renyi.interpolated(
                order, lambda k: sampled_renyi.without_replacement(k, rate, moments[: k - 1].copy(), epsilon)
            )

        bounds.append(_per_order(orders, sampled, unsampled))
    return _least(bounds)


def _log_moments(inner: Event, orders: Floats, relation: Relation) -> Floats:
    """(k−1)·D_k of `inner` at the integers k = 2, 3, … that the orders need, up to the largest that is cheap."""
    most = sampled_renyi.LARGEST_ORDER if isinstance(inner, _Leaf) else _NESTED_ORDERS
    wanted = [math.ceil(order) for order in orders if math.ceil(order) <= most]
    k = np.arange(2, max([2, *wanted]) + 1, dtype=np.float64)
    return np.asarray((k - 1) * _curve(inner, k, relation))


def _per_order(orders: Floats, log_moment: Callable[[float, float], float], unsampled: Floats) -> Floats:
    """D_α from a bound on (α−1)·D_α of the sample, as a function of the order and of the unsampled divergence."""
    values = [log_moment(float(a), float(d)) / (float(a) - 1) for a, d in zip(orders, unsampled, strict=True)]
    return raised(np.array(values), _DIVISION_ROUNDINGS)


def _group(event: ev.Group, orders: Floats, relation: Relation) -> Floats:
    plain = spread(event)
    if plain is not None:
        return _curve(plain, orders, relation)
    bounds = [renyi.linear(orders, zcdp(event, relation).rho), renyi.pure(orders, pure(event, relation).epsilon)]
    # Mironov's Proposition 2 is stated for target orders ≥ 2; below them, the divergence of order 2 is an upper bound.
    doublings = math.ceil(math.log2(event.people))
    bounds.append(raised(3.0**doublings * _curve(event.event, 2.0**doublings * np.maximum(orders, 2.0), relation)))
    return _least(bounds)
