"""A subset of SQL, read into the same questions as the methods; everything else is refused by clause.

    SELECT sex, COUNT(*) AS n, AVG(CLAMP(age, 0, 120)) FROM people WHERE age >= 18 GROUP BY sex

The text is only read, never run: it becomes expressions and aggregates of ours. Each part of the parsed query must be
on the list, so a clause that these files do not know is refused too. Missing values are treated as in SQL: a comparison
with one is neither true nor false, so neither a condition nor its NOT keeps the row.
"""

from discreet.analytics.plan.sql.calls import AggregateCall
from discreet.analytics.plan.sql.select import Parsed, parse

__all__ = ["AggregateCall", "Parsed", "parse"]
