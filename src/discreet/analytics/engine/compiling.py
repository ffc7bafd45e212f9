"""The query that runs in the engine: clamp, scale and round each row to integers, bound each person, and sum.

The integers are those of `queries.Grid.levels`, bit for bit. Nothing here can fail because of what a row holds: there
is no integer division by data, no cast that a value may not fit, and no sum that can overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import ibis
import numpy as np
from numpy.typing import NDArray

from discreet.analytics.aggregates.terms import (
    Combined,
    EachCut,
    EachLevel,
    EachMark,
    EachPerson,
    EachRow,
    HasValues,
    Holds,
    InCell,
    Level,
    Term,
)
from discreet.analytics.engine.grouping import CODE, code_of, key_columns, with_codes
from discreet.analytics.engine.levels import Levels, level, levels
from discreet.analytics.plan.keys import Keys
from discreet.analytics.table.expressions import Column, compilable
from discreet.analytics.table.semantics import double, number
from discreet.neighbors import Person, Unit
from discreet.queries.aggregated import groups_of
from discreet.queries.statistics.marks import Marks
from discreet.queries.weighted import WEIGHT, scale


@dataclass(frozen=True)
class RowTerm:
    """An integer of a row as the engine computes it, NULL where the row has no value.

    It is computed in two steps: `parts` first, then `row` from a table that has these. With `levels`, the integer
    stands for a level and its sum is translated; with `missing`, a row without a value counts as that much.
    """

    parts: dict[str, Any]
    row: Callable[[Any], Any]
    levels: Levels | None = None
    missing: int = 0

    @classmethod
    def plain(cls, name: str, value: Any) -> RowTerm:
        """A term that is computed in one step."""
        return cls({name: value}, lambda table: table[name])

    @classmethod
    def of_level(cls, name: str, near: Levels, missing: int = 0) -> RowTerm:
        """The level of a column."""
        return cls(_named(name, near), partial(_from_parts, name, near), near, missing)


def _named(name: str, near: Levels) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in near.parts.items()}


def _from_parts(name: str, near: Levels, table: Any) -> Any:
    return near.row({key: table[f"{name}_{key}"] for key in near.parts})


@dataclass(frozen=True)
class GroupSums:
    """Of a group: the number of rows and of persons, and of each term the sum and the number of rows that have it."""

    rows: Any
    terms: dict[str, tuple[Any, Any]]
    persons: Any = None


def totals(table: Any, asked: Sequence[Sequence[Term]], keys: Keys | None, unit: Unit) -> Any:
    """One row for each group that occurs, with the columns c0_0, c0_1, … of the terms of each aggregate."""
    groups = [] if keys is None else [CODE]
    terms, columns = _compiled(table, asked)
    rows = _rows(table, keys, unit, terms)
    if isinstance(unit, Person):
        counts_persons = any(isinstance(term, EachPerson) for aggregate in asked for term in aggregate)
        if groups and not counts_persons:
            sums, pieces = _weighed_rows(rows, list(terms), _owners(table, keys, unit))
        else:
            sums, pieces = _weighed_pieces(rows, list(terms), groups, keys, unit)
    else:
        sums, pieces = GroupSums(rows.count(), {name: (rows[name].sum(), rows[name].count()) for name in terms}), rows
    outputs = {_ROWS: sums.rows, _PERSONS: sums.persons}
    for name, term in terms.items():
        outputs |= _outputs(name, term, sums)
    return _by(pieces, groups, **{column: outputs[name].fill_null(0) for column, name in columns.items()})


def _outputs(name: str, term: RowTerm, sums: GroupSums) -> dict[str, Any]:
    """A term's total, under its name, and how many rows have a value, under #name."""
    summed, counted = sums.terms[name]
    total = summed.fill_null(0)
    if term.levels is not None:
        total = term.levels.total(total, counted)
    if term.missing:
        total = total + (sums.rows - counted) * term.missing
    return {name: total, f"#{name}": counted}


