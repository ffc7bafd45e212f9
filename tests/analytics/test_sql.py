"""SQL becomes the same questions as the methods; conditions mean what they mean in SQL, and the rest is refused."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

import discreet as dp
from discreet.errors import InvalidArgument
from tests.analytics.plans import exact

PEOPLE = pa.table(
    {
        "id": ["p", "q", None, "p", "r", "q"],
        "age": [17, 18, None, 40, 65, 40],
        "pay": [1.5, None, 3.0, -4.0, 0.0, 9.0],
        "sex": ["f", "m", "f", None, "m", "f"],
        "member": [True, None, False, True, False, True],
        "day": [dt.date(1969, 1, 1), dt.date(2020, 1, 1), None, dt.date(2021, 5, 5), None, dt.date(2020, 1, 1)],
    }
)
BOUNDS = {"age": (0, 120), "pay": (-5, 10)}

CONDITIONS = [
    "age >= 18",
    "NOT age >= 18",
    "NOT (age >= 18 AND pay > 0)",
    "NOT (age >= 18 OR NOT pay > 0)",
    "sex = 'f' OR age <> 40",
    "sex IN ('f', 'x')",
    "sex NOT IN ('f', 'x')",
    "age BETWEEN 18 AND 40",
    "age NOT BETWEEN 18 AND 40",
    "pay IS NULL",
    "pay IS NOT NULL AND NOT (sex IS NULL)",
    "member",
    "NOT member",
    "pay * 2 + 1 > age / 20",
    "ABS(pay) > 2 AND -pay < 0",
    "day < DATE '1970-01-01'",
    "NOT (day = DATE '2020-01-01')",
    "1 < 2",
    "people.age = -(-40)",
    "NOT NOT (age = 40)",
    "sex LIKE 'f%'",
    "sex NOT LIKE '_'",
    "UPPER(sex) = 'F' AND LENGTH(sex) = 1",
    "age % 5 = 2",
    "CASE WHEN age > 20 THEN pay ELSE age END > 5",
    "CASE sex WHEN 'f' THEN 1 ELSE 0 END = 1",
    "NOT (CASE WHEN age > 20 THEN pay END > 5)",
    "COALESCE(pay, 0) = 0",
    "NULLIF(age, 40) IS NULL",
    "TRY_CAST(sex AS INT) = 1",
    "CAST(age AS DOUBLE) / 2 > 10.5",
    "EXTRACT(year FROM day) = 2020",
    "MONTH(day) = 1 AND ISODOW(day) = 3",
    "DATE_TRUNC('year', day) = DATE '2020-01-01'",
    "day >= DATE '2020-01-31' - INTERVAL 1 MONTH",
    "day - DATE '2019-12-31' BETWEEN 1 AND 2",
    "STRFTIME(day, '%Y-%m') = '2021-05'",
    "member IS TRUE",
    "member IS NOT TRUE",
    "(age > 20) = member",
    "ROUND(pay) = 2",
    "FLOOR(pay / 2) = -2",
    "sex || 'x' = 'fx'",
    "CONCAT(sex, 'x') = 'x'",
    "SUBSTRING(sex, 1, 1) IN ('m')",
    "GREATEST(age, pay) > 20",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_keeps_the_rows_that_sql_keeps(account, condition):
    people = dp.Private(PEOPLE, account=account)
    (found,) = exact(people.plan(f"SELECT COUNT(*) FROM people WHERE {condition}"))["count"]
    connection = duckdb.connect()
    connection.register("people", PEOPLE)
    (wanted,) = connection.execute(f"SELECT COUNT(*) FROM people WHERE {condition}").fetchone()
    assert found.values.tolist() == wanted


@pytest.mark.parametrize(
    "condition", ["age % 0 = 1", "NOT age % 0 = 1", "pay / 0 > 1", "NOT (pay / 0 > 1)", "LN(-age) < 0"]
)
def test_what_has_no_result_is_missing(account, condition):
    people = dp.Private(PEOPLE, account=account)
    (found,) = exact(people.plan(f"SELECT COUNT(*) FROM people WHERE {condition}"))["count"]
    assert found.values.tolist() == 0


def test_sql_asks_for_the_same_as_methods(account):
    people = dp.Private(PEOPLE, account=account, bounds=BOUNDS)
    text = (
        "SELECT sex, COUNT(*) AS n, COUNT(pay) AS k, SUM(CLAMP(pay, 0, 5)) AS s, AVG(Age) AS m, VAR_POP(pay) AS v, "
        "STDDEV_POP(pay) AS d, MEDIAN(age) AS h, QUANTILE_CONT(age, 0.25) AS q, MIN(age) AS low, MAX(age) AS high, "
        "CORR(CLAMP(age, 0, 50), pay) AS r, COVAR_POP(age, pay) AS c "
        "FROM anything a WHERE a.age > 1 GROUP BY sex"
    )
    one = people.plan(text, keys={"sex": ["m", "f", "x"]})
    analytics = dp.analytics
    two = (
        people.where(people.age > 1)
        .group_by("sex", keys=["m", "f", "x"])
        .aggregate(
            n=analytics.count(),
            k=analytics.count("pay"),
            s=analytics.sum("pay", bounds=(0, 5)),
            m=analytics.mean("age"),
            v=analytics.variance("pay"),
            d=analytics.std("pay"),
            h=analytics.median("age"),
            q=analytics.quantile("age", 0.25),
            low=analytics.min("age"),
            high=analytics.max("age"),
            r=analytics.correlation("age", "pay", bounds={"age": (0, 50)}),
            c=analytics.covariance("age", "pay"),
        )
    )
    assert one.event(0.5) == two.event(0.5)
    assert one.sql == two.sql


def test_persons_are_counted_and_charged(account_of):
    account = account_of(dp.person("id", max_rows=2), budget=dp.PureDP(50.0), fresh=True)
    people = dp.Private(PEOPLE, account=account)
    result = people.sql("SELECT COUNT(DISTINCT id) AS n FROM people", epsilon=40.0)
    assert result.value == 3
    assert account.remaining().epsilon == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT * FROM people", "COUNT"),
        ("SELECT age FROM people", "GROUP BY"),
        ("SELECT DISTINCT COUNT(*) FROM people", "DISTINCT"),
        ("SELECT COUNT(*) FROM people JOIN other USING (id)", "JOIN a table that is known"),
        ("SELECT COUNT(*) FROM people, other", "JOIN a table that is known"),
        ("SELECT COUNT(*) FROM people TABLESAMPLE 10%", "sql must"),
        ("WITH p AS (SELECT 1) SELECT COUNT(*) FROM p", "FROM"),
        ("WITH RECURSIVE p AS (SELECT age FROM people) SELECT COUNT(*) FROM p", "RECURSIVE"),
        ("SELECT COUNT(*) FROM (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex)", "per person"),
        ("SELECT COUNT(*) FROM people WHERE id IN (SELECT id FROM people)", "persons"),
        ("SELECT COUNT(*) FROM people WHERE age > (SELECT AVG(age) FROM people)", "released"),
        ("SELECT COUNT(*) FROM people ORDER BY age", "GROUP BY"),
        ("SELECT COUNT(*) FROM people HAVING age > 1", "released|GROUP BY"),
        ("SELECT COUNT(*) FROM people LIMIT 1.5", "whole number"),
        ("SELECT COUNT(*) FROM people GROUP BY 2", "number one of 1"),
        ("SELECT COUNT(DISTINCT (sex, age)) FROM people", "sql must"),
        ("SELECT COUNT(DISTINCT sex, age) FROM people", "one column"),
        ("SELECT SUM(pay) + age FROM people", "released|GROUP BY"),
        ("SELECT QUANTILE_CONT(age, [0.5, 0.5]) FROM people", "different ranks"),
        ("SELECT COUNT(*) FROM people WHERE sex LIKE age", "pattern"),
        ("SELECT COUNT(*) FROM people WHERE day > DATE '2020-01-01' + INTERVAL 5 HOUR", "INTERVAL"),
        ("SELECT COUNT(*) FROM people WHERE CASE WHEN age > 1 THEN NULL ELSE 1 END = 1", "ELSE NULL"),
        ("SELECT COUNT(*) FROM people WHERE random() > 0.5", "sql must"),
        ("SELECT COUNT(*) FROM people WHERE sex SIMILAR TO 'f'", "sql must"),
        ("SELECT COUNT(*) FROM people UNION SELECT 1", "one SELECT"),
        ("SELECT COUNT(*) FROM people; SELECT COUNT(*) FROM people", "one SELECT"),
        ("DROP TABLE people", "one SELECT"),
        ("SELECT COUNT(*) OVER () FROM people", "windows"),
        ("SELECT SUM(DISTINCT pay) FROM people", "sql must"),
        ("SELECT COVAR_SAMP(age, pay) FROM people", "COVAR_POP"),
        ("SELECT CORR(CLAMP(age, 0, 1), age) FROM people", "different"),
        ("SELECT CORR(age, pay, 3) FROM people", "sql must"),
        ("SELECT MAX(age, 3) FROM people", "sql must"),
        ("SELECT STDDEV(age) FROM people", "STDDEV_POP"),
        ("SELECT SUM(CLAMP(age, 0)) FROM people", "CLAMP"),
        ("SELECT SUM(CLAMP(age, 5, 1)) FROM people", "lower < upper"),
        ("SELECT SUM(missing) FROM people", "column"),
        ("SELECT SUM(day) FROM people", "bounds"),
        ("SELECT COUNT(*), COUNT(*) FROM people", "once"),
        ("SELECT COUNT(*) FROM people GROUP BY sex", "keys"),
        ("SELECT COUNT(*) FROM people GROUP BY ROLLUP (sex)", "sql must"),
        ("SELECT COUNT(*) FROM people WHERE age IN (SELECT 1)", "sql must"),
        ("SELECT COUNT(*) FROM people WHERE EXISTS (SELECT 1)", "sql must"),
        ("SELECT COUNT(*) FROM people WHERE error('x')", "sql must"),
        ("SELECT COUNT(*) FROM people WHERE other.age = 1", "table"),
        ("SELECT COUNT(*) FROM people WHERE day < DATE 'soon'", "DATE"),
        ("SELECT COUNT(*) FROM people WHERE sex > 1", "one kind"),
        ("SELECT COUNT(*) FROM 'secret.csv' WHERE", "sql must"),
        ("SELEC", "sql must"),
        ("", "one SELECT"),
        (7, "text"),
    ],
)
def test_what_is_outside_of_the_subset_is_refused_and_nothing_is_charged(account, text, words):
    people = dp.Private(PEOPLE, account=account, bounds=BOUNDS)
    before = account.remaining()
    with pytest.raises(InvalidArgument, match=words):
        people.sql(text, epsilon=1.0)
    assert account.remaining() == before


@pytest.mark.parametrize("source", ["read_csv('people.csv')", "generate_series(1, 5)", "people p(y, who)"])
def test_sql_reads_one_table_under_its_own_columns(account, source):
    people = dp.Private({"who": [1, 2], "y": [1.0, 2.0]}, account=account)
    with pytest.raises(InvalidArgument, match="sql"):
        people.plan(f"SELECT COUNT(y) FROM {source}")
    people.plan("SELECT COUNT(p.y) FROM people AS p")
