"""Counts of values that nobody listed beforehand: unbiased, private, and the common ones are found.

Statistical tests have a false-alarm rate of 1e-6 each.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import InvalidArgument
from discreet.mechanisms.local import CountMeanSketch, PrefixTree
from discreet.mechanisms.local.hashing import fingerprints, hashes


def test_hashes_collide_as_often_as_they_should():
    """Pairs of values over many seeds: the number of collisions is binomial with 1/g, within five standard errors."""
    seeds = np.arange(20_000, dtype=np.uint64) * np.uint64(0x1F3D5B79)
    for buckets in (2, 4, 21, 1023):
        for first, second in ((0, 1), (7, 2**40), (2**63, 5)):
            ours = hashes(seeds, np.full(seeds.size, first, dtype=np.uint64), buckets)
            theirs = hashes(seeds, np.full(seeds.size, second, dtype=np.uint64), buckets)
            expected = seeds.size / buckets
            assert abs(np.count_nonzero(ours == theirs) - expected) < 5.5 * math.sqrt(expected)
            assert 0 <= ours.min() <= ours.max() < buckets


def test_fingerprints_tell_types_apart():
    assert len(set(fingerprints([1, "1", 1.0, True, b"1", None]).tolist())) == 6


def test_shares_of_named_values_are_estimated():
    sketch = CountMeanSketch(Fraction(2), buckets=255, functions=32)
    values = ["a"] * 6000 + ["b"] * 3000 + [f"rare{i}" for i in range(1000)]
    estimate = sketch.estimate(sketch.simulate(values), ["a", "b", "absent", "rare7"])
    truth = np.array([0.6, 0.3, 0.0, 0.0001])
    collisions = math.sqrt((0.6**2 + 0.3**2) / (32 * 255))
    assert np.all(np.abs(estimate.shares - truth) < 5.5 * (estimate.standard_errors + collisions))
    assert estimate.standard_errors.max() < 0.02


def test_one_report_is_private_by_enumeration():
    """For each hash function, all columns, all pairs of buckets: ratios up to e^ε."""
    sketch = CountMeanSketch(Fraction(1), buckets=3, functions=2)
    response = sketch._response
    for column in range(response.order):
        law = [response.probability(bytes([column]), bucket) for bucket in range(3)]
        assert math.log(max(law) / min(law)) <= 1 + 1e-12


def test_clients_send_bytes_and_foreign_reports_are_counted():
    sketch, other = CountMeanSketch(1.0, 63, 4), CountMeanSketch(1.0, 63, 5)
    client = sketch.client()
    good = [client("a") for _ in range(20)]
    bad = [b"", other.client()("a"), good[0][:5] + b"\xff\xff" + good[0][7:]]
    estimate = sketch.estimate([*good, *bad], ["a"])
    assert (estimate.reports, estimate.rejected) == (20, 3)
    assert sketch.size * 8 >= sketch.bits
    with pytest.raises(InvalidArgument, match="reports must hold a valid one"):
        sketch.estimate(bad, ["a"])


def test_a_prefix_tree_finds_the_common_words():
    tree = PrefixTree(Fraction(4), "abcdefghijklmnopqrstuvwxyz", (1, 2, 3, 5), buckets=1023)
    client = tree.client()
    words = ["cat"] * 1500 + ["horse"] * 1250 + [chr(97 + i % 26) + chr(97 + i % 7) for i in range(250)]
    found = tree.estimate([client(word) for word in words])
    assert set(found.categories[:2]) == {"cat", "horse"}
    assert abs(found.shares[found.categories.index("cat")] - 0.5) < 6 * found.standard_errors[0] + 0.02
    assert found.rejected >= 0


def test_texts_that_end_or_leave_the_alphabet_are_cut():
    tree = PrefixTree(1.0, "ab", (1, 3))
    assert tree._prefix("aXb", 1) == "a\0\0"
    assert tree._prefix("abab", 1) == "aba"
    assert tree._prefix("", 0) == "\0"
    assert tree._extended("\0", 2) == ["\0\0\0"]


def test_bad_parameters_are_refused():
    for changes in ({"buckets": 1}, {"functions": 0}, {"functions": 1 << 17}):
        with pytest.raises(InvalidArgument):
            CountMeanSketch(1.0, **changes)
    for alphabet, depths in (("", (1,)), ("aa", (1,)), ("ab", ()), ("ab", (2, 1)), ("ab", (0,))):
        with pytest.raises(InvalidArgument):
            PrefixTree(1.0, alphabet, depths)
