"""An attestation is chained beside the charges, changes no total, and any edit of it is found."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import pytest

import discreet as dp
from discreet import events as ev
from discreet.attestation import Attestation
from discreet.errors import InvalidArgument, NotALedger

FOUND = Attestation(
    subject="the count of visits",
    claim="1-DP",
    verdict="no violation found; 13% less noise would have been seen with probability 99.9% on the pairs tested",
    violated=False,
    method="threshold; assumes that runs are independent",
    epsilon_lower=0.89,
    delta=0.0,
    alpha=1e-6,
    missing_noise=0.13,
    probability=0.999,
    samples=18_000,
    pairs=1,
)


@pytest.fixture
def census(place):
    with dp.Ledger(place.location) as ledger:
        account = ledger.account("census", budget=dp.PureDP(8.0))
        account.spend(ev.Laplace(4.0), purpose="ages")
        yield ledger, account


def test_it_costs_nothing_and_stays_in_the_chain(census):
    ledger, account = census
    before = account.statement(), account.summary()
    anchor = account.attest(FOUND)
    assert (account.statement(), account.summary()) == before
    assert (anchor.account, anchor.sequence) == ("census", 2)
    receipt = account.spend(ev.Laplace(4.0), purpose="hours")
    assert receipt.entry.previous == anchor.hash
    [(entry, kept)] = account.attestations()
    assert kept == FOUND
    assert (entry.kind, entry.event, entry.change, entry.purpose) == ("attest", None, (), "the count of visits")
    assert ledger.verify([receipt]), str(ledger.verify())
    assert len(account.statement().lines) == 2


def test_it_is_read_again_by_another_process(place, census):
    _, account = census
    account.attest(FOUND)
    with dp.Ledger(place.location, create=False) as again:
        assert [kept for _, kept in again.account("census").attestations()] == [FOUND]


def test_a_sub_account_attests_for_itself(census):
    ledger, account = census
    ann = account.allot("ann", dp.PureDP(1.0))
    ann.attest(FOUND)
    assert not account.attestations()
    assert len(ann.attestations()) == 1
    assert ledger.verify()


def test_an_edited_attestation_is_found(tmp_path):
    path = tmp_path / "census.ledger"
    with dp.Ledger(path) as ledger:
        ledger.account("census", budget=dp.PureDP(8.0)).attest(replace(FOUND, verdict="violation: …", violated=True))
    edit = "UPDATE discreet_entry SET body = replace(body, ?, ?) WHERE sequence = 1"
    with sqlite3.connect(path) as connection:
        connection.execute(edit, ('violated\\":true', 'violated\\":false'))
    connection.close()
    with dp.Ledger(path) as ledger:
        verification = ledger.verify()
    assert not verification
    assert verification.sequence == 1


@pytest.mark.parametrize("missing", [None, 0.13])
def test_an_attestation_is_its_text(missing):
    attestation = replace(FOUND, missing_noise=missing, epsilon_lower=float("inf"))
    assert Attestation.of_text(attestation.text()) == attestation


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        FOUND.text().replace('"pairs":1', '"pairs":"1"'),
        FOUND.text().replace('"pairs":1,', '"pairs":1, '),
        FOUND.text().replace('"violated":false', '"violated":0'),
        FOUND.text().replace('"subject":"the count of visits"', '"subject":""'),
    ],
)
def test_any_other_text_is_refused(text):
    with pytest.raises(NotALedger):
        Attestation.of_text(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("subject", ""),
        ("subject", "a\0b"),
        ("verdict", "x" * 2001),
        ("claim", "\ud800"),
        ("alpha", float("nan")),
        ("epsilon_lower", -1.0),
        ("samples", -1),
        ("violated", 1),
    ],
)
def test_bad_fields_are_refused(field, value):
    with pytest.raises(InvalidArgument, match=field):
        replace(FOUND, **{field: value})


def test_only_attestations_are_attested(census):
    _, account = census
    with pytest.raises(InvalidArgument, match="attestation must be an Attestation"):
        account.attest("private")
    assert len(account.history()) == 2
