"""A new aggregate is one class and its entry in the registry: tables, SQL, previews and results follow from these."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import discreet as dp
from discreet import analytics
from discreet.analytics.aggregates import registry
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds, OfColumn, resolve_bounds
from discreet.analytics.aggregates.measurement import Sums
from discreet.analytics.aggregates.terms import Combined, Holds, Level
from discreet.analytics.table.expressions import Column
from discreet.apps.wire import values
from discreet.bounded import Scaled, Sensitivity
from discreet.errors import InvalidArgument
from discreet.neighbors import Unit
from discreet.queries.aggregated import Summed, summed_counts
from discreet.queries.grid import Grid
from discreet.queries.weighted import levels, scale
from tests.analytics.plans import exact

ROWS = {"id": [*"ppqqqr"], "g": [*"aabbab"], "x": [1.0, 5.0, 7.0, None, -4.0, 12.0]}


@dataclass(frozen=True)
class CountAbove(Aggregate):
    """The number of rows whose value lies above a public threshold."""

    name = "count_above"
    sql_names = ("COUNT_ABOVE",)
    counts = True
    adds_up = True

    column: str
    threshold: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        above = Holds(Column(self.column) > self.threshold)
        return Sums(self, unit, (above,), summed_counts(self.name, unit))

    @classmethod
    def from_sql(cls, call) -> tuple[str, Aggregate]:
        column, threshold = call.column(), call.number(1)
        if threshold is None:
            raise call.refused("COUNT_ABOVE(column, threshold)")
        return call.alias(column), cls(column, threshold)


@dataclass(frozen=True)
class SumOfSquares(OfColumn):
    """The sum of the squares of clamped values."""

    name = "sum_of_squares"
    sql_names = ("SUM_OF_SQUARES",)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Sums:
        grid = Grid.over(resolve_bounds(self.column, self.bounds, declared), levels=levels(unit, 1 << 14))
        step, most = grid.step**2 / scale(unit), Sensitivity.scalar(grid.reach**2)
        square = Combined((Level(self.column, grid),), lambda k: k * k)
        summed = Summed(self.name, 1, step, most, most, Scaled(step), direction=1, scale=scale(unit))
        return Sums(self, unit, (square,), summed, lower=0.0)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(registry, "AGGREGATES", (*registry.AGGREGATES, CountAbove, SumOfSquares))


def test_a_new_aggregate_is_asked_by_methods_and_by_sql(account):
    people = dp.Private(ROWS, account=account, bounds={"x": (0, 10)})
    groups = people.group_by("g", keys=["a", "b", "c"])
    asked = groups.aggregate(high=CountAbove("x", 4), squares=SumOfSquares("x"), mean=analytics.mean("x"))
    sql = people.plan(
        "SELECT g, COUNT_ABOVE(x, 4) AS high, SUM_OF_SQUARES(CLAMP(x, 0, 10)) AS squares, AVG(x) AS mean "
        "FROM people GROUP BY g",
        keys=["a", "b", "c"],
    )
    assert sql.sql == asked.sql
    assert sql.event(0.5) == asked.event(0.5)
    result = asked.release(epsilon=1e6, total=True, nonnegative=True, integer=True)
    assert result.columns["high"] == (1, 2, 0)
    assert result.columns["squares"] == pytest.approx((26, 149, 0), abs=0.1)
    assert result.totals["high"][0] == 3
    assert list(result.columns)[:5] == ["g", "high", "high_error", "squares", "squares_error"]
    preview = asked.preview(epsilon=1.0)
    assert [column.name for column in preview.columns] == ["high", "squares", "mean"]
    assert all(column.error > 0 for column in preview.columns)
    assert str(people.plan("SELECT COUNT_ABOVE(x, 4) FROM t")._question) == "count_above_x=count_above(x)"


def test_a_new_aggregate_counts_persons_within_their_limits(account_of):
    people = dp.Private(ROWS, account=account_of(dp.person("id", max_rows=1)))
    asked = people.aggregate(high=CountAbove("x", 4), squares=SumOfSquares("x", bounds=(0, 10)))
    values = exact(asked)
    assert values["high"][0].finish.value(values["high"][0].values) == 2  # 1/2 of p's, 1/3 of q's, all of r's
    assert values["squares"][0].finish.value(values["squares"][0].values) == pytest.approx(
        26 / 2 + 49 / 3 + 100, rel=1e-2
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT COUNT_ABOVE(x) FROM t", "COUNT_ABOVE.column, threshold."),
        ("SELECT COUNT_ABOVE(x, 4, 5) FROM t", "fewer arguments"),
        ("SELECT COUNT_ABOVE() FROM t", "more arguments"),
        ("SELECT COUNT_BELOW(x, 4) FROM t", "COUNT_ABOVE or SUM_OF_SQUARES"),
    ],
)
def test_a_wrong_call_is_refused(account, text, words):
    with pytest.raises(InvalidArgument, match=words):
        dp.Private(ROWS, account=account).plan(text)


def test_every_named_aggregate_is_sent_by_its_function():
    """What a client may name is what the registry lists; a marginal alone is sent by its categories."""
    assert set(registry.FUNCTIONS) < set(values._AGGREGATES)
    assert set(values._AGGREGATES) - set(registry.FUNCTIONS) == {"marginal"}
    for name, (kind, function) in registry.FUNCTIONS.items():
        assert kind in registry.AGGREGATES
        assert function is getattr(analytics, name)


def test_no_step_of_the_flow_knows_a_single_aggregate():
    """Only the registry and the package's list of public names import one, and the wire knows marginals."""
    root = Path(analytics.__file__).parent
    for path in (*root.rglob("*.py"), *(root.parent / "apps" / "wire").glob("*.py")):
        building_blocks = {"aggregate", "measurement", "registry", "terms"}
        building_blocks |= {"marginal"} if path.parent.name == "wire" else set()
        if path.parent.name == "aggregates" or path == root / "__init__.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("discreet.analytics.aggregates"):
                module = str(node.module).removeprefix("discreet.analytics.aggregates").lstrip(".")
                names = {module} if module else {alias.name for alias in node.names}
                assert names <= building_blocks, path
