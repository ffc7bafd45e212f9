"""Statements read what is new, show what a fresh process would show, and trust nothing but the chain."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import discreet as dp
from discreet import events as ev
from discreet.errors import NotALedger
from discreet.ledger import chain, history
from discreet.ledger.chain import Entry, Origin
from discreet.ledger.stores import records
from discreet.neighbors import ADD_REMOVE, Neighbors, Person, Rows

BUDGET = dp.ApproxDP(3.0, 1e-6)
COUNT = ev.DiscreteLaplace(1, Fraction(200))
STEPS = ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(4.0)), 20)


def afresh(location):
    """The statement of a process that has read nothing before."""
    with dp.Ledger(location, create=False) as ledger:
        return ledger.account("a").statement()


def test_a_statement_in_between_is_that_of_a_fresh_ledger(place):
    with dp.Ledger(place.location) as ledger, dp.Ledger(place.location) as other:
        account = ledger.account("a", budget=BUDGET)
        ann = account.allot("ann", dp.ApproxDP(1.0, 1e-6))
        elsewhere = other.account("a")

        def finish():
            reservation = elsewhere.reserve(STEPS, key="training")
            reservation.start_block(5)
            reservation.close()

        for act in (
            lambda: account.spend(COUNT, purpose="one"),
            lambda: elsewhere.spend(ev.Gaussian(30.0), purpose="two"),
            lambda: ann.spend(COUNT, purpose='",\n"change":[]'),
            finish,
            lambda: account.spend(ev.Laplace(50.0)),
            lambda: None,
        ):
            act()
            assert account.statement() == afresh(place.location)
            assert account.summary().charges == len(account.statement().lines)
            assert account.summary().room == account.statement().room


def test_charges_that_were_read_are_not_read_again(new_sqlite, monkeypatch):
    with dp.Ledger(new_sqlite().location) as ledger:
        account = ledger.account("a", budget=BUDGET)
        for _ in range(5):
            account.spend(COUNT)
        account.statement()
        read = []
        of_body = Entry.of_body.__func__
        monkeypatch.setattr(Entry, "of_body", classmethod(lambda cls, body: read.append(body) or of_body(cls, body)))
        first = account.statement()
        assert read == []
        account.spend(COUNT, purpose="new")
        assert len(account.statement().lines) == 6
        assert len(read) == 1
        assert account.statement(delta=1e-9).tight.upper > first.tight.upper


@pytest.mark.parametrize("wrong", ["head", "sequence"])
def test_what_does_not_lead_to_the_account_is_read_again(new_sqlite, wrong):
    # Trusting a shorter history without following the chain from its hash would show charges that are not there.
    with dp.Ledger(new_sqlite().location) as ledger:
        account = ledger.account("a", budget=BUDGET)
        account.spend(COUNT)
        before = account._backend
        account.statement()
        kept = before.histories.get("a")
        account.spend(ev.Gaussian(50.0))
        line = replace(kept.lines[0], purpose="never charged")
        forged = replace(kept, lines=(line,), **{wrong: "f" * 64 if wrong == "head" else kept.sequence - 1})

        def work(transaction):
            row = records.existing(transaction, "a")
            return history.read(transaction, row, account._terms, forged)

        found = before.read(work)
        assert [each.purpose for each in found.lines] == ["", ""]
        assert found.head == before.read(lambda transaction: records.existing(transaction, "a")).head


def test_an_edited_row_is_shown_as_it_is_and_never_kept(new_sqlite):
    place = new_sqlite()
    with dp.Ledger(place.location) as ledger:
        account = ledger.account("a", budget=BUDGET)
        account.spend(COUNT, purpose="honest")
        store = account._backend.store
        store.write(
            lambda transaction: transaction.run(
                "UPDATE discreet_entry SET body = REPLACE(body, 'honest', 'edited') WHERE sequence = 1"
            )
        )
        assert [line.purpose for line in account.statement().lines] == ["edited"]
        assert account._backend.histories.get("a") is None
        assert not ledger.verify()


def test_kept_histories_are_bounded(monkeypatch):
    monkeypatch.setattr(history, "_MOST_LINES", 3)
    kept = history.HistoryCache()
    line = history.StatementLine(1, "", "a", "spend", "", COUNT, dp.PureDP(1.0), 0.1)
    for name in "abc":
        kept.put(name, history.AccountHistory(2, "x", (line, line)))
    assert [kept.get(name) is None for name in "abc"] == [True, True, False]


WORDS = ['"', ",", ":", "{", "}", "[", "\\", "\n", "change", "key", "neighbors", "origin", "event", "null"]
NASTY = st.lists(st.sampled_from(WORDS)).map("".join)


@given(purpose=NASTY, key=st.none() | NASTY, column=NASTY.filter(bool))
def test_an_entry_is_read_as_it_was_written_whatever_its_words(purpose, key, column):
    entry = Entry(
        account="a",
        sequence=3,
        kind="spend",
        time="2026-01-01T00:00:00.000000+00:00",
        neighbors=Neighbors(ADD_REMOVE, Person(column, 2)),
        previous="0" * 64,
        event=COUNT,
        change=(Fraction(1, 3), None),
        purpose=purpose,
        key=key,
        origin=Origin("a/b", 2, "1" * 64),
        above=(("top", 4),),
    )
    body = entry.body()
    assert Entry.of_body(body) == entry
    # The same members in another order are parsed as a whole, to the same entry.
    members = list(json.loads(body).items())
    assert Entry.of_body(json.dumps(dict(members[::-1]))) == entry


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body.replace('"change":', '"change":[],"change":'),
        lambda body: body.replace(',"key":', ',"event":null,"key":'),
        lambda body: body.replace('"kind":"spend"', '"kind":"gift"'),
        lambda body: body.replace('"neighbors":', '"other":1,"neighbors":'),
        lambda body: body.replace('"change":', '"change":1.5,"x":'),
        lambda body: body[:-1],
    ],
)
def test_a_damaged_entry_is_refused_on_either_path(damage):
    entry = Entry("a", 1, "spend", "", Neighbors(ADD_REMOVE, Rows()), "0" * 64, COUNT, (Fraction(1, 2),))
    assert Entry.of_body(entry.body()) == entry
    with pytest.raises(NotALedger):
        Entry.of_body(damage(entry.body()))


def test_equal_charges_are_one_object():
    entry = Entry("a", 1, "spend", "", Neighbors(ADD_REMOVE, Rows()), "0" * 64, COUNT, (Fraction(1, 2),))
    first, second = (Entry.of_body(replace(entry, sequence=number).body()) for number in (1, 2))
    assert first.change is second.change
    assert first.event is second.event
    assert chain._charge.cache_info().maxsize == 4096
