"""The codec keeps every event exactly, has one text for each, and accepts nothing that its tables do not list."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import codec
from discreet import events as ev
from discreet.errors import InvalidArgument, NotALedger
from discreet.guarantees import GDP, RDP, ZCDP, ApproxDP, PureDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Client, Neighbors, Person, Rows

CLASSES = [
    kind
    for _, kind in inspect.getmembers(ev, inspect.isclass)
    if issubclass(kind, ev.Event) and kind is not ev.Event and kind.__module__.startswith(f"{ev.__name__}.")
]

floats = st.floats(min_value=1e-100, max_value=1e100)
reals = st.one_of(
    floats,
    st.integers(1, 10**30),
    st.fractions(min_value=Fraction(1, 10**9)),
    floats.map(np.float64),
    st.just(math.inf),
)
finite = st.one_of(floats, st.fractions(min_value=Fraction(1, 10**9)), st.integers(1, 1000))
rationals = st.fractions(min_value=Fraction(1, 10**12))
counts = st.integers(1, 10**20)
shares = st.one_of(st.floats(0, 1).filter(lambda x: x == 0 or x > 1e-100), st.fractions(0, 1), st.just(-0.0))

LEAVES = {
    ev.Gaussian: st.builds(ev.Gaussian, reals),
    ev.Laplace: st.builds(ev.Laplace, reals),
    ev.L2Laplace: st.builds(
        ev.L2Laplace, reals, st.none() | reals, st.none() | st.lists(finite, max_size=4).map(tuple)
    ),
    ev.DiscreteGaussian: st.builds(ev.DiscreteGaussian, counts, rationals, counts),
    ev.DiscreteLaplace: st.builds(ev.DiscreteLaplace, counts, rationals),
    ev.Exponential: st.builds(ev.Exponential, rationals),
    ev.DeclaredExponentials: st.builds(ev.DeclaredExponentials, rationals, counts),
    ev.NoisyMax: st.builds(ev.NoisyMax, rationals),
    ev.SparseVector: st.builds(ev.SparseVector, rationals, counts),
    ev.RandomizedResponse: st.builds(ev.RandomizedResponse, rationals, st.integers(2, 100)),
    ev.Claimed: st.builds(ev.Claimed, finite, shares),
    ev.LocalReport: st.builds(ev.LocalReport, rationals, shares),
    ev.PerturbedObjective: st.builds(ev.PerturbedObjective, reals, finite),
    ev.GaussianVotes: st.builds(ev.GaussianVotes, reals),
    ev.GaussianVoteCheck: st.builds(ev.GaussianVoteCheck, reals),
    ev.LaplaceVotes: st.builds(ev.LaplaceVotes, reals),
    ev.DistributedDiscreteGaussian: st.builds(
        ev.DistributedDiscreteGaussian, counts, rationals, st.integers(4, 10**9), st.integers(0, 3), counts
    ),
    ev.Skellam: st.builds(ev.Skellam, counts, rationals, st.integers(4, 10**9), st.integers(0, 3), counts),
    ev.NonPrivate: st.just(ev.NonPrivate()),
    ev.ToeplitzNoise: st.builds(
        ev.ToeplitzNoise,
        reals,
        st.tuples(finite, finite | finite.map(lambda c: -c), st.just(-0.0) | st.just(0)),
        st.integers(3, 10**6),
        counts,
        counts,
    ),
    ev.SquareRootNoise: st.builds(ev.SquareRootNoise, reals, st.just(5), st.integers(5, 10**6), counts, counts),
    ev.BufferedNoise: st.builds(
        ev.BufferedNoise,
        reals,
        st.tuples(finite, finite),
        st.tuples(shares, shares).filter(lambda pair: max(pair) < 1),
        counts,
        counts,
        counts,
    ),
    ev.TreeNoise: st.builds(ev.TreeNoise, reals, st.integers(2, 100), counts, counts, counts),
    ev.CyclicSampled: st.builds(
        lambda rate, noise, coefficients: ev.CyclicSampled(rate, 4, ev.ToeplitzNoise(noise, coefficients, 10, 3, 4)),
        shares,
        reals,
        st.tuples(finite, finite),
    ),
}
inside = st.one_of(st.floats(1e-100, 1, exclude_max=True), st.fractions(Fraction(1, 10**9), Fraction(999, 1000)))
laws = st.one_of(
    st.builds(ev.NegativeBinomialTrials, st.one_of(finite, st.just(0), st.floats(-0.99, -0.01)), inside),
    st.builds(ev.PoissonTrials, finite),
    st.builds(ev.BinomialTrials, counts, inside),
)


def nests(inner):
    several = st.lists(inner, max_size=3).map(tuple)
    return {
        ev.Insecure: st.builds(ev.Insecure, inner),
        ev.MayFail: st.builds(ev.MayFail, shares, inner),
        ev.PoissonSampled: st.builds(ev.PoissonSampled, shares, inner),
        ev.SampledWithoutReplacement: st.builds(ev.SampledWithoutReplacement, st.just(3), st.integers(3, 9), inner),
        ev.Shuffled: st.builds(ev.Shuffled, counts, inner),
        ev.ShuffledEpoch: st.builds(ev.ShuffledEpoch, st.just(2), st.integers(2, 9), inner),
        ev.SelectedFromRepeats: st.builds(ev.SelectedFromRepeats, inner, laws),
        ev.RandomlyAllocated: st.builds(ev.RandomlyAllocated, st.integers(3, 9), st.just(3), inner),
        ev.TruncatedPoissonSampled: st.builds(ev.TruncatedPoissonSampled, shares, counts, counts, inner),
        ev.Repeated: st.builds(ev.Repeated, inner, st.integers(0, 10**12)),
        ev.Composed: st.builds(ev.Composed, several),
        ev.Parallel: st.builds(ev.Parallel, several),
        ev.Group: st.builds(ev.Group, inner, counts),
    }


EVENTS = st.recursive(st.one_of(*LEAVES.values()), lambda inner: st.one_of(*nests(inner).values()), max_leaves=6)


def test_every_event_has_a_tag_and_a_strategy_here():
    assert {kind for kind, _ in codec._EVENTS.values()} == set(CLASSES)
    assert set(LEAVES) | set(nests(EVENTS)) == set(CLASSES)


def test_every_field_of_every_event_is_written():
    for kind, fields in codec._EVENTS.values():
        assert list(fields) == list(kind.__dataclass_fields__)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda k: k.__name__)
def test_an_event_of_each_class_comes_back_exactly(kind):
    strategy = {**LEAVES, **nests(st.one_of(*LEAVES.values()))}[kind]

    @settings(max_examples=60, deadline=None)
    @given(strategy)
    def check(event):
        text = codec.encode(event)
        back = codec.decode(text)
        assert back == event
        assert type(back) is type(event)
        assert codec.encode(back) == text

    check()


@settings(max_examples=200, deadline=None)
@given(EVENTS, EVENTS)
def test_events_have_one_text_if_and_only_if_they_are_equal(left, right):
    assert codec.decode(codec.encode(left)) == left
    assert (codec.encode(left) == codec.encode(right)) == (left == right)


def test_equal_numbers_of_different_types_have_one_text():
    same = [ev.Gaussian(2), ev.Gaussian(2.0), ev.Gaussian(Fraction(2)), ev.Gaussian(np.float32(2))]
    assert len({codec.encode(event) for event in same}) == 1
    assert codec.decode(codec.encode(ev.Gaussian(Fraction(1, 3)))).noise_multiplier == Fraction(1, 3)


BAD = [
    "",
    "null",
    "[]",
    "{",
    '"gaussian"',
    '{"tag":"gaussian"}',
    '{"tag":"os.system","command":"true"}',
    '{"noise_multiplier":1.0,"tag":"gaussian"}',
    '{"noise_multiplier":"1","tag":"gaussian"}',
    '{"noise_multiplier":"0x1p0","tag":"gaussian"}',
    '{"noise_multiplier":"nan","tag":"gaussian"}',
    '{"noise_multiplier":"-0x1.0000000000000p+0","tag":"gaussian"}',
    '{"noise_multiplier":"0x0.0p+0","tag":"gaussian"}',
    '{"noise_multiplier":"2/4","tag":"gaussian"}',
    '{"noise_multiplier":"1/2","tag":"gaussian"}',
    '{"noise_multiplier":"0x1.0000000000000p+0","tag":"gaussian","more":1}',
    '{"noise_multiplier":"0x1.0000000000000p+0","tag":"gaussian","tag":"laplace"}',
    '{"noise_multiplier": "0x1.0000000000000p+0","tag":"gaussian"}',
    '{"tag":"gaussian","noise_multiplier":"0x1.0000000000000p+0"}',
    '{"count":true,"event":{"tag":"non-private"},"tag":"repeated"}',
    '{"count":1.0,"event":{"tag":"non-private"},"tag":"repeated"}',
    '{"count":-1,"event":{"tag":"non-private"},"tag":"repeated"}',
    '{"events":{"tag":"non-private"},"tag":"composed"}',
    '{"epsilon":"1/0","tag":"exponential"}',
    '{"epsilon":NaN,"tag":"exponential"}',
    '{"event":' * 5000,
    '{"event":' * 100 + '{"tag":"non-private"}' + ',"tag":"insecure"}' * 100,
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_not_the_one_text_of_an_event_is_refused(text):
    with pytest.raises(NotALedger):
        codec.decode(text)


def test_an_event_from_elsewhere_and_one_too_deep_are_refused():
    class Other(ev.Event):
        pass

    deep = ev.NonPrivate()
    for _ in range(100):
        deep = ev.Insecure(deep)
    for bad in (Other(), deep, "gaussian", ev.Repeated(ev.NonPrivate(), 10**5000)):
        with pytest.raises(InvalidArgument):
            codec.encode(bad)


BUDGETS = [PureDP(1.0), ApproxDP(3.0, 1e-6), ZCDP(0.5), GDP(1.5), RDP((2.0, 8.0), (0.5, 1.0))]


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_budgets_come_back_exactly(budget):
    assert codec.decode_budget(codec.encode_budget(budget)) == budget


@pytest.mark.parametrize("relation", [ADD_REMOVE, REPLACE_ONE, ZERO_OUT])
@pytest.mark.parametrize(
    "unit", [Rows(), Person("id", 3), Person(None, 2, 1), Client(), Client(3), Client(2, shared=True)], ids=repr
)
def test_neighbors_come_back_exactly(relation, unit):
    neighbors = Neighbors(relation, unit)
    assert codec.decode_neighbors(codec.encode_neighbors(neighbors)) == neighbors


def test_a_client_of_its_own_is_written_as_before_and_another_word_is_refused():
    written = codec.encode_neighbors(Neighbors(ADD_REMOVE, Client(2)))
    assert written["unit"] == {"tag": "client", "per_person": 2}
    for more in ({"shared": False}, {"shared": 1.5}, {"other": True}):
        with pytest.raises(NotALedger):
            codec.decode_neighbors({**written, "unit": {**written["unit"], **more}})


@pytest.mark.parametrize("bad", [None, {}, {"tag": "pure"}, {"tag": "pure", "epsilon": "1"}, {"tag": "dp"}], ids=repr)
def test_a_foreign_budget_or_neighbor_is_refused(bad):
    with pytest.raises(NotALedger):
        codec.decode_budget(bad)
    with pytest.raises(NotALedger):
        codec.decode_neighbors(bad)


@given(event=EVENTS)
def test_every_event_has_words_without_code(event):
    words = str(event)
    assert words
    assert "\n" not in words
    assert not any(code in words for code in ("Fraction", "event=", "None", "_"))
