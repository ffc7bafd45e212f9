"""Released answers as the command line prints them."""

from __future__ import annotations

import json
from typing import Any

from discreet import codec
from discreet.apps.cli.printing import to_json_value


def is_number(value: object) -> bool:
    """Whether a cell is aligned as a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def cost_text(epsilon: float | None, delta: float | None, rho: float | None) -> str:
    """What was spent, in words."""
    amounts = (("ε", epsilon), ("δ", delta), ("ρ", rho))
    return ", ".join(f"{name} = {value:g}" for name, value in amounts if value is not None)


def answer_json(result: Any, cost: str, sql: str) -> dict[str, Any]:
    """A released answer as JSON holds it."""
    return {
        "sql": sql,
        "purpose": result.receipt.purpose,
        "cost": cost,
        "rows": to_json_value(result.rows()),
        "group_columns": result.group_columns,
        "covers": result.covers,
        "guarantee": str(result.guarantee),
        "intervals": {
            name: {"low": to_json_value(source.interval(0.95)[0]), "high": to_json_value(source.interval(0.95)[1])}
            for name, source in result.sources.items()
        },
        "event": codec.encode_tree(result.event),
        "receipt": json.loads(result.receipt.to_json()),
    }
