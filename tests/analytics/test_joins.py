"""Joins: what one row or one person moves after a join is within what is declared, and what cannot be is refused."""

from __future__ import annotations

import datetime as dt

import ibis
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import count, count_distinct, marginal, mean, median, top_k, variance
from discreet.analytics import sum as total
from discreet.analytics.table import joins
from discreet.errors import InvalidArgument
from tests.analytics.plans import exact
from tests.analytics.test_sensitivity import assert_within

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)
many = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WARDS = pa.table(
    {"ward": ["a", "a", "b", "c", None], "region": ["n", "s", "n", "s", "n"], "beds": [10, 20, 30, None, 50]}
)
VISITS = pa.schema([("ward", pa.string()), ("cost", pa.float64())])


def asked(private, persons=False, brief=False):
    grouped = private.group_by("region", keys=["n", "s", "absent"])
    if brief:
        return grouped.aggregate(beds=total("beds", bounds=(0, 40)), middle=median("cost", bounds=(0, 8)))
    aggregates = {
        "rows": count(),
        "beds": total("beds", bounds=(0, 40)),
        "cost": mean("cost", bounds=(-2, 8)),
        "spread": variance("cost", bounds=(0, 5)),
        "middle": median("cost", bounds=(0, 8)),
        "cells": marginal("ward", categories={"ward": ["a", "b"]}),
        "most": top_k("ward", k=1, categories=["a", "b", "c"]),
    }
    return grouped.aggregate(**aggregates, **({"persons": count_distinct()} if persons else {}))


def visits(rows):
    return pa.Table.from_pylist([dict(zip(VISITS.names, row, strict=True)) for row in rows], schema=VISITS)


def check_public(account_of, rows, extra, other, how, brief=False):
    def values(some):
        joined = dp.Private(visits(some), account=account_of()).join(dp.public(WARDS), "ward", how=how)
        return exact(asked(joined, brief=brief))

    absent, present, swapped = values(rows), values([*rows, extra]), values([other, *rows])
    assert_within(absent, present, dp.ADD_REMOVE)
    assert_within(present, swapped, dp.REPLACE_ONE)


visit = st.tuples(st.sampled_from(["a", "b", "c", "z", None, "A"]), st.sampled_from([None, 1.0, -9.0, 9.0, 1e308]))


@pytest.mark.slow
@given(rows=st.lists(visit, max_size=4), extra=visit, other=visit, how=st.sampled_from(["inner", "left"]))
@many
def test_one_row_moves_a_join_no_further_than_declared_at_length(account_of, rows, extra, other, how):
    check_public(account_of, rows, extra, other, how)


def test_a_mutant_that_forgets_the_multiplicity_is_caught(account_of, monkeypatch):
    check_public(account_of, [("b", 1.0)], ("a", 9.0), ("b", -9.0), "left")
    monkeypatch.setattr(joins, "copied", lambda measured, copies: measured)
    with pytest.raises(AssertionError):
        check_public(account_of, [("b", 1.0)], ("a", 9.0), ("b", -9.0), "inner")


# --- persons in three tables: customers, their orders, and the items of these orders

CUSTOMERS = pa.schema([("customer", pa.int64()), ("region", pa.string())])
ORDERS = pa.schema([("number", pa.int64()), ("buyer", pa.int64()), ("ward", pa.string())])
ITEMS = pa.schema([("number", pa.int64()), ("cost", pa.float64()), ("beds", pa.int64())])
UNITS = [dp.person("customer", max_rows=1), dp.person("customer", max_rows=3, max_groups=1)]


def rows_of(schema, rows):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def shop(account, customers, orders, items):
    """The three tables as private ones: the items' persons are those of their orders."""
    people = dp.Private(rows_of(CUSTOMERS, customers), account=account)
    bought = dp.Private(rows_of(ORDERS, orders), account=account, person="buyer")
    lines = dp.Private(rows_of(ITEMS, items), account=account, through=bought, on="number")
    return people, bought, lines


def chain(account, data, hows=("inner", "inner")):
    people, bought, lines = shop(account, *data)
    return people.join(bought, how=hows[0]).join(lines, on="number", how=hows[1])


BASE = ([(1, "n"), (2, "s"), (2, "n")], [(10, 1, "a"), (11, 1, "b"), (20, 2, "a")], [(10, 1.0, 5), (20, 2.0, 9)])


