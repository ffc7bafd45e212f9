"""Everyday clauses of SQL: groups by expression, filters, quantiles, sub-queries, and what follows the release."""

from __future__ import annotations

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

import discreet as dp
from discreet.errors import InvalidArgument

DAYS = [dt.date(2023, 12, 31), dt.date(2024, 1, 1), dt.date(2024, 1, 31), None, dt.date(2024, 2, 29)]
DAYS.append(dt.date(1969, 7, 20))
VISITS = pa.table(
    {
        "person": ["p", "q", "p", "r", "p", "q"],
        "ward": ["a", "b", "a", "a", None, "b"],
        "cost": [10.0, 20.0, 5.0, 8.0, 7.0, None],
        "age": [30, 40, 30, 50, 30, 40],
        "day": DAYS,
        "urgent": [True, False, None, False, True, False],
    }
)
BOUNDS = {"cost": (0, 64), "age": (0, 128)}
#: So large that the noise rounds to nothing: the largest 95% error is below 1e-3, so a value is off by 0.01
#: with probability below 1e-9.
EPSILON = 1e7
BUDGET = dp.PureDP(1e9)


@pytest.fixture
def visits(account_of):
    return dp.Private(VISITS, account=account_of(fresh=True, budget=BUDGET), bounds=BOUNDS)


@pytest.fixture
def persons(account_of):
    return dp.Private(
        VISITS, account=account_of(dp.person("person", max_rows=4), fresh=True, budget=BUDGET), bounds=BOUNDS
    )


def plain(sql):
    connection = duckdb.connect()
    connection.register("visits", VISITS)
    cursor = connection.execute(sql)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def assert_same(table, sql, keys=None):
    result = table.sql(sql, epsilon=EPSILON, keys=keys)
    errors = {output.error for output in result.outputs}
    found = [{name: value for name, value in row.items() if name not in errors} for row in result.rows()]
    wanted = [row for row in plain(sql) if None not in list(row.values())[: result.group_columns]]
    assert [list(row) for row in found] == [list(row) for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        for name in one:
            value = other[name].date() if isinstance(other[name], dt.datetime) else other[name]
            assert one[name] == pytest.approx(value, abs=0.01) if isinstance(value, float | int) else one[name] == value


MONTHS = {"month": dp.months("2023-12", "2024-02")}


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT ward, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1", {"ward": ["a", "b"]}),
        ("SELECT ward AS w, COUNT(*) AS n FROM visits GROUP BY w ORDER BY w DESC", {"ward": ["a", "b"]}),
        ("SELECT ward AS w, COUNT(*) AS n FROM visits GROUP BY ward ORDER BY n DESC LIMIT 1", {"w": ["a", "b"]}),
        (
            (
                "SELECT DATE_TRUNC('month', day) AS month, SUM(cost) AS s FROM visits WHERE day >= '2023-12-01' "
                "GROUP BY month ORDER BY month"
            ),
            MONTHS,
        ),
        ("SELECT age > 35 AS old, COUNT(*) AS n FROM visits GROUP BY old ORDER BY n DESC, old LIMIT 1 OFFSET 1", None),
        (
            "SELECT CASE WHEN age > 35 THEN 'x' ELSE 'y' END AS k, AVG(cost) AS c FROM visits GROUP BY 1 ORDER BY k",
            None,
        ),
        ("SELECT FLOOR(age / 20) AS f, COUNT(*) AS n FROM visits GROUP BY f ORDER BY f", {"f": [1, 2]}),
        (
            (
                "SELECT ward, COUNT(*) FILTER (WHERE urgent) AS u, SUM(cost) FILTER (WHERE age < 45) AS s FROM visits "
                "GROUP BY ward ORDER BY ward"
            ),
            {"ward": ["a", "b"]},
        ),
        ("SELECT COUNT(DISTINCT ward) AS w, COUNT(DISTINCT age % 20) AS a FROM visits", None),
        ("SELECT SUM(cost * 2) / COUNT(cost) AS m, ROUND(AVG(cost)) AS r FROM visits", None),
        (
            "SELECT ward, AVG(age) AS a FROM visits GROUP BY ward HAVING COUNT(*) > 2 AND NOT ward = 'z'",
            {"ward": ["a", "b"]},
        ),
        (
            "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING n BETWEEN 1 AND 2 OR ward IN ('q')",
            {"ward": ["a", "b"]},
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT age * 2 AS d FROM visits WHERE cost > 6) AS v WHERE d > 70",
            None,
        ),
        (
            (
                "WITH v AS (SELECT *, cost / 2 AS half FROM visits), w AS (SELECT half FROM v WHERE ward = 'a') "
                "SELECT AVG(half) AS h FROM w"
            ),
            None,
        ),
        ("SELECT COUNT_IF(urgent) AS u FROM visits", None),
        ("SELECT urgent, COUNT(*) AS n FROM visits GROUP BY 1 ORDER BY 1", None),
        ("SELECT urgent AS u, COUNT(*) AS n FROM visits GROUP BY u ORDER BY u", None),
        ("SELECT SUM(urgent::INT) AS u, AVG(SQRT(cost)) AS r FROM visits", None),
        (
            "SELECT UPPER(ward) AS Ward, COUNT(ward) AS n FROM visits WHERE ward = 'a' GROUP BY 1 ORDER BY Ward",
            {"Ward": ["A"]},
        ),
        ("SELECT FLOOR(cost / 10) AS COST, AVG(cost) AS c FROM visits GROUP BY 1 ORDER BY 1", {"COST": [0, 1, 2]}),
    ],
)
def test_a_query_gives_what_the_engine_gives(visits, sql, keys):
    assert_same(visits, sql, keys)


