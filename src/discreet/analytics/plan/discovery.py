"""Private discovery of group keys: those that enough people have, selected with noise and a threshold.

Keys that come from data are an output like any other. Each row counts in one key, each person in at most `max_groups`
keys, whatever rows they have. A noisy count of rows or persons is compared with a threshold; a key that one of them
alone has comes out with probability at most δ (docs/proofs/discover.md).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ibis
import numpy as np
import pyarrow as pa

from discreet import _check
from discreet.analytics.engine.compiling import hash_of, narrow
from discreet.analytics.engine.grouping import key_columns
from discreet.analytics.plan.keys import MAX_KEYS, Keys
from discreet.analytics.table.semantics import SMALLEST, double, literal
from discreet.errors import InvalidArgument
from discreet.mechanisms import KeySelection, observation
from discreet.neighbors import Person, Relation, Unit
from discreet.queries.discovered import key_counts, key_limits, keys_moved

#: Dates in years from the first to before the second may be keys: every driver can return these.
_YEARS = (1700, 2200)


@dataclass(frozen=True)
class Discover:
    """How to find keys: the search's share of ε beside the aggregates, and the fewest rows or persons of a key."""

    share: float = 1.0
    least: int = 1

    def __post_init__(self) -> None:
        _check.positive("share", self.share, "the search for keys gets ε in proportion to its share")
        _check.settle_integers(self, "least", remedy="keys that fewer rows or persons have never come out")


def discover(*, share: float = 1.0, least: int = 1) -> Discover:
    """Find the group keys in the data, privately: `group_by("city", keys=dp.discover())`.

    A release then needs `delta`: the largest probability, for each row or person, that a key comes out that they alone
    have. Choose it far below one over the number of people. The account must have room for it: open it with a budget of
    `dp.ApproxDP(ε, δ)` and `aside=`, the part of δ that such releases may use. Keys come out sorted. Missing and
    infinite values and dates before 1700 or after 2199 are never keys. Rare keys are left out, with their rows.

    Args:
        share: how much of ε the search gets, relative to the shares of the aggregates.
        least: keys with fewer rows or persons never come out, whatever the noise, and engines drop them early. The
            threshold rises by as much.

    Guarantee: (ε, δ)-DP for one unit. Each row counts in one key; of each person at most `max_groups` keys count,
    chosen under a fresh secret key from that person's rows alone.
    """
    return Discover(share, least)


def candidates(table: Any, columns: Sequence[str], unit: Unit, least: int, secret: int) -> Any:
    """One row for each key that occurs, with g0, g1, … and how many units have it. None of it is public."""
    groups = key_columns(table, columns)
    kept = table.filter(*(_plain(value) for value in groups.values()))
    rows = narrow(kept, None, unit, {name: _canonical(value) for name, value in groups.items()})
    if isinstance(unit, Person):
        rows = _limited(rows.distinct(), list(groups), unit, secret)
    counted = rows.group_by(list(groups)).aggregate(units=rows.count())
    return counted.filter(counted["units"] >= least) if least > 1 else counted


def _plain(value: Any) -> Any:
    """Whether a value may be a key: present, finite, of a size that literals hold, and a date that drivers can return.

    A value that a driver cannot return would make the whole query fail, and that would reveal a single row.
    """
    kind = value.type()
    if kind.is_floating():
        size = value.cast("float64").abs()
        return value.notnull() & ~value.isinf() & ((size >= double(SMALLEST)) | (size == double(0.0)))
    if kind.is_date():
        first, last = (ibis.literal(dt.date(year, 1, 1)) for year in _YEARS)
        return value.notnull() & (value >= first) & (value < last)
    if kind.is_timestamp():
        first, last = (ibis.literal(dt.datetime(year, 1, 1)) for year in _YEARS)
        return value.notnull() & (value >= first) & (value < last)
    return value.notnull()


def _canonical(value: Any) -> Any:
    """A value in the type that Ibis reports. Engines return some dates as timestamps, such as the start of a month."""
    if not value.type().is_date():
        return value
    # The cast is for dates of plain years alone, in case an engine computes it before it filters.
    return ibis.cases((_plain(value), value.cast("timestamp").cast("date")), else_=ibis.null("date"))


def _limited(pairs: Any, groups: list[str], unit: Person, secret: int) -> Any:
    """At most `max_groups` of each person's keys, in the order of a hash under a secret key, then of the keys.

    The limit holds whatever the hash does: it only makes the choice fair. Other people's rows do not matter.
    """
    mixed = hash_of(pairs["person"]) ^ secret
    for index, name in enumerate(groups):
        mixed = mixed ^ (hash_of(pairs[name]) ^ (secret >> (index + 1))).hash()
    order = ibis.window(group_by="person", order_by=[mixed.hash(), *groups])
    placed = pairs.mutate(place=ibis.row_number().over(order))
    return placed.filter(placed["place"] < keys_moved(unit, Relation.ADD_REMOVE))


def chosen(table: pa.Table, columns: tuple[str, ...], selection: KeySelection, unit: Unit, relation: Relation) -> Keys:
    """The keys selected among an engine's candidates, sorted; if there are more than `MAX_KEYS`, the first ones.

    Guarantee: as `KeySelection.release`; what follows it looks at released keys alone. Values that no literal can hold
    (text with NUL, integers beyond 64 bits) are no keys, whoever has them.
    """
    counts = key_counts(table["units"].to_numpy(), unit, relation=relation)
    names = [f"g{i}" for i in range(len(columns))]

    def drawn() -> Keys:
        passed = pa.array(np.asarray(selection.release(counts).value))
        selected = sorted({row for row in _rows(table.filter(passed), names) if _fit(row)})
        return Keys(columns, tuple(selected[:MAX_KEYS]))

    limits = key_limits(unit, relation=relation)
    held = observation.Lazy(lambda: dict(zip(_rows(table, names), counts.values.tolist(), strict=True)))
    return observation.through(selection, held, relation, selection.event(limits), drawn, limits.sensitivity(relation))


def _rows(table: pa.Table, names: list[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


def _fit(key: tuple[Any, ...]) -> bool:
    """Whether literals can hold a selected key."""
    try:
        return all(literal(value) is not None for value in key)
    except InvalidArgument:
        return False


def example(table: Any, columns: tuple[str, ...]) -> Keys:
    """A key of the right types that stands for those to be discovered in the SQL of a preview."""
    return Keys(columns, (tuple(_example(name, table[name].type()) for name in columns),))


def _example(name: str, kind: Any) -> Any:
    if kind.is_string():
        return "…"
    if kind.is_boolean():
        return True
    if kind.is_integer():
        return 0
    if kind.is_floating():
        return 0.0
    if kind.is_date():
        return dt.date(2000, 1, 1)
    if kind.is_timestamp() and kind.timezone is None:
        return dt.datetime(2000, 1, 1)
    remedy = "keys are text, integers, floats, booleans, dates or timestamps without a zone; list the keys instead"
    raise _check.fail("keys", f"be discovered in a plain column, and {name!r} is none", str(kind), remedy)
