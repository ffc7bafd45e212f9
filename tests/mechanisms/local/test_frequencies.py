"""Frequency protocols are ε-DP, draw what they state, and estimate without bias at the stated variance.

Chi-square and normal tests have a false-alarm rate of 1e-6 each. Power: ten standard errors of bias, or a variance that
is half or twice the stated one, are found with probability above 99.9%.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from discreet import events
from discreet.errors import InvalidArgument
from discreet.mechanisms import local
from discreet.mechanisms.local import hadamard, subset, unary
from discreet.mechanisms.local.hashing import hashes
from tests.exact import FALSE_ALARM

KINDS = [
    local.GeneralizedResponse,
    local.UnaryEncoding,
    local.LocalHashing,
    local.HadamardResponse,
    local.SubsetSelection,
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
# Seeds of `LocalHashing` that the exhaustive tests look at; the seed itself is independent of the value.
SEEDS = [0, 1, 77, 2**48 - 1]


def payloads(protocol):
    """All payloads of a small protocol, or all with one of some seeds."""
    if isinstance(protocol, local.LocalHashing):
        tails = [int.to_bytes(value, protocol.size - 6, "little") for value in range(protocol.values)]
        return [seed.to_bytes(6, "little") + tail for seed in SEEDS for tail in tails]
    return [int.to_bytes(code, protocol.size, "little") for code in range(256**protocol.size)]


@every_kind
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
@pytest.mark.parametrize("categories", [2, 3, 5, 8])
def test_no_report_tells_two_values_apart_by_more_than_epsilon(kind, epsilon, categories):
    """Exhaustively: all reports, all pairs of values. The bound is attained."""
    protocol = kind(epsilon, tuple(range(categories)))
    worst = 0.0
    for payload in payloads(protocol):
        law = [protocol.probability(payload, held) for held in range(categories)]
        if max(law) > 0:
            worst = max(worst, math.log(max(law) / min(law)))
    assert worst <= float(epsilon) * (1 + 1e-12)
    assert worst > 0.99 * float(epsilon)


@every_kind
@pytest.mark.parametrize("categories", [2, 5])
def test_reports_are_drawn_with_their_stated_probabilities(kind, categories):
    protocol = kind(Fraction(1), tuple(range(categories)))
    people = 20_000
    for held in range(categories):
        drawn = protocol.simulate([held] * people)
        seen = Counter(row.tobytes() for row in drawn.payloads)
        if kind is local.LocalHashing:  # given the seed, only whether the hash is the true one is random
            seeds, reported = protocol._split(drawn.payloads)
            hits = int(np.count_nonzero(hashes(seeds, np.uint64([held]), protocol.values) == reported))
            assert stats.binomtest(hits, people, protocol.truth).pvalue > FALSE_ALARM
            continue
        law = {row: protocol.probability(row, held) for row in payloads(protocol)}
        assert sum(law.values()) == pytest.approx(1)
        assert all(law[row] > 0 for row in seen)
        likely = [row for row, chance in law.items() if chance * people >= 5]
        expected = [law[row] * people for row in likely]
        observed = [seen[row] for row in likely]
        rest = people - sum(observed)
        if people - sum(expected) > 5:
            expected, observed = [*expected, people - sum(expected)], [*observed, rest]
        statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
        assert statistic < stats.chi2.isf(FALSE_ALARM, len(expected) - 1)


@every_kind
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_estimates_are_unbiased_with_the_stated_variance(kind, epsilon):
    shares = np.array([0.5, 0.3, 0.15, 0.05, 0.0, 0.0])
    people, rounds = 500, 300
    protocol = kind(epsilon, tuple("abcdef"))
    values = np.repeat(list("abcdef"), (shares * people).astype(int))
    found = np.array([protocol.estimate(protocol.simulate(values)).shares for _ in range(rounds)])
    stated = protocol.variance(shares, people)
    z = (found.mean(axis=0) - shares) / np.sqrt(stated / rounds)
    assert np.all(np.abs(z) < -stats.norm.ppf(FALSE_ALARM / 12))
    ratio = found.var(axis=0, ddof=1) / stated * (rounds - 1)
    assert np.all(ratio > stats.chi2.ppf(FALSE_ALARM / 12, rounds - 1))
    assert np.all(ratio < stats.chi2.isf(FALSE_ALARM / 12, rounds - 1))


@pytest.mark.parametrize(
    ("kind", "categories", "epsilon", "stated"),
    [
        (local.GeneralizedResponse, 2, 1.0, 0.92),
        (local.GeneralizedResponse, 16, 1.0, 5.66),
        (local.GeneralizedResponse, 128, 1.0, 43.6),
        (local.UnaryEncoding, 128, 1.0, 3.68),
        (local.LocalHashing, 128, math.log(3), 4 * 3 / 4),
    ],
)
def test_variances_are_the_published_ones(kind, categories, epsilon, stated):
    protocol = kind(epsilon, tuple(range(categories)))
    assert float(protocol.variance(0.0, 1)) == pytest.approx(stated, rel=3e-3)


@every_kind
def test_the_client_and_the_server_speak_through_bytes(kind):
    protocol = kind(2.0, ("yes", "no", "maybe"))
    client = protocol.client()
    reports = [client("yes") for _ in range(2000)] + [client("no") for _ in range(1000)]
    assert {type(report) for report in reports} == {bytes}
    assert {len(report) for report in reports} == {5 + protocol.size}
    assert protocol.size * 8 >= protocol.bits > 0
    estimate = protocol.estimate(reports)
    assert (estimate.reports, estimate.rejected) == (3000, 0)
    low, high = estimate.intervals(1 - FALSE_ALARM)
    assert np.all((low <= [2 / 3, 1 / 3, 0]) & (high >= [2 / 3, 1 / 3, 0]))
    projected = estimate.projected()
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1)


@every_kind
def test_foreign_and_malformed_reports_are_rejected_and_counted(kind):
    protocol, other = kind(2.0, ("a", "b", "c")), kind(2.5, ("a", "b", "c"))
    good = list(protocol.simulate(["a"] * 50))
    bad = [b"", b"\x00" * len(good[0]), good[0][:-1], good[0] + b"\x00", "text", None, *other.simulate(["a"] * 3)]
    bad.append(good[0][:-1] + b"\xff")  # no payload of these protocols ends like this
    estimate = protocol.estimate([*good, *bad])
    assert (estimate.reports, estimate.rejected) == (50, len(bad))
    assert other.simulate(["a"]).head != protocol.simulate(["a"]).head
    with pytest.raises(InvalidArgument, match="reports must hold a valid one"):
        protocol.estimate(other.simulate(["a"] * 3))


@every_kind
def test_answers_outside_the_categories_spread_evenly(kind):
    protocol = kind(3.0, ("a", "b"))
    estimate = protocol.estimate(protocol.simulate([None, math.nan, "z", 7] * 2000))
    assert np.all(np.abs(estimate.shares - 0.5) < 8 * estimate.standard_errors)


@every_kind
def test_seeded_reports_are_repeatable_and_marked(kind):
    protocol = kind(1.0, ("a", "b", "c"))
    first, second = (protocol.simulate(["a", "b"] * 20, insecure_seed=5) for _ in range(2))
    assert np.array_equal(first.payloads, second.payloads)
    assert isinstance(first.event, events.Insecure)
    assert protocol.simulate(["a"]).event == protocol.event
    assert not np.array_equal(first.payloads, protocol.simulate(["a", "b"] * 20).payloads)


def test_the_influences_are_those_of_the_table_in_the_documents():
    page = (Path(__file__).parents[3] / "docs" / "topics" / "trust.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert {name for name, *_ in rows} == {kind.__name__ for kind in KINDS}
    for name, *stated in rows:
        protocols = [getattr(local, name)(epsilon, tuple(range(16))) for epsilon in (1.0, 4.0)]
        found = [number for one in (p.influence() for p in protocols) for number in (one.category, one.total)]
        assert [f"{number:.1f}" for number in found] == stated


@every_kind
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_intervals_for_dishonest_devices_hold_the_shares_of_all_people(kind, epsilon):
    """400 of 4,000 devices send what supports the first category most, though their owners hold the last one."""
    protocol = kind(epsilon, tuple("abcde"))
    honest, liars = ["b"] * 1800 + ["c"] * 1800, ["e"] * 400
    reports = list(protocol.simulate([*honest, *liars]))
    alone = {report: protocol.support(np.frombuffer(report[5:], dtype=np.uint8)[None])[0] for report in reports}
    reports[-400:] = [max(alone, key=alone.get)] * 400
    estimate = protocol.estimate(reports)
    truth = np.array([0, 0.45, 0.45, 0, 0.1])
    low, high = estimate.intervals(1 - FALSE_ALARM, dishonest=400)
    assert np.all((low <= truth) & (truth <= high))
    low, high = estimate.intervals(1 - FALSE_ALARM)
    assert not np.all((low <= truth) & (truth <= high))  # ten percent of the devices are far too many to ignore
    for bad in (-1, 0.5, None):
        with pytest.raises(InvalidArgument, match="dishonest"):
            estimate.intervals(dishonest=bad)


@every_kind
def test_no_valid_report_moves_more_than_the_stated_influence(kind):
    protocol = kind(1.0, tuple(range(5)))
    honest = list(protocol.simulate([0, 1, 2, 3, 4] * 10))
    stated, base = protocol.influence(), protocol.estimate(honest)
    head = honest[0][:5]
    for payload in itertools.islice(payloads(protocol), 300):
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        if not protocol.valid(row)[0]:
            continue
        # The counts with one dishonest report more, beside those with the same number of people.
        moved = protocol.estimate([*honest, head + payload]).counts - base.counts
        assert np.max(np.abs(moved)) <= stated.category * (1 + 1e-9) + 1e-9
        assert np.sum(np.abs(moved)) <= stated.total * (1 + 1e-9) + 1e-9


def test_the_best_protocol_has_the_least_variance():
    """GRR wins while d < 3e^ε + 2 or so; for many categories short reports of equal variance are preferred."""
    assert isinstance(local.best_for(3, 1.0, 1000).protocol, local.GeneralizedResponse)
    many = local.best_for(1000, 1.0, 1000)
    assert not isinstance(many.protocol, local.GeneralizedResponse)
    errors = [row[1] for row in many.table]
    assert errors == sorted(errors)
    assert math.sqrt(float(many.protocol.variance(0.0, 1000))) <= errors[0] * 1.01
    assert "bytes" in str(many)


def test_mutants_of_the_probabilities_exceed_epsilon(monkeypatch):
    """The exhaustive test above would fail for each of these."""
    protocol = local.UnaryEncoding(Fraction(1), (0, 1, 2))
    monkeypatch.setattr(unary.UnaryEncoding, "noise", property(lambda self: 0.2))
    ratios = [
        protocol.probability(bytes([1]), 0) / protocol.probability(bytes([1]), 1),
    ]
    assert math.log(max(ratios)) > 1.0


def test_a_mutant_that_flips_no_bit_draws_other_probabilities(monkeypatch):
    monkeypatch.setattr(hadamard, "coins", lambda target, size, bits: np.ones(size, dtype=bool))
    with pytest.raises(AssertionError):
        test_reports_are_drawn_with_their_stated_probabilities(local.HadamardResponse, 2)
    monkeypatch.setattr(subset, "coins", lambda target, size, bits: np.ones(size, dtype=bool))
    with pytest.raises(AssertionError):
        test_reports_are_drawn_with_their_stated_probabilities(local.SubsetSelection, 5)


def test_bad_parameters_are_refused():
    for categories in ((), ("a",), ("a", "a"), ("a", None)):
        with pytest.raises(InvalidArgument):
            local.UnaryEncoding(1.0, categories)
    for epsilon in (0, -1, math.nan, math.inf):
        with pytest.raises(InvalidArgument):
            local.GeneralizedResponse(epsilon, ("a", "b"))
