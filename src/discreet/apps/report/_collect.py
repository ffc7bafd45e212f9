"""From an account to its report."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise

import discreet
from discreet.apps.report import questions
from discreet.apps.report.document import Attested, Charge, ReleasedTable, Report, Training
from discreet.apps.report.trade_off import trade_off
from discreet.attestation import Attestation
from discreet.ledger import Account
from discreet.ledger.statement import Statement, events_of
from discreet.ledger.terms import Terms


def collect(
    account: Account,
    *,
    title: str | None = None,
    lead: str = "",
    answers: Sequence[ReleasedTable] = (),
    trainings: Sequence[Training] = (),
    commands: Sequence[str] = (),
) -> Report:
    """The report of an account as it stands now, with what was released from it.

    Guarantee: the report shows what the ledger holds, and what it is given: `answers` and `trainings` must be releases.
    """
    statement = account.statement()
    entries = account.history()
    events = list(events_of(entries).values())
    neighbors = account.neighbors
    charges = _charges(account, statement)
    curves = trade_off(account.budget, events, neighbors.relation)
    return Report(
        title=title or f"Privacy report of {account.name}",
        account=account.name,
        budget=account.budget,
        statement=statement,
        promise=questions.promise(statement, neighbors, events, charges=len(charges), trainings=len(trainings)),
        charges=charges,
        trade_off=curves,
        answers=tuple(answers),
        trainings=tuple(trainings),
        commands=tuple(commands),
        versions=_versions(),
        written=datetime.now(UTC).isoformat(timespec="seconds"),
        lead=lead,
        summary=questions.summary(account.budget, neighbors, curves.recognized(curves.promised)),
        audits=_audits(account),
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
            state = terms.changed(state, entry.change, entry.claimed, entry.part)
        after[entry.sequence] = terms.used(state)
    before = {later: after[earlier] for earlier, later in pairwise(sorted(after))}
    # Closing a plan that ran to its end returns nothing, so it is no charge.
    shown = [line for line in statement.lines if line.kind != "close" or after[line.sequence] < before[line.sequence]]
    return tuple(
        Charge(
            line.sequence,
            line.time[:19].replace("T", " "),
            line.who,
            line.kind,
            line.description,
            repr(line.event),
            line.share,
            after[line.sequence],
        )
        for line in shown
    )


def _effort(audit: Attestation) -> str:
    """How hard an audit looked, and what it is sure of."""
    runs = "1 run" if audit.samples == 1 else f"{audit.samples:,} runs"
    pairs = "1 pair" if audit.pairs == 1 else f"{audit.pairs:,} pairs"
    return (
        f"{runs} on {pairs} of datasets; ε ≥ {audit.epsilon_lower:.4g} at δ = {audit.delta:.3g}, which is wrong with "
        f"probability {audit.alpha:.1g} at most"
    )


def _audits(account: Account) -> tuple[Attested, ...]:
    """The audits that the account keeps."""
    return tuple(
        Attested(
            entry.sequence,
            entry.time[:19].replace("T", " "),
            attestation.subject,
            attestation.claim,
            attestation.verdict,
            attestation.violated,
            attestation.method,
            _effort(attestation),
        )
        for entry, attestation in account.attestations()
    )


def _versions() -> tuple[tuple[str, str], ...]:
    versions = [("discreet", discreet.__version__), ("python", platform.python_version())]
    for name in ("numpy", "scipy", "duckdb", "ibis-framework", "torch"):
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(versions)