@pytest.mark.parametrize(
    ("sql", "keys"),
    [
        ("SELECT AVG(s) AS m FROM (SELECT person, SUM(cost) AS s FROM visits GROUP BY person)", None),
        (
            "SELECT n, COUNT(*) AS k FROM (SELECT person, COUNT(*) AS n FROM visits GROUP BY 1) GROUP BY n ORDER BY n",
            {"n": [1, 2, 3]},
        ),
        ("SELECT COUNT(*) AS n FROM (SELECT person FROM visits GROUP BY person HAVING SUM(cost) > 9)", None),
        (
            (
                "WITH spans AS (SELECT person, MIN(day) AS first, MAX(day) AS last FROM visits GROUP BY person) "
                "SELECT COUNT(*) AS n, COUNT(DISTINCT person) AS p FROM spans WHERE last - first > 40"
            ),
            None,
        ),
        (
            (
                "SELECT ward, AVG(a) AS a FROM (SELECT person AS who, ward, AVG(cost) AS a FROM visits GROUP BY 1, 2) "
                "GROUP BY ward ORDER BY ward"
            ),
            {"ward": ["a", "b"]},
        ),
        (
            "SELECT COUNT(*) AS n FROM visits WHERE person IN (SELECT person FROM visits WHERE urgent) AND cost > 6",
            None,
        ),
        ("SELECT COUNT(*) AS n FROM visits WHERE person NOT IN (SELECT person FROM visits WHERE urgent)", None),
        ("SELECT AVG(k) AS k FROM (SELECT person, COUNT(DISTINCT ward) AS k FROM visits GROUP BY person)", None),
        (
            "SELECT SUM(k) AS k FROM (SELECT person, COUNT(*) FILTER (WHERE urgent) AS k FROM visits GROUP BY person)",
            None,
        ),
        ("SELECT SUM(d) AS d FROM (SELECT person, MAX(cost) - MIN(cost) AS d FROM visits GROUP BY person)", None),
        (
            (
                "SELECT cost, SUM(s) AS s FROM (SELECT person, FLOOR(cost / 10) AS cost, SUM(cost) AS s FROM visits "
                "GROUP BY 1, 2) GROUP BY cost ORDER BY cost"
            ),
            {"cost": [0, 1, 2]},
        ),
        (
            "SELECT WARD, COUNT(*) AS n FROM (SELECT person, ward || '!' AS WARD FROM visits) GROUP BY 1 ORDER BY 1",
            {"WARD": ["a!", "b!"]},
        ),
    ],
)
def test_a_sub_query_aggregates_each_persons_rows_first(persons, sql, keys):
    assert_same(persons, sql, keys)


