"""Previews and released answers as JSON, and the same objects again on the other side."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from discreet import _check, codec
from discreet.accounting.adaptive.advice import room_words
from discreet.analytics import Preview, Result
from discreet.analytics.aggregates.aggregate import ResultColumn
from discreet.analytics.aggregates.measurement import LEVEL
from discreet.analytics.plan.preview import Expected
from discreet.apps.cli.printing import to_json_value
from discreet.guarantees import Guarantee
from discreet.ledger.chain import Entry
from discreet.ledger.receipt import Receipt, anchor
from discreet.ledger.terms import Terms

# --- previews


def preview_json(expected: Preview) -> dict[str, Any]:
    """A preview as JSON. It holds public facts alone."""
    return {
        "cost": expected.cost,
        "epsilon": expected.epsilon,
        "noise": expected.noise,
        "keys": expected.keys,
        "event": codec.encode_tree(expected.event),
        "protects": codec.encode_neighbors(expected.neighbors),
        "groups": expected.groups,
        "rows": expected.rows,
        "columns": [
            {
                "name": column.name,
                "epsilon": column.epsilon,
                "error": to_json_value(column.error),
                "share": column.share,
                "noise": column.noise,
                "unit": column.unit,
            }
            for column in expected.columns
        ],
        "covers": expected.covers,
        "sql": expected.sql,
        "budget": codec.encode_budget(expected.budget),
        "remaining": codec.encode_budget(expected.remaining),
        "afterwards": None if expected.afterwards is None else codec.encode_budget(expected.afterwards),
        "room": room_words(expected.remaining, expected.budget),
        "affordable": expected.affordable,
        "text": str(expected),
    }


def preview_of(value: Mapping[str, Any]) -> Preview:
    """The preview that a server sent."""
    neighbors = codec.decode_neighbors(value["protects"])

    def budget(tree: Any) -> Guarantee:
        return codec.decode_budget(tree).protecting(neighbors)

    return Preview(
        epsilon=value["epsilon"],
        cost=value["cost"],
        noise=value["noise"],
        keys=value["keys"],
        event=codec.decode_tree(value["event"]),
        neighbors=neighbors,
        groups=value["groups"],
        rows=value["rows"],
        columns=tuple(
            Expected(
                name=column["name"],
                epsilon=column["epsilon"],
                error=float("inf") if column["error"] is None else column["error"],
                share=column["share"],
                noise=column["noise"],
                unit=column["unit"],
            )
            for column in value["columns"]
        ),
        sql=value["sql"],
        budget=budget(value["budget"]),
        remaining=budget(value["remaining"]),
        afterwards=None if value["afterwards"] is None else budget(value["afterwards"]),
        covers=value["covers"],
    )


# --- results

#: Columns of dates, times and lists are texts and lists in JSON; their type says how to read them.
_READERS: dict[str, Callable[[Any], Any]] = {
    "date": dt.date.fromisoformat,
    "time": dt.datetime.fromisoformat,
    "list": tuple,
}


def _kind(values: tuple[Any, ...]) -> str:
    present = {type(value) for value in values if value is not None}
    for name, kind in (("time", dt.datetime), ("date", dt.date), ("list", tuple)):
        if present and all(issubclass(type_of_value, kind) for type_of_value in present):
            return name
    return ""


def result_json(result: Result) -> dict[str, Any]:
    """A released answer as JSON: what its receipt paid for, and nothing else."""
    kinds = {name: _kind(values) for name, values in result.columns.items()}
    ends = {name: source.interval(LEVEL) for name, source in result.sources.items() if name in result.columns}
    return {
        "columns": [{"name": name, **({"type": kind} if kind else {})} for name, kind in kinds.items()],
        "rows": to_json_value([[_iso(value) for value in row.values()] for row in result.rows()]),
        "group_columns": result.group_columns,
        "outputs": [
            {"name": column.name, "error": column.error, "error_in": column.error_in, "ends": list(column.ends)}
            for column in result.outputs
        ],
        "totals": to_json_value({name: list(total) for name, total in result.totals.items()}),
        "intervals": {name: to_json_value({"low": low, "high": high}) for name, (low, high) in ends.items()},
        "level": LEVEL,
        "covers": result.covers,
        "guarantee": None if result.guarantee is None else str(result.guarantee),
        "budget": None if result.guarantee is None else codec.encode_budget(result.guarantee),
        "protects": codec.encode_neighbors(result.receipt.terms.neighbors),
        "receipt": json.loads(result.receipt.to_json()),
        "terms": result.receipt.terms.text(),
    }


def _iso(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.date) else value


@dataclass(frozen=True)
class KeptInterval:
    """Both ends of a column's intervals, as the server computed them at one level."""

    low: tuple[Any, ...]
    high: tuple[Any, ...]
    level: float

    def interval(self, level: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Both ends, one number for each row."""
        if level != self.level:
            raise _check.fail("level", f"be {self.level}", level, "a server sends intervals at this level alone")
        return self.low, self.high


def result_of(value: Mapping[str, Any]) -> Result:
    """The result that a server sent, as `Answer.release` would have returned it; without the releases behind it."""
    names = [column["name"] for column in value["columns"]]
    by_column = list(zip(*value["rows"], strict=True)) or [() for _ in names]
    columns = {
        column["name"]: tuple(_read(column.get("type", ""), cell) for cell in cells)
        for column, cells in zip(value["columns"], by_column, strict=True)
    }
    neighbors = codec.decode_neighbors(value["protects"])
    guarantee = None if value["budget"] is None else codec.decode_budget(value["budget"]).protecting(neighbors)
    sources: Any = {
        name: KeptInterval(tuple(ends["low"]), tuple(ends["high"]), value["level"])
        for name, ends in value["intervals"].items()
    }
    outputs = tuple(
        ResultColumn(column["name"], column["error"], column["error_in"], tuple(column["ends"]))
        for column in value["outputs"]
    )
    totals = {name: (float(total[0]), float(total[1])) for name, total in value["totals"].items()}
    receipt = receipt_of(value["receipt"], value["terms"])
    return Result(columns, value["group_columns"], receipt, {}, totals, outputs, guarantee, value["covers"], sources)


def receipt_of(value: Any, terms: str) -> Receipt:
    """The receipt that a server sent; refused if its hash is not that of its text."""
    kept = anchor(codec.canonical(value))
    return Receipt.of_entry(Terms.of_text(terms), Entry.of_body(value["body"]), kept.hash, replayed=False)


def _read(kind: str, cell: Any) -> Any:
    reader = _READERS.get(kind)
    return cell if reader is None or cell is None else reader(cell)
