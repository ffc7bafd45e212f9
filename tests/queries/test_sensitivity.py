"""No neighbor moves a query's exact integers by more than the query declares: the test that catches glue-code bugs.

Random tables with everything a row may hold, random neighbors under each relation, for rows and for persons. Mutants
(no clamp, no row limit, bounds taken from the data, NaN let through) must be caught.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet import queries
from discreet.bounded import Bounded, Scores
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation
from discreet.queries import contributions
from discreet.queries.grid import Grid


class Hostile:
    """A row that fails at everything a query might try."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError("the secret is 42")

    __eq__ = __float__ = __hash__ = __bool__ = __lt__ = _fail  # type: ignore[assignment]


JUNK = [
    None,
    math.nan,
    math.inf,
    -math.inf,
    -0.0,
    5e-324,
    2.0**53 + 1,
    2**63 - 1,
    -(2**63),
    10**400,
    -(10**400),
    np.float32(1.5),
    Decimal("1.25"),
    Decimal("NaN"),
    Fraction(10, 3),
    True,
    "7",
    "",
    "a\0b",
    b"x",
    [1, 2],
    {},
    1 + 2j,
    Hostile(),
]
rows = st.one_of(st.integers(-15, 15), st.floats(-12, 12), st.sampled_from(["a", "b"]), st.sampled_from(JUNK[:-1]))
people = st.one_of(st.integers(0, 3), st.sampled_from([None, math.nan, "p", [1]]))

BOUNDS = [(0, 10), (-3, 8), (2.5, 9.75), (-7, -1), (-1e-3, 1e9)]
QUERIES: dict[str, Callable[..., Bounded | Scores]] = {
    "count": lambda v, b, **k: queries.count(v, **k),
    "sum": lambda v, b, **k: queries.sum(v, bounds=b, **k),
    "mean": lambda v, b, **k: queries.mean(v, bounds=b, **k),
    "mean, count share .9": lambda v, b, **k: queries.mean(v, bounds=b, count_share=0.9, **k),
    "variance": lambda v, b, **k: queries.variance(v, bounds=b, **k),
    "covariance": lambda v, b, **k: queries.covariance(v, v, bounds=(b, (-4, 9)), **k),
    "correlation": lambda v, b, **k: queries.correlation(v, v, bounds=((-4, 9), b), **k),
    "histogram of categories": lambda v, b, **k: queries.histogram(v, categories=["a", "b", 3, 2.0], **k),
    "histogram of one bin": lambda v, b, **k: queries.histogram(v, categories=["a"], **k),
    "histogram of intervals": lambda v, b, **k: queries.histogram(v, edges=[b[0], (b[0] + b[1]) / 2, b[1]], **k),
    "votes": lambda v, b, **k: queries.votes(v, candidates=["a", "b", 3], **k),
    "median scores": lambda v, b, **k: queries.quantile_scores(v, candidates=[-5, 0, 2.5, 7], **k),
    "quantile scores": lambda v, b, **k: queries.quantile_scores(v, quantile=0.9, candidates=[-5, 0, 7], **k),
}


def assert_within(first: Bounded | Scores, second: Bounded | Scores, relation: Relation) -> None:
    """The difference of the exact integers is at most what the query declares, in every norm."""
    moved = [abs(a - b) for a, b in zip(first.values.ravel().tolist(), second.values.ravel().tolist(), strict=True)]
    if isinstance(first, Scores):
        assert max(moved) <= first.sensitivity(relation)
        signed = (first.values - second.values).tolist()
        if first.is_monotone(relation):
            assert min(signed) >= 0 or max(signed) <= 0
        return
    bound = first.sensitivity(relation)
    assert sum(m > 0 for m in moved) <= bound.l0
    assert sum(moved) <= bound.l1
    assert sum(m * m for m in moved) <= bound.l2_squared
    assert max(moved) <= bound.linf


def assert_rows_are_covered(name: str, table: list, extra: Any, other: Any, where: int, bounds: Any) -> None:
    ask = QUERIES[name]
    at = where % (len(table) + 1)
    absent, present = table, [*table[:at], extra, *table[at:]]
    swapped = [*table[:at], other, *table[at:]]
    assert_within(ask(absent, bounds), ask(present, bounds), ADD_REMOVE)
    assert_within(ask(present, bounds), ask(swapped, bounds), REPLACE_ONE)


