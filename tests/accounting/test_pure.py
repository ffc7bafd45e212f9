"""Pure DP: the largest loss of each event, and the refusal of events without a theorem."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet import events as ev
from discreet.accounting.forms.pure import amplified, pure
from discreet.accounting.tight import epsilon
from discreet.errors import UnknownEvent
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Novel(ev.Event):
    """An event that no accountant knows."""


@pytest.mark.parametrize(
    ("event", "epsilon"),
    [
        (ev.Laplace(4.0), 0.25),
        (ev.Laplace(math.inf), 0.0),
        (ev.DiscreteLaplace(3, Fraction(12)), 0.25),
        (ev.L2Laplace(4.0, 2.0), 0.5),
        (ev.L2Laplace(4.0, None, (0.25, 0.5)), 0.75),
        (ev.L2Laplace(4.0), math.inf),
        (ev.Exponential(HALF), 0.5),
        (ev.NoisyMax(HALF), 0.5),
        (ev.SparseVector(HALF, 3), 0.5),
        (ev.RandomizedResponse(HALF, 5), 0.5),
        (ev.Claimed(2.0), 2.0),
        (ev.Claimed(2.0, 1e-9), math.inf),
        (ev.Gaussian(5.0), math.inf),
        (ev.DiscreteGaussian(1, Fraction(4)), math.inf),
        (ev.NonPrivate(), math.inf),
        (ev.Insecure(ev.Laplace(1.0)), math.inf),
        (ev.Repeated(ev.NonPrivate(), 0), 0.0),
        (ev.Repeated(ev.Laplace(4.0), 6), 1.5),
        (ev.Composed((ev.Laplace(4.0), ev.Laplace(2.0))), 0.75),
        (ev.Composed(()), 0.0),
        (ev.Parallel((ev.Laplace(4.0), ev.Laplace(2.0))), 0.5),
        (ev.Group(ev.Laplace(4.0), 3), 0.75),
        (ev.Group(ev.NoisyMax(HALF), 3), 1.5),
        (ev.Group(ev.Parallel((ev.Laplace(4.0), ev.Laplace(2.0))), 2), 1.0),
    ],
)
def test_each_event_costs_its_largest_loss(event: ev.Event, epsilon: float) -> None:
    assert epsilon <= pure(event).epsilon <= epsilon * (1 + 1e-15)


@given(st.floats(1e-8, 40), st.floats(1e-9, 1))
def test_a_poisson_sample_is_amplified_and_rounded_up(epsilon: float, rate: float) -> None:
    with mpmath.workdps(50):
        truth = mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(epsilon))
        priced = mpmath.mpf(amplified(epsilon, rate))
        assert truth <= priced <= truth * (1 + mpmath.mpf(10) ** -12)


def test_sampling_amplifies_only_where_a_theorem_says_so() -> None:
    poisson, exact = ev.PoissonSampled(0.1, ev.Laplace(1.0)), ev.SampledWithoutReplacement(10, 100, ev.Laplace(1.0))
    small = pytest.approx(math.log1p(0.1 * math.expm1(1.0)))
    assert pure(poisson, ADD_REMOVE).epsilon == small
    assert pure(poisson, ZERO_OUT).epsilon == small
    assert pure(poisson, REPLACE_ONE).epsilon == 1.0
    assert pure(exact, REPLACE_ONE).epsilon == small
    assert pure(exact, ZERO_OUT).epsilon == 1.0


def test_a_replacement_may_touch_two_disjoint_parts() -> None:
    parts = ev.Parallel((ev.Laplace(4.0), ev.Laplace(2.0), ev.Laplace(8.0)))
    assert [pure(parts, relation).epsilon for relation in Relation] == [0.5, 0.75, 0.5]


def test_an_epoch_of_shuffled_batches_costs_one_whole_step() -> None:
    epoch = ev.ShuffledEpoch(10, 1000, ev.Laplace(2.0))
    assert pure(ev.Repeated(epoch, 3), ZERO_OUT).epsilon == 1.5
    assert pure(epoch, REPLACE_ONE).epsilon == 0.5


@pytest.mark.parametrize(
    "event",
    [
        Novel(),
        ev.Composed((ev.Laplace(1.0), ev.Repeated(Novel(), 2))),
        ev.SampledWithoutReplacement(1, 10, ev.Laplace(1.0)),
        ev.Shuffled(10, ev.Laplace(1.0)),
        ev.ShuffledEpoch(1, 10, ev.Laplace(1.0)),
        ev.PoissonSampled(0.5, ev.ShuffledEpoch(1, 10, ev.Laplace(1.0))),
    ],
)
def test_what_no_theorem_covers_is_refused_by_name(event: ev.Event) -> None:
    culprit = next(part for part in reversed([*event.walk()]) if not isinstance(part, ev.Laplace))
    with pytest.raises(UnknownEvent, match=type(culprit).__name__):
        pure(event)


def test_a_fixed_size_sampler_inside_a_poisson_sample_is_refused() -> None:
    for inner in (ev.ShuffledEpoch(1, 10, ev.Laplace(1.0)), ev.SampledWithoutReplacement(1, 10, ev.Laplace(1.0))):
        for relation in (ZERO_OUT, REPLACE_ONE):
            with pytest.raises(UnknownEvent, match=type(inner).__name__):
                pure(ev.PoissonSampled(0.5, inner), relation)
            with pytest.raises(UnknownEvent, match=type(inner).__name__):
                epsilon(ev.PoissonSampled(0.5, inner), 1e-6, relation)


def test_repetitions_are_multiplied_exactly_and_rounded_up() -> None:
    for count in (3, 7, 10, 10**9 + 7):
        assert Fraction(pure(ev.Repeated(ev.Claimed(0.1), count)).epsilon) >= count * Fraction(0.1)
