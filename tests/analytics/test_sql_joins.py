"""JOIN in SQL: the same private tables as `join` gives, and refusals that name the clause."""

from __future__ import annotations

import datetime as dt

import ibis
import pyarrow as pa
import pytest

import discreet as dp
from discreet.errors import InvalidArgument
from tests.analytics.test_joins import BASE, WARDS, shop

NESTED = """SELECT COUNT(*) FROM orders
    WHERE 30 = (SELECT MAX(beds) FROM wards WHERE beds > (SELECT AVG(beds) FROM wards))"""


@pytest.fixture
def tables(account_of):
    account = account_of(dp.person("customer", max_rows=100))
    people, orders, items = shop(account, [*BASE[0], (3, "n")], BASE[1], BASE[2])
    once = WARDS.slice(1, 2)
    return {"people": people, "orders": orders, "items": items, "wards": dp.public(once), "twice": dp.public(WARDS)}


def number(tables, query, **options):
    result = tables["people"].sql(query, epsilon=10_000.0, tables=tables, **options)
    return [tuple(row[name] for name in row if not name.endswith("_error")) for row in result.rows()]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("SELECT COUNT(*) FROM people JOIN orders ON customer = buyer", 4),
        ("SELECT COUNT(*) FROM people AS p LEFT JOIN orders o ON p.customer = o.buyer", 5),
        ("SELECT COUNT(*) FROM orders JOIN items USING (number)", 2),
        ("SELECT COUNT(*) FROM orders o JOIN items i ON o.number = i.number AND i.cost > 1", 1),
        ("SELECT COUNT(*) FROM people JOIN orders ON customer = buyer JOIN wards w ON orders.ward = w.ward", 4),
        ("SELECT COUNT(*) FROM people WHERE customer IN (SELECT buyer FROM orders WHERE ward = 'b')", 1),
        ("SELECT COUNT(*) FROM people WHERE customer NOT IN (SELECT buyer FROM orders)", 1),
        ("SELECT COUNT(*) FROM people SEMI JOIN orders ON customer = buyer", 3),
        ("SELECT COUNT(*) FROM people ANTI JOIN orders ON customer = buyer", 1),
        ("SELECT COUNT(*) FROM orders JOIN twice a ON orders.ward = a.ward JOIN twice b ON a.ward = b.ward", 9),
        ("SELECT COUNT(*) FROM (SELECT customer FROM people WHERE region = 'n') n JOIN orders ON customer = buyer", 3),
        ("WITH big AS (SELECT * FROM orders WHERE ward = 'a') SELECT COUNT(*) FROM big JOIN items USING (number)", 2),
        # what ON says of the right table alone decides which of its rows match
        ("SELECT COUNT(*) FROM people LEFT JOIN orders o ON customer = buyer AND o.ward = 'b'", 4),
        ("SELECT COUNT(*) FROM people LEFT JOIN orders o ON customer = buyer AND ward = 'b' WHERE number IS NULL", 3),
        ("SELECT COUNT(*) FROM people SEMI JOIN orders o ON customer = buyer AND o.ward = 'b'", 1),
        ("SELECT COUNT(*) FROM people ANTI JOIN orders o ON customer = buyer AND o.ward = 'b'", 3),
        # commas: what is compared stands in WHERE, in any order
        ("SELECT COUNT(*) FROM people, orders WHERE customer = buyer", 4),
        ("SELECT COUNT(*) FROM people p, orders o WHERE (o.buyer = p.customer AND o.ward = 'b') AND o.number > 0", 1),
        ("SELECT COUNT(*) FROM people p, wards w, orders o WHERE p.customer = o.buyer AND o.ward = w.ward", 4),
        ("SELECT COUNT(*) FROM people p CROSS JOIN orders o WHERE p.customer = o.buyer AND o.ward IN ('a')", 3),
        ("SELECT COUNT(*) FROM people p, orders o JOIN items i ON o.number = i.number WHERE p.customer = o.buyer", 3),
        # public tables may come first
        ("SELECT COUNT(*) FROM wards w, orders o WHERE o.ward = w.ward AND w.beds > 25", 1),
        ("SELECT COUNT(*) FROM wards JOIN orders USING (ward)", 3),
        ("SELECT COUNT(*) FROM wards w JOIN twice t ON w.ward = t.ward JOIN orders o ON o.ward = w.ward", 5),
        # NATURAL and RIGHT
        ("SELECT COUNT(*) FROM orders NATURAL JOIN wards", 3),
        ("SELECT COUNT(*) FROM orders NATURAL JOIN items", 2),
        ("SELECT COUNT(*) FROM orders NATURAL LEFT JOIN items", 3),
        ("SELECT COUNT(*) FROM wards w RIGHT JOIN orders o ON o.ward = w.ward", 3),
        ("SELECT COUNT(*) FROM orders RIGHT JOIN people ON buyer = customer", 5),
        ("SELECT COUNT(*) FROM orders o RIGHT OUTER JOIN people p ON o.buyer = p.customer WHERE o.buyer IS NULL", 1),
        ("SELECT COUNT(*) FROM orders o JOIN items i USING (number) RIGHT JOIN people p ON p.customer = o.buyer", 4),
        # rows without a match
        ("SELECT COUNT(*) FROM people p LEFT JOIN orders o ON p.customer = o.buyer WHERE o.number IS NULL", 1),
        ("SELECT COUNT(*) FROM orders o LEFT JOIN items i ON o.number = i.number WHERE i.number IS NULL", 1),
        ("SELECT COUNT(*) FROM orders LEFT JOIN items USING (number) WHERE number = 11", 1),
        ("SELECT COUNT(*) FROM orders o LEFT JOIN wards w ON o.ward = w.ward AND o.ward = w.ward", 3),
        # sub-queries of public tables
        ("SELECT COUNT(*) FROM orders JOIN items USING (number) WHERE cost > (SELECT MIN(beds) / 20 FROM wards)", 1),
        ("SELECT COUNT(*) FROM orders WHERE ward IN (SELECT ward FROM wards WHERE region = 's')", 2),
        ("SELECT COUNT(*) FROM orders WHERE ward NOT IN (SELECT DISTINCT w.ward FROM wards w WHERE region = 's')", 1),
        ("SELECT COUNT(*) FROM orders WHERE number < (SELECT 10 + COUNT(*) FROM twice)", 2),
        (NESTED, 3),
    ],
)
def test_a_join_in_sql_has_the_rows_that_sql_gives(tables, query, count):
    assert number(tables, query) == [(count,)]