def test_the_person_s_id_keeps_its_name_in_every_case(persons):
    with pytest.raises(InvalidArgument, match="person's id"):
        persons.plan("SELECT UPPER(person) AS PERSON, COUNT(*) FROM visits GROUP BY 1", keys=["P"])


def test_several_quantiles_have_a_column_each(visits):
    for text in (
        "SELECT QUANTILE_CONT(age, [0.25, 0.5]) AS q FROM visits",
        "SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY age) AS q_25, MEDIAN(age) AS q_50 FROM visits",
    ):
        rows = visits.sql(text, epsilon=EPSILON).rows()
        assert {"q_25", "q_50", "q_25_rank_error"} <= set(rows[0])


def test_an_aggregate_is_measured_once_and_hidden_ones_are_not_shown(visits):
    text = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward HAVING COUNT(*) > 1 ORDER BY COUNT(*)"
    once = visits.plan(text, keys={"ward": ["a", "b"]})
    plain_count = visits.plan("SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward", keys={"ward": ["a", "b"]})
    assert once.event(0.5) == plain_count.event(0.5)
    hidden = visits.sql(
        "SELECT ward, AVG(age) AS a FROM visits GROUP BY ward HAVING COUNT(*) > 1",
        epsilon=EPSILON,
        keys={"ward": ["a", "b"]},
    )
    assert set(hidden.columns) == {"ward", "a", "a_error"}


def test_what_follows_the_release_costs_nothing(account_of):
    account = account_of(budget=dp.PureDP(10.0), fresh=True)
    table = dp.Private(VISITS, account=account, bounds=BOUNDS)
    text = "SELECT ward, SUM(cost) / COUNT(*) AS c FROM visits GROUP BY ward HAVING SUM(cost) > 0 ORDER BY c LIMIT 1"
    table.sql(text, epsilon=3.0, keys={"ward": ["a", "b"]})
    assert account.remaining().epsilon == pytest.approx(7.0)


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [("SELECT COUNT(* FROM visits", 1, 16), ("SELECT COUNT(*)\nFROM visits\nWHERE age >", 3, 11)],
)
def test_a_syntax_error_shows_its_place(visits, sql, line, column):
    with pytest.raises(InvalidArgument, match=f"line {line}, column {column}") as caught:
        visits.plan(sql)
    shown, caret = str(caught.value).splitlines()[1:]
    assert shown.strip() in sql
    assert caret.index("^") == column + 1


def test_a_refusal_names_the_place(visits):
    with pytest.raises(InvalidArgument, match=r"line 2, column 7"):
        visits.plan("SELECT COUNT(*) FROM visits\nWHERE mystery(ward) = 1")


def test_deep_and_long_conditions_keep_working(visits):
    joined = " AND ".join(f"age <> {number}" for number in range(1500))
    visits.plan(f"SELECT COUNT(*) FROM visits WHERE CASE WHEN {joined} THEN 1 ELSE 0 END = 1")
    with pytest.raises(InvalidArgument, match="nested less deeply"):
        visits.plan("SELECT COUNT(*) FROM visits WHERE " + "(" * 3000 + "age > 1" + ")" * 3000)


