"""Events, guarantees, neighbors, releases and errors: their values, their texts, and what they refuse."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet import errors, events
from discreet.errors import DiscreetError, InvalidArgument
from discreet.events import Composed, DiscreteLaplace, Gaussian, Insecure, Parallel, PoissonSampled, Repeated
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP, strength
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Neighbors, Person, relation

# --- events

LEAVES = [
    events.Gaussian(1.0),
    events.Laplace(2.0),
    events.L2Laplace(1.0, 0.5, (0.1,)),
    events.DiscreteGaussian(1, Fraction(4)),
    events.DiscreteLaplace(1, Fraction(3)),
    events.Exponential(Fraction(1)),
    events.NoisyMax(Fraction(1)),
    events.SparseVector(Fraction(1), 2),
    events.RandomizedResponse(Fraction(1), 3),
    events.Claimed(1.0, 1e-6),
    events.NonPrivate(),
]


@pytest.mark.parametrize("event", LEAVES, ids=lambda e: type(e).__name__)
def test_events_are_frozen_values_that_compare_hash_and_print(event):
    assert dataclasses.is_dataclass(event)
    assert event == dataclasses.replace(event)
    assert len({event, dataclasses.replace(event)}) == 1
    rebuilt = eval(repr(event), {**vars(events), "Fraction": Fraction})
    assert rebuilt == event
    for field in dataclasses.fields(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, field.name, 0)


def test_events_nest_and_can_be_walked():
    inner = PoissonSampled(0.1, Gaussian(1.0))
    whole = Composed((Repeated(inner, 3), Parallel((DiscreteLaplace(1, Fraction(2)), Gaussian(2.0)))))
    names = [type(event).__name__ for event in whole.walk()]
    assert names == ["Composed", "Repeated", "PoissonSampled", "Gaussian", "Parallel", "DiscreteLaplace", "Gaussian"]
    assert events.is_secure(whole)
    assert not events.is_secure(Composed((whole, Insecure(inner))))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gaussian(0.0),
        lambda: Gaussian(-1.0),
        lambda: Gaussian(math.nan),
        lambda: Gaussian("1"),
        lambda: events.Laplace(0),
        lambda: events.L2Laplace(1.0, -1.0),
        lambda: events.L2Laplace(1.0, 1.0, [0.1]),
        lambda: events.L2Laplace(1.0, 1.0, (0.0,)),
        lambda: DiscreteLaplace(0, Fraction(1)),
        lambda: DiscreteLaplace(1.0, Fraction(1)),
        lambda: DiscreteLaplace(1, 2.0),
        lambda: DiscreteLaplace(1, Fraction(0)),
        lambda: events.DiscreteGaussian(1, Fraction(-1)),
        lambda: events.Exponential(1.0),
        lambda: events.RandomizedResponse(Fraction(1), 1),
        lambda: events.Claimed(-1.0),
        lambda: events.Claimed(1.0, 1.5),
        lambda: PoissonSampled(1.5, Gaussian(1.0)),
        lambda: PoissonSampled(math.nan, Gaussian(1.0)),
        lambda: PoissonSampled(0.5, "Gaussian"),
        lambda: events.SampledWithoutReplacement(5, 4, Gaussian(1.0)),
        lambda: Repeated(Gaussian(1.0), -1),
        lambda: Repeated(Gaussian(1.0), 2.0),
        lambda: Composed([Gaussian(1.0)]),
        lambda: Composed((1,)),
        lambda: Parallel(()) and Parallel((None,)),
        lambda: Insecure(None),
    ],
)
def test_events_refuse_impossible_parameters(make):
    with pytest.raises(InvalidArgument, match=r"must .*: .+"):
        make()


# --- guarantees


def test_a_guarantee_explains_the_odds_what_delta_means_the_scale_and_the_group():
    text = ApproxDP(1.0, 1e-6).explain()
    assert "strong" in text
    assert "e^ε = 2.72" in text
    assert "73.1%" in text
    assert "δ = 1e-06 is the slack" in text
    assert "with probability δ, so δ should be far below one over" in text
    assert "fail" not in text
    assert "This holds always: δ = 0." in ApproxDP(1.0, 0.0).explain()
    assert "family of 4" in text
    assert "no probability of failure" in PureDP(1.0).explain()
    assert "no limit" in PureDP(math.inf).explain()


@pytest.mark.parametrize(
    "guarantee", [PureDP(2.0), ApproxDP(1e4, 0.0), ZCDP(0.5), ZCDP(0.0), GDP(1.0), RDP((2.0,), (1.0,))]
)
def test_every_guarantee_explains_itself_and_says_whom_it_protects(guarantee):
    told = guarantee.protecting(Neighbors(REPLACE_ONE, Person("id", 3)))
    assert "one person (at most 3 rows)" in told.explain()
    assert "replace one person" in str(told)


def test_the_words_for_epsilon_follow_the_tiers_of_the_paper():
    assert [strength(e) for e in (0.1, 1, 1.01, 10, 10.1)] == ["strong", "strong", "reasonable", "reasonable", "weak"]


def test_only_epsilon_and_delta_of_zero_are_perfect():
    assert strength(0) == strength(-0.0) == "perfect"
    assert strength(0, 1e-9) == "strong"
    assert "perfect protection" in PureDP(0.0).explain()
    assert "perfect" not in ApproxDP(0.0, 1e-9).explain()


def test_a_large_delta_is_not_called_strong():
    assert [strength(0.1, delta) for delta in (1e-3, 0.01, 0.5, 1.0)] == ["strong", "weak", "weak", "none"]
    assert "weak protection" in ApproxDP(0.1, 0.5).explain()


def test_groups_of_people():
    assert PureDP(0.5).group(3) == PureDP(1.5)
    assert ApproxDP(0.5, 1e-6).group(1) == ApproxDP(0.5, 1e-6)
    three = ApproxDP(0.5, 1e-6).group(3)
    assert three.epsilon == 1.5
    assert three.delta == pytest.approx(3 * math.e * 1e-6)
    assert ApproxDP(500.0, 1e-6).group(4).delta == 1.0
    assert ZCDP(0.1).group(3).rho == pytest.approx(0.9)
    assert GDP(0.5).group(4) == GDP(2.0)
    assert RDP((2.0**60,), (1.0,)).group(2**49 + 1).orders == (2.0**10,)
    assert Fraction(PureDP(0.1).group(3).epsilon) >= 3 * Fraction(0.1)
    assert RDP((2.0, 8.0), (0.1, 0.4)).group(2) == RDP((4.0,), (3 * 0.4,))
    for guarantee in (PureDP(1.0), ApproxDP(1.0, 0.1), ZCDP(1.0), GDP(1.0), RDP((2.0,), (1.0,))):
        for people in (0, -1, 1.5, math.nan):
            with pytest.raises(InvalidArgument, match="people must"):
                guarantee.group(people)


@pytest.mark.parametrize("value", [-1.0, math.nan, "1", None, -math.inf])
def test_guarantees_refuse_anything_but_a_number(value):
    for make in (
        PureDP,
        ZCDP,
        GDP,
        lambda v: ApproxDP(v, 1e-6),
        lambda v: ApproxDP(1.0, v),
        lambda v: RDP((2.0,), (v,)),
    ):
        with pytest.raises(InvalidArgument):
            make(value)
    with pytest.raises(InvalidArgument):
        RDP((1.0,), (1.0,))
    with pytest.raises(InvalidArgument):
        RDP((2.0, 3.0), (1.0,))


# --- neighbors


def test_relations_are_known_by_name():
    assert relation("add/remove") is relation("ADD_REMOVE") is relation(ADD_REMOVE) is ADD_REMOVE
    with pytest.raises(InvalidArgument, match="relation must be one of"):
        relation("swap")


def test_units_say_who_is_protected():
    assert str(Neighbors()) == "add or remove one row"
    assert str(dp.person("id", max_rows=3)) == "one person (at most 3 rows)"
    for bad in (lambda: dp.person("id", max_rows=0), lambda: dp.person(3, max_rows=1), lambda: Neighbors("add/remove")):
        with pytest.raises(InvalidArgument):
            bad()


# --- releases


def test_post_processing_keeps_the_event_and_the_guarantee_and_forgets_the_error():
    released = dp.laplace(dp.queries.count([1, 2, 3]), epsilon=1.0)
    mapped = released.map(lambda n: max(n, 0) ** 2)
    assert mapped.value == max(released.value, 0) ** 2
    assert mapped.event is released.event
    assert mapped.guarantee is released.guarantee
    assert mapped.standard_error is None
    with pytest.raises(InvalidArgument, match="error must be known"):
        mapped.confidence_interval()


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, math.nan, "95%"])
def test_a_bad_confidence_level_is_refused(level):
    with pytest.raises(InvalidArgument, match="level must"):
        dp.laplace(dp.queries.count([1]), epsilon=1.0).confidence_interval(level)


def test_a_release_prints_its_value_its_error_and_its_cost():
    released = dp.laplace(dp.queries.count([1] * 50), epsilon=2.0)
    assert str(released).endswith("[2-DP, add or remove one row]")
    assert "±" in str(released)
    both = dp.gaussian(dp.queries.histogram(["a", "b"], categories=["a", "b"]), epsilon=1.0, delta=1e-6)
    assert both.as_dict().keys() == {"a", "b"}
    assert isinstance(both.value, np.ndarray)
    with pytest.raises(InvalidArgument, match="labels must be known"):
        released.as_dict()


def test_counts_stay_integers():
    assert isinstance(dp.laplace(dp.queries.count([1]), epsilon=1.0).value, int)
    assert dp.laplace(dp.queries.histogram(["a"], categories=["a"]), epsilon=1.0).value.dtype == np.int64


# --- errors


def test_every_exception_is_a_discreet_error_and_drawn_in_the_docstring():
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, DiscreetError)
            assert name in errors.__doc__
    assert issubclass(errors.InvalidArgument, ValueError)
