"""No neighbor moves an engine's exact aggregates by more than is declared: the test that catches glue-code bugs.

Random plans, random tables with anything that a row may hold, random neighbors, for rows and for persons. Mutants
(clamp skipped, a person's groups or rows not limited, rows without a person kept, keys taken from data) must be caught.
"""

from __future__ import annotations

import ibis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics.engine import compiling
from discreet.analytics.engine.levels import Levels
from discreet.analytics.plan import question
from discreet.bounded import Scores
from discreet.errors import EngineFailed, InvalidArgument
from tests.analytics.plans import ask, exact, ids, plans, row, table

many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
UNITS = [
    dp.person("id", max_rows=1),
    dp.person("id", max_rows=2, max_groups=1),
    dp.person("id", max_rows=3, max_groups=2),
    dp.person("id", max_rows=4),
]


def assert_within(first, second, relation):
    """The difference of the exact integers is at most what is declared, in every norm and over all groups."""
    assert list(first) == list(second)
    for name, ones in first.items():
        others = second[name]
        assert len(ones) == len(others)
        if isinstance(ones[0], Scores):
            moved = [int(abs(a.values - b.values).max()) for a, b in zip(ones, others, strict=True)]
            assert sum(moved) <= ones[0].sensitivity(relation), name
            continue
        (one,), (other,) = ones, others
        assert one.labels == other.labels
        moved = [abs(a - b) for a, b in zip(one.values.ravel().tolist(), other.values.ravel().tolist(), strict=True)]
        bound = one.sensitivity(relation)
        assert sum(m > 0 for m in moved) <= bound.l0, name
        assert sum(moved) <= bound.l1, name
        assert sum(m * m for m in moved) <= bound.l2_squared, name
        assert max(moved) <= bound.linf, name


def check_rows(account_of, rows, extra, other, plan):
    account = account_of()
    named = [("p", *one) for one in rows]
    absent = exact(ask(table(named), account, plan))
    present = exact(ask(table([*named, ("q", *extra)]), account, plan))
    swapped = exact(ask(table([("q", *other), *named]), account, plan))
    assert_within(absent, present, dp.ADD_REMOVE)
    assert_within(present, swapped, dp.REPLACE_ONE)


def check_persons(account_of, unit, rows, theirs, others, plan):
    account = account_of(unit)
    absent = exact(ask(table(rows), account, plan))
    present = exact(ask(table([*rows, *(("new", *one) for one in theirs)]), account, plan))
    swapped = exact(ask(table([*(("new", *one) for one in others), *rows]), account, plan))
    assert_within(absent, present, dp.ADD_REMOVE)
    assert_within(present, swapped, dp.REPLACE_ONE)


def check_nobody(account_of, unit, plan):
    """Rows without a person do not count."""
    rows = [("p", 1.0, 1, "a", 0.0), ("q", 2.0, 3, "b", 0.0)]
    one, two = (exact(ask(table(all_), account_of(unit), plan)) for all_ in (rows, [*rows, (None, *rows[0][1:])]))
    for name, values in one.items():
        assert all(a.values.tolist() == b.values.tolist() for a, b in zip(values, two[name], strict=True)), name


of_rows = given(rows=st.lists(row, max_size=6), extra=row, other=row, plan=plans)
of_persons = given(
    unit=st.sampled_from(UNITS),
    rows=st.lists(st.tuples(ids, row).map(lambda both: (both[0], *both[1])), max_size=8),
    theirs=st.lists(row, max_size=8),
    others=st.lists(row, max_size=8),
    plan=plans,
)


@pytest.mark.slow
@of_rows
@many
def test_one_row_moves_no_aggregate_further_than_declared(account_of, rows, extra, other, plan):
    check_rows(account_of, rows, extra, other, plan)


@pytest.mark.slow
@of_persons
@many
def test_one_person_moves_no_aggregate_further_than_declared(account_of, unit, rows, theirs, others, plan):
    check_persons(account_of, unit, rows, theirs, others, plan)