REMEDIES = {
    "SELECT ward, COUNT(*) FROM visits GROUP BY ALL": "GROUP BY 1, 2",
    "SELECT ward, COUNT(*) FROM visits GROUP BY ROLLUP (ward)": "hierarchy",
    "SELECT COUNT(*) FROM visits TABLESAMPLE 10 PERCENT": "all rows",
    "SELECT COUNT(*) FROM visits WHERE age BETWEEN SYMMETRIC 9 AND 1": "smaller end first",
    "SELECT COUNT(*) FROM visits WHERE day > CURRENT_DATE": "DATE '2024-12-31'",
    "SELECT COUNT(*) FROM visits WHERE day > NOW()": "written out",
    "SELECT COUNT(*) FROM visits WHERE ward SIMILAR TO 'a%'": "LIKE",
    "SELECT COUNT(*) FROM visits WHERE REGEXP_MATCHES(ward, 'a')": "LIKE",
    "SELECT STRING_AGG(ward, ',') FROM visits": "GROUP BY",
    "SELECT MODE(ward) FROM visits": "ORDER BY",
    "SELECT APPROX_COUNT_DISTINCT(ward) FROM visits": "COUNT(DISTINCT column)",
    "SELECT SUM(DISTINCT age) FROM visits": "COUNT(DISTINCT column)",
    "SELECT COUNT(*) FROM visits WHERE age IS NOT DISTINCT FROM 1": "IS NULL",
    "SELECT COUNT(*) FROM visits WHERE age = ?": "the value itself",
    "SELECT COUNT(*) FROM visits WHERE age > ALL (SELECT age FROM visits)": "MIN or MAX",
    "SELECT FIRST(ward) FROM visits": "private",
    "SELECT ward FROM visits GROUP BY ward": "COUNT(*)",
}


@pytest.mark.parametrize("sql", REMEDIES)
def test_a_clause_that_is_refused_has_its_own_remedy(visits, sql):
    with pytest.raises(InvalidArgument) as refused:
        visits.plan(sql)
    assert REMEDIES[sql] in str(refused.value).partition(": ")[2]


def test_whole_division_is_rounded_toward_zero_as_in_sql_and_down_in_python(visits):
    moved = visits.mutate(down=(visits.age - 47) // 2)
    assert moved.group_by("down", keys=[-9, -4, 1]).count().release(epsilon=EPSILON).columns["count"] == (3, 2, 1)
    sql = "SELECT (age - 47) // 2 AS half, COUNT(*) AS n FROM visits GROUP BY half"
    assert visits.sql(sql, epsilon=EPSILON, keys={"half": [-8, -3, 1]}).columns["n"] == (3, 2, 1)


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("d <= 0.06 + 0.01", 4),  # 0.06 + 0.01 is 0.06999… in floats
        ("d BETWEEN 0.06 - 0.01 AND (0.06 + 0.01)", 4),
        ("d <= 2 * 0.035", 4),
        ("d < 1 - -(0.5 + 0.5) * 3", 5),
    ],
)
def test_arithmetic_with_numbers_is_exact_as_in_sql(account_of, condition, rows):
    table = dp.Private(pa.table({"d": [0.05, 0.06, 0.07, 0.07, 0.08]}), account=account_of(fresh=True, budget=BUDGET))
    assert table.plan(f"SELECT COUNT(*) FROM t WHERE {condition}").release(epsilon=EPSILON).value == rows


def test_a_number_that_is_none_is_refused(visits):
    with pytest.raises(InvalidArgument, match="use a number"):
        visits.plan("SELECT COUNT(*) FROM t WHERE cost <= 1e400+1")


def test_intervals_follow_the_rows_that_stay_and_their_order(visits):
    text = "SELECT ward, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY ward"
    whole = visits.sql(f"{text} ORDER BY ward", epsilon=EPSILON, keys={"ward": ["a", "b", "c"]})
    turned = visits.sql(
        f"{text} HAVING n > 0 ORDER BY ward DESC LIMIT 2", epsilon=EPSILON, keys={"ward": ["c", "a", "b"]}
    )
    assert turned.columns["ward"] == ("b", "a")
    for result in (whole, turned):
        for column in ("n", "s"):
            low, high = result.confidence_interval(column=column)
            middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
            assert middle == pytest.approx(result.columns[column], abs=0.01)
