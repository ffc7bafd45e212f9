"""Verification finds every edit, deletion and change of order, and says where; edited files are refused as they are."""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import shutil
import sqlite3
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import discreet as dp
from discreet import events as ev
from discreet.accounting.adaptive import budgets
from discreet.codec import canonical, parse
from discreet.errors import DiscreetError, LedgerError, NotALedger
from discreet.ledger.chain import Entry, digest, seal
from discreet.ledger.stores import schema
from discreet.ledger.terms import Terms
from discreet.neighbors import ADD_REMOVE, Neighbors
from discreet.numeric.texts import sum_text, sum_value
from tests.ledger.faults import forget


@pytest.fixture
def ledger(place):
    with dp.Ledger(place.location) as opened:
        census = opened.account("census", budget=dp.PureDP(8.0))
        for purpose in ("ages", "hours", "wages", "towns"):
            census.spend(ev.Laplace(4.0), purpose=purpose, key=purpose.upper())
        ann = census.allot("ann", dp.PureDP(2.0))  # row 5
        ann.spend(ev.Laplace(8.0), purpose="model")  # row 6
        plan = ann.reserve(ev.Repeated(ev.Laplace(100.0), 50), key="plan")  # row 7
        plan.start_block(20)
        plan.close()  # row 8
        yield opened


def test_an_untouched_ledger_agrees_with_itself(ledger):
    verification = ledger.verify()
    assert verification
    assert verification.entries == 9 + 5
    assert "14 entries of 2 accounts agree" in str(verification)


MID = "account = 'census' AND sequence = 2"
TAMPERING = {
    "edited text": (f"UPDATE discreet_entry SET body = replace(body, 'hours', 'hourz') WHERE {MID}", "census", 2),
    "edited price": (f"UPDATE discreet_entry SET body = replace(body, '1/2^2', '1/2^3') WHERE {MID}", "census", 2),
    "edited hash": (
        f"UPDATE discreet_entry SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE {MID}",
        "census",
        2,
    ),
    "edited key": (f"UPDATE discreet_entry SET key = 'other' WHERE {MID}", "census", 2),
    "removed key": (f"UPDATE discreet_entry SET key = NULL WHERE {MID}", "census", 2),
    "deleted": (f"DELETE FROM discreet_entry WHERE {MID}", "census", 2),
    "deleted first": ("DELETE FROM discreet_entry WHERE account = 'census' AND sequence = 0", "census", 0),
    "deleted last": ("DELETE FROM discreet_entry WHERE account = 'census' AND sequence = 8", "census", 8),
    "moved to the end": (f"UPDATE discreet_entry SET sequence = 9 WHERE {MID}", "census", 2),
    "moved to the front": (f"UPDATE discreet_entry SET sequence = -1 WHERE {MID}", "census", 0),
    "part's row deleted": ("DELETE FROM discreet_entry WHERE account = 'census/ann' AND sequence = 3", "census/ann", 3),
    "totals": ("UPDATE discreet_account SET state = replace(state, '/', '0/') WHERE name = 'census'", "census", None),
    "head": ("UPDATE discreet_account SET head = seal WHERE name = 'census'", "census", 8),
    "sequence": ("UPDATE discreet_account SET sequence = 7 WHERE name = 'census'", "census", 9),
    "seal": ("UPDATE discreet_account SET seal = head WHERE name = 'census'", "census", None),
    "terms": ("UPDATE discreet_account SET terms = replace(terms, 'p+3', 'p+9') WHERE name = 'census'", "census", 0),
    "parent": ("UPDATE discreet_account SET parent = NULL WHERE name = 'census/ann'", "census/ann", None),
}


@pytest.mark.parametrize("kind", TAMPERING)
def test_tampering_is_found_where_it_was_done(ledger, place, kind):
    statement, account, sequence = TAMPERING[kind]
    place.execute(statement)
    found = ledger.verify()
    assert not found
    assert (found.account, found.sequence) == (account, sequence), str(found)
    assert account in str(found)


@pytest.mark.parametrize("kind", ["totals", "head", "sequence", "seal", "terms"])
def test_nothing_is_charged_to_an_account_whose_row_was_edited(ledger, place, kind):
    census = ledger.account("census")
    place.execute(TAMPERING[kind][0])
    before = place.query("SELECT COUNT(*) FROM discreet_entry")
    for attempt in (
        lambda: census.spend(ev.Laplace(100.0)),
        lambda: ledger.account("census"),
        census.remaining,
        lambda: census.would_afford(ev.Laplace(100.0)),
        census.statement,
        lambda: census.allot("bob", dp.PureDP(1.0)),
    ):
        with pytest.raises(NotALedger, match="edited"):
            attempt()
    assert place.query("SELECT COUNT(*) FROM discreet_entry") == before


