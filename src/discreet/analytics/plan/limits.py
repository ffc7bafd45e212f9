"""What bounds and limits do to an answer: in words, and as a question of its own, which is charged like any other.

The ± of an answer covers the noise around the statistic of clamped values and limited persons. What the clamping and
the limits change is a fact about the data: it is private, and can only be estimated for a price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from discreet import _check
from discreet.analytics.aggregates.measurement import LEVEL, Choice, Measurement
from discreet.analytics.aggregates.registry import GroupsPerPerson, OutsideBounds, RowsPerPerson
from discreet.analytics.plan.keys import Keys
from discreet.analytics.plan.question import Question
from discreet.neighbors import Person, Unit

#: What every ± means, in one line.
MEANING = f"± is the half width of a {LEVEL:.0%} interval for the noise"
#: The names of the columns in a question about limits.
ROWS, GROUPS, OUTSIDE, GRID = "rows_per_person", "groups_per_person", "outside", "grid"


def words(question: Question) -> tuple[str, ...]:
    """What the ± does not cover, one clause for each bound and limit; empty where nothing is changed."""
    sentences = [f"{name} is clamped to [{low:g}, {high:g}]" for name, (low, high) in question.clamped.items()]
    for name, measurement in question.asked.items():
        if isinstance(measurement, Choice) and measurement.gap() is not None:
            sentences.append(f"the ranks of {name} are counted from the nearest of its candidates")
    unit = question.unit
    if isinstance(unit, Person):
        limits = {measurement.aggregate.limited_by for measurement in question.asked.values()}
        if "rows" in limits:
            rows = "1 row" if unit.max_rows == 1 else f"{unit.max_rows} rows"
            sentences.append(f"a person with more than {rows} counts as {unit.max_rows}")
        if question.keys is not None and "groups" in limits:
            most = unit.max_groups or unit.max_rows
            groups, persons = ("1 group", "1 person") if most == 1 else (f"{most} groups", f"{most} persons")
            sentences.append(f"a person in more than {groups} counts as {persons}")
    return tuple(sentences)


def meaning(question: Question) -> str:
    """What the ± of an answer covers and what it does not, in one sentence."""
    clauses = words(question)
    if not clauses:
        return f"{MEANING}; no bound or limit changes the rows"
    return f"{MEANING}; it does not cover what the limits change: {'; '.join(clauses)}"


def of(question: Question) -> Question:
    """The question that estimates what an answer's bounds and limits change: over all groups together."""
    keys = None if question.discover is not None else question.keys
    asked = per_person(question.table, keys, question.unit).asked if isinstance(question.unit, Person) else {}
    several: dict[str, Measurement] = dict(asked)
    # Where a join repeats rows, one row counts as often in what lies outside as it does in the answer itself.
    repeated = next(iter(question.asked.values())).unit
    for name, pair in question.clamped.items():
        several[f"{OUTSIDE} {name}"] = replace(OutsideBounds(name, pair).measurement(question.unit, {}), unit=repeated)
    for name, measurement in question.asked.items():
        gap = measurement.gap() if isinstance(measurement, Choice) else None
        if gap is not None:
            several[f"{GRID} {name}"] = gap
    if not several:
        remedy = "nothing is clamped and nobody is limited, so the answer has no such bias"
        raise _check.fail("bias", "be asked of an answer with bounds or limits", str(question), remedy)
    return replace(question, keys=None, asked=several, discover=None, pooled=keys, clamped={})


def per_person(table: Any, keys: Keys | None, unit: Unit) -> Question:
    """How many rows persons have and, where there are keys, in how many groups they are; one charge for both."""
    limit = unit.max_rows if isinstance(unit, Person) else 1
    asked: dict[str, Measurement] = {ROWS: RowsPerPerson(limit).measurement(unit, {})}
    if keys is not None and isinstance(unit, Person):
        most = unit.max_groups or unit.max_rows
        asked[GROUPS] = GroupsPerPerson(most, len(keys.values)).measurement(unit, {})
    return Question(table, None, unit, asked, pooled=keys)