def level_counts(table: Any, asked: EachLevel, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group and cell that occur: how many rows lie at a level, or between two. For quantiles."""
    value = _value(table, asked.level.column)
    near = levels(value, asked.level.grid)
    table = table.filter(_there(value))
    term = RowTerm(_named("row", near) | {"row_own": value}, partial(_position, near, asked))
    return _cell_counts(table, term, keys, unit)


def cut_counts(table: Any, asked: EachCut, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group and cell that occur: how many rows lie on a cut, or between two."""
    value = _value(table, asked.column)
    table = table.filter(_there(value))
    return _cell_counts(table, RowTerm({"row_own": value}, partial(_between, asked.cuts)), keys, unit)


def mark_counts(table: Any, asked: EachMark, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group and cell that occur: how many rows lie on a mark, or between two."""
    value, marks = _value(table, asked.column), asked.marks
    table = table.filter(_there(value))
    lowest, highest = double(marks.coarse[0]), double(marks.coarse[-1])
    clamped = ibis.cases((value < lowest, lowest), (value > highest, highest), else_=value)
    # A column of its own, so that the SQL names it in each comparison instead of repeating how it is computed.
    taken = {column.lower() for column in table.columns}
    name = next(name for name in (f"own{i}" for i in count()) if name not in taken)
    table = table.mutate(**{name: clamped})
    below = [table[name] < double(start) for start in marks.coarse]
    expressions = {
        "own": table[name],
        "start": _stepped(below, [double(start) for start in marks.coarse]),
        "per_length": _stepped(below, [double(1 / wide) for wide in (*marks.widths, 1.0)]),  # widths are powers of two
        "place": _stepped(below, [_int64(index) for index in marks.places]),
    }
    term = RowTerm({f"row_{name}": expression for name, expression in expressions.items()}, partial(_marked, marks))
    return _cell_counts(table, term, keys, unit)


def _marked(marks: Marks, table: Any) -> Any:
    """The cell of a row, as `queries.statistics.marks.Marks.cells` computes it."""
    gap = table["row_own"] - table["row_start"]
    # Some engines fail if a product underflows; no longer distance makes one that does.
    along = ibis.cases((gap < double(marks.no_distance), double(0.0)), else_=gap) * table["row_per_length"]
    whole = along.floor().cast("int64")
    between = ibis.cases((along == whole.cast("float64"), _int64(0)), else_=_int64(1))
    return (table["row_place"] + whole) * 2 + 1 + between


def _stepped(below: Sequence[Any], values: Sequence[Any]) -> Any:
    """The value of the last of some ascending starts that a row has reached, found by halving.

    `below` says for each start whether the row lies below it. The first entry is not read.
    """
    if len(values) == 1:
        return values[0]
    middle = len(values) // 2
    first, second = (_stepped(below[half], values[half]) for half in (slice(middle), slice(middle, None)))
    return ibis.cases((below[middle], first), else_=second)


def _int64(number: int) -> Any:
    return ibis.literal(number, type="int64")


def _cell_counts(table: Any, term: RowTerm, keys: Keys | None, unit: Unit) -> Any:
    """The rows, or the weight of persons' rows, in each cell that a term gives; `level` is the cell."""
    groups = [] if keys is None else [CODE]
    rows = _rows(table, keys, unit, {"row": term})
    if isinstance(unit, Person):
        pieces = rows.join(_owners(table, keys, unit), "person")
        counted = _by(pieces, [*groups, "row"], rows=pieces["weight"].sum())
    else:
        counted = _by(rows, [*groups, "row"], rows=rows.count())
    return counted.rename(level="row")


def _between(cuts: Sequence[float], table: Any) -> Any:
    """The cell of a row, as `terms.EachCut` numbers them."""
    own = table["row_own"]
    cells = [(own < double(cut), own == double(cut)) for cut in cuts]
    tried = [
        (test, ibis.literal(2 * i + at, type="int64")) for i, pair in enumerate(cells) for at, test in enumerate(pair)
    ]
    return ibis.cases(*tried, else_=ibis.literal(2 * len(cuts), type="int64"))


def _position(near: Levels, asked: EachLevel, table: Any) -> Any:
    """The cell of a row, as `terms.EachLevel` numbers them: at a level, below it, or above it."""
    grid = asked.level.grid
    lowest, highest = (double(end) for end in asked.bounds)
    own = table["row_own"]
    clamped = ibis.cases((own < lowest, lowest), (own > highest, highest), else_=own)
    level = near.each(_from_parts("row", near, table))
    # The same float as the candidate's: a level times a power of 2 is exact, and the sum is rounded once.
    at = level.cast("float64") * double(float(grid.step)) + double(float(grid.center))
    middle = (level - ibis.literal(grid.lower, type="int64")) * 2 + 1
    return ibis.cases((clamped < at, middle - 1), (clamped > at, middle + 1), else_=middle)


def value_counts(table: Any, column: str, keys: Keys | None, unit: Unit) -> Any:
    """One row for each group: how many different values a column has there, in units of the weight of a row.

    Of each person at most `max_rows` pairs of a group and a value count, in the order of a hash and then of the values.
    The choice depends on that person's rows alone, so one person adds at most `max_rows` to all groups together,
    whatever the hash does (docs/proofs/distinct-values.md).
    """
    groups = [] if keys is None else [CODE]
    value = Column(column).to_ibis(table)
    rows = narrow(table.filter(value.notnull()), keys, unit, {"value": value})
    pairs = rows.select(*groups, *(["person"] if isinstance(unit, Person) else []), "value").distinct()
    if isinstance(unit, Person):
        hashed = hash_of(pairs["value"])
        order = ibis.window(group_by="person", order_by=[hashed, "value", *groups])
        placed = pairs.mutate(place=ibis.row_number().over(order))
        pairs = placed.filter(placed["place"] < unit.max_rows).select(*groups, "value").distinct()
    return _by(pairs, groups, values=pairs.count() * scale(unit))


def hash_of(value: Any) -> Any:
    """The engine's own hash; of the text of a value, for types that some engines cannot hash."""
    kind = value.type()
    return (value if kind.is_string() or kind.is_integer() else value.cast("string")).hash()


#: Names for the sums that need no term of their own.
_ROWS, _PERSONS = "rows", "persons"


def _compiled(table: Any, asked: Sequence[Sequence[Term]]) -> tuple[dict[str, RowTerm], dict[str, str]]:
    """The row terms t0_0, t0_1, … by name, and for each output column c0_0, … the name of its sum."""
    terms: dict[str, RowTerm] = {}
    columns: dict[str, str] = {}
    for i, aggregate in enumerate(asked):
        compiler = _Compiler(table, i)
        names: dict[int, str] = {}  # by identity: terms may hold functions, which do not compare
        for j, term in enumerate(aggregate):
            if isinstance(term, HasValues):
                columns[f"c{i}_{j}"] = f"#{names[id(term.term)]}"
            elif isinstance(term, EachRow | EachPerson):
                columns[f"c{i}_{j}"] = _ROWS if isinstance(term, EachRow) else _PERSONS
            else:
                name = names[id(term)] = columns[f"c{i}_{j}"] = f"t{i}_{j}"
                terms[name] = compiler.row_term(name, term)
    return terms, columns


class _Compiler:
    """Translates the terms of one aggregate; levels and cells that several terms use are computed once."""

    def __init__(self, table: Any, position: int) -> None:
        self._table = table
        self._position = position
        self._levels: dict[Level, tuple[str, Levels]] = {}
        self._clamped: dict[Level, tuple[Any, Any]] = {}
        # By identity of the cells, which may be thousands.
        self._cells: dict[int, tuple[str, Any, NDArray[np.int64]]] = {}

    def row_term(self, name: str, term: Term) -> RowTerm:
        """A term as the engine computes it."""
        match term:
            case Holds(condition):
                return RowTerm.plain(name, _one_if(compilable(condition.to_ibis(self._table))))
            case Level():
                return RowTerm.of_level(*self._level(term), term.missing)
            case Combined(levels=(only,), combine=combine):
                shared, near = self._level(only)
                return RowTerm(_named(shared, near), partial(_combined, shared, near, combine))
            case Combined():
                return RowTerm.plain(name, self._joint(term))
            case InCell(cell=cell):
                shared, value, codes = self._cell(term)
                return RowTerm({shared: value}, partial(_in_cell, shared, int(codes[cell])))
        raise TypeError(f"{type(term).__name__} does not compute an integer from a row")

    def _level(self, term: Level) -> tuple[str, Levels]:
        if term not in self._levels:
            name = f"l{self._position}_{len(self._levels)}"
            self._levels[term] = name, levels(_value(self._table, term.column), term.grid)
        return self._levels[term]

    def _cell(self, term: InCell) -> tuple[str, Any, NDArray[np.int64]]:
        """A name for the code of a row's cell, the code, and the codes of all cells."""
        key = id(term.cells)
        if key not in self._cells:
            cells = Keys(term.columns, term.cells)
            name = f"cell{self._position}_{len(self._cells)}"
            self._cells[key] = name, code_of(self._table, cells), cells.codes
        return self._cells[key]

    def _joint(self, term: Combined) -> Any:
        """An integer of several columns, all clamped before they are combined; NULL where one value is missing."""
        for operand in term.levels:
            if operand not in self._clamped:
                value = _value(self._table, operand.column)
                self._clamped[operand] = _there(value), level(value, operand.grid, 0)
        there, *rest = (self._clamped[operand][0] for operand in term.levels)
        for present in rest:
            there = there & present
        combined = term.combine(*(self._clamped[operand][1] for operand in term.levels))
        return ibis.cases((there, combined.cast("int64")), else_=ibis.null("int64"))


def _combined(name: str, near: Levels, combine: Callable[[Any], Any], table: Any) -> Any:
    return combine(near.each(_from_parts(name, near, table))).cast("int64")


def weight(many: Any, limit: int) -> Any:
    """The weight of each of a person's `many` rows (or groups): together they weigh no more than `limit` would.

    The quotient is below `WEIGHT`, where a float's error is far smaller than the distance 1/many to the next integer,
    so the floor is exact.
    """
    shared = (ibis.literal(WEIGHT * limit, type="int64") / many).floor().cast("int64")
    return ibis.cases((many > limit, shared), else_=ibis.literal(WEIGHT, type="int64"))


def _owners(table: Any, keys: Keys | None, unit: Person) -> Any:
    """Each person with the weight of one of their rows; it is computed from the ids alone and joined to the rows."""
    ids = narrow(table, keys, unit, {}).select("person")
    counted = ids.group_by("person").aggregate(own_rows=ids.count())
    return counted.select("person", weight=weight(counted["own_rows"], unit.max_rows).cast("int32"))


def _weighed_rows(rows: Any, names: Sequence[str], owners: Any) -> tuple[GroupSums, Any]:
    """The weighted sums over rows, and the table of these."""
    pieces = rows.join(owners, "person")
    row_weight = pieces["weight"]
    # Few rows lack a value, so summing the weights of those is cheaper.
    lacking = {name: row_weight.sum(where=pieces[name].isnull()).fill_null(0) for name in names}
    terms = {name: ((row_weight * pieces[name]).sum(), row_weight.sum() - lacking[name]) for name in names}
    return GroupSums(row_weight.sum(), terms), pieces


def _weighed_pieces(
    rows: Any, names: Sequence[str], groups: list[str], keys: Keys | None, unit: Person
) -> tuple[GroupSums, Any]:
    """The weighted sums and the number of persons, from one piece for each person and group."""
    sums = {f"sum_{name}": rows[name].sum().fill_null(0).cast("int64") for name in names}
    sums |= {f"count_{name}": rows[name].count() for name in names}
    pieces = _by(rows, ["person", *groups], rows=rows.count(), **sums)
    if groups:
        counted = pieces.group_by("person").aggregate(
            own_rows=pieces["rows"].sum().cast("int64"), own_groups=pieces.count()
        )
        most = groups_of(unit, 1 if keys is None else len(keys.values))
        once = weight(counted["own_groups"], most)
        owners = counted.select("person", weight=weight(counted["own_rows"], unit.max_rows), once=once)
        pieces = pieces.join(owners, "person")
        row_weight, persons = pieces["weight"], pieces["once"].sum()
    else:
        row_weight, persons = weight(pieces["rows"], unit.max_rows), pieces.count() * WEIGHT
    terms = {
        name: ((row_weight * pieces[f"sum_{name}"]).sum(), (row_weight * pieces[f"count_{name}"]).sum())
        for name in names
    }
    return GroupSums((row_weight * pieces["rows"]).sum(), terms, persons), pieces


def _value(table: Any, column: str) -> Any:
    return number(table[column], f"an aggregate of {column!r}")


def _one_if(condition: Any) -> Any:
    return ibis.cases((condition, ibis.literal(1, type="int64")), else_=ibis.literal(0, type="int64"))


def _in_cell(name: str, code: int, table: Any) -> Any:
    return _one_if(table[name] == code)


def _there(value: Any) -> Any:
    return value.notnull() & ~value.isnan()


def _somebody(person: Any) -> Any:
    """Whether a row has a person: otherwise no person's limit would cover it."""
    return person.notnull()


def _by(table: Any, groups: Iterable[str], **columns: Any) -> Any:
    names = list(groups)
    return table.group_by(names).aggregate(**columns) if names else table.aggregate(**columns)


def narrow(table: Any, keys: Keys | None, unit: Unit, columns: dict[str, Any]) -> Any:
    """The rows of public groups that have a person, with only what is summed, under names of our own."""
    columns = ({} if keys is None else key_columns(table, keys.columns)) | columns
    if isinstance(unit, Person):
        columns["person"] = Column(str(unit.column)).to_ibis(table)
        table = table.filter(_somebody(columns["person"]))
    rows = table.select(**(columns or {"row": ibis.literal(1)}))
    return rows if keys is None else with_codes(rows, keys)


def _rows(table: Any, keys: Keys | None, unit: Unit, terms: Mapping[str, RowTerm]) -> Any:
    """The rows that count, each with its group, its person and its terms."""
    parts: dict[str, Any] = {}
    for term in terms.values():
        parts |= term.parts
    first = narrow(table, keys, unit, parts)
    kept = [name for name in first.columns if name not in parts]
    return first.select(*kept, **{name: term.row(first) for name, term in terms.items()})
