"""One row for each person, and counts of different values: one person moves an answer no further than declared."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import discreet as dp
from discreet.analytics import count, count_values, mean
from discreet.analytics import max as largest
from discreet.analytics import min as smallest
from discreet.analytics import sum as total
from discreet.errors import InvalidArgument
from tests.analytics.plans import exact, table
from tests.analytics.plans import row as rows_of
from tests.analytics.test_sensitivity import assert_within

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket.*127.0.0.1:ResourceWarning",  # PySpark leaves its local sockets to the collector
)

UNIT = dp.person("id", max_rows=3, max_groups=2)
MANY = [(float(n), n, "abcdefghij"[n], 0.5) for n in range(10)]
OTHERS = [("p", 1.0, 1, "a", 0.0), ("q", 2.0, 5, "b", 1.0), (None, 3.0, 2, "c", 0.0), ("q", 9.0, None, None, 2.0)]


def questions(people):
    """Questions of every new kind about a table of persons."""
    grouped = people.group_by("g", keys=["a", "b", "c", "d"])
    each = people.per_person(
        rows=count(),
        kinds=count_values("g"),
        s=total("x", bounds=(-5, 5)),
        m=mean("x", bounds=(0, 9)),
        low=smallest("n"),
        high=largest("x"),
    )
    by_group = people.per_person("g", s=total("x", bounds=(-5, 5)))
    declared = people.mutate(y=people.x.clip(-1, 2)).mutate(x=people.x)  # y has bounds of its own
    return {
        "declared bounds": declared.per_person(s=total("y")).aggregate(s=total("s"), n=count()),
        "values": people.count_values("g"),
        "values of numbers": people.count_values("x"),
        "values by group": grouped.aggregate(v=count_values("n"), n=count()),
        "sums per person": each.aggregate(s=total("s", bounds=(-4, 4)), m=mean("m"), n=count(), k=total("kinds")),
        "extremes": each.aggregate(a=total("low", bounds=(-2, 2)), b=total("high", bounds=(-3, 8))),
        "persons by rows": each.group_by("rows", keys=[1, 2, 3, 4]).count(),
        "sums by group": by_group.group_by("g", keys=["a", "b"]).aggregate(s=total("s", bounds=(-4, 4)), n=count()),
        "persons": people.where_person(people.x > 4).aggregate(n=count(), s=total("x", bounds=(0, 4))),
        "others": people.where_person(people.x > 4, negate=True).count(),
    }


def check(account, load, rows, theirs, relation):
    absent, present = (
        questions(dp.Private(load(table(one)), account=account))
        for one in (rows, [*rows, *(("new", *each) for each in theirs)])
    )
    for name in absent:
        assert_within(exact(absent[name]), exact(present[name]), relation)


@pytest.mark.parametrize("theirs", [MANY, MANY[:1], [MANY[0]] * 20], ids=["many", "one", "equal"])
def test_one_person_moves_no_answer_further_than_declared(account_of, theirs):
    check(account_of(UNIT), lambda rows: rows, OTHERS, theirs, dp.ADD_REMOVE)


@pytest.mark.slow
@given(st.lists(rows_of, max_size=6), st.lists(st.tuples(st.sampled_from("pq"), rows_of), max_size=4))
@settings(max_examples=4, deadline=None)
def test_random_persons_move_no_answer_further_than_declared(account_of, theirs, others):
    check(account_of(UNIT), lambda rows: rows, [(who, *each) for who, each in others], theirs, dp.ADD_REMOVE)


def test_every_engine_answers(engine, account_of):
    for answer in questions(dp.Private(engine(table(OTHERS)), account=account_of(UNIT))).values():
        answer.release(epsilon=1.0)


def test_values_of_rows_are_counted_once(account):
    people = dp.Private(table([*OTHERS, ("r", 1.0, 1, "a", 0.0)]), account=account)
    assert exact(people.count_values("g"))["values"][0].values.tolist() == 3
    assert people.count_values("g").release(epsilon=1e5).value == 3


def test_a_limit_on_values_is_enforced(account_of):
    """A mutant without the limit counts all ten values of one person."""
    people = dp.Private(table([("p", *one) for one in MANY]), account=account_of(UNIT))
    (found,) = exact(people.count_values("g"))["values"]
    assert found.finish.value(found.values) == UNIT.max_rows


def test_a_table_of_persons_has_one_row_for_each(account_of):
    account = account_of(UNIT)
    each = dp.Private(table(OTHERS), account=account).per_person(n=count())
    assert each._spec.unit.max_rows == 1
    (found,) = exact(each.count())["count"]
    assert found.finish.value(found.values) == 2
    assert each._spec.bounds["n"] == (0, 3)


def test_sums_of_a_person_do_not_depend_on_the_order_of_rows(account_of):
    values = [0.1, 1e15, -1e15, 0.2, 0.3]
    orders = [values, values[::-1], sorted(values)]
    sums = []
    for order in orders:
        data = pa.table({"id": ["p"] * 5, "x": order})
        each = dp.Private(data, account=account_of(UNIT)).per_person(s=total("x", bounds=(-1, 1)))
        sums.append(each._spec.table.to_pyarrow()["s"].to_pylist())
    assert sums[0] == sums[1] == sums[2]
    assert sums[0][0] == pytest.approx(0.6, abs=1e-6)


def test_a_row_is_clamped_to_declared_bounds_times_max_rows_before_it_is_added(account_of):
    """One row of 8 is within what three rows of at most 5 may add up to; a person's sum is limited to that."""
    rows = pa.table({"id": ["p", "p", "q", "r"], "x": [8.0, 1.0, 100.0, -2.0]})
    people = dp.Private(rows, account=account_of(UNIT), bounds={"x": (0, 5)})

    def found(each):
        (bounded,) = exact(each.aggregate(s=total("s")))["s"]
        return float(np.ravel(bounded.finish.value(bounded.values))[0])

    assert found(people.per_person(s=total("x"))) == pytest.approx(9.0 + 15.0 + 0.0, abs=1e-3)
    assert found(people.per_person(s=total("x", bounds=(0, 5)))) == pytest.approx(6.0 + 5.0 + 0.0, abs=1e-3)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda p: p.per_person(m=dp.analytics.median("x", bounds=(0, 1))), "exactly"),
        (lambda p: p.per_person(s=total("x")), "bounds"),
        (lambda p: p.per_person(s=3), "aggregate"),
        (lambda p: p.per_person(id=count()), "another name"),
        (lambda p: p.per_person("missing", n=count()), "column"),
        (lambda p: p.where_person(True), "expression"),
    ],
)
def test_what_cannot_be_aggregated_per_person_is_refused(account_of, refused, words):
    with pytest.raises(InvalidArgument, match=words):
        refused(dp.Private(table(OTHERS), account=account_of(UNIT)))


def test_rows_have_no_persons(account):
    people = dp.Private(table(OTHERS), account=account)
    for refused in (lambda: people.per_person(n=count()), lambda: people.where_person(people.x > 1)):
        with pytest.raises(InvalidArgument, match="protects persons"):
            refused()
