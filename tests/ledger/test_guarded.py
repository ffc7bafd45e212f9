"""A role of PostgreSQL that can write to a ledger only through functions, and what it tries."""

from __future__ import annotations

import contextlib
import json
import random
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import BudgetExceeded, InvalidArgument, LedgerError
from discreet.ledger.access import Access, Policy, Role
from discreet.ledger.chain import digest
from discreet.ledger.stores.guarded import guard
from discreet.ledger.terms import Terms
from discreet.ledger.totals import Totals, price_text
from discreet.neighbors import ADD_REMOVE, Neighbors, Rows
from discreet.numeric.texts import sum_text
from tests.ledger.places import Place

psycopg = pytest.importorskip("psycopg")

EIGHTH = dp.events.Laplace(8.0)
BUDGETS = [
    dp.PureDP(1.0),
    dp.ApproxDP(1.0, 1e-6),
    dp.ZCDP(0.5),
    dp.GDP(1.0),
    dp.RDP((2.0, 8.0), (0.5, 1.0)),
]


@pytest.fixture
def place(new_postgres):
    """A guarded ledger as the server's role sees it, with an account and a part; `owner` is the steward's way in."""
    owner = new_postgres()
    name = owner.location.partition("?")[0].rpartition("/")[2]
    role = f"server_{name}"
    with dp.Ledger(owner.location) as ledger:
        ledger.account("census", budget=dp.PureDP(1.0)).allot("ada", dp.PureDP(0.5))
    with psycopg.connect(owner.location) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    guard(owner.location, role)
    yield Place(owner.location.replace("discreet@", f"{role}@"), owner.server), owner, role
    with psycopg.connect(owner.location) as connection:
        connection.execute(f"DROP OWNED BY {role}")
        connection.execute(f"DROP ROLE {role}")


def test_a_server_spends_reserves_allots_and_verifies_through_functions(place):
    server, owner, _ = place
    with dp.Ledger(server.location, create=False) as ledger:
        ada = ledger.account("census/ada")
        ada.spend(EIGHTH, purpose="ages", key="k")
        assert ada.spend(EIGHTH, purpose="ages", key="k").replayed
        plan = ada.reserve(dp.events.Repeated(dp.events.Laplace(100.0), 10), key="plan")
        plan.start_block(4)
        plan.close()
        ledger.account("census").allot("bob", dp.PureDP(0.25)).spend(EIGHTH)
        with pytest.raises(BudgetExceeded):
            ada.spend(dp.events.Laplace(1.0))
        access = Access(ledger)
        access.add_user("ada", Role.ANALYST)
        access.set_policy("census", Policy(frozen=True))
        assert ledger.verify()
    with dp.Ledger(owner.location, create=False) as ledger:
        assert ledger.verify()
        ledger.account("census").spend(EIGHTH)  # the owner writes as before


@pytest.mark.slow
def test_every_form_of_budget_is_spent_to_the_end_through_functions(place):
    server, _, _ = place
    with dp.Ledger(server.location) as ledger:
        for number, budget in enumerate(BUDGETS):
            account = ledger.account(f"form {number}", budget=budget)
            event = dp.events.Laplace(4.0) if number == 0 else dp.events.Gaussian(9.0)
            spent = 0
            while account.would_afford(event):
                account.spend(event)
                spent += 1
            assert spent > 0
            with pytest.raises(BudgetExceeded):
                account.spend(event)
        assert ledger.verify()


FORBIDDEN = {
    "totals": "UPDATE discreet_account SET state = '{}'",
    "any column": "UPDATE discreet_account SET parent = NULL",
    "a new account": "INSERT INTO discreet_account VALUES ('x', NULL, '{}', '{}', 0, '', '')",
    "a new entry": "INSERT INTO discreet_entry VALUES ('census', 99, NULL, NULL, '{}', '')",
    "an entry": "UPDATE discreet_entry SET body = '{}'",
    "deleted entries": "DELETE FROM discreet_entry",
    "deleted accounts": "DELETE FROM discreet_account",
    "emptied tables": "TRUNCATE discreet_entry",
    "no trigger": "ALTER TABLE discreet_entry DISABLE TRIGGER ALL",
    "a dropped table": "DROP TABLE discreet_entry CASCADE",
    "another function": "CREATE OR REPLACE FUNCTION discreet_price(change jsonb, claimed text) RETURNS boolean "
    "LANGUAGE sql AS 'SELECT true'",
    "a function in front": "CREATE FUNCTION discreet_price(change json, claimed text) RETURNS boolean LANGUAGE sql "
    "AS 'SELECT true'",
    "replication": "SET session_replication_role = replica",
    "the record of changes": "UPDATE discreet_access_change SET body = '{}'",
    "forgotten refusals": "DELETE FROM discreet_access_refusal",
    "a rolled back schema": "DELETE FROM discreet_schema",
}