# One person with many large rows in many groups; a plan by group, one without, bounds (0, 10).
MANY = [(1e308, 9, "a", 0.0), (9.0, -9, "b", 1.0), (9.0, 9, "a", 2.0), (-50.0, 9, "é", 0.0), (9.0, 9, "b", 0.0)] * 3
GROUPED, WHOLE = (0, 0, 4, 0), (0, 0, 0, 0)


def check_all(account_of):
    for unit in UNITS[1:3]:
        for plan in (GROUPED, WHOLE):
            check_persons(account_of, unit, [("p", 1.0, 1, "a", 0.0)], MANY, MANY[:1], plan)
            check_nobody(account_of, unit, plan)
    check_persons(account_of, UNITS[2], [], MANY[:5], [], GROUPED)  # one row in each of several groups
    check_rows(account_of, [], (1e308, 2**63 - 1, "a", 0.0), (-1e308, 0, "b", 1.0), WHOLE)
    check_rows(account_of, [], (1.0, 1, "newcomer", 0.0), (1.0, 1, "b", 1.0), (0, 0, 1, 0))


@pytest.mark.slow
def test_the_hand_made_neighbors_are_covered(account_of):
    check_all(account_of)


def no_clamp(monkeypatch):
    def free(value, grid):
        free = (value.fill_null(0.0) / float(grid.step)).clip(-(2.0**30), 2.0**30).cast("int64")
        return Levels({"free": free}, lambda parts: parts["free"])

    monkeypatch.setattr(compiling, "levels", free)


def no_clamp_before_products(monkeypatch):
    def free(value, grid, missing):
        return (value.fill_null(0.0) / float(grid.step)).clip(-(2.0**20), 2.0**20).cast("int64")

    monkeypatch.setattr(compiling, "level", free)


def no_group_limit(monkeypatch):
    monkeypatch.setattr(compiling, "groups_of", lambda unit, groups: groups)


def no_row_limit(monkeypatch):
    monkeypatch.setattr(compiling, "weight", lambda many, limit: many * 0 + compiling.WEIGHT)


def nobody_counts(monkeypatch):
    monkeypatch.setattr(compiling, "_somebody", lambda person: ibis.literal(True))


def rounded_up(monkeypatch):
    def weight(many, limit):
        whole = compiling.WEIGHT
        return ibis.cases((many > limit, (whole * limit / many).ceil().cast("int64")), else_=whole)

    monkeypatch.setattr(compiling, "weight", weight)


def no_row_limit_where_rows_are_joined(monkeypatch):
    monkeypatch.setattr(
        compiling,
        "_owners",
        lambda table, keys, unit: table.select(person=table["id"], weight=ibis.literal(compiling.WEIGHT)).distinct(),
    )


def keys_from_the_data(monkeypatch):
    honest = question._totals

    def only_keys_with_rows(answer, place, measurement, keys):
        totals = honest(answer, place, measurement, keys)
        if keys is None:
            return totals
        seen = set(answer["k"].to_pylist())
        return [total for code, total in zip(keys.codes, totals, strict=True) if code in seen] or [[0] * len(totals[0])]

    monkeypatch.setattr(question, "_totals", only_keys_with_rows)


MUTANTS = [
    no_clamp,
    no_clamp_before_products,
    no_group_limit,
    no_row_limit,
    nobody_counts,
    rounded_up,
    no_row_limit_where_rows_are_joined,
    keys_from_the_data,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda f: f.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch, account_of):
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, EngineFailed)):
        check_all(account_of)


def test_a_table_that_draws_at_random_is_refused(account_of):
    steady = ibis.duckdb.connect().create_table("people", table([("p", *MANY[0])]))
    dp.Private(steady.filter(steady.x > 0), account=account_of(UNITS[0]))
    for unsteady in (steady.sample(0.5), steady.filter(ibis.random() < 0.5), steady.mutate(x=ibis.random())):
        with pytest.raises(InvalidArgument, match="same rows"):
            dp.Private(unsteady, account=account_of(UNITS[0]))


def test_a_table_in_memory_is_read_as_well(account_of):
    people = dp.Private(ibis.memtable(table([("p", *one) for one in MANY])), account=account_of())
    for _ in range(2):
        assert people.count().release(epsilon=1000.0).value == len(MANY)
