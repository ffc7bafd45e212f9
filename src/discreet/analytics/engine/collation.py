"""Refuses text columns in which the engine treats different texts as equal, as some collations do.

Where 'a' equals 'A', an engine puts both into one group and names it after whichever row it met first, so one row could
rename a whole group; and one row would lie in two cells. Such columns cannot be keys or have categories.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ibis

from discreet import _check
from discreet.analytics.engine import running

#: Pairs that a collation may treat as equal: case, accents, padding, ligatures, and forms of one letter.
_PAIRS = (("a", "A"), ("e", "é"), ("a", "a "), ("ss", "ß"), ("é", "e\u0301"))


def require_exact(table: Any, columns: Iterable[str]) -> None:
    """Refuse text columns in which the engine treats different texts as equal.

    The engine compares pairs under each column's own collation. Each side is the column's maximum over no rows, which
    is missing, filled with a public text.

    Guarantee: looks at no row, so the answer is a fact about the table's schema.
    """
    texts = [name for name in dict.fromkeys(columns) if table[name].type().is_string()]
    if not texts:
        return
    none = table.filter(ibis.literal(False))
    asked = {
        f"p{i}_{j}": none[name].max().fill_null(one) == other
        for i, name in enumerate(texts)
        for j, (one, other) in enumerate(_PAIRS)
    }
    try:
        (equal,) = running.rows(none.aggregate(**asked))
    except Exception as error:
        kind = type(error).__name__
        failed = _check.fail("engine", "answer before anything is charged", kind, "check the connection and the table")
    else:
        loose = [name for i, name in enumerate(texts) if any(equal[f"p{i}_{j}"] for j in range(len(_PAIRS)))]
        if not loose:
            return
        remedy = "give them an exact (binary) collation, in the table or in a view of it"
        failed = _check.fail("columns", "tell different texts apart to make groups", loose, remedy)
    raise failed