def added(data, person, own):
    """The data with one more person: their rows in all three tables at once, under order numbers of their own."""
    regions, wards, costs = own
    customers, orders, items = data
    numbers = [100 * person + i for i in range(len(wards))]
    return (
        [*customers, *((person, region) for region in regions)],
        [*orders, *((number, person, ward) for number, ward in zip(numbers, wards, strict=True))],
        [*items, *((numbers[i % len(numbers)], cost, 7) for i, cost in enumerate(costs) if numbers)],
    )


def check_chain(account_of, unit, mine, theirs, hows, brief=False):
    def values(data):
        return exact(asked(chain(account_of(unit), data, hows), persons=True, brief=brief))

    absent, present, swapped = values(BASE), values(added(BASE, 7, mine)), values(added(BASE, 8, theirs))
    assert_within(absent, present, dp.ADD_REMOVE)
    assert_within(present, swapped, dp.REPLACE_ONE)


person = st.tuples(
    st.lists(st.sampled_from(["n", "s", None]), max_size=3),
    st.lists(st.sampled_from(["a", "b", None]), max_size=3),
    st.lists(st.sampled_from([None, 1.0, 9.0, -1e300]), max_size=6),
)
EVERYTHING = (["n", "s", "n"], ["a", "b", "a"], [9.0, 9.0, -9.0, 1.0, 9.0])


@pytest.mark.slow
@given(unit=st.sampled_from(UNITS), mine=person, theirs=person, left=st.booleans())
@many
def test_one_person_moves_a_join_no_further_than_declared_at_length(account_of, unit, mine, theirs, left):
    check_chain(account_of, unit, mine, theirs, ("left", "left") if left else ("inner", "inner"))


def test_the_fullest_person_is_within_what_is_declared(account_of):
    check_chain(account_of, UNITS[1], EVERYTHING, ([], [], []), ("inner", "inner"))


def test_a_mutant_that_compares_no_persons_is_caught(account_of, monkeypatch):
    honest = joins._joined

    def without_persons(left, right, pairs, how, rname):
        return honest(left, right, pairs[1:] or pairs, how, rname)

    def values(data):
        people, bought, _ = shop(account_of(UNITS[0]), *data)
        return exact(people.join(bought, on=("region", "ward")).aggregate(rows=count()))

    customers = [(1, "a"), (2, "a"), (3, "a")]
    one, two = (customers, [], []), (customers, [(20, 9, "a")], [])
    assert_within(values(one), values(two), dp.ADD_REMOVE)
    monkeypatch.setattr(joins, "_joined", without_persons)
    with pytest.raises(AssertionError):
        assert_within(values(one), values(two), dp.ADD_REMOVE)


def test_an_order_number_of_two_persons_is_nobody_elses_loss(account_of):
    customers, orders, items = BASE
    shared = (customers, [*orders, (10, 9, "b")], items)  # person 9 claims order 10 of person 1
    people = dp.person("customer", max_rows=5)
    before, after = (exact(asked(chain(account_of(people), data), brief=True)) for data in (BASE, shared))
    assert_within(before, after, dp.ADD_REMOVE)
    joined = chain(account_of(people), (customers, [(10, 9, "b"), *orders], items))
    assert joined.where(joined.customer == 1).count().release(epsilon=1000.0).value == 1


# --- answers


def value(answer):
    return answer.release(epsilon=10_000.0)


def test_each_kind_of_join_has_the_rows_that_sql_gives(account_of):
    account = account_of(dp.person("customer", max_rows=100))
    people, bought, lines = shop(account, [(1, "n"), (2, "s"), (3, "n"), (None, "n")], BASE[1], BASE[2])
    counts = {how: value(people.join(bought, how=how).count()).value for how in joins.KINDS}
    assert counts == {"inner": 3, "left": 4, "semi": 2, "anti": 1}
    assert value(lines.count()).value == 2
    assert value(bought.join(lines, on="number", how="anti").count()).value == 1
    both = people.join(bought).join(lines, on="number")
    assert both.columns == ("customer", "region", "number", "buyer", "ward", "cost", "beds")
    assert value(both.sum("beds", bounds=(0, 10))).value == pytest.approx(14, abs=2)


def test_a_public_table_adds_its_columns(account):
    private = dp.Private(visits([("a", 1.0), ("b", 2.0), ("z", 3.0), (None, 4.0)]), account=account)
    known = dp.public({"ward": ["a", "b", "c"], "region": ["n", "s", "s"], "cost": [0, 0, 0]})
    joined = private.join(known, "ward", how="left")
    assert joined.columns == ("ward", "cost", "region", "cost_right")
    assert joined._spec.copies == 1
    assert value(joined.count()).value == 4
    assert value(private.join(known, "ward").count()).value == 2
    assert value(private.join(known, "ward", how="semi").count()).value == 2
    assert value(private.join(known, {"ward": "ward"}, how="anti").count()).value == 2
    renamed = private.join(dp.public({"id": ["a"], "ward": ["x"]}), on=("ward", "id"))
    assert renamed.columns == ("ward", "cost", "id", "ward_right")
    assert value(renamed.count()).value == 1