def test_the_servers_role_cannot_write_by_other_means(place):
    server, _, _ = place
    with psycopg.connect(server.location, autocommit=True) as connection:
        for statement in FORBIDDEN.values():
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_function_of_its_own_in_a_temporary_schema_changes_nothing(place):
    """The search path of the functions is pinned, with the temporary schema last."""
    server, _, _ = place
    with psycopg.connect(server.location) as connection:
        connection.execute("CREATE TEMP TABLE discreet_account (LIKE discreet_account)")
        connection.execute(
            "CREATE FUNCTION pg_temp.discreet_price(change jsonb, claimed text) RETURNS boolean LANGUAGE sql "
            "AS 'SELECT true'"
        )
        connection.execute("SET search_path = pg_temp, public")
        with pytest.raises(psycopg.Error, match="does not allow"):
            connection.execute(*_append(server, change=["-1/1"], state="0/1"))


def _append(server: Place, account: str = "census", *, change, state, **changes):
    """A call of the function as a compromised server would make it, with a body of its choice."""
    [(terms, sequence, head)] = server.query(
        f"SELECT terms, sequence, head FROM discreet_account WHERE name='{account}'"
    )
    assert terms
    entry = {
        "above": [],
        "account": account,
        "change": change,
        "claimed": "0/1",
        "event": {"tag": "laplace", "noise_multiplier": "0x1.0000000000000p+3"},
        "key": None,
        "kind": "spend",
        "neighbors": {},
        "origin": None,
        "previous": head,
        "purpose": "",
        "reservation": None,
        "sequence": sequence + 1,
        "steps": None,
        "terms": None,
        "time": "",
    } | changes
    states = json.dumps({"claimed": "0/1", "spent": [state]})
    values = (account, entry["key"], entry["reservation"], json.dumps(entry), states)
    return "SELECT discreet_append(%s, %s, %s, %s, %s)", values


BAD_CALLS = {
    "a negative price": {"change": ["-1/2^3"], "state": "0/1"},
    "a total that stays": {"change": ["1/2^3"], "state": "0/1"},
    "a total above the limit": {"change": ["3/1"], "state": "3/1"},
    "a total that is infinite": {"change": [None], "state": None},
    "no price": {"change": [], "state": "0/1"},
    "two prices": {"change": ["0/1", "0/1"], "state": "0/1"},
    "no event": {"change": ["0/1"], "state": "0/1", "event": None},
    "another sequence": {"change": ["1/2^3"], "state": "1/2^3", "sequence": 7},
    "another previous": {"change": ["1/2^3"], "state": "1/2^3", "previous": "0" * 64},
    "a refund of nothing": {"change": ["-1/2^3"], "state": "0/1", "kind": "close", "reservation": 0},
    "a second opening": {"change": [], "state": "0/1", "kind": "open"},
    "a part of a partition": {"change": ["1/2^3"], "state": "1/2^3", "part": []},
    "not a number": {"change": ["1e9"], "state": "1/1"},
    "a denominator of zero": {"change": ["1/0"], "state": "1/1"},
    "a negative denominator": {"change": ["1/-2"], "state": "1/1"},
}


def test_the_functions_refuse_what_python_would_not_write(place):
    server, owner, _ = place
    before = owner.query("SELECT * FROM discreet_account ORDER BY name")
    with psycopg.connect(server.location, autocommit=True) as connection:
        for call in BAD_CALLS.values():
            with pytest.raises(psycopg.Error):
                connection.execute(*_append(server, **call))
    assert owner.query("SELECT * FROM discreet_account ORDER BY name") == before