def rewrite(place, account, change):
    """Do what someone with write access can do: edit entries, and recompute every hash, total and seal."""
    rows = place.query(f"SELECT sequence, body FROM discreet_entry WHERE account = '{account}' ORDER BY sequence")
    [(parent, terms, state)] = place.query(
        f"SELECT parent, terms, state FROM discreet_account WHERE name = '{account}'"
    )
    previous, statements, total = "0" * 64, [], Fraction(0)
    for sequence, body in rows:
        value = change(sequence, parse(body))
        if value is None:
            statements.append(f"DELETE FROM discreet_entry WHERE account = '{account}' AND sequence = {sequence}")
            continue
        value["previous"] = previous
        total += sum(sum_value(part) for part in value["change"])
        text = canonical(value)
        previous, last = digest(text), sequence
        statements.append(
            f"UPDATE discreet_entry SET body = '{text}', hash = '{previous}', sequence = {value['sequence']} "
            f"WHERE account = '{account}' AND sequence = {sequence}"
        )
    state = canonical({"claimed": "0/1", "spent": [sum_text(total)]})
    sealed = seal(account, parent, terms, state, last, previous)
    statements.append(
        f"UPDATE discreet_account SET head = '{previous}', state = '{state}', seal = '{sealed}', sequence = {last} "
        f"WHERE name = '{account}'"
    )
    place.execute(*statements)


def test_a_rewritten_chain_with_a_lower_price_is_found_by_pricing_again(ledger, place):
    def cheaper(sequence, value):
        return {**value, "change": ["1/2^3"]} if sequence == 2 else value

    rewrite(place, "census", cheaper)
    found = ledger.verify()
    assert (found.sequence, "below what the event costs" in found.problem) == (2, True), str(found)


def test_a_rewritten_chain_that_charged_too_much_is_found(ledger, place):
    """Someone who writes entries without asking the filter leaves a total that never fitted."""

    def costlier(sequence, value):
        return {**value, "change": ["9/1"]} if sequence == 3 else value

    rewrite(place, "census", costlier)
    assert "did not fit" in ledger.verify().problem


def test_a_rewritten_part_disagrees_with_the_whole(ledger, place):
    rewrite(place, "census/ann", lambda sequence, value: {**value, "purpose": "other"})
    found = ledger.verify()
    assert "disagree" in found.problem


def test_a_reservation_cannot_be_rewritten_to_hand_back_more(ledger, place):
    def greedy(sequence, value):
        return {**value, "change": ["-1/2^1"]} if value["kind"] == "close" else value

    rewrite(place, "census/ann", greedy)
    assert "handed back" in ledger.verify().problem


def test_a_step_counter_cannot_be_turned_back(ledger, place):
    rewrite(place, "census/ann", lambda _, value: {**value, "steps": 1} if value["kind"] == "start" else value)
    assert "never started" in ledger.verify().problem


