"""`discreet query --partition`: the same question about disjoint parts of a table, each charged for itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.apps.cli.key_lists import dated, keys_of, literal
from discreet.apps.cli.printing import Output, cell_text, to_json_value
from discreet.apps.cli.results import answer_json, cost_text, is_number
from discreet.errors import InvalidArgument
from discreet.ledger.partitions import counted_parts


@dataclass(frozen=True)
class AskedParts:
    """The parts that a command asks about.

    Attributes:
        name: the column that the parts go by, which is also the partition's name in the ledger.
        partition: all parts.
        keys: those that are asked about.
        counted: how many of the costliest parts the account counts.
    """

    name: str
    partition: Any
    keys: tuple[Any, ...]
    counted: int

    @classmethod
    def of(cls, private: Any, text: str, wanted: tuple[str, ...], max_parts: int | None) -> AskedParts:
        """The parts of COLUMN=KEYS, or of an SQL expression in place of the column."""
        from discreet.analytics.plan.sql.expression import expression
        from discreet.analytics.table.doors import spec_of

        # The last "=": one may stand in the expression. A column such as MONTH(day) knows its keys.
        written, equals, listed = text.rpartition("=")
        written = written.strip() if equals else text.strip()
        problem = InvalidArgument(
            f"--partition must be COLUMN=KEYS, got {text!r}: such as \"DATE_TRUNC('month', day) AS "
            'month=2023-01..2023-12"'
        )
        if not written or (equals and not listed.strip()):
            raise problem
        name = written
        if written not in private.columns:
            name, value = expression(written, private.columns)
            private = private.mutate(**{name: value})
        if not equals and name not in spec_of(private).bins:
            raise problem
        kind = private.schema()[name]
        keys = dated("--partition", name, keys_of(listed.strip()), kind) if equals else None
        partition = private.partition(name, keys=keys, max_parts=max_parts)
        chosen = tuple(_part(partition, kind, name, key) for key in wanted) or partition.keys
        if len(set(chosen)) != len(chosen):
            raise InvalidArgument(f"--part must name each part once, got {', '.join(wanted)}: omit the repetition")
        relation = spec_of(private).account.neighbors.relation
        counted = counted_parts(partition.part(chosen[0]).max_parts, relation)
        return cls(name, partition, chosen, counted)

    def ask(self, sql: str, keys: object, tables: Mapping[str, Any]) -> list[Any]:
        """The answer about each part, not released."""
        return [self.partition[key].plan(sql, keys=keys, tables=tables) for key in self.keys]

    @property
    def note(self) -> str:
        """How the account counts these parts."""
        parts = f"{len(self.keys)} of {len(self.partition)} parts" if len(self.keys) > 1 else "one part"
        costliest = "the costliest part" if self.counted == 1 else f"the {self.counted} costliest parts"
        return f"{parts} by {self.name}, asked one by one; the account counts {costliest}"


def _part(partition: Any, kind: Any, name: str, text: str) -> Any:
    """The key of one part. A month may be written as 2023-01."""
    written = f"{text}-01" if kind.is_date() and re.fullmatch(r"\d{4}-\d{2}", text) else text
    (key,) = dated("--part", name, [literal(written)], kind)
    partition.part(key)  # refuses what is no part
    return key


def release_parts(
    output: Output, parts: AskedParts, answers: list[Any], sql: str, spend: dict[str, Any], key: str | None
) -> None:
    """Release the answer about each part, and print all of them as one table with a column for the part.

    If one cannot be released, those before it, which were charged, are printed first.
    """
    done: list[tuple[Any, Any]] = []
    failed: BaseException | None = None
    with output.working("Answering"):
        for part, answer in zip(parts.keys, answers, strict=True):
            named = key if key is None or len(answers) == 1 else f"{key}: {cell_text(part)}"
            try:
                done.append((part, answer.release(**spend, key=named)))
            except BaseException as error:
                if not done:
                    raise
                failed = error
                break
    cost = cost_text(spend["epsilon"], spend["delta"], spend["rho"])
    charged = {
        "partition": parts.name,
        "counted_parts": parts.counted,
        "parts": [{"part": to_json_value(part), **answer_json(result, cost, sql)} for part, result in done],
    }
    first, last = done[0][1].receipt, done[-1][1].receipt

    def show() -> None:
        if output.json:
            output.emit(charged)
        else:
            _show(output, parts, done, cost)

    output.print_charged(charged, f"{first.account}-{first.sequence}-to-{last.sequence}", show)
    if failed is not None:
        raise failed


def _show(output: Output, parts: AskedParts, done: list[tuple[Any, Any]], cost: str) -> None:
    results = [result for _, result in done]
    heads = tuple(results[0].columns)
    rows = [(part, *row.values()) for part, result in done for row in result.rows()]
    right = [head for index, head in enumerate(heads, 1) if all(is_number(row[index]) for row in rows)]
    output.table((parts.name, *heads), rows, right=right)
    first, last = results[0].receipt, results[-1].receipt
    entries = f"entry {first.sequence}" if len(done) == 1 else f"entries {first.sequence} to {last.sequence}"
    costliest = "part" if parts.counted == 1 else f"{parts.counted} parts"
    output.say(f"\n{results[0].covers}")
    output.say(
        f"charged {cost} to each part, to {first.account} as {entries}; the account counts the costliest {costliest}; "
        "errors are at 95%"
    )
