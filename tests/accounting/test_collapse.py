"""Events are collapsed to their simplest form before they are priced."""

from fractions import Fraction

import pytest

from discreet.accounting.losses.collapse import collapse
from discreet.errors import UnknownEvent
from discreet.events import (
    Composed,
    Gaussian,
    Insecure,
    Laplace,
    NonPrivate,
    Parallel,
    PoissonSampled,
    RandomizedResponse,
    Repeated,
)


def only(event):
    (way,) = collapse(event)
    return dict(way)


def test_many_gaussians_are_one():
    assert only(Composed((Repeated(Gaussian(2.0), 3), Gaussian(2.0)))) == {Gaussian(1.0): 1}


def test_nested_repetitions_multiply():
    step = PoissonSampled(0.1, Gaussian(1.0))
    assert only(Repeated(Composed((Repeated(step, 3), step)), 5)) == {step: 20}


def test_samples_of_samples_multiply_their_rates():
    assert only(PoissonSampled(0.5, PoissonSampled(0.5, Laplace(1.0)))) == {PoissonSampled(0.25, Laplace(1.0)): 1}


def test_a_sample_of_everyone_is_everyone_and_of_no_one_is_nothing():
    assert only(PoissonSampled(1.0, Laplace(1.0))) == {Laplace(1.0): 1}
    assert only(PoissonSampled(0.0, NonPrivate())) == {}


def test_a_sample_of_several_gaussians_is_a_sample_of_one():
    assert only(PoissonSampled(0.1, Repeated(Gaussian(2.0), 4))) == {PoissonSampled(0.1, Gaussian(1.0)): 1}


def test_insecure_noise_hides_nothing():
    assert only(Insecure(Gaussian(1.0))) == {NonPrivate(): 1}


def test_infinite_noise_and_zero_repetitions_cost_nothing():
    assert only(Composed((Gaussian(float("inf")), Laplace(float("inf")), Repeated(NonPrivate(), 0)))) == {}


def test_parallel_parts_are_ways_and_dominated_ones_are_dropped():
    ways = collapse(Parallel((Gaussian(1.0), Gaussian(2.0), Laplace(1.0), Laplace(3.0))))
    assert sorted(map(repr, (dict(way) for way in ways))) == [
        "{Gaussian(noise_multiplier=1.0): 1}",
        "{Laplace(noise_multiplier=1.0): 1}",
    ]


def test_too_many_ways_are_refused_by_name():
    part = Parallel((Gaussian(1.0), Laplace(1.0), RandomizedResponse(Fraction(1))))
    with pytest.raises(UnknownEvent, match="Parallel"):
        collapse(Repeated(part, 100))
