"""What a report says, as plain values. All of it comes from the ledger and from releases."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from discreet.apps.report.questions import Paragraph
from discreet.apps.report.titles import charge_title
from discreet.apps.report.trade_off import ReportTradeOff
from discreet.guarantees import Guarantee
from discreet.ledger.statement import Statement


@dataclass(frozen=True)
class Charge:
    """One charge of the account, with the share of the budget that was used after it."""

    sequence: int
    time: str
    by: str
    kind: str
    purpose: str
    event: str
    share: float
    used_after: float

    @property
    def title(self) -> str:
        """The purpose as a short title."""
        return charge_title(self.purpose, self.kind)


@dataclass(frozen=True)
class Attested:
    """An audit that the account keeps, with its row and time."""

    sequence: int
    time: str
    subject: str
    claim: str
    verdict: str
    violated: bool
    method: str
    effort: str


@dataclass(frozen=True)
class AnalystSpending:
    """What one analyst charged: the number of charges, and how much of the budget they used."""

    analyst: str
    charges: int
    used: float


@dataclass(frozen=True)
class ReleasedTable:
    """A released table: rows with values and, for each value `x`, its 95% error `x_error`."""

    title: str
    rows: tuple[dict[str, Any], ...]
    group_columns: int
    cost: str
    note: str = ""
    sql: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns with numeric answers, which can be drawn."""
        if not self.rows:
            return ()
        names = [name for name in list(self.rows[0])[self.group_columns :] if not name.endswith("_error")]
        return tuple(name for name in names if all(_is_number(row.get(name)) for row in self.rows))

    @property
    def is_single(self) -> bool:
        """Whether the answer is one row of numbers without groups."""
        return len(self.rows) == 1 and not self.group_columns and bool(self.values)

    def error(self, row: dict[str, Any], name: str) -> float | None:
        """The 95% error of one value in the value's own units, if it has one."""
        error: Any = row.get(f"{name}_error")
        return float(error) if _is_number(error) else None

    def label(self, row: dict[str, Any]) -> str:
        """The group of one row as text."""
        return ", ".join(str(value) for value in list(row.values())[: self.group_columns])


@dataclass(frozen=True)
class Evaluation:
    """A model's private score on people that it was not trained on."""

    name: str
    value: float
    low: float
    high: float
    cost: str


@dataclass(frozen=True)
class Training:
    """A training run: its plan in words, what may be shown of each step, and private scores along the way.

    `unit` says what a step is called, such as "round".
    """

    title: str
    plan: str
    steps: tuple[int, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]
    guarantee: str
    evaluations: tuple[Evaluation, ...] = ()
    scores: tuple[tuple[int, Evaluation], ...] = ()
    unit: str = "step"


@dataclass(frozen=True)
class Report:
    """Everything that the page says. `to_json` says the same for machines."""

    title: str
    account: str
    budget: Guarantee
    statement: Statement
    promise: tuple[Paragraph, ...]
    charges: tuple[Charge, ...]
    trade_off: ReportTradeOff
    answers: tuple[ReleasedTable, ...] = ()
    trainings: tuple[Training, ...] = ()
    commands: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    written: str = ""
    lead: str = ""
    summary: tuple[str, ...] = ()
    audits: tuple[Attested, ...] = ()

    def analyst(self, charge: Charge) -> str:
        """Who made a charge: the sub-account's name within this account, or the account itself."""
        return charge.by.removeprefix(f"{self.account}/")

    @property
    def increments(self) -> tuple[float, ...]:
        """How much of the budget each charge used. They add up to what is used now."""
        return tuple(
            after - before for before, after in pairwise((0.0, *(charge.used_after for charge in self.charges)))
        )

    @property
    def by_analyst(self) -> tuple[AnalystSpending, ...]:
        """What each analyst used of the budget, the largest first."""
        names = [self.analyst(charge) for charge in self.charges]
        totals = [
            AnalystSpending(
                name,
                names.count(name),
                math.fsum(step for step, whose in zip(self.increments, names, strict=True) if whose == name),
            )
            for name in dict.fromkeys(names)
        ]
        return tuple(sorted(totals, key=lambda spending: -spending.used))

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "title": self.title,
            "written": self.written,
            "account": self.account,
            "protects": str(self.budget.protects),
            "statement": json.loads(self.statement.to_json()),
            "summary": list(self.summary),
            "promise": [asdict(paragraph) for paragraph in self.promise],
            "charges": [asdict(charge) for charge in self.charges],
            "by_analyst": [asdict(spending) for spending in self.by_analyst],
            "trade_off": asdict(self.trade_off),
            "audits": [asdict(audit) for audit in self.audits],
            "answers": [asdict(answer) for answer in self.answers],
            "trainings": [asdict(training) for training in self.trainings],
            "reproduce": {"commands": list(self.commands), "versions": dict(self.versions)},
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, default=str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