def test_a_row_weighs_as_often_as_the_public_table_repeats_its_key(account):
    private = dp.Private(visits([("a", 1.0), ("b", 2.0)]), account=account)
    once = private.count().event(1.0)
    twice = private.join(dp.public(WARDS), "ward").count().event(1.0)
    assert twice.scale == 2 * once.scale
    assert twice.sensitivity == 2 * once.sensitivity


def test_files_and_tables_of_one_connection_are_joined(account, tmp_path):
    path = tmp_path / "wards.csv"
    path.write_text("ward,region\na,n\nb,s\n")
    private = dp.Private(visits([("a", 1.0), ("b", 2.0)]), account=account)
    assert value(private.join(dp.public(path), "ward").count()).value == 2
    engine = ibis.duckdb.connect()
    there = engine.create_table("visits", visits([("a", 1.0), ("b", 2.0)]))
    wards = engine.create_table("wards", WARDS)
    joined = dp.Private(there, account=account).join(dp.public(wards), "ward")
    assert joined._spec.copies == 2
    assert value(joined.count()).value == 3
    engine.insert("wards", pa.table({"ward": ["a"] * 5, "region": ["n"] * 5, "beds": [1] * 5}))
    assert value(joined.count()).value == 1  # "a" has more rows than were counted, so it matches nothing
    assert value(dp.Private(there, account=account).join(dp.public(WARDS), "ward").count()).value == 3


def test_a_public_table_does_not_limit_persons(account_of):
    people = dp.Private(BASE_VISITS, account=account_of(dp.person("who", max_rows=2)))
    joined = people.join(dp.public(WARDS), "ward")
    assert joined._spec.copies == 1
    assert value(joined.count()).value == pytest.approx(4, abs=0.1)  # who 1 has 3 rows in the join and counts as 2


BASE_VISITS = pa.table({"who": [1, 1, 2, None], "ward": ["a", "b", "a", "a"], "cost": [1.0, 2.0, 3.0, 4.0]})


def test_a_table_joined_with_itself_gives_pairs_of_one_person(account_of):
    people = dp.Private(BASE_VISITS, account=account_of(dp.person("who", max_rows=10)))
    pairs = people.join(people)
    assert pairs.columns == ("who", "ward", "cost", "ward_right", "cost_right")
    assert value(pairs.count()).value == 5


# --- refusals