@pytest.mark.parametrize("name", QUERIES)
@given(
    table=st.lists(rows, max_size=6),
    extra=rows,
    other=rows,
    where=st.integers(0, 6),
    bounds=st.sampled_from(BOUNDS),
)
@settings(max_examples=150, deadline=None)
def test_one_row_moves_no_query_further_than_declared(name, table, extra, other, where, bounds):
    assert_rows_are_covered(name, table, extra, other, where, bounds)


@pytest.mark.parametrize("name", QUERIES)
@given(
    table=st.lists(st.tuples(rows, people), max_size=8),
    theirs=st.lists(st.tuples(rows, st.integers(0, 12)), max_size=7),
    others=st.lists(st.tuples(rows, st.integers(0, 12)), max_size=7),
    max_rows=st.integers(1, 4),
    bounds=st.sampled_from(BOUNDS),
)
@settings(max_examples=150, deadline=None)
def test_one_person_moves_no_query_further_than_declared(name, table, theirs, others, max_rows, bounds):
    def with_rows_of(added):
        whole = list(table)
        for value, where in added:
            whole.insert(where % (len(whole) + 1), (value, "new person"))
        return whole

    def ask(whole):
        ids = [person for _, person in whole]
        return QUERIES[name]([value for value, _ in whole], bounds, persons=ids, max_rows=max_rows)

    assert_within(ask(table), ask(with_rows_of(theirs)), ADD_REMOVE)
    assert_within(ask(with_rows_of(theirs)), ask(with_rows_of(others)), REPLACE_ONE)


@given(
    table=st.lists(rows, min_size=1, max_size=6), other=rows, where=st.integers(0, 5), bounds=st.sampled_from(BOUNDS)
)
@settings(max_examples=200, deadline=None)
def test_queries_of_known_size_are_covered_under_replace_one(table, other, where, bounds):
    swapped = list(table)
    swapped[where % len(table)] = other
    for ask in (
        lambda v: queries.mean(v, bounds=bounds, relation=REPLACE_ONE),
        lambda v: queries.accuracy(v, ["a"] * len(v)),
    ):
        first, second = ask(table), ask(swapped)
        assert first.granularity == second.granularity
        assert_within(first, second, REPLACE_ONE)


def test_zero_out_is_covered_like_removal():
    for ask in QUERIES.values():
        made = ask([1, 2, 3], (0, 10))
        assert made.sensitivity(ZERO_OUT) == made.sensitivity(ADD_REMOVE)


def test_the_declared_sensitivities_are_reached():
    """Not only safe but tight: some neighbor moves each query as far as it declares (variance: within 1%)."""
    assert queries.sum([10], bounds=(-3, 10)).values == queries.sum([1], bounds=(-3, 10)).sensitivity().l1
    far, near = (queries.sum([x], bounds=(-3, 10)).values for x in (10, -3))
    assert far - near == queries.sum([1], bounds=(-3, 10)).sensitivity(REPLACE_ONE).l1
    one = queries.mean([10], bounds=(0, 10))
    assert np.abs(one.values).sum() == one.sensitivity().l1
    assert (one.values**2).sum() == one.sensitivity().l2_squared
    best = 0.0
    top = queries.variance([1.0], bounds=(-1, 1))
    for x in np.linspace(-1, 1, 401):
        moved = np.abs(top.values - queries.variance([x], bounds=(-1, 1)).values).astype(float)
        best = max(best, moved.sum() / top.sensitivity(REPLACE_ONE).l1)
    assert 0.99 < best <= 1


# --- mutants


@pytest.mark.parametrize("name", ["sum", "mean", "variance"])
def test_mutant_that_does_not_clamp_is_caught(monkeypatch, name):
    def unclamped(self, values, missing):
        levels = np.rint(np.ldexp(values - float(self.center), -self.exponent))
        return np.where(np.isnan(levels), missing, levels).astype(np.int64)

    monkeypatch.setattr(Grid, "levels", unclamped)
    with pytest.raises(AssertionError):
        assert_rows_are_covered(name, [1.0], 1e4, 2.0, 0, (0, 10))


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_mutant_that_takes_its_bounds_from_the_data_is_caught(monkeypatch, name):
    real = Grid.levels
    monkeypatch.setattr(Grid, "levels", lambda self, v, m: real(self, 10 * v / max(v, default=1.0), m))
    with pytest.raises(AssertionError):
        assert_rows_are_covered(name, [1.0] * 6, 10.0, 0.0, 0, (0, 10))