RAISED = {
    "pure": (dp.PureDP(1.0), 0.0),
    "zcdp": (dp.ZCDP(0.5), 0.0),
    "gdp": (dp.GDP(1.0), 0.0),
    "rdp": (dp.RDP((2.0, 8.0), (0.5, 1.0)), 0.0),
    "approximate": (dp.ApproxDP(1.0, 1e-6), 0.0),
    "with aside": (dp.ApproxDP(1.0, 1e-6), 1e-7),
}
EDITS = {
    "limits": lambda terms: {**terms, "limits": [sum_text(40 * abs(sum_value(x)) + 1) for x in terms["limits"]]},
    "one limit": lambda terms: {**terms, "limits": [*terms["limits"][:-1], "40/1"]},
    "slightly": lambda terms: {
        **terms,
        "limits": [sum_text(sum_value(x) + Fraction(1, 10**9)) for x in terms["limits"]],
    },
    "another order": lambda terms: {
        **terms,
        "orders": [*terms["orders"], (2.5).hex()],
        "limits": [*terms["limits"], "40/1"],
    },
    "no orders": lambda terms: {**terms, "orders": [], "limits": ["40/1"]},
    "an order twice": lambda terms: (
        {**terms, "orders": [terms["orders"][0]] * len(terms["limits"])}
        if terms["orders"]
        else {**terms, "limits": ["2/1"]}
    ),
    "more aside": lambda terms: {**terms, "aside": "1/2^1"},
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("kind", RAISED)
def test_limits_that_were_raised_are_refused_even_if_every_hash_was_computed_again(new_sqlite, kind, edit):
    place, (budget, aside) = new_sqlite(), RAISED[kind]
    with dp.Ledger(place.location) as ledger:
        ledger.account("census", budget=budget, aside=aside)
        assert ledger.verify()
    [(terms,)] = place.query("SELECT terms FROM discreet_account")
    raised = canonical(EDITS[edit](parse(terms)))
    assert raised != terms
    [(body,)] = place.query("SELECT body FROM discreet_entry")
    body = canonical({**parse(body), "terms": raised})
    spent = ["0/1"] * len(parse(raised)["limits"])
    state = canonical({"claimed": "0/1", "spent": spent})
    sealed = seal("census", None, raised, state, 0, digest(body))
    place.execute(
        f"UPDATE discreet_entry SET body = '{body}', hash = '{digest(body)}'",
        f"UPDATE discreet_account SET terms = '{raised}', state = '{state}', head = '{digest(body)}', "
        f"seal = '{sealed}'",
    )
    copied = shutil.copy(place.location, f"{place.location}-edited")  # a file that this process has not seen before
    with dp.Ledger(copied, create=False) as ledger:
        for attempt in (lambda: ledger.account("census"), lambda: ledger.account("census", budget), ledger.accounts):
            with pytest.raises(NotALedger, match="limits of account 'census' are not those of its budget"):
                attempt()
        found = ledger.verify()
        assert (found.account, "limits" in found.problem) == ("census", True), str(found)


@pytest.mark.parametrize("kind", RAISED)
def test_limits_are_compared_at_the_orders_that_are_stored_with_them(monkeypatch, kind):
    """A later version that chooses other orders still accepts an account of today, and one with smaller limits."""
    budget, aside = RAISED[kind]
    terms = Terms.start("census", None, budget, Neighbors(ADD_REMOVE, dp.rows()), aside)
    monkeypatch.setattr(budgets, "default_orders", lambda epsilon, delta: (3.5, 77.0))
    assert Terms.of_text(terms.text()) == terms
    smaller = replace(terms, limits=tuple(limit - Fraction(1, 100) for limit in terms.limits))
    assert Terms.of_text(smaller.text()) == smaller


def test_limits_of_another_processor_may_differ_in_their_last_digit():
    terms = Terms.start("census", None, dp.ApproxDP(1.0, 1e-6), Neighbors(ADD_REMOVE, dp.rows()))
    above = replace(terms, limits=tuple(Fraction(math.nextafter(float(limit), math.inf)) for limit in terms.limits))
    assert Terms.of_text(above.text()) == above


def test_a_receipt_kept_elsewhere_shows_a_rewritten_or_shortened_history(ledger, place):
    census = ledger.account("census")
    last = census.spend(ev.Laplace(50.0), purpose="last")
    receipts = [last, last.to_json()]
    assert ledger.verify(receipts)
    rewrite(place, "census", lambda sequence, value: None if sequence == last.sequence else value)
    found = ledger.verify()  # this process saw the row without keeping its receipt
    assert (found.account, found.sequence, "older copy" in found.problem) == ("census", last.sequence, True)
    forget()
    assert ledger.verify()  # consistent in itself
    for receipt in receipts:
        found = ledger.verify([receipt])
        assert (found.account, found.sequence) == ("census", last.sequence)
    again = census.spend(ev.Laplace(50.0), purpose="another")
    assert again.sequence == last.sequence
    assert "rewritten" in ledger.verify([last]).problem


def test_a_receipt_that_was_edited_is_not_a_receipt(ledger):
    text = ledger.account("census").spend(ev.Laplace(50.0)).to_json()
    with pytest.raises(NotALedger):
        ledger.verify([text.replace("Laplace", "Gauss").replace("laplace", "gaussian")])


def test_entries_are_their_own_text(ledger):
    for account in ledger.accounts():
        for entry in account.history():
            assert Entry.of_body(entry.body()) == entry
            assert entry.body() == canonical(parse(entry.body()))


# --- schema


def test_a_newer_schema_is_refused_when_opened_and_when_in_use(ledger, place):
    census = ledger.account("census")
    place.execute("INSERT INTO discreet_schema (number) VALUES (99)")
    with pytest.raises(NotALedger, match="schema 99"):
        dp.Ledger(place.location)
    with pytest.raises(NotALedger, match="schema 99"):
        census.spend(ev.Laplace(100.0))
    place.execute("DELETE FROM discreet_schema WHERE number = 99")
    assert ledger.verify()


def test_missing_steps_of_the_schema_are_taken_when_opened(ledger, place, monkeypatch):
    more = (*schema.MIGRATIONS, ("CREATE TABLE discreet_more (x TEXT)", "INSERT INTO discreet_more VALUES ('here')"))
    with monkeypatch.context() as patched:
        patched.setattr(schema, "MIGRATIONS", more)
        for _ in range(2):
            with dp.Ledger(place.location) as newer:
                assert newer.verify()
        assert place.query("SELECT * FROM discreet_more") == [("here",)]
    with pytest.raises(NotALedger, match="schema 2"):
        dp.Ledger(place.location)


def test_a_step_of_the_schema_that_fails_leaves_the_old_one(ledger, place, monkeypatch):
    with monkeypatch.context() as patched:
        broken = (*schema.MIGRATIONS, ("CREATE TABLE discreet_more (x TEXT)", "INSERT INTO nowhere VALUES (1)"))
        patched.setattr(schema, "MIGRATIONS", broken)
        with pytest.raises(LedgerError):
            dp.Ledger(place.location)
    with dp.Ledger(place.location) as again:
        assert again.verify()


# --- rows that are missing or of another type


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM discreet_account WHERE name = 'census'",
        "UPDATE discreet_entry SET account = 'ghost' WHERE sequence = 1",
        "UPDATE discreet_entry SET body = CAST(body AS BLOB) WHERE sequence = 1",
        "UPDATE discreet_account SET terms = CAST(terms AS BLOB)",
        "DROP TABLE discreet_entry",
    ],
)
def test_verify_finds_what_is_missing_or_of_another_type(new_sqlite, edit):
    place = new_sqlite()
    with dp.Ledger(place.location) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).spend(ev.Laplace(10.0))
        place.execute(edit)
        assert not ledger.verify()


