"""Local reports with three losses: against the encodings that they stand for, and where they have no price."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet import events as ev
from discreet.accounting import delta, epsilon, gdp, pure, rdp, zcdp
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT

ONE = Fraction(1)


def delta_of(first, second, at):
    return float(np.sum(np.maximum(first - math.exp(at) * second, 0.0)))


def unary(value, categories, loss):
    """The law of optimized unary encoding over all bit strings."""
    masses = []
    for bits in itertools.product((0, 1), repeat=categories):
        chances = [0.5 if k == value else 1 / (1 + math.exp(loss)) for k in range(categories)]
        masses.append(math.prod(c if bit else 1 - c for bit, c in zip(bits, chances, strict=True)))
    return np.array(masses)


def hashed(value, categories, buckets, loss):
    """The law of a uniformly random hash of the categories, and of the randomized bucket."""
    truth = math.exp(loss) / (math.exp(loss) + buckets - 1)
    lie = 1 / (math.exp(loss) + buckets - 1)
    return np.array(
        [
            (truth if places[value] == said else lie) / buckets**categories
            for places in itertools.product(range(buckets), repeat=categories)
            for said in range(buckets)
        ]
    )


@pytest.mark.parametrize("at", [0.0, 0.3, 0.9])
def test_unary_encoding_tells_half_of_the_time(at):
    true = delta_of(unary(0, 4, 1.0), unary(1, 4, 1.0), at)
    answer = delta(ev.LocalReport(ONE, 0.5), at, REPLACE_ONE)
    assert answer.lower <= true * (1 + 1e-12)
    assert answer.upper >= true * (1 - 1e-12)
    # A mutant with 0.45 would lie below it.
    assert delta(ev.LocalReport(ONE, 0.45), at, REPLACE_ONE).upper < true


@pytest.mark.parametrize("buckets", [2, 4])
def test_local_hashing_tells_unless_values_collide(buckets):
    weight = (1 - 1 / buckets) * (math.e + 1) / (math.e + buckets - 1)
    true = delta_of(hashed(0, 3, buckets, 1.0), hashed(1, 3, buckets, 1.0), 0.4)
    assert delta(ev.LocalReport(ONE, weight), 0.4, REPLACE_ONE).upper == pytest.approx(true, rel=1e-9)


@pytest.mark.parametrize("categories", [2, 5, 50])
def test_it_is_randomized_response_where_it_should_be(categories):
    weight = min(1.0, (math.e + 1) / (math.e + categories - 1))
    report, known = ev.LocalReport(ONE, weight), ev.RandomizedResponse(ONE, categories)
    for relation in (REPLACE_ONE, ZERO_OUT):
        assert delta(report, 0.2, relation).upper == pytest.approx(delta(known, 0.2, relation).upper, rel=1e-9)
    many = epsilon(ev.Repeated(report, 50), 1e-6, REPLACE_ONE).upper
    assert many == pytest.approx(epsilon(ev.Repeated(known, 50), 1e-6).upper, rel=1e-6)
    assert rdp(report, (2.0, 9.0), REPLACE_ONE).epsilons == pytest.approx(rdp(known, (2.0, 9.0)).epsilons, rel=1e-9)


def test_reports_compose_with_other_events():
    report = ev.LocalReport(ONE, 0.5)
    both = ev.Composed((report, ev.Gaussian(2.0)))
    alone = epsilon(ev.Gaussian(2.0), 1e-6, REPLACE_ONE).upper
    assert alone < epsilon(both, 1e-6, REPLACE_ONE).upper < alone + 1
    assert pure(report, REPLACE_ONE).epsilon == 1
    assert zcdp(report, REPLACE_ONE).rho <= 0.5
    assert gdp(report, REPLACE_ONE).mu > 0
    assert epsilon(ev.LocalReport(ONE, 0.0), 1e-6, REPLACE_ONE).upper == 0
    assert pure(ev.LocalReport(ONE, 0), REPLACE_ONE).epsilon == 0


def test_who_reports_is_not_hidden():
    for ask in (pure, zcdp, gdp, rdp, lambda event, relation=ADD_REMOVE: epsilon(event, 1e-6, relation)):
        with pytest.raises(UnknownEvent, match="REPLACE_ONE"):
            ask(ev.LocalReport(ONE))


def test_shuffled_reports_take_them():
    shuffled = ev.Shuffled(10_000, ev.LocalReport(ONE, 0.5))
    assert epsilon(shuffled, 1e-6, REPLACE_ONE).upper < 0.2


@pytest.mark.parametrize("bad", [(1.0, 0.5), (Fraction(0), 0.5), (ONE, 1.5), (ONE, -0.1), (ONE, math.nan)])
def test_bad_reports_are_refused(bad):
    with pytest.raises(InvalidArgument):
        ev.LocalReport(*bad)
