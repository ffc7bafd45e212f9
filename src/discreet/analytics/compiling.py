"""The query that runs in the engine: clamp, scale and round each row to integers, bound each person, and sum.

The integers are those of `queries.Grid.levels`, bit for bit. Nothing here can fail because of what a row holds: there
is no integer division by data, no cast that a value may not fit, and no sum that can overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ibis

from discreet.analytics.expressions import Column, Comparison, Constant, Expression, Logic
from discreet.analytics.keys import Keys
from discreet.analytics.levels import Levels, level, levels
from discreet.analytics.semantics import number
from discreet.neighbors import Person, Unit
from discreet.queries.aggregated import Statistic, groups_of
from discreet.queries.statistics.covariance import products
from discreet.queries.statistics.variance import centered_squares
from discreet.queries.weighted import WEIGHT


@dataclass(frozen=True)
class Term:
    """An integer of a row that is summed, NULL where the row has no value; or, with `levels`, what stands for it.

    It is computed in two steps: `parts` first, then `row` out of a table that has these. With `missing`, a row without
    a value counts as that much.
    """

    parts: dict[str, Any]
    row: Callable[[Any], Any]
    levels: Levels | None = None
    missing: int = 0

    @classmethod
    def plain(cls, name: str, value: Any) -> Term:
        """A term that is computed in one step."""
        return cls({name: value}, lambda table: table[name])

    @classmethod
    def leveled(cls, name: str, near: Levels, missing: int = 0) -> Term:
        """The level of a column."""
        return cls(_named(name, near), partial(_made, name, near), near, missing)


def _named(name: str, near: Levels) -> dict[str, Any]:
    return {f"{name}_{part}": value for part, value in near.parts.items()}


def _made(name: str, near: Levels, table: Any) -> Any:
    return near.row({part: table[f"{name}_{part}"] for part in near.parts})


@dataclass(frozen=True)
class Asked:
    """One statistic for a share of the budget, of one column (None where rows or persons are counted) or of several.

    `other` is the second column of a covariance; `columns` and `cells` are those that a marginal or a choice among
    categories counts the combinations of; `k` is how many categories are chosen.
    """

    statistic: Statistic
    column: str | None
    share: float = 1.0
    other: str | None = None
    columns: tuple[str, ...] = ()
    cells: tuple[tuple[Any, ...], ...] = ()
    k: int | None = None

    def __str__(self) -> str:
        named = [name for name in (self.column, self.other, *self.columns) if name is not None]
        return f"{self.statistic.kind}({', '.join(named)})"

    @property
    def labels(self) -> tuple[Any, ...]:
        """One label for each cell: the value, or the tuple of values."""
        return tuple(cell[0] if len(self.columns) == 1 else cell for cell in self.cells)

    def outputs(self, name: str) -> dict[str, str]:
        """The columns of a result that it makes under a name, each with the column of its errors."""
        kind = self.statistic.kind
        if kind == "marginal":
            cells = (f"{name}[{', '.join(str(value) for value in cell)}]" for cell in self.cells)
            return {cell: f"{cell}_error" for cell in cells}
        return {name: {"quantile": f"{name}_rank_error", "top_k": f"{name}_count_error"}.get(kind, f"{name}_error")}


def totals(table: Any, asked: Sequence[Asked], keys: Keys | None, unit: Unit) -> Any:
    """One row for each group that occurs, with the columns c0_0, c0_1, … of each statistic."""
    groups = list(_groups(table, keys))
    terms = _terms(table, asked)
    rows = _rows(table, keys, unit, terms)
    if isinstance(unit, Person):
        counted = any(one.statistic.kind == "persons" for one in asked)
        if groups and not counted:
            sums, pieces = _weighed_rows(rows, list(terms), _owners(table, keys, unit))
        else:
            sums, pieces = _weighed_pieces(rows, list(terms), groups, keys, unit)
    else:
        sums, pieces = Sums(rows.count(), {name: (rows[name].sum(), rows[name].count()) for name in terms}), rows
    outputs = {"rows": sums.rows, "persons": sums.persons}
    for name, term in terms.items():
        outputs |= _outputs(name, term, sums)
    wanted = [(f"c{i}_{j}", name) for i, one in enumerate(asked) for j, name in enumerate(_coordinates(i, one))]
    return _by(pieces, groups, **{column: outputs[name] for column, name in wanted})


@dataclass(frozen=True)
class Sums:
    """Of a group: the number of rows and of persons, and of each term the sum and the number of rows that have it."""

    rows: Any
    terms: dict[str, tuple[Any, Any]]
    persons: Any = None


def _outputs(name: str, term: Term, sums: Sums) -> dict[str, Any]:
    """A term's total, under its name, and how many rows have a value, under #name."""
    summed, counted = sums.terms[name]
    total = summed.fill_null(0)
    if term.levels is not None:
        total = term.levels.total(total, counted)
    if term.missing:
        total = total + (sums.rows - counted) * term.missing
    return {name: total, f"#{name}": counted}