def test_a_part_is_not_charged_without_the_account_above(place):
    server, _, _ = place
    with contextlib.closing(psycopg.connect(server.location)) as connection:
        connection.execute(*_append(server, "census/ada", change=["1/2^3"], state="1/2^3"))
        with pytest.raises(psycopg.Error, match="above was not charged"):
            connection.commit()
    with dp.Ledger(server.location, create=False) as ledger:
        assert ledger.verify()


def test_what_a_compromised_server_can_do_is_to_charge_too_little_and_verify_finds_it(place):
    """The limit of this protection, as the threat table states it."""
    server, owner, _ = place
    with psycopg.connect(server.location) as connection:
        call = _append(server, change=["1/2^30"], state="1/2^30", neighbors=json.loads(_neighbors(owner)))
        connection.execute(*call)
    with dp.Ledger(owner.location, create=False) as ledger:
        verified = ledger.verify()
    assert not verified


def _neighbors(owner: Place) -> str:
    [(body,)] = owner.query("SELECT body FROM discreet_entry WHERE account = 'census' AND sequence = 0")
    return json.dumps(json.loads(body)["neighbors"])


def test_without_the_right_to_open_no_fresh_budget_is_opened(place):
    server, owner, role = place
    guard(owner.location, role, may_open=False)
    with dp.Ledger(server.location) as ledger:
        with pytest.raises(LedgerError):
            ledger.account("fresh", budget=dp.PureDP(9.0))
        with pytest.raises(LedgerError):
            ledger.account("census").allot("eve", dp.PureDP(1.0))
        ledger.account("census/ada").spend(EIGHTH)
    with dp.Ledger(owner.location) as ledger:
        assert len(ledger.accounts()) == 2


def test_a_role_that_could_write_anyway_is_refused(place):
    _, owner, _ = place
    for role in ("nobody_of_this_name", "discreet"):
        with pytest.raises(InvalidArgument):
            guard(owner.location, role)
    with pytest.raises(InvalidArgument):
        guard("census.ledger", "server")


@pytest.mark.slow
def test_the_rule_in_sql_is_the_rule_in_python_on_ten_thousand_spends(place):
    """Totals at, just below and just above the limits, in all forms, with denominators of all kinds."""
    _, owner, _ = place
    randomly = random.Random(20)
    rows, expected = [], []
    all_terms = [Terms.start("x", None, budget, Neighbors(ADD_REMOVE, Rows())) for budget in BUDGETS]
    for number in range(10_000):
        terms = all_terms[number % len(all_terms)]
        before = tuple(_near(randomly, limit) for limit in terms.limits)
        change = tuple(_rest(randomly, limit, spent) for limit, spent in zip(terms.limits, before, strict=True))
        old = _totals(before)
        new = old.changed(change, Fraction(0))
        expected.append(terms.fits(new) and all(amount is None or amount >= 0 for amount in change))
        rows.append((terms.text(), old.text(), price_text(change), sum_text(Fraction(0)), new.text()))
    assert 0.2 < sum(expected) / len(expected) < 0.8  # both answers are common
    with psycopg.connect(owner.location) as connection:
        columns = [list(column) for column in zip(*rows, strict=True)]
        found = connection.execute(
            "SELECT discreet_price(change::jsonb, claimed) AND "
            "discreet_allows(terms::jsonb, before::jsonb, change::jsonb, claimed, after::jsonb) "
            "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[]) WITH ORDINALITY "
            "AS row(terms, before, change, claimed, after, place) ORDER BY place",
            columns,
        ).fetchall()
    assert [bool(allowed) for (allowed,) in found] == expected


def _totals(spent: tuple[Fraction | None, ...]) -> Totals:
    return Totals.of_ratios([None if each is None else each.as_integer_ratio() for each in spent], Fraction(0))


def _near(randomly: random.Random, limit: Fraction) -> Fraction | None:
    """What was spent before: nothing, a part of the limit with any denominator, or (rarely) an infinite amount."""
    if randomly.random() < 0.02:
        return None
    part = Fraction(randomly.randrange(1000), 1000) if randomly.random() < 0.5 else Fraction(randomly.random())
    return max(limit, Fraction(1, 7)) * part