def test_columns_of_joined_tables_are_found_by_their_table(tables):
    query = """SELECT w.region, p.region AS home, COUNT(*) AS n FROM people p
        JOIN orders o ON p.customer = o.buyer JOIN wards w ON w.ward = o.ward GROUP BY w.region, p.region"""
    keys = {"region_w": ["n", "s"], "region": ["n", "s"]}
    answers = number(tables, query, keys=keys)
    assert {(one[0], one[1]): one[2] for one in answers}["s", "n"] == 2
    assert number(tables, "SELECT SUM(CLAMP(w.beds, 0, 40)) AS beds FROM orders JOIN wards w USING (ward)")[0][0] > 60


def test_several_tables_are_asked_by_their_names(tables):
    result = dp.sql("SELECT COUNT(*) AS n FROM orders JOIN wards USING (ward)", tables, epsilon=1000.0)
    assert result.value == 3
    with pytest.raises(InvalidArgument, match="known"):
        dp.sql("SELECT COUNT(*) AS n FROM order JOIN wards USING (ward)", tables, epsilon=1.0)
    with pytest.raises(InvalidArgument, match="private table"):
        dp.sql("SELECT COUNT(*) FROM wards", {"wards": tables["wards"]}, epsilon=1.0)
    with pytest.raises(InvalidArgument, match="whether it is private"):
        tables["people"].sql("SELECT COUNT(*) FROM people", epsilon=1.0, tables={"wards": WARDS})


def test_a_sub_query_of_what_is_made_of_private_rows_is_refused(account_of):
    connection = ibis.duckdb.connect()
    stored = connection.create_table("visits", WARDS)
    leaked = dp.public(stored.filter(stored.beds > 20))
    visits = dp.Private(stored, account=account_of())
    for query in (
        "SELECT COUNT(*) FROM visits WHERE beds > (SELECT MAX(beds) FROM leaked)",
        "SELECT COUNT(*) FROM visits WHERE beds IN (SELECT beds FROM leaked WHERE beds > 0)",
    ):
        with pytest.raises(InvalidArgument, match="not come from a private one"):
            visits.plan(query, tables={"leaked": leaked})


def test_sub_queries_of_public_tables_give_every_kind_of_value(account_of):
    days = dp.public({"day": [dt.date(2024, 1, 1), dt.date(2024, 3, 1)], "ok": [True, True], "x": [-1.5, 2.0]})
    visits = {"day": [dt.date(2024, 2, 1), dt.date(2024, 4, 1)], "x": [-2.0, 1.0], "ok": [True, False]}
    private = dp.Private(visits, account=account_of())
    for condition, kept in {
        "day > (SELECT MAX(day) FROM days)": 1,
        "day > (SELECT MIN(day) FROM days)": 2,
        "x < (SELECT MIN(x) FROM days)": 1,
        "x < (SELECT -1 * AVG(x) + COUNT(DISTINCT x) FROM days)": 2,
        "ok = (SELECT MAX(ok) FROM days)": 1,
        "ok IN (SELECT ok FROM days)": 1,
        "x > (SELECT MEDIAN(x) FROM days WHERE day < DATE '2024-02-01')": 1,
    }.items():
        result = private.sql(f"SELECT COUNT(*) FROM v WHERE {condition}", epsilon=1e4, tables={"days": days})
        assert result.value == kept, condition


