"""The benchmark of everyday questions is fair: errors count all groups, and other libraries get the same question."""

from __future__ import annotations

import datetime as dt

import pytest

from benchmarks.questions import _adult, _tpch, _visits
from benchmarks.questions._asking import is_cut, relative_error, text
from benchmarks.questions._flat import Unsuited, flat
from benchmarks.questions._peers import _outputs
from benchmarks.questions._question import Asked

VISITS = {"visits": "person", "patients": "person"}
BOUNDS = {"cost": (0.0, 5000.0), "discount": (0.0, 0.1), "loss": (0.0, 7.0)}


def of_visits(sql, **keys):
    return flat(Asked("a question", sql, keys, max_rows=8), VISITS, BOUNDS)


def test_there_are_sixty_questions_and_one_of_them_has_no_flat_form():
    databases = [(_adult, {"adult": None}), (_visits, VISITS), (_tpch, _tpch.PRIVATE)]
    unsuited = []
    for module, private in databases:
        for asked in module.QUESTIONS:
            try:
                assert flat(asked, private, module.BOUNDS).aggregates
            except Unsuited:
                unsuited.append(asked.name)
    assert sum(len(module.QUESTIONS) for module, _ in databases) == 60
    assert unsuited == ["visits: above the average cost"]


def test_a_flat_table_keeps_the_person_the_group_and_the_values_of_each_row():
    own = of_visits("SELECT w.b, SUM(v.cost) FROM visits v JOIN wards w ON v.ward = w.name GROUP BY w.b", b=["N", "S"])
    assert own.rows == (
        "SELECT v.person AS person, CAST(w.b AS TEXT) AS g0, CAST(v.cost AS DOUBLE) AS v0 "
        "FROM visits AS v JOIN wards AS w ON v.ward = w.name"
    )
    assert own.max_rows == 8
    assert own.keys == [["N", "S"]]


def test_a_subquery_that_drops_the_person_keeps_it_in_the_flat_table():
    own = of_visits("SELECT AVG(c) FROM (SELECT cost AS c FROM visits WHERE emergency)")
    assert own.rows.startswith("SELECT person AS person")
    assert "cost AS c, person FROM visits" in own.rows


@pytest.mark.parametrize(
    ("by", "limit"),
    [("person", 1), ("person, ward", 2), ("person, day", 8)],
)
def test_a_person_has_as_many_rows_as_a_subquery_leaves(by, limit):
    inner = f"SELECT {by}, ward AS ward, SUM(cost) AS total FROM visits GROUP BY {by}"
    assert of_visits(f"SELECT ward, COUNT(*) FROM ({inner}) GROUP BY ward", ward=["A", "B"]).max_rows == limit


@pytest.mark.parametrize(
    ("value", "bounds"),
    [
        ("cost", (0, 5000)),
        ("cost * (1 - discount)", (0, 5000)),
        ("cost - COALESCE(loss, 0)", (-7, 5000)),
        ("CASE WHEN a = 'b' THEN cost ELSE 0 END", (0, 5000)),
        ("CLAMP(day - other, 0, 30)", (0, 30)),
    ],
)
def test_expressions_have_the_bounds_that_follow_from_their_columns(value, bounds):
    (own,) = of_visits(f"SELECT AVG({value}) FROM visits").aggregates
    assert own.bounds == pytest.approx(bounds)


def test_numbers_are_computed_from_released_aggregates():
    own = of_visits("SELECT ward, COUNT(*) FILTER (WHERE e) / COUNT(*) FROM visits GROUP BY ward", ward=["A", "B"])
    assert [one.kind for one in own.aggregates] == ["sum", "count"]
    assert _outputs([["A", 30.0, 100.0], ["B", 1.0, 0.0]], own)[0] == ["A", 0.3]
    assert _outputs([], own) == []


def test_groups_and_numbers_that_are_missing_count_as_errors_of_one():
    truth = {("a",): [100], ("b",): [50], ("c",): [0]}
    found = {("a",): [110], ("c",): [3]}
    assert relative_error([found], truth, whole=True) == pytest.approx((0.1 + 1) / 2)
    assert relative_error([found], truth, whole=False) == pytest.approx(0.1)
    assert relative_error([{("a",): [None]}], truth, whole=False) == 1
    assert relative_error([{}], truth, whole=False) == 1


def test_keys_compare_as_text_across_drivers():
    same = [(dt.date(2023, 1, 1), dt.datetime(2023, 1, 1)), (10, 10.0), (True, "true"), ("a", "a")]
    assert all(text(one) == text(other) for one, other in same)


def test_only_limits_and_conditions_on_groups_cut_an_answer():
    assert is_cut("SELECT a, COUNT(*) FROM t GROUP BY a LIMIT 3")
    assert is_cut("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 3")
    assert not is_cut("SELECT a, COUNT(*) FROM t GROUP BY a ORDER BY a")