def cells(table: Any, asked: Asked, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group and level that occur: how many rows lie there. For quantiles."""
    assert asked.column is not None
    assert asked.statistic.grid is not None
    groups = _groups(table, keys)
    value = _value(table, asked.column)
    found = levels(value, asked.statistic.grid)
    table = table.filter(_there(value))
    rows = _rows(table, keys, unit, {"row": Term.leveled("row", found)})
    if isinstance(unit, Person):
        pieces = rows.join(_owners(table, keys, unit), "person")
        counted = _by(pieces, [*groups, "row"], rows=pieces["weight"].sum())
    else:
        counted = _by(rows, [*groups, "row"], rows=rows.count())
    return counted.mutate(level=found.each(counted["row"])).drop("row")


def weight(many: Any, limit: int) -> Any:
    """What each of a person's `many` rows (or groups) weighs, so that together they weigh no more than `limit` would.

    The quotient is below `WEIGHT`, where a float's error is far smaller than the distance 1/many to the next integer:
    the floor is exact.
    """
    shared = (ibis.literal(WEIGHT * limit, type="int64") / many).floor().cast("int64")
    return ibis.cases((many > limit, shared), else_=ibis.literal(WEIGHT, type="int64"))


def _owners(table: Any, keys: Keys | None, unit: Person) -> Any:
    """Each person with the weight of one of their rows: from the ids alone, beside the rows that it is joined to."""
    ids = narrow(table, keys, unit, {}).select("person")
    counted = ids.group_by("person").aggregate(own_rows=ids.count())
    return counted.select("person", weight=weight(counted["own_rows"], unit.max_rows).cast("int32"))


def _weighed_rows(rows: Any, names: Sequence[str], owners: Any) -> tuple[Sums, Any]:
    """The weighted sums over rows, and the table of these."""
    pieces = rows.join(owners, "person")
    own = pieces["weight"]
    # Few rows lack a value, so it is cheaper to sum the weights of those.
    lacking = {name: own.sum(where=pieces[name].isnull()).fill_null(0) for name in names}
    terms = {name: ((own * pieces[name]).sum(), own.sum() - lacking[name]) for name in names}
    return Sums(own.sum(), terms), pieces


def _weighed_pieces(
    rows: Any, names: Sequence[str], groups: list[str], keys: Keys | None, unit: Person
) -> tuple[Sums, Any]:
    """The weighted sums, and the number of persons, over the pieces of each person's rows, one for each group."""
    parts = {f"sum_{name}": rows[name].sum().fill_null(0).cast("int64") for name in names}
    parts |= {f"count_{name}": rows[name].count() for name in names}
    pieces = _by(rows, ["person", *groups], rows=rows.count(), **parts)
    if groups:
        counted = pieces.group_by("person").aggregate(
            own_rows=pieces["rows"].sum().cast("int64"), own_groups=pieces.count()
        )
        most = groups_of(unit, 1 if keys is None else len(keys.values))
        once = weight(counted["own_groups"], most)
        owners = counted.select("person", weight=weight(counted["own_rows"], unit.max_rows), once=once)
        pieces = pieces.join(owners, "person")
        own, persons = pieces["weight"], pieces["once"].sum()
    else:
        own, persons = weight(pieces["rows"], unit.max_rows), pieces.count() * WEIGHT
    terms = {name: ((own * pieces[f"sum_{name}"]).sum(), (own * pieces[f"count_{name}"]).sum()) for name in names}
    return Sums((own * pieces["rows"]).sum(), terms, persons), pieces


def _value(table: Any, column: str) -> Any:
    return number(table[column], f"an aggregate of {column!r}")


def _one_if(condition: Any) -> Any:
    return ibis.cases((condition, ibis.literal(1, type="int64")), else_=ibis.literal(0, type="int64"))


def _in_cell(name: str, cell: int, table: Any) -> Any:
    return _one_if(table[name] == cell)


def _there(value: Any) -> Any:
    return value.notnull() & ~value.isnan()


def _person(value: Any) -> Any:
    """A person's id, so that grouping and joining agree on who is who: −0.0 and 0.0 are one id on every engine."""
    zero = ibis.literal(0, type=value.type()) if value.type().is_floating() else None
    return value if zero is None else ibis.cases((value == zero, zero), else_=value)


def _somebody(person: Any) -> Any:
    """Whether a row has a person: nobody's limit would cover it otherwise."""
    return person.notnull()


def _by(table: Any, groups: Iterable[str], **columns: Any) -> Any:
    names = list(groups)
    return table.group_by(names).aggregate(**columns) if names else table.aggregate(**columns)


def _groups(table: Any, keys: Keys | None) -> dict[str, Any]:
    """The columns g0, g1, … that hold a row's group."""
    return {} if keys is None else {f"g{i}": Column(name).to_ibis(table) for i, name in enumerate(keys.columns)}


def narrow(table: Any, keys: Keys | None, unit: Unit, columns: dict[str, Any]) -> Any:
    """The rows of public groups and of somebody, with only what is summed, under names of our own."""
    columns = _groups(table, keys) | columns
    if keys is not None:
        table = table.filter(keys.condition().to_filter(table))
    if isinstance(unit, Person):
        columns["person"] = _person(Column(str(unit.column)).to_ibis(table))
        table = table.filter(_somebody(columns["person"]))
    return table.select(**(columns or {"row": ibis.literal(1)}))


def _rows(table: Any, keys: Keys | None, unit: Unit, terms: Mapping[str, Term]) -> Any:
    """The rows that count, each with its group, its person and its terms."""
    parts: dict[str, Any] = {}
    for term in terms.values():
        parts |= term.parts
    first = narrow(table, keys, unit, parts)
    kept = [name for name in first.columns if name not in parts]
    return first.select(*kept, **{name: term.row(first) for name, term in terms.items()})


def _terms(table: Any, asked: Sequence[Asked]) -> dict[str, Term]:
    """The integers of a row that are summed: levels s, squares q, products p, cells m, and n for a value at all."""
    found: dict[str, Term] = {}
    for i, one in enumerate(asked):
        grid = one.statistic.grid
        if one.cells:
            # The first cell that fits: whatever an engine calls equal, a row lies in one cell at most.
            place = ibis.cases(
                *((_equal(one.columns, cell).to_filter(table), j) for j, cell in enumerate(one.cells)), else_=-1
            )
            for j in range(len(one.cells)):
                found[f"m{i}_{j}"] = Term({f"cell{i}": place}, partial(_in_cell, f"cell{i}", j))
        if one.column is None:
            continue
        if one.other is not None:
            found |= _joint(table, i, one)
        elif grid is None:
            found[f"n{i}"] = Term.plain(f"n{i}", _one_if(Column(one.column).to_ibis(table).notnull()))
        else:
            near = levels(_value(table, one.column), grid)
            found[f"s{i}"] = Term.leveled(f"s{i}", near, one.statistic.missing or 0)
            if one.statistic.kind in ("variance", "std"):
                found[f"q{i}"] = Term(_named(f"s{i}", near), partial(_squares, f"s{i}", near, grid.reach))
    return found


def _squares(name: str, near: Levels, reach: int, table: Any) -> Any:
    return centered_squares(near.each(_made(name, near, table)), reach).cast("int64")


def _joint(table: Any, i: int, one: Asked) -> dict[str, Term]:
    """The integers of two columns, both clamped before they are multiplied; NULL where one of the values is missing."""
    first, second = one.statistic.grid, one.statistic.other
    assert first is not None
    assert second is not None
    x, y = _value(table, str(one.column)), _value(table, str(one.other))
    both = _there(x) & _there(y)
    k, l = level(x, first, 0), level(y, second, 0)  # noqa: E741  # the letters of docs/proofs/covariance.md
    found = {f"s{i}": k, f"t{i}": l, f"p{i}": products(k, l, first, second)}
    if one.statistic.kind == "correlation":
        found |= {f"q{i}": centered_squares(k, first.reach), f"r{i}": centered_squares(l, second.reach)}
    missing = ibis.null("int64")
    return {n: Term.plain(n, ibis.cases((both, v.cast("int64")), else_=missing)) for n, v in found.items()}


def _equal(columns: Sequence[str], cell: Sequence[Any]) -> Expression:
    """Whether a row lies in one cell."""
    return Logic(
        "and",
        tuple(Comparison("==", Column(name), Constant(value)) for name, value in zip(columns, cell, strict=True)),
    )


def _coordinates(place: int, one: Asked) -> list[str]:
    """The columns that make up a statistic, in the order that `aggregated.bounded` takes them."""
    kind = one.statistic.kind
    if one.cells:
        return [f"m{place}_{j}" for j in range(len(one.cells))]
    if kind == "persons":
        return ["persons"]
    if kind == "count":
        return ["rows" if one.column is None else f"n{place}"]
    letters = {"sum": "s", "mean": "s", "covariance": "stp", "correlation": "stpqr"}.get(kind, "sq")
    found = [f"{letter}{place}" for letter in letters]
    return found if kind == "sum" else [*found, f"#s{place}"]
