"""What the pages show, as plain values: standings, newest charges, rules in words, and answers as tables and charts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from discreet.apps.server.config import Dataset
from discreet.apps.server.curator import Curator
from discreet.apps.server.pages import charts
from discreet.apps.server.pages.charts import Bar
from discreet.ledger.access import Approval, Identity, Policy
from discreet.ledger.statement import StatementLine

#: Charges, changes and refused attempts that a page lists; the export has all.
MOST_LISTED = 50
_GROUP_BY = re.compile(r"\bgroup\s+by\b(.*?)(?:\bhaving\b|\border\s+by\b|\blimit\b|\)|;|$)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class TextTable:
    """An answer as a table of texts."""

    heads: list[str]
    numbers: set[str]
    rows: list[list[tuple[str, str]]]


def grouped_keys(sql: str, dataset: Dataset) -> dict[str, list[Any]]:
    """The registered public values of the columns that a query groups by, so that nobody has to type them."""
    grouped = " ".join(_GROUP_BY.findall(sql))
    words = set(re.findall(r"\w+", grouped))
    return {name: list(values) for name, values in dataset.values.items() if name in words}


def accounts(curator: Curator) -> list[dict[str, Any]]:
    """How every account stands."""
    listed = []
    for account in curator.ledger.accounts():
        standing, policy = curator.standing(account), curator.access.policy(account.name)
        facts = {"meter": charts.meter(standing["used"]), "frozen": policy.frozen, "rules": rules(policy)}
        listed.append({**standing, **facts, "parent": account.name.rpartition("/")[0]})
    return listed


def shares(curator: Curator, identity: Identity) -> list[dict[str, Any]]:
    """What an analyst may still spend."""
    return [{**share, "meter": charts.meter(share["used"])} for share in curator.shares(identity)]


def newest(curator: Curator) -> list[StatementLine]:
    """The newest charges of all datasets; a charge of a part is listed once, at its dataset."""
    datasets = [account for account in curator.ledger.accounts() if "/" not in account.name]
    lines = [line for account in datasets for line in account.statement().lines]
    return sorted(lines, key=lambda line: line.time, reverse=True)[:MOST_LISTED]


def own(curator: Curator, identity: Identity) -> list[StatementLine]:
    """The newest charges of an analyst's own parts."""
    names = [share["account"] for share in curator.shares(identity)]
    lines = [line for name in names for line in curator.ledger.account(name).statement().lines]
    return sorted(lines, key=lambda line: line.time, reverse=True)[:MOST_LISTED]


def rules(policy: Policy) -> str:
    """A policy in a few words."""
    words = []
    if policy.frozen:
        words.append("frozen")
    if policy.max_epsilon_per_question is not None:
        words.append(f"ε ≤ {policy.max_epsilon_per_question:g} a question")
    if policy.approval_above is not None:
        words.append(f"approval above ε = {policy.approval_above:g}")
    if policy.min_group_size is not None:
        words.append(f"groups of {policy.min_group_size} or more")
    if policy.expires is not None:
        words.append(f"until {policy.expires.date()}")
    if policy.period is not None:
        words.append(f"renewed every {policy.period.days} days")
    return ", ".join(words) or "none"


def table(result: Mapping[str, Any]) -> TextTable:
    """A released answer as a table."""
    heads = [column["name"] for column in result["columns"]]
    numbers = {
        name
        for index, name in enumerate(heads)
        if all(row[index] is None or isinstance(row[index], int | float) for row in result["rows"])
    } - set(heads[: result["group_columns"]])
    rows = [[(name, charts.short(cell)) for name, cell in zip(heads, row, strict=True)] for row in result["rows"]]
    return TextTable(heads, numbers, rows)


def chart(result: Mapping[str, Any]) -> Markup:
    """Each released column as bars with error bars."""
    heads = [column["name"] for column in result["columns"]]
    groups = range(result["group_columns"])  # they come first
    drawn = []
    for output in result["outputs"]:
        if output["name"] not in heads:
            continue
        index, ends = heads.index(output["name"]), result["intervals"].get(output["name"])
        bars = []
        for number, row in enumerate(result["rows"]):
            if isinstance(row[index], bool) or not isinstance(row[index], int | float):
                continue
            low, high = (None, None) if ends is None else (ends["low"][number], ends["high"][number])
            label = ", ".join(charts.short(row[group]) for group in groups) or output["name"]
            bars.append(Bar(label, float(row[index]), low, high))
        if bars:
            heading = Markup("<h3>{}</h3>").format(output["name"]) if groups else Markup("")
            drawn.append(heading + charts.bars(f"{output['name']} with error bars", bars))
    return Markup("").join(drawn)


def asked(curator: Curator, approval: Approval) -> str:
    """All that a question which waits asks for, as it was sent: the purpose says what its asker wants it to say."""
    question = curator.question_of(approval)
    if question is None:
        return "The question is not on record: do not approve it."
    if "training" in question:
        return str(question["training"])
    sql, rest = question.get("sql"), {name: value for name, value in question.items() if name != "sql"}
    return "\n".join(([sql] if sql else []) + [json.dumps(rest, ensure_ascii=False)])


def by_user(lines: tuple[StatementLine, ...]) -> Markup:
    """How much of a budget each user took, as bars in percent."""
    totals: dict[str, float] = {}
    for line in lines:
        who = line.user or line.by
        totals[who] = totals.get(who, 0.0) + 100 * line.share
    ordered = sorted(totals.items(), key=lambda pair: -pair[1])
    return charts.bars("share of the budget by user, in percent", [Bar(who, each, None, None) for who, each in ordered])