@pytest.mark.parametrize("name", ["count", "sum", "mean", "histogram of categories", "votes"])
def test_mutant_that_ignores_the_row_limit_is_caught(monkeypatch, name):
    monkeypatch.setattr(contributions, "limit_rows", lambda persons, max_rows: np.ones(len(persons), dtype=bool))
    table = ["a"] * 9 if name in ("histogram of categories", "votes") else [10.0] * 9
    with pytest.raises(AssertionError):
        assert_within(
            QUERIES[name]([], (0, 10), persons=[], max_rows=2),
            QUERIES[name](table, (0, 10), persons=["x"] * 9, max_rows=2),
            ADD_REMOVE,
        )


def test_mutant_that_lets_nan_through_is_caught(monkeypatch):
    monkeypatch.setattr(Grid, "levels", lambda self, v, m: np.full(len(v), np.iinfo(np.int64).min >> 4))
    with pytest.raises(AssertionError):
        assert_rows_are_covered("sum", [1.0], math.nan, 2.0, 0, (0, 10))


# --- found by review, each once wrong


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_a_numpy_integer_as_row_limit_does_not_overflow_the_sensitivity(kind):
    rows = 100 if kind in (np.int8, np.uint8) else 300
    for name, ask in QUERIES.items():
        plain = ask([1], (0, 10), persons=["a"], max_rows=rows)
        assert dict(ask([1], (0, 10), persons=["a"], max_rows=kind(rows)).sensitivities) == dict(plain.sensitivities), (
            name
        )


@pytest.mark.parametrize("bounds", [(5, 10), (-10, -5), (0.1, 0.3)])
def test_a_person_may_be_exchanged_for_one_without_a_usable_row(bounds):
    first, second = (queries.sum([bounds[1]] * 2, bounds=bounds, persons=["a", who], max_rows=1) for who in ("b", None))
    assert_within(first, second, REPLACE_ONE)


@pytest.mark.parametrize(
    "ids",
    [
        [(1, math.nan)] * 50,
        np.array([(1, math.nan)] * 50, dtype=[("a", int), ("b", float)]),
        [Hostile() for _ in range(50)],
        [object() for _ in range(50)],
        [math.nan] * 50,
    ],
    ids=["tuple with NaN", "structured", "hostile", "objects", "NaN"],
)
def test_an_id_that_does_not_equal_itself_is_no_way_around_the_limit(ids):
    assert queries.limit_rows(ids, max_rows=1).sum() == 0


def test_composite_ids_are_people():
    assert queries.limit_rows([("a", 1), ("a", 1), ("a", 2)], max_rows=1).tolist() == [True, False, True]


@pytest.mark.filterwarnings("error")
def test_labels_of_mixed_precision_are_compared_without_a_warning():
    assert queries.accuracy(np.array([1, 2, 3], dtype=np.float32), [1.0, 1e300, 3.0]).values == 1


def test_a_person_with_many_rows_and_a_small_epsilon_can_be_released():
    made = queries.sum([1.0], bounds=(0, 1), persons=["a"], max_rows=1000)
    assert made.sensitivity().l1 <= 1 << 29
    import discreet as dp

    assert dp.laplace(made, epsilon=1e-5).standard_error == pytest.approx(math.sqrt(2) * 1000 / 1e-5, rel=0.01)


# --- nothing but the release escapes


@pytest.mark.parametrize("row", JUNK, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.filterwarnings("error")
def test_a_row_of_any_kind_changes_no_error_type_or_shape(name, row):
    """With and without the row: no exception, no warning, same dtype, shape, grid and sensitivity."""
    with_row, without = (QUERIES[name](table, (0, 10)) for table in ([1, row, 2], [1, 2]))
    for a, b in ((with_row, without), (QUERIES[name]([row], (0, 10)), QUERIES[name]([], (0, 10)))):
        assert a.values.dtype == b.values.dtype
        assert a.values.shape == b.values.shape
        assert dict(a.sensitivities) == dict(b.sensitivities)
        assert repr(a) == repr(b)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(order=st.permutations(list(range(8))))
def test_the_order_of_the_rows_does_not_matter(order):
    table = [0.1, 0.2, 0.3, 1e-9, 5.5, None, 7.25, 9.999]
    for name, ask in QUERIES.items():
        assert np.array_equal(ask(table, (0, 10)).values, ask([table[i] for i in order], (0, 10)).values), name
