"""The table that the analytics benchmark asks about, on every engine, and the accounts that pay."""

from __future__ import annotations

from pathlib import Path

import discreet as dp

GROUPS, LIMIT, MOST_GROUPS = 100, 10, 5
#: The plain query.
ASK = "SELECT segment, COUNT(*), AVG(value) FROM people GROUP BY segment"


class Accounts:
    """Accounts with room for every release, for rows and for persons."""

    def __init__(self, folder: Path) -> None:
        ledger = dp.Ledger(folder / "bench.ledger")
        self.rows = ledger.account("rows", dp.PureDP(1e6))
        unit = dp.person("person", max_rows=LIMIT, max_groups=MOST_GROUPS)
        self.persons = ledger.account("persons", dp.PureDP(1e6), unit)
