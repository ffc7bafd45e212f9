"""RAPPOR: repeated reports do not average away, both ε are right, and the server finds who is common.

Statistical tests have a false-alarm rate of 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from discreet import events
from discreet.errors import InvalidArgument
from discreet.mechanisms.local import Rappor
from discreet.mechanisms.local.hashing import text
from tests.exact import FALSE_ALARM

SMALL = Rappor(bits=8, hashes=1, cohorts=2)


def unpacked(protocol, report):
    return np.unpackbits(np.frombuffer(report[7:], dtype=np.uint8), bitorder="little")[: protocol.bits].astype(bool)


@pytest.mark.parametrize("hashes", [1, 2])
@pytest.mark.parametrize("lie", [Fraction(1, 4), Fraction(1, 2)])
def test_both_epsilons_bound_every_likelihood_ratio(hashes, lie):
    """By enumerating all bit patterns of a small filter, for two values that share no bit."""
    protocol = Rappor(bits=8, hashes=hashes, lie=lie)
    half = float(lie) / 2
    low, high = (float(chance) for chance in protocol._marginals)
    first, second = np.zeros(8, dtype=bool), np.zeros(8, dtype=bool)
    first[:hashes], second[-hashes:] = True, True
    for one_if_set, one_if_not, promise in ((1 - half, half, protocol.permanent), (high, low, protocol.instantaneous)):
        worst = 0.0
        for pattern in itertools.product([False, True], repeat=8):
            chances = [np.where(held, one_if_set, one_if_not) for held in (first, second)]
            laws = [np.prod(np.where(pattern, chance, 1 - chance)) for chance in chances]
            worst = max(worst, abs(math.log(laws[0] / laws[1])))
        assert worst == pytest.approx(promise.epsilon, rel=1e-9)
        assert promise.epsilon >= worst * (1 - 1e-12)


def test_permanent_and_instantaneous_bits_have_the_stated_chances():
    people = 3000
    clients = [SMALL.client() for _ in range(people)]
    permanent = np.array([SMALL._permanent_bits(client, "x") for client in clients])
    truth = np.array([[i in SMALL._positions(client.cohort, text("x")) for i in range(8)] for client in clients])
    reports = np.array([unpacked(SMALL, client("x")) for client in clients])
    half = float(SMALL.lie) / 2
    checks = [
        (permanent[truth], 1 - half),
        (permanent[~truth], half),
        (reports[permanent], float(SMALL.one_if_one)),
        (reports[~permanent], float(SMALL.one_if_zero)),
    ]
    for seen, chance in checks:
        assert stats.binomtest(int(seen.sum()), seen.size, chance).pvalue > FALSE_ALARM


def test_many_devices_at_once_report_like_single_ones():
    """Every payload, against the law of one device's report: the cohort, then independent bits."""
    people = 20_000
    low, high = (float(chance) for chance in SMALL._marginals)
    for value in ("x", "y"):
        drawn = SMALL.simulate([value] * people)
        assert drawn.payloads.shape == (people, SMALL.size)
        assert drawn.event == SMALL.event
        cohorts = drawn.payloads[:, 0]
        assert stats.binomtest(int(np.sum(cohorts == 0)), people, 0.5).pvalue > FALSE_ALARM
        for cohort in range(2):
            bits = np.unpackbits(drawn.payloads[cohorts == cohort, 2:], axis=1, bitorder="little")
            chances = np.where(np.isin(np.arange(8), SMALL._positions(cohort, text(value))), high, low)
            law = [np.prod(np.where(pattern, chances, 1 - chances)) for pattern in itertools.product([0, 1], repeat=8)]
            codes = bits @ (1 << np.arange(7, -1, -1))
            observed = np.bincount(codes, minlength=256)
            assert stats.chisquare(observed, np.array(law) * len(bits)).pvalue > FALSE_ALARM
    repeated = [SMALL.simulate(["x", 1, None], insecure_seed=4) for _ in range(2)]
    assert np.array_equal(repeated[0].payloads, repeated[1].payloads)
    assert isinstance(repeated[0].event, events.Insecure)
    assert len(SMALL.simulate([])) == 0


def test_a_simulation_that_tells_the_truth_more_often_is_found(monkeypatch):
    monkeypatch.setattr(Rappor, "_lied", lambda self, truth, drawn: np.where(drawn < 8, True, truth))
    with pytest.raises(AssertionError):
        test_many_devices_at_once_report_like_single_ones()


def test_a_thousand_reports_reveal_the_permanent_response_and_no_more():
    """The mean of many reports tends to the permanent bits, which never change, and not to the truth."""
    client = SMALL.client()
    mean = np.mean([unpacked(SMALL, client("x")) for _ in range(1500)], axis=0)
    shown = mean > float(SMALL.one_if_zero + SMALL.one_if_one) / 2
    assert np.array_equal(shown, SMALL._permanent_bits(client, "x"))
    again = SMALL.client(client.key)
    assert np.array_equal(again._protocol._permanent_bits(again, "x"), shown)
    differing = sum(
        not np.array_equal(SMALL._permanent_bits(c, "x"), SMALL._permanent_bits(c, "y"))
        for c in (SMALL.client() for _ in range(20))
    )
    assert differing > 0


def test_the_server_finds_common_values_and_no_others():
    protocol = Rappor(bits=32, hashes=2, cohorts=4, lie=Fraction(1, 4))
    values = ["firefox"] * 2500 + ["chrome"] * 1500
    reports = protocol.simulate(values)
    absent = [f"absent{i}" for i in range(20)]
    estimate = protocol.estimate(reports, ["firefox", "chrome", *absent])
    assert estimate.found(1e-6)[:2] == ("firefox", "chrome")
    assert set(estimate.found(1e-6)) == {"firefox", "chrome"}
    assert abs(estimate.counts[0] - 2500) < 6 * estimate.standard_errors[0]
    assert (estimate.reports, estimate.rejected) == (4000, 0)


def test_foreign_and_malformed_reports_are_rejected_and_counted():
    good = [SMALL.client()("x") for _ in range(5)]
    other = Rappor(bits=8, hashes=1, cohorts=3).client()("x")
    bad = [b"", good[0][:-1], other, good[0][:5] + b"\xff\xff\x00"]
    estimate = SMALL.estimate([*good, *bad], ["x"])
    assert (estimate.reports, estimate.rejected) == (5, 4)
    with pytest.raises(InvalidArgument, match="candidates must be distinct"):
        SMALL.estimate(good, ["x", "x"])
    with pytest.raises(InvalidArgument, match="reports must hold a valid one"):
        SMALL.estimate(bad, ["x"])


def test_bad_parameters_are_refused():
    for changes in (
        {"bits": 4},
        {"hashes": 0},
        {"hashes": 17},
        {"lie": Fraction(1, 3)},
        {"lie": 0},
        {"one_if_one": Fraction(1, 2)},
        {"one_if_zero": 1},
    ):
        with pytest.raises(InvalidArgument):
            Rappor(**changes)
    with pytest.raises(InvalidArgument, match="key must have 32 bytes"):
        SMALL.client(b"short")


def test_the_key_is_not_shown():
    client = SMALL.client()
    assert client.key.hex() not in repr(client)
    assert repr(client.key) not in repr(client)