def _rest(randomly: random.Random, limit: Fraction, spent: Fraction | None) -> Fraction | None:
    """A price that ends at the limit, a hair below or above it, or anywhere; rarely below zero or infinite."""
    if randomly.random() < 0.02:
        return None
    rest = limit - (spent or Fraction(0))
    hair = Fraction(1, 2 ** randomly.choice((60, 100, 300, 1100)))
    choice = randomly.randrange(5)
    if choice == 4:
        return Fraction(randomly.uniform(-0.01, 1.0))
    return max(rest + (-1, 0, 0, 1)[choice] * hair, -hair)


def test_an_entry_that_sql_wrote_has_the_hash_and_seal_that_python_computes(place):
    server, owner, _ = place
    with dp.Ledger(server.location) as ledger:
        receipt = ledger.account("census/ada").spend(EIGHTH, purpose='größe ✓ "x" \\')
    [(body, stored)] = owner.query("SELECT body, hash FROM discreet_entry WHERE account='census/ada' AND sequence=1")
    assert (body, stored) == (receipt.body, receipt.hash)
    assert digest(body) == stored


def test_an_entry_cannot_pretend_to_repeat_the_charge_of_a_part(place):
    """A made-up origin must not hide from the check that the accounts above were charged."""
    server, owner, _ = place
    before = owner.query("SELECT * FROM discreet_account ORDER BY name")
    for origin in (["census/ada/eve", 1, "0" * 64], ["census/ada", 1, "0" * 64], ["census", 0, "0" * 64], [], 7):
        with contextlib.closing(psycopg.connect(server.location)) as connection:
            connection.execute(*_append(server, "census/ada", change=["1/2^3"], state="1/2^3", origin=origin))
            with pytest.raises(psycopg.Error, match="repeats no charge"):
                connection.commit()
    assert owner.query("SELECT * FROM discreet_account ORDER BY name") == before


def test_parts_of_parts_are_charged_through_functions(place):
    server, _, _ = place
    with dp.Ledger(server.location, create=False) as ledger:
        inner = ledger.account("census/ada").allot("agent", dp.PureDP(0.25))
        inner.spend(EIGHTH)
        plan = inner.reserve(dp.events.Repeated(dp.events.Laplace(100.0), 10), key="plan")
        plan.start_block(4)
        plan.close()
        assert ledger.verify()


@pytest.mark.parametrize("right", ["UPDATE ON discreet_entry", "UPDATE (state) ON discreet_account"])
def test_a_role_that_could_take_on_another_with_more_rights_is_refused(place, right):
    """Without INHERIT it has no such right of its own, and gets it with SET ROLE."""
    _, owner, role = place
    with psycopg.connect(owner.location) as connection:
        connection.execute(f"CREATE ROLE {role}_keeper")
        connection.execute(f"ALTER ROLE {role} NOINHERIT")
        connection.execute(f"GRANT {role}_keeper TO {role}")
    try:
        guard(owner.location, role)
        with psycopg.connect(owner.location) as connection:
            connection.execute(f"GRANT {right} TO {role}_keeper")
        with pytest.raises(InvalidArgument, match="owns the tables"):
            guard(owner.location, role)
    finally:
        with psycopg.connect(owner.location) as connection:
            connection.execute(f"DROP OWNED BY {role}_keeper")
            connection.execute(f"DROP ROLE {role}_keeper")


def test_a_server_starts_and_answers_as_the_guarded_role(place, tmp_path):
    """Its own tables are there for it, although it may create none."""
    pytest.importorskip("starlette")
    pytest.importorskip("ibis")
    from discreet.apps.server.config import read_config
    from discreet.apps.server.starting import start
    from discreet.apps.server.tables import Work

    server, owner, _ = place
    (tmp_path / "people.csv").write_text("age\n31\n47\n")
    config = f"""
ledger = "{server.location}"
[accounts.census]
epsilon = 1.0
[datasets.people]
source = "people.csv"
[users.ada]
role = "analyst"
"""
    for _ in range(2):  # the second start finds everything
        started = start(read_config(tmp_path / "curator.toml", config))
        curator = started.curator
        identity = curator.access.identity_of("ada")
        question = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": 0.1}
        answered = curator.ask(identity, "people", question, "one", Work())
        curator.close()
    assert answered["replayed"]
    with dp.Ledger(owner.location, create=False) as ledger:
        assert ledger.verify()
        assert ledger.account("census/ada").summary().charges == 1
