"""Refuses columns in which the engine treats different values as equal, as some collations and types do.

Where 'a' equals 'A', one row would lie in two cells, and two persons would share one limit: each would have half of it,
so that removing one changes how much the other counts. Such columns cannot be keys, have categories, or name persons.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ibis

from discreet import _check
from discreet.analytics.engine import running

#: Pairs that a collation may treat as equal: case, accents, padding, ligatures, width, marks that are not seen,
#: punctuation, numbers, and forms of one letter.
_PAIRS = (
    ("a", "A"),
    ("e", "é"),
    ("a", "a "),
    ("ss", "ß"),
    ("é", "e\u0301"),
    ("a", "\uff41"),
    ("a", "a\u200b"),
    ("ab", "a-b"),
    ("1", "01"),
    ("\u3042", "\u30a2"),
)
#: PostgreSQL's own types of text: text, varchar, char and name. Others (citext, an enum) have an equality of their own.
_POSTGRES_TEXT = frozenset({25, 1043, 1042, 19})
#: PostgreSQL's type money, which Ibis reports as a decimal, and which has no cast to a float.
_POSTGRES_MONEY = 790


def require_identity(name: str, kind: Any) -> None:
    """Refuse a person's column of a type whose equality is not exact.

    A float may be NaN, and two ids that differ may be one float. Text must also have an exact collation, which
    `require_exact` asks the engine about.
    """
    exact = (
        kind.is_integer(),
        kind.is_string(),
        kind.is_uuid(),
        kind.is_decimal(),
        kind.is_boolean(),
        kind.is_binary(),
    )
    if not (any(exact) or kind.is_date() or kind.is_timestamp()):
        remedy = "cast it to an integer or to text, in the table or in a view of it"
        raise _check.fail(f"person column {name!r}", "be of a type that tells all persons apart", str(kind), remedy)


def require_exact(table: Any, columns: Iterable[str]) -> None:
    """Refuse text columns in which the engine treats different texts as equal.

    The engine compares pairs under each column's own collation. Each side is the column's maximum over no rows, which
    is missing, filled with a public text; or the column itself, in a table of no rows and one public text.

    Guarantee: looks at no row, so the answer is a fact about the table's schema.
    """
    texts = [name for name in dict.fromkeys(columns) if table[name].type().is_string()]
    if not texts:
        return
    none = table.filter(ibis.literal(False))
    try:
        foreign = _foreign(none, texts)
        loose = foreign or _loose(none, texts)
    except Exception as error:
        kind = type(error).__name__
        failed = _check.fail("engine", "answer before anything is charged", kind, "check the connection and the table")
    else:
        if not loose:
            return
        remedy = "give them an exact (binary) collation, in the table or in a view of it"
        if foreign:
            remedy = "cast them to text, in the table or in a view of it"
        failed = _check.fail("columns", "tell different texts apart to make groups", loose, remedy)
    raise failed


def require_plain_numbers(table: Any, columns: Iterable[str]) -> None:
    """Refuse columns that Ibis reports as decimals and that the engine cannot turn into floats; looks at no row."""
    decimals = [name for name in dict.fromkeys(columns) if table[name].type().is_decimal()]
    codes = _postgres_types(table.filter(ibis.literal(False)), decimals)
    money = [name for name, code in codes.items() if code == _POSTGRES_MONEY]
    if money:
        raise _check.fail("columns", "hold plain numbers", f"{money} of type money", "cast them to numeric, in a view")


def _loose(none: Any, texts: list[str]) -> list[str]:
    asked = {
        f"p{i}_{j}": none[name].max().fill_null(text) == other
        for i, name in enumerate(texts)
        for j, (text, other) in enumerate(_PAIRS)
    }
    (equal,) = running.rows(none.aggregate(**asked))
    loose = [name for i, name in enumerate(texts) if any(equal[f"p{i}_{j}"] for j in range(len(_PAIRS)))]
    if none.get_backend().name == "sqlite":  # where only a column itself has a collation, and its maximum has none
        loose += [name for name in texts if any(_equal_in_sqlite(none, name, *pair) for pair in _PAIRS)]
    return loose


def _equal_in_sqlite(none: Any, name: str, text: str, other: str) -> bool:
    single = none.aggregate(v=none.count()).select(v=ibis.literal(text))
    both = none.select(v=none[name]).union(single)
    equal = both.filter(both["v"] == other)
    (row,) = running.rows(equal.aggregate(n=equal.count()))
    return bool(row["n"])


def _foreign(none: Any, texts: list[str]) -> list[str]:
    """Columns that Ibis reports as text and that PostgreSQL stores as another type."""
    codes = _postgres_types(none, texts)
    return [f"{name} of another type than text" for name, code in codes.items() if code not in _POSTGRES_TEXT]


def _postgres_types(none: Any, names: list[str]) -> dict[str, int]:
    """PostgreSQL's own number for the type of each column; nothing on other engines."""
    engine = none.get_backend()
    if engine.name != "postgres" or not names:
        return {}
    asked = none.select(*names)
    engine._run_pre_execute_hooks(asked)  # public tables that travel with the query
    with engine.begin() as cursor:
        cursor.execute(engine.compile(asked))
        return {name: column.type_code for name, column in zip(names, cursor.description, strict=True)}