def test_an_account_that_vanished_affords_nothing(new_sqlite):
    place = new_sqlite()
    with dp.Ledger(place.location) as ledger:
        account = ledger.account("census", budget=dp.PureDP(1.0))
        place.execute("DELETE FROM discreet_account")
        event = ev.Laplace(10.0)
        for attempt in (account.remaining, lambda: account.would_afford(event), lambda: account.spend(event)):
            with pytest.raises(DiscreetError):
                attempt()


# --- files


@pytest.fixture
def file(new_sqlite):
    path = Path(new_sqlite().location)
    with dp.Ledger(path) as ledger:
        census = ledger.account("census", budget=dp.PureDP(8.0))
        for number in range(40):
            census.spend(ev.Laplace(100.0), purpose=f"question {number}")
    return path


def fingerprint(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 511, 4096, 8192, 0.5, -4096, -1])
def test_a_truncated_file_is_refused_and_left_as_it_is(file, keep):
    intact = file.read_bytes()
    length = int(keep * len(intact)) if isinstance(keep, float) else keep if keep >= 0 else len(intact) + keep
    file.write_bytes(intact[:length])
    before = fingerprint(file)
    with pytest.raises(NotALedger, match=r"untouched|left as it is"):
        dp.Ledger(file).account("census")
    assert fingerprint(file) == before


def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path):
    text, database, folder, named = (tmp_path / name for name in ("a.txt", "b.sqlite", "folder", "c.sqlite"))
    text.write_text("name,age\n" * 1000)
    for path, statement in ((database, "CREATE TABLE t (x)"), (named, "PRAGMA application_id = 1146309703")):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
            connection.execute("CREATE TABLE u (x)")
            connection.commit()
    folder.mkdir()
    for path in (text, database, named):
        before = fingerprint(path)
        with pytest.raises(NotALedger):
            dp.Ledger(path)
        assert fingerprint(path) == before
    with pytest.raises(LedgerError):
        dp.Ledger(folder)
    with pytest.raises(LedgerError):
        dp.Ledger(tmp_path / "missing" / "x.ledger")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "b.sqlite", "c.sqlite", "folder"]


def test_a_byte_that_changed_is_seen_or_changes_nothing(file):
    intact = bytearray(file.read_bytes())
    with dp.Ledger(file) as ledger:
        truth = ledger.account("census").history()
    generator = random.Random(7)
    seen = 0
    for _ in range(60):
        changed = intact.copy()
        changed[generator.randrange(len(intact))] ^= 1 << generator.randrange(8)
        file.write_bytes(changed)
        try:
            with dp.Ledger(file) as ledger:
                found = ledger.verify()
                if found:
                    assert ledger.account("census").history() == truth
                else:
                    seen += 1
        except DiscreetError:
            seen += 1
        for beside in file.parent.glob(f"{file.name}-*"):
            beside.unlink()
    assert seen > 20
