"""RDP: the prices of whole events, at many orders, under each relation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from discreet import events as ev
from discreet.accounting.forms import sampled_renyi
from discreet.accounting.forms.conversions import rdp_epsilon
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.forms.zcdp import zcdp
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation

ORDERS = (1.2, 2.0, 3.5, 8.0, 33.0, 500.0)
STEP = ev.PoissonSampled(0.01, ev.Gaussian(2.5))


@dataclass(frozen=True)
class Novel(ev.Event):
    """An event that no accountant knows."""


def _values(event: ev.Event, relation: Relation = ADD_REMOVE, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    return np.array(rdp(event, orders, relation).epsilons)


def test_fifty_sampled_steps_cost_what_the_literature_says() -> None:
    ours = _values(ev.Repeated(STEP, 50), orders=(1.5, 2.5, 5.0, 50.0, 100.0))
    # At integer orders the known values; at fractional ones the integral, which dp_accounting exceeds (6.7058e-4).
    known = [6.50070897188e-4, 1.08541805692e-3, 2.18075656e-3, 2.38460375e-2, 167.416308]
    assert ours == pytest.approx(known, rel=3e-9)


@pytest.mark.parametrize(
    ("event", "delta", "epsilon"),
    [
        (ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(4.0)), 10_000), 1e-5, 1.03549),
        (ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.0)), 10_000), 1e-5, 6.7127),
    ],
)
def test_training_costs_what_the_reference_says(event: ev.Event, delta: float, epsilon: float) -> None:
    assert rdp_epsilon(rdp(event), delta) == pytest.approx(epsilon, rel=5e-4)


def test_gaussians_cost_a_line() -> None:
    assert _values(ev.Gaussian(2.0)) == pytest.approx(np.array(ORDERS) / 8, rel=1e-14)
    assert np.all(_values(ev.Gaussian(2.0)) >= np.array(ORDERS) / 8)
    assert _values(ev.DiscreteGaussian(2, Fraction(8))) == pytest.approx(np.array(ORDERS) / 8, rel=1e-14)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(
    "event",
    [
        ev.Gaussian(1.0),
        ev.Laplace(1.0),
        ev.L2Laplace(1.0, 0.5, (0.5, 0.5)),
        ev.DiscreteGaussian(1, Fraction(4), 2),
        ev.DiscreteLaplace(2, Fraction(3)),
        ev.Exponential(Fraction(1)),
        ev.NoisyMax(Fraction(1)),
        ev.SparseVector(Fraction(1)),
        ev.RandomizedResponse(Fraction(1), 4),
        ev.Claimed(1.0),
        ev.Claimed(1.0, 0.1),
        ev.NonPrivate(),
        ev.Insecure(ev.Gaussian(1.0)),
    ],
)
def test_unsampled_events_cost_alike_under_every_relation_and_never_more_than_pure_or_zcdp(
    event: ev.Event, relation: Relation
) -> None:
    values = _values(event, relation)
    assert np.array_equal(values, _values(event))
    assert np.all(np.diff(values[np.isfinite(values)]) >= -1e-15)
    assert np.all(values <= pure(event).epsilon * (1 + 1e-13))
    assert np.all(values <= zcdp(event).rho * np.array(ORDERS) * (1 + 1e-9))


@pytest.mark.parametrize(
    "inner",
    [
        ev.Gaussian(1.0),
        ev.Laplace(0.5),
        ev.L2Laplace(1.0),
        ev.DiscreteGaussian(1, Fraction(1)),
        ev.DiscreteLaplace(2, Fraction(1)),
        ev.Exponential(Fraction(2)),
        ev.RandomizedResponse(Fraction(2), 3),
        ev.Composed((ev.Gaussian(1.0), ev.Laplace(1.0))),
        ev.Composed((ev.Gaussian(2.0), ev.Repeated(ev.Gaussian(3.0), 2))),
    ],
)
def test_sampling_never_costs_more_and_saves_nothing_near_rate_one(inner: ev.Event) -> None:
    whole = _values(inner)
    previous = np.zeros_like(whole)
    for rate in (0.0, 0.001, 0.1, 0.9, 1.0):
        sampled = _values(ev.PoissonSampled(rate, inner))
        assert np.all(sampled <= whole * (1 + 1e-12))
        assert np.all(sampled >= previous * (1 - 1e-12))
        previous = sampled
    assert previous == pytest.approx(whole)
    assert _values(ev.PoissonSampled(0.001, inner), orders=(1.2, 2.0, 3.0)).max() < 1e-3 * max(1.0, whole[1])


def test_a_sample_of_several_gaussians_is_a_sample_of_one() -> None:
    several = ev.PoissonSampled(0.05, ev.Composed((ev.Repeated(ev.Gaussian(2.0), 3), ev.Gaussian(2.0))))
    assert _values(several) == pytest.approx(_values(ev.PoissonSampled(0.05, ev.Gaussian(1.0))), rel=1e-12)


def test_a_sample_of_a_sample_multiplies_the_rates() -> None:
    nested = ev.PoissonSampled(0.1, ev.PoissonSampled(0.2, ev.Gaussian(1.0)))
    assert _values(nested) == pytest.approx(_values(ev.PoissonSampled(0.02, ev.Gaussian(1.0))), rel=1e-12)


def test_a_discrete_gaussian_sample_costs_what_the_continuous_one_does_at_integers() -> None:
    orders = (2.0, 8.0, 64.0)
    discrete = _values(ev.PoissonSampled(0.01, ev.DiscreteGaussian(1, Fraction(4))), orders=orders)
    assert discrete == pytest.approx(_values(ev.PoissonSampled(0.01, ev.Gaussian(2.0)), orders=orders), rel=1e-11)


def test_relations_change_what_a_sample_costs() -> None:
    assert np.array_equal(_values(STEP, ZERO_OUT), _values(STEP))
    assert np.all(_values(STEP, REPLACE_ONE) > _values(STEP))
    fixed = ev.SampledWithoutReplacement(10, 1000, ev.Gaussian(2.5))
    assert np.all(_values(fixed, REPLACE_ONE) <= _values(fixed, ZERO_OUT))
    assert np.all(_values(fixed, ZERO_OUT) <= _values(ev.Gaussian(2.5)))
    with pytest.raises(UnknownEvent, match="SampledWithoutReplacement"):
        rdp(fixed)


def test_composition_adds_and_disjoint_parts_take_the_largest() -> None:
    a, b = ev.Gaussian(3.0), ev.Laplace(2.0)
    assert _values(ev.Composed((a, b))) == pytest.approx(_values(a) + _values(b), rel=1e-14)
    assert np.all(_values(ev.Repeated(a, 7)) >= 7 * _values(a))
    assert np.array_equal(_values(ev.Parallel((a, b))), np.maximum(_values(a), _values(b)))
    assert _values(ev.Parallel((a, b)), REPLACE_ONE) == pytest.approx(_values(a) + _values(b))
    assert np.all(_values(ev.Composed(())) == 0)
    assert np.all(_values(ev.Repeated(ev.NonPrivate(), 0)) == 0)


def test_many_small_prices_are_not_lost_in_the_sum() -> None:
    small = ev.Gaussian(1e9)
    whole = ev.Composed((ev.Gaussian(1e-3), *([small] * 1000)))
    exact = Fraction(_values(ev.Gaussian(1e-3), orders=(2.0,))[0]) + 1000 * Fraction(_values(small, orders=(2.0,))[0])
    assert Fraction(float(_values(whole, orders=(2.0,))[0])) >= exact


def test_groups_scale_the_noise_or_use_a_group_theorem() -> None:
    assert _values(ev.Group(ev.Gaussian(3.0), 3)) == pytest.approx(_values(ev.Gaussian(1.0)))
    assert _values(ev.Group(ev.Laplace(3.0), 3)) == pytest.approx(_values(ev.Laplace(1.0)))
    assert _values(ev.Group(ev.DiscreteLaplace(1, Fraction(3)), 2)) == pytest.approx(
        _values(ev.DiscreteLaplace(2, Fraction(3)))
    )
    sampled = _values(ev.Group(STEP, 2), orders=(2.0, 4.0))
    assert sampled == pytest.approx(3 * _values(STEP, orders=(4.0, 8.0)), rel=1e-9)
    assert np.all(_values(ev.Group(STEP, 1)) == _values(STEP))


def test_shuffled_batches_cost_one_unamplified_step_an_epoch() -> None:
    epoch = ev.ShuffledEpoch(10, 1000, ev.Gaussian(2.5))
    assert np.array_equal(_values(epoch, ZERO_OUT), _values(ev.Gaussian(2.5)))
    assert np.all(_values(epoch, ZERO_OUT)[:5] > _values(ev.Repeated(STEP, 100))[:5])


@pytest.mark.parametrize("event", [Novel(), ev.PoissonSampled(0.5, ev.Composed((Novel(),)))])
def test_an_unknown_event_is_refused_by_name(event: ev.Event) -> None:
    with pytest.raises(UnknownEvent, match="Novel"):
        rdp(event)


@pytest.mark.parametrize("orders", [(), (1.0,), (math.nan,), (math.inf,), (2.0, 0.5)])
def test_orders_that_mean_nothing_are_refused(orders: tuple[float, ...]) -> None:
    with pytest.raises(InvalidArgument, match="orders"):
        rdp(ev.Gaussian(1.0), orders)


@pytest.mark.parametrize("order", [1e4, 1e4 - 0.5, 1.6e5])
@pytest.mark.parametrize("inner", [ev.Gaussian(0.7), ev.Laplace(1.0), ev.DiscreteGaussian(1, Fraction(1, 2))])
def test_huge_orders_are_finite_and_below_the_unsampled_price(order: float, inner: ev.Event) -> None:
    value = _values(ev.PoissonSampled(0.01, inner), orders=(order,))[0]
    assert 0 < value <= _values(inner, orders=(order,))[0] * (1 + 1e-12)


@pytest.mark.peer
def test_peers_never_charge_less_at_integer_orders() -> None:
    dp_event = pytest.importorskip("dp_accounting").dp_event
    accountant = pytest.importorskip("dp_accounting.rdp").RdpAccountant
    orders = [2, 3, 8, 32, 100]
    rng = np.random.default_rng(3)
    for _ in range(40):
        rate, sigma = float(10 ** rng.uniform(-4, -0.1)), float(10 ** rng.uniform(-0.4, 1))
        theirs = accountant(orders=orders)
        theirs.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)))
        ours = _values(ev.PoissonSampled(rate, ev.Gaussian(sigma)), orders=tuple(float(o) for o in orders))
        assert ours == pytest.approx(theirs._rdp, rel=1e-6, abs=1e-13)


@pytest.mark.peer
def test_peers_agree_on_samples_without_replacement_up_to_their_sharper_differences() -> None:
    dp_event = pytest.importorskip("dp_accounting").dp_event
    rdp_module = pytest.importorskip("dp_accounting.rdp")
    theirs = rdp_module.RdpAccountant(
        orders=[2, 3, 8], neighboring_relation=rdp_module.rdp_privacy_accountant.NeighborRel.REPLACE_ONE
    )
    theirs.compose(dp_event.SampledWithoutReplacementDpEvent(1000, 10, dp_event.GaussianDpEvent(4.0)))
    ours = _values(ev.SampledWithoutReplacement(10, 1000, ev.Gaussian(4.0)), REPLACE_ONE, (2.0, 3.0, 8.0))
    assert np.all(ours >= np.array(theirs._rdp) * (1 - 1e-9))
    assert ours == pytest.approx(theirs._rdp, rel=0.2)


def test_the_larger_direction_is_charged_where_there_is_no_symmetry() -> None:
    rate, inner, orders = 0.3, ev.Composed((ev.Gaussian(1.0), ev.Laplace(1.0))), (2.0, 3.0, 6.0)
    whole = {k: float(_values(inner, orders=(float(k),))[0]) for k in range(2, 7)}
    moments = np.array([(k - 1) * whole[k] for k in range(2, 7)])
    later = 0
    for order, value in zip(orders, _values(ev.PoissonSampled(rate, inner), orders=orders), strict=True):
        k = int(order)
        removed = sampled_renyi.mixture(k, rate, moments[: k - 1]) / (order - 1)
        added = sampled_renyi.toward_mixture(order, rate, float(moments[0]), (order - 1) * whole[k]) / (order - 1)
        assert value == pytest.approx(min(max(removed, added), whole[k]), rel=1e-9)
        later += added > removed
    assert later > 0


def test_a_fixed_size_sample_under_zero_out_has_only_what_convexity_gives() -> None:
    value = _values(ev.SampledWithoutReplacement(10, 1000, ev.Gaussian(2.5)), ZERO_OUT, (3.0,))[0]
    assert value == pytest.approx(math.log1p(0.01 * math.expm1(2 * 3 / 12.5)) / 2, rel=1e-12)
    pure_value = _values(ev.SampledWithoutReplacement(10, 1000, ev.Laplace(1.0)), ZERO_OUT, (1e4,))[0]
    assert pure_value > 0.9


def test_groups_of_groups_multiply() -> None:
    twice = ev.Group(ev.Group(ev.Gaussian(6.0), 2), 3)
    assert _values(twice) == pytest.approx(_values(ev.Gaussian(1.0)))
