"""What one question of the benchmark is: its text, who is protected, and the public facts that come with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One question.

    Attributes:
        name: its name in the report.
        sql: the text as a person types it.
        keys: public group keys by column, for GROUP BY.
        max_rows: the most rows of one person that count; 1 where each row is a person.
        truth: the exact SQL where the text itself means something else without noise; None if it is the same text.
        topics: what it is about: "join", "dates" or "subquery".
    """

    name: str
    sql: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    max_rows: int = 1
    truth: str | None = None
    topics: frozenset[str] = frozenset()


def topics(*names: str) -> frozenset[str]:
    """What a question is about."""
    return frozenset(names)
