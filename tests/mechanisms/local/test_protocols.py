"""What all protocols share: their events compose and are never too cheap, and reports are opened with care."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from discreet import accounting, events
from discreet.errors import InvalidArgument
from discreet.guarantees import ApproxDP
from discreet.ledger import Ledger
from discreet.mechanisms import local
from discreet.mechanisms.local import means, protocol
from discreet.mechanisms.local.reports import bits_to_bytes, bytes_to_bits
from discreet.neighbors import REPLACE_ONE, Neighbors, Rows

PROTOCOLS = [
    local.GeneralizedResponse(1, (0, 1, 2)),
    local.UnaryEncoding(1, (0, 1, 2)),
    local.LocalHashing(1, (0, 1, 2)),
    local.HadamardResponse(1, (0, 1, 2)),
    local.SubsetSelection(1, (0, 1, 2)),
    local.OneBit(1, (0, 2)),
    local.Piecewise(1, (0, 2)),
    local.Hybrid(1, (0, 2)),
    local.CountMeanSketch(1, 63, 4),
    local.PrefixTree(1, "012", (1, 2), 63),
]
every_protocol = pytest.mark.parametrize("one", PROTOCOLS, ids=lambda p: type(p).__name__)


def apart(law, first, second):
    """The probability, under `first`, of the payloads that tell two values apart."""
    ratios = [(law(payload, first), law(payload, second)) for payload in law.payloads]
    return sum(p for p, q in ratios if not math.isclose(p, q, rel_tol=1e-9))


class Law:
    """The probabilities of all payloads of a small protocol."""

    def __init__(self, one):
        self.one = one
        codes = itertools.product(range(2 if isinstance(one, local.Hybrid) else 256), *[range(256)] * (one.size - 1))
        self.payloads = [bytes(code) for code in codes]  # the first byte of a hybrid report is 0 or 1

    def __call__(self, payload, held):
        return self.one.probability(payload, held)


@pytest.mark.parametrize("kind", [local.UnaryEncoding, local.HadamardResponse, local.SubsetSelection])
@pytest.mark.parametrize("categories", [2, 3, 6])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_informative_is_the_exact_chance_of_telling_two_values_apart(kind, categories, epsilon):
    """A mutant with 0.9 of it fails."""
    one = kind(epsilon, tuple(range(categories)))
    law = Law(one)
    worst = max(apart(law, i, j) for i, j in itertools.permutations(range(categories), 2))
    assert worst <= one.informative * (1 + 1e-12)
    assert worst > 0.99 * one.informative


def test_hashing_counts_no_collision_in_its_favor():
    """Given any hash function, a report is randomized response among g values."""
    one = local.LocalHashing(1.0, tuple(range(5)))
    generalized = local.GeneralizedResponse(one.epsilon, tuple(range(one.values)))
    assert generalized.truth + generalized.noise <= one.informative
    assert generalized.truth + generalized.noise > 0.999 * one.informative


@pytest.mark.parametrize("kind", [local.Piecewise, local.Hybrid])
def test_windows_tell_two_numbers_apart_as_stated(kind, monkeypatch):
    monkeypatch.setattr(means, "LEVELS", 16)
    one = kind(1.0, (0, 1))
    law = Law(one)
    worst = max(apart(law, i, j) for i, j in ((-16, 16), (16, -16), (0, 16)))
    assert worst <= one.informative * (1 + 1e-12)
    assert worst > 0.99 * one.informative


@every_protocol
def test_reports_are_priced_and_their_shuffles_compose(one):
    assert one.guarantee.epsilon == 1
    assert accounting.pure(one.event, REPLACE_ONE).epsilon == 1
    shuffled = one.shuffled(10_000)
    assert shuffled == events.Shuffled(10_000, one.event)
    assert accounting.epsilon(shuffled, 1e-6, REPLACE_ONE).upper < 0.06


def test_a_ledger_takes_reports_and_shuffles(tmp_path):
    people = Neighbors(REPLACE_ONE, Rows())
    account = Ledger(tmp_path / "a.ledger").account("a", ApproxDP(4.0, 1e-6, protects=people), relation=REPLACE_ONE)
    one = local.UnaryEncoding(1, (0, 1, 2))
    account.spend(one.event)
    account.spend(one.shuffled(10_000))
    account.spend(events.Gaussian(10.0))
    assert account.statement().tight.upper < 1.5


@every_protocol
def test_reports_state_their_bits_and_refuse_what_is_foreign(one):
    client = one.client()
    reports = [client("0" if isinstance(one, local.PrefixTree) else 0) for _ in range(20)]
    assert {len(report) for report in reports} == {5 + one.size}
    assert 0 < one.bits <= 8 * one.size
    other = type(one)(2, *[getattr(one, name) for name in list(one.__dataclass_fields__)[1:]])
    foreign = [*other.simulate(["0" if isinstance(one, local.PrefixTree) else 0] * 3), b"", b"x" * 40, None]
    accepted, rejected = one._accepted([*reports, *foreign])
    assert (len(accepted), rejected) == (20, 6)
    with pytest.raises(InvalidArgument, match="reports must hold"):
        one._accepted(foreign)
    with pytest.raises(InvalidArgument, match="people must be ≥ 1"):
        one.shuffled(0)


def test_a_prefix_tree_counts_only_bad_reports_as_rejected():
    tree = local.PrefixTree(Fraction(3), "ab", (1, 2), 63)
    reports = [*tree.simulate(["ab"] * 300), b"bad", tree.simulate(["a"]).head + b"\x09" + b"\0" * (tree.size - 1)]
    found = tree.estimate(reports)
    assert found.rejected == 2
    assert found.categories[0] == "ab"
    assert tree.influence().category > local.CountMeanSketch(Fraction(3), 63).influence().category


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [1e-6, 60, 256])
def test_tiny_and_huge_epsilons_work_in_every_protocol(epsilon):
    for kind in (
        local.GeneralizedResponse,
        local.SubsetSelection,
        local.UnaryEncoding,
        local.LocalHashing,
        local.HadamardResponse,
    ):
        frequencies = kind(epsilon, tuple("abc"))
        estimate = frequencies.estimate(frequencies.simulate(["a"] * 300))
        assert np.isfinite(estimate.shares).all()
        assert epsilon < 1 or estimate.shares[0] == pytest.approx(1, abs=0.5)
    for mean in (local.OneBit, local.Piecewise, local.Hybrid):
        assert math.isfinite(mean(epsilon, (0, 1)).estimate(mean(epsilon, (0, 1)).simulate([0.5] * 300)).mean)
    with pytest.raises(InvalidArgument, match="epsilon must be ≤ 256"):
        local.UnaryEncoding(257, ("a", "b"))


def test_no_answer_makes_a_device_fail():
    """An exception would be a report about the value."""
    odd = ["\ud800", "\0", "", None, math.nan, 2**70, b"\xff", ("a",), "é" * 3]
    for value in odd:
        for device in (local.CountMeanSketch(1).client(), local.PrefixTree(1, "ab", (1, 2)).client()):
            assert isinstance(device(value), bytes)
        assert isinstance(local.Rappor().client()(value), bytes)


def test_equal_values_of_different_types_stay_apart_in_a_batch():
    sketch = local.CountMeanSketch(Fraction(8), 255, 1)
    estimate = sketch.estimate(sketch.simulate([1] * 500 + [True] * 500), [1, True])
    assert np.all(np.abs(estimate.shares - 0.5) < 0.2)


def test_the_choice_says_by_how_much():
    assert "times as large" in str(local.best_for(20, 1.0, 1000))
    assert "shortest reports" in str(local.best_for(1000, 1.0, 1000))


def test_shares_that_are_computed_are_rounded_up():
    assert protocol.bounded_share(0.5) > 0.5
    assert protocol.bounded_share(1.0) == 1.0


@pytest.mark.parametrize("width", [1, 7, 8, 9, 16, 21])
def test_rows_of_bits_are_packed_one_by_one(width):
    rows = np.random.default_rng(width).random((5, width)) < 0.5
    packed = bits_to_bytes(rows)
    assert (packed == np.packbits(rows, axis=1, bitorder="little")).all()
    assert (bytes_to_bits(packed)[:, :width] == rows).all()
    assert not bytes_to_bits(packed)[:, width:].any()