def test_tables_that_cannot_be_joined_are_refused(account_of):
    persons = account_of(dp.person("customer", max_rows=3))
    people, bought, lines = shop(persons, *BASE)
    rows = dp.Private(rows_of(CUSTOMERS, BASE[0]), account=account_of())
    other = dp.Private(rows_of(CUSTOMERS, BASE[0]), account=account_of(dp.person("customer", max_rows=4)))
    with pytest.raises(InvalidArgument, match="protects persons"):
        rows.join(rows, on="customer")
    with pytest.raises(InvalidArgument, match="one account"):
        people.join(other)
    with pytest.raises(InvalidArgument, match=r"dp\.public"):
        people.join(rows_of(CUSTOMERS, BASE[0]))
    with pytest.raises(InvalidArgument, match="one account"):
        people.join(dp.Private(rows_of(CUSTOMERS, BASE[0]), account=account_of(dp.person("customer", max_rows=5))))
    with pytest.raises(InvalidArgument, match="right or outer"):
        people.join(bought, how="outer")
    with pytest.raises(InvalidArgument, match="columns to compare"):
        people.join(dp.public(WARDS))
    with pytest.raises(InvalidArgument, match="one of the table's"):
        people.join(dp.public(WARDS), on="nothing")
    made = bought.mutate(number=bought.number + 1)
    engine = ibis.duckdb.connect()
    stored = engine.create_table("people", rows_of(CUSTOMERS, BASE[0]))
    with pytest.raises(InvalidArgument, match="not come from the private one"):
        dp.Private(stored, account=persons).join(dp.public(stored.filter(stored.customer > 1)), on="customer")
    with pytest.raises(InvalidArgument, match="stored columns"):
        dp.Private(rows_of(ITEMS, BASE[2]), account=persons, through=made, on="number")
    # A public table must not say whose a row is, under its own names, under new ones, or after another join.
    codes = dp.public({"ward": ["a", "b"], "code": [10, 20], "number": [20, 10]})
    coded = bought.join(codes, on="ward")
    for parent, key in [
        (coded, "code"),
        (coded, "number_right"),
        (bought.join(codes, on="ward", how="left", rname="{name}_of_ward"), "number_of_ward"),
        (people.join(coded), "code"),
        (coded.per_person("code", n=count()), "code"),
    ]:
        with pytest.raises(InvalidArgument, match="its own stored columns"):
            dp.Private(rows_of(ITEMS, BASE[2]), account=persons, through=parent, on=(key, "number"))
    dp.Private(rows_of(ITEMS, BASE[2]), account=persons, through=coded, on="number")
    elsewhere = ibis.duckdb.connect().create_table("orders", rows_of(ORDERS, BASE[1]))
    foreign = dp.Private(elsewhere, account=persons, person="buyer")
    with pytest.raises(InvalidArgument, match="two engines"):
        people.join(foreign)
    assert persons.is_same(persons)
    assert lines.columns == ("number", "cost", "beds", "buyer")


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1, 2], ["1", "2"]),
        ([1, 2], [1.0, 2.0]),
        ([dt.datetime(2024, 1, 1)] * 2, [dt.datetime(2024, 1, 1)] * 2),
        ([b"a", b"b"], [b"a", b"b"]),
    ],
)
def test_keys_whose_equality_is_not_exact_are_refused(account, mine, theirs):
    private = dp.Private({"k": mine}, account=account)
    with pytest.raises(InvalidArgument, match="equality is exact"):
        private.join(dp.public({"k": theirs, "v": [1, 2]}), "k")


def test_a_collation_that_treats_different_keys_as_equal_is_refused(account):
    engine = ibis.duckdb.connect()
    engine.raw_sql("CREATE TABLE t (k VARCHAR COLLATE NOCASE)")
    engine.raw_sql("INSERT INTO t VALUES ('a')")
    with pytest.raises(InvalidArgument, match="different texts"):
        dp.Private(engine.table("t"), account=account).join(dp.public({"k": ["a", "A"], "v": [1, 2]}), "k")


def test_names_that_differ_by_case_alone_are_refused(account):
    private = dp.Private({"k": [1], "V": [2]}, account=account)
    with pytest.raises(InvalidArgument, match="more than case"):
        private.join(dp.public({"k": [1], "v": [1]}), "k")


def test_no_key_is_discovered_where_a_join_repeats_rows(account):
    private = dp.Private(visits([("a", 1.0)]), account=account).join(dp.public(WARDS), "ward")
    with pytest.raises(InvalidArgument, match="repeats rows"):
        private.group_by("region", keys=dp.discover()).count()


def test_a_join_charges_nothing_and_its_release_is_charged_once(account_of):
    account = account_of(dp.person("customer", max_rows=3), budget=dp.PureDP(1.0), fresh=True)
    joined = chain(account, BASE)
    assert account.remaining() == account.budget
    joined.count().release(epsilon=0.25)
    assert account.remaining().epsilon == pytest.approx(0.75)


# --- engines


def test_joins_and_partitions_are_the_same_on_every_engine(account_of, engine):
    account = account_of(dp.person("customer", max_rows=100))
    customers, orders, items = BASE
    people = dp.Private(engine(rows_of(CUSTOMERS, customers)), account=account)
    bought = dp.Private(engine(rows_of(ORDERS, orders)), account=account, person="buyer")
    lines = dp.Private(engine(rows_of(ITEMS, items)), account=account, through=bought, on="number")
    joined = people.join(bought).join(lines, on="number", how="left").join(dp.public(WARDS), "ward", how="left")
    assert joined.columns[-3:] == ("beds", "region_right", "beds_right")
    assert value(joined.count()).value == 2 + 1 + 4
    regions = people.join(bought).partition("ward", keys=["a", "b"], max_parts=1, name=f"wards {id(engine)}")
    assert [value(table.count()).value for _, table in regions.items()] == [3, 0]
    local = dp.public(engine(WARDS))
    assert value(people.join(bought).join(local, "ward", how="semi").count()).value == 4
    rows = dp.Private(engine(rows_of(ORDERS, orders)), account=account_of())
    assert rows.join(local, "ward")._spec.copies == 2
    assert value(rows.join(local, "ward").count()).value == 5
