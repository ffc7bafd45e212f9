"""Caches: they never stand in for what is stored, and give the same texts and totals."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import discreet as dp
from discreet import events as ev
from discreet.errors import BudgetExceeded, NotALedger
from discreet.ledger.stores import records, session, sqlite
from discreet.ledger.stores.base import no_step
from discreet.ledger.stores.sqlite import SQLiteStore
from discreet.ledger.totals import Amounts, Denominators, Totals, settled
from tests.ledger.faults import hooked

TENTH = ev.Laplace(10.0)


def take_turns(location):
    """Two connections, each of which knows what it wrote itself."""
    with dp.Ledger(location) as one, dp.Ledger(location) as two:
        accounts = one.account("c", budget=dp.PureDP(1.0)), two.account("c", budget=dp.PureDP(1.0))
        for turn in (0, 0, 1, 1, 0, 1, 0, 0):
            accounts[turn].spend(TENTH)
        for turn in (1, 0):
            accounts[turn].spend(TENTH)
        for account in accounts:
            with pytest.raises(BudgetExceeded):
                account.spend(TENTH)
        assert [entry.sequence for entry in accounts[0].history()] == list(range(11))
        assert one.verify()


def test_a_row_that_another_connection_changed_is_read_again(place):
    take_turns(place.location)


def test_trusting_rows_that_were_written_here_forever_would_be_noticed(new_sqlite, monkeypatch):
    begin = SQLiteStore._begin

    def trusting(self, connection):
        current = getattr(connection, "current", {})
        begin(self, connection)
        connection.current = current

    monkeypatch.setattr(SQLiteStore, "_begin", trusting)
    with pytest.raises((NotALedger, AssertionError)):
        take_turns(new_sqlite().location)


def test_a_spend_that_was_rolled_back_is_not_remembered(place):
    class Broken(Exception):
        pass

    with dp.Ledger(place.location) as ledger:
        account = ledger.account("c", budget=dp.PureDP(1.0))
        account.spend(TENTH)

        def fail(name):
            if name == "recorded":
                raise Broken

        hooked(ledger, fail)
        with pytest.raises(Broken):
            account.spend(TENTH)
        hooked(ledger, no_step)
        assert account.spend(TENTH).sequence == 2
        assert ledger.verify()


def test_a_refused_spend_leaves_what_is_known_as_it_was(place):
    with dp.Ledger(place.location) as ledger:
        account = ledger.account("c", budget=dp.PureDP(1.0))
        for sequence in (1, 2):
            assert account.spend(TENTH).sequence == sequence
            with pytest.raises(BudgetExceeded):
                account.spend(ev.Laplace(1.0))
        assert ledger.verify()


def test_no_more_rows_are_remembered_than_are_needed(new_sqlite, monkeypatch):
    monkeypatch.setattr(records, "_MOST_CHECKED", 3)
    monkeypatch.setattr(sqlite, "_MOST_CURRENT", 3)
    with dp.Ledger(new_sqlite().location) as ledger:
        accounts = [ledger.account(f"c{number}", budget=dp.PureDP(1.0)) for number in range(9)]
        for sequence in (1, 2):
            for account in accounts:
                assert account.spend(TENTH).sequence == sequence
        assert 1 <= len(records._checked) <= 3
        [connection] = ledger._backend.store._pool._free
        assert 1 <= len(connection.current) <= 4
        assert ledger.verify()


# --- texts


def test_what_a_receipt_says_is_what_is_stored(place):
    with dp.Ledger(place.location) as ledger:
        census = ledger.account('cén"sus\\', budget=dp.ApproxDP(3.0, 1e-6), aside=1e-7)
        part = census.allot("änn", dp.ApproxDP(2.0, 1e-6), aside=1e-7)
        plan = ev.Repeated(ev.Gaussian(500.0), 7)
        receipts = [
            census.spend(ev.Gaussian(100.0)),
            census.spend(ev.Gaussian(100.0), purpose='"quoted", ünd\n\\ more ', key='k"1'),
            census.spend(ev.Claimed(0.01, 1e-9), purpose="claimed"),
            part.spend(ev.Composed((ev.Gaussian(100.0), ev.Laplace(400.0)))),
            part.reserve(plan, key="plan").receipt,
            part.reserve(plan, key="plan").close(),
            part.reserve(plan, key="plan").receipt,
        ]
        assert [receipt.replayed for receipt in receipts] == [False] * 6 + [True]
        stored = dict(place.query("SELECT hash, body FROM discreet_entry"))
        for receipt in receipts:
            assert stored[receipt.hash] == receipt.body == receipt.entry.body()
            assert (receipt.account, receipt.sequence) == (receipt.entry.account, receipt.entry.sequence)
            assert (receipt.event, receipt.key) == (receipt.entry.event, receipt.entry.key)
        assert ledger.verify(receipts)


def test_a_timestamp_is_the_one_that_isoformat_writes(new_sqlite):
    with dp.Ledger(new_sqlite().location) as ledger:
        before = datetime.now().astimezone()
        texts = [ledger._backend.timestamp() for _ in range(50)]
        after = datetime.now().astimezone()
        for text in texts:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", text)
            assert datetime.fromisoformat(text).isoformat(timespec="microseconds") == text
            assert before <= datetime.fromisoformat(text) <= after


# --- totals

AMOUNTS = st.one_of(
    st.floats(0, 4, allow_nan=False).map(Fraction),
    st.floats(0, 1e-300, allow_nan=False).map(Fraction),
    st.fractions(0, 2, max_denominator=50),
    st.just(Fraction(1, 2**1300)),
    st.just(Fraction(0)),
    st.none(),
)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=12))
def test_totals_are_the_same_whether_they_were_read_or_kept(prices, spends):
    known = [Amounts(price) for price in prices]
    kept = read = Totals.of_ratios([(0, 1), (0, 1)], Fraction(0))
    exact: list[Fraction | None] = [Fraction(0), Fraction(0)]
    for choice in spends:
        price = known[choice % len(known)]
        kept = kept.changed(price, Fraction(0))
        read = Totals.of_text(read.text()).changed(tuple(price), Fraction(0))
        exact = [
            None if old is None or new is None else Fraction(*settled((old + new).as_integer_ratio()))
            for old, new in zip(exact, price, strict=True)
        ]
        assert kept.text() == read.text()
        assert kept.spent == read.spent == tuple(exact)


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_price_is_over_the_denominators_asked_for_whatever_another_thread_asks_meanwhile(looks):
    coarse, fine = Denominators([4]), Denominators([1024])

    class Shared(Amounts):
        """A price whose cache another thread changes after some looks at it."""

        left, kept = 0, None

        @property
        def _last(self):
            found = self.kept
            self.left -= 1
            if self.left == 0:
                Amounts.over(self, fine)
            return found

        @_last.setter
        def _last(self, value):
            self.kept = value

    price = Shared([Fraction(1, 2)])
    assert price.over(coarse) == (2,)
    price.left = looks
    assert price.over(coarse) == (2,)
    assert price.over(fine) == (512,)


@pytest.mark.parametrize(
    "totals",
    [
        '"2/2^3"',  # not in lowest terms
        '"0/2^3"',
        '"3/2^0"',
        '"03/2^3"',
        '"3/2^03"',
        '"3/2^+3"',
        '"0x3/2^3"',
        '"F/2^3"',
        '"1_1/2^3"',
        '" 3/2^3"',
        '"٣/2^3"',
        '"3/2^99999"',
        '"3/2^-3"',
        '"2/4"',
        '"3/0"',
        '"/2^3"',
        "3/2^3",
        "3",
        "",
        "NaN",
        '"3/2^3",',
        '"3/2^3" ',
        '["3/2^3"]',
    ],
)
def test_totals_in_any_other_form_are_refused(totals):
    with pytest.raises(NotALedger):
        Totals.of_text(f'{{"claimed":"0/1","spent":[{totals}]}}')
    assert Totals.of_text('{"claimed":"0/1","spent":["3/2^3","5/1","1/3",null]}').spent == (
        Fraction(3, 8),
        Fraction(5),
        Fraction(1, 3),
        None,
    )


# --- files


def test_a_folder_is_at_rest_when_the_next_change_must_show():
    second = 10**9
    fine, coarse = 1_000 * second + 123_456_789, 1_000 * second
    assert not sqlite._settled(fine + second // 20, fine, fine)
    assert sqlite._settled(fine + second // 5, fine, fine)
    assert not sqlite._settled(coarse + second, coarse, coarse)
    assert not sqlite._settled(fine + second, coarse, fine)
    assert sqlite._settled(coarse + 3 * second, coarse, coarse)


# --- messages to a server


def test_an_interrupted_wait_for_the_server_charges_nothing(new_postgres, monkeypatch):
    with dp.Ledger(new_postgres().location) as ledger:
        account = ledger.account("c", budget=dp.PureDP(1.0))

        def interrupted(self, *, writes=False):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(session.PreparedConnection, "_wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                account.spend(TENTH)
        assert account.spend(TENTH).sequence == 1
        assert ledger.verify()


def test_a_statement_that_fails_ends_the_message_and_the_session_goes_on(new_postgres):
    import psycopg

    with dp.Ledger(new_postgres().location) as ledger:
        ledger.account("c", budget=dp.PureDP(1.0))
        found, epoch = ledger._backend.store._pool.take()
        twice = ("INSERT INTO discreet_schema (number) VALUES (?)", (1,))
        for _ in range(2):
            with pytest.raises(psycopg.errors.UniqueViolation):
                found.send([("BEGIN", ()), twice, ("DELETE FROM discreet_account", ()), ("COMMIT", ())])
            found.execute("ROLLBACK")
        assert found.send([("SELECT name, sequence, parent FROM discreet_account", ())]) == [("c", 0, None)]
        assert found.send([("SELECT ?::text, ?::bigint", ("ünd ' \\", 2**60)), ("SELECT 1", ())]) == [(1,)]
        assert found.send([("SELECT ?::text, ?::bigint", ("ünd ' \\", 2**60))]) == [("ünd ' \\", 2**60)]
        ledger._backend.store._pool.give_back(found, epoch)
        assert ledger.verify()
