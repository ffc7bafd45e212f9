"""Remedies in the words of the command line: what Python says as a method or an argument is a flag here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from discreet.errors import InvalidArgument

#: What messages of the Python interface say, and what to say instead.
_FLAGS = (
    (
        r"bounds must be given for '([^']*)', got None: .*",
        r"bounds must be given for '\1', got none: add --bounds \1=LOWER,UPPER, or write CLAMP(\1, lower, upper)",
    ),
    (
        r"list each column's public values, bin\(\) it, or find keys with keys=dp\.discover\(\) and a delta",
        "list each column's public values with --keys COLUMN=A,B,…, or find them with --discover and --delta",
    ),
    (r"max_parts must be (given|left out) where", r"--max-parts must be \1 where"),
    (
        r"join first, and partition the result",
        "a part is joined with public tables alone; in Python, join first and partition the result",
    ),
    (r"open the account with unit=dp\.person\(column, max_rows=…\)", "open the account with --unit and --max-rows"),
    (r", or where\(\) and isin\(\) in Python", ""),
    (r"column\.in_zone\('([^']*)'\), or in SQL ", ""),
    (r" \(dp\.months\(…\) makes some\)", "; --keys month='months(2023-01, 2024-12)' makes some"),
)


@contextmanager
def in_flags() -> Iterator[None]:
    """Raise errors of the Python interface with remedies that name flags."""
    try:
        yield
    except InvalidArgument as error:
        message = str(error)
        for said, instead in _FLAGS:
            message = re.sub(said, instead, message)
        if message == str(error):
            raise
        problem = InvalidArgument(message)
    else:
        return
    raise problem