def test_a_person_has_totals_over_joined_tables(tables):
    query = """SELECT COUNT(*) AS many FROM (SELECT customer, COUNT(*) AS n FROM people JOIN orders ON customer = buyer
        GROUP BY customer) WHERE n >= 2"""
    assert number(tables, query) == [(2,)]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT COUNT(*) FROM people JOIN nothing ON a = b", "known"),
        ("SELECT COUNT(*) FROM people CROSS JOIN orders", r"equal columns.*WHERE a\.x = orders\.y"),
        ("SELECT COUNT(*) FROM people, orders WHERE customer > buyer", r"equal columns.*WHERE a\.x = orders\.y"),
        ("SELECT COUNT(*) FROM people, orders o RIGHT JOIN items i ON o.number = i.number", "in place of the comma"),
        ("SELECT COUNT(*) FROM people FULL JOIN orders ON customer = buyer", "no FULL JOIN.*write LEFT JOIN"),
        ("SELECT COUNT(*) FROM people FULL OUTER JOIN orders ON customer = buyer", "no FULL JOIN.*write LEFT JOIN"),
        ("SELECT COUNT(*) FROM people NATURAL JOIN orders", "NATURAL JOIN.*write JOIN … ON"),
        ("SELECT COUNT(*) FROM people ASOF JOIN orders ON customer >= buyer", "write JOIN, LEFT JOIN"),
        ("SELECT COUNT(*) FROM orders RIGHT JOIN wards USING (ward)", "rows of a private table.*write LEFT JOIN"),
        ("SELECT COUNT(*) FROM wards LEFT JOIN orders USING (ward)", "private table first"),
        ("SELECT COUNT(*) FROM wards, twice WHERE wards.ward = twice.ward", "private table first"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT AVG(cost) FROM items)", "released before"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT beds FROM wards)", "use COUNT, MIN"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT SUM(ward) FROM wards)", "aggregate of numbers"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT MIN(beds) / 0 FROM wards)", "division by 0"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT MIN(beds) FROM wards WHERE beds > 99)", "give a value"),
        ("SELECT COUNT(*) FROM items WHERE cost > (SELECT MIN(beds) FROM wards GROUP BY ward)", "no GROUP here"),
        ("SELECT COUNT(*) FROM orders WHERE ward IN (SELECT ward FROM twice)", "IS NOT NULL"),
        (
            "SELECT COUNT(*) FROM orders WHERE ward IN (SELECT ward FROM wards w WHERE w.beds > items.beds)",
            "table of FROM",
        ),
        ("SELECT COUNT(*) FROM people JOIN orders ON customer > buyer", "a column of each table"),
        ("SELECT COUNT(*) FROM people LEFT JOIN orders ON customer = buyer AND region = 'n'", "LEFT JOIN"),
        ("SELECT COUNT(*) FROM people p JOIN people p ON p.customer = p.customer", "each table once"),
        ("SELECT COUNT(*) FROM people JOIN orders ON region = buyer", "one type"),
        ("SELECT region, COUNT(*) FROM people p JOIN wards w ON p.region = w.ward GROUP BY region", "name its table"),
    ],
)
def test_a_join_that_is_not_known_is_refused_with_a_remedy(tables, query, said):
    with pytest.raises(InvalidArgument, match=said):
        number(tables, query, keys={"region": ["n"]} if "GROUP" in query else None)


@pytest.mark.parametrize("join", ["NATURAL JOIN p2", "JOIN p2 USING (k)", "JOIN p2 ON k = j"])
def test_a_comma_beside_columns_without_tables_is_refused(account_of, join):
    """SQL joins `a, b JOIN c` as a, (b JOIN c): names in the JOIN are not those of a."""
    people = dp.Private(pa.table({"id": [1], "k": [1]}), account=account_of(fresh=True), name="priv")
    tables = {"p1": dp.public(pa.table({"k": [1]})), "p2": dp.public(pa.table({"k": [1], "j": [1]}))}
    with pytest.raises(InvalidArgument, match="name the table of each column"):
        people.plan(f"SELECT COUNT(*) FROM priv, p1 {join} WHERE priv.k = p1.k", tables=tables)
