"""What a report holds, as plain values: all of it from the ledger, from releases, and from nothing else."""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from typing import Any

import numpy as np

import discreet
from discreet.accounting._profile import profile, supporting_lines
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.tight import epsilon
from discreet.apps.report import words
from discreet.errors import UnknownEvent
from discreet.events import Composed, Event, Repeated
from discreet.guarantees import Guarantee
from discreet.ledger import Account
from discreet.ledger.statement import Statement, events_of
from discreet.ledger.terms import Terms
from discreet.neighbors import Relation

#: Where the attacker's curve is shown; 0.05 is the usual false alarm of a test.
_FALSE_ALARMS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_USUAL = 0.05
#: From how many ε the tight curve is drawn: each may take a second or two, and fewer are no less valid, only lower.
_POINTS = 8


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


@dataclass(frozen=True)
class Answer:
    """A released table: rows with values and, for each value `x`, its 95% error `x_error`."""

    title: str
    rows: tuple[dict[str, Any], ...]
    group_columns: int
    cost: str
    note: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are answers in numbers, which can be drawn."""
        if not self.rows:
            return ()
        known = [name for name in list(self.rows[0])[self.group_columns :] if not name.endswith("_error")]
        return tuple(name for name in known if all(_is_number(row.get(name)) for row in self.rows))

    def error(self, row: dict[str, Any], name: str) -> float | None:
        """The 95% error of one value, where it has one in its own units."""
        found: Any = row.get(f"{name}_error")
        return float(found) if _is_number(found) else None

    def label(self, row: dict[str, Any]) -> str:
        """The group of one row in words."""
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
    """A training run: the plan in words, what may be told of it by step, and private scores on the way."""

    title: str
    plan: str
    steps: tuple[int, ...]
    series: tuple[tuple[str, tuple[float, ...]], ...]
    guarantee: str
    evaluations: tuple[Evaluation, ...] = ()
    scores: tuple[tuple[int, Evaluation], ...] = ()


@dataclass(frozen=True)
class TradeOff:
    """The least share of misses that any attacker has at each rate of false alarms.

    `promised` follows from the budget and holds for adaptive use. `so_far` is the tight curve of what was charged, as
    if it had been fixed in advance; None where no theorem prices it.
    """

    false_alarms: tuple[float, ...]
    promised: tuple[float, ...]
    so_far: tuple[float, ...] | None

    def recognized(self, curve: Sequence[float]) -> float:
        """The share of people that an attacker with 5% false alarms recognizes at most."""
        return 1.0 - curve[self.false_alarms.index(_USUAL)]


@dataclass(frozen=True)
class Report:
    """Everything that the page says. `to_json` is the same for machines."""

    title: str
    account: str
    budget: Guarantee
    statement: Statement
    promise: tuple[words.Paragraph, ...]
    charges: tuple[Charge, ...]
    trade_off: TradeOff
    answers: tuple[Answer, ...] = ()
    trainings: tuple[Training, ...] = ()
    commands: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    written: str = ""
    lead: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "title": self.title,
            "written": self.written,
            "account": self.account,
            "protects": str(self.budget.protects),
            "statement": json.loads(self.statement.to_json()),
            "promise": [asdict(one) for one in self.promise],
            "charges": [asdict(one) for one in self.charges],
            "trade_off": asdict(self.trade_off),
            "answers": [asdict(one) for one in self.answers],
            "trainings": [asdict(one) for one in self.trainings],
            "reproduce": {"commands": list(self.commands), "versions": dict(self.versions)},
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1, default=str)


def collect(
    account: Account,
    *,
    title: str | None = None,
    lead: str = "",
    answers: Sequence[Answer] = (),
    trainings: Sequence[Training] = (),
    commands: Sequence[str] = (),
) -> Report:
    """The report of an account as it stands now, with what was released from it.

    Guarantee: says what the ledger says, and what it is given: `answers` and `trainings` must be releases.
    """
    statement = account.statement()
    entries = account.history()
    events = events_of(entries)
    neighbors = account.neighbors
    charges = _charges(account, statement)
    return Report(
        title=title or f"Privacy report of {account.name}",
        account=account.name,
        budget=account.budget,
        statement=statement,
        promise=words.promise(statement, neighbors, events, charges=len(charges), trainings=len(trainings)),
        charges=charges,
        trade_off=_trade_off(account.budget, events, neighbors.relation),
        answers=tuple(answers),
        trainings=tuple(trainings),
        commands=tuple(commands),
        versions=_versions(),
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        lead=lead,
    )


def _charges(account: Account, statement: Statement) -> tuple[Charge, ...]:
    """The statement's lines, with the budget used after each, recomputed from the entries."""
    entries = account.history()
    opened = entries[0].terms
    assert opened is not None, "an account begins with its terms"
    terms = Terms.of_text(opened)
    state = terms.beginning()
    after: dict[int, float] = {}
    for entry in entries:
        if entry.change:
            state = state.changed(entry.change, entry.claimed)
        after[entry.sequence] = terms.used(state)
    before = {later: after[earlier] for earlier, later in pairwise(sorted(after))}
    # The end of a plan that ran to its end hands nothing back and is no charge.
    shown = [one for one in statement.lines if one.kind != "close" or after[one.sequence] < before[one.sequence]]
    return tuple(
        Charge(
            line.sequence,
            line.time[:19].replace("T", " "),
            line.by,
            line.kind,
            line.purpose,
            repr(line.event),
            line.share,
            after[line.sequence],
        )
        for line in shown
    )


def _trade_off(budget: Guarantee, events: Sequence[Event], relation: Relation) -> TradeOff:
    alarms = np.array(_FALSE_ALARMS)
    epsilons = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 200)])
    epsilons, deltas = np.array(form_of(budget).profile([float(e) for e in epsilons])).T
    promised = supporting_lines(alarms, epsilons, deltas)
    so_far: tuple[float, ...] | None
    try:
        # What was charged stays within the budget, so the promise holds for it as well.
        so_far = _floats(np.maximum(_tight(alarms, events, relation), promised))
    except UnknownEvent:
        so_far = None
    return TradeOff(_FALSE_ALARMS, _floats(promised), so_far)


def _tight(alarms: Any, events: Sequence[Event], relation: Relation) -> Any:
    """The curve of what was charged, from the upper ends of δ at some ε."""
    if not events:
        return 1.0 - alarms
    counts = Counter(events)
    whole = Composed(tuple(event if n == 1 else Repeated(event, n) for event, n in counts.items()))
    most = epsilon(whole, 1e-6, relation).upper
    if math.isinf(most):
        return 0.0 * alarms
    found = profile(whole, relation).delta(most * np.linspace(0.0, 1.0, _POINTS) ** 1.5)
    return supporting_lines(alarms, found.at, found.upper)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) if math.isfinite(value) else 0.0 for value in values)


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("discreet", discreet.__version__), ("python", platform.python_version())]
    for name in ("numpy", "scipy", "duckdb", "ibis-framework", "torch"):
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)
