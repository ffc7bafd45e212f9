"""The privacy statement in words: three sentences, then the questions of a careful reviewer with their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from discreet import events as ev
from discreet.accounting.adaptive.budgets import form_of
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.statement import ADAPTIVE, Statement
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Client, Neighbors, Person


@dataclass(frozen=True)
class Paragraph:
    """A reviewer's question and its answer."""

    question: str
    answer: str


def summary(budget: Guarantee, neighbors: Neighbors, recognized: float) -> tuple[str, str, str]:
    """The promise in three sentences. `recognized` is what an attacker with 5% false alarms finds at most."""
    unit = neighbors.unit
    limit = (
        f"These results limit what anyone can learn about {unit}, whatever else they know: "
        f"{_limit(budget, recognized)}."
    )
    charged_first = (
        "Every charge was recorded before its answer was computed, and nothing over the budget is answered, so the "
        "limit holds no matter how the questions were chosen."
    )
    scope = (
        f"It protects {unit}; it does not hide what is true of people in general, and it does not cover releases that "
        "were not charged to this account."
    )
    return limit, charged_first, scope


def _limit(budget: Guarantee, recognized: float) -> str:
    pairs = form_of(budget).profile([])  # a single (ε, δ), unless the budget promises a δ for every ε
    if not pairs:
        return (
            f"an attacker who accepts 5% false alarms recognizes at most {recognized:.1%} of those in the data "
            "(guessing recognizes 5%)"
        )
    [(epsilon, delta)] = pairs
    sure_at_most = f"a guess that was 50% sure becomes at most {1.0 / (1.0 + math.exp(-epsilon)):.1%} sure"
    if delta <= 0:
        return sure_at_most
    return (
        f"{sure_at_most}, with a slack of δ = {delta:g}: the results behave like ones that always keep this limit, "
        "except with at most that probability"
    )


def promise(
    statement: Statement, neighbors: Neighbors, events: Sequence[Event], *, charges: int, trainings: int = 0
) -> tuple[Paragraph, ...]:
    """The complete statement, question by question."""
    return (
        Paragraph("Who is protected?", _who(neighbors)),
        Paragraph("Against whom?", _against()),
        Paragraph("How much?", _how_much(statement)),
        Paragraph("What is not covered?", _not_covered(neighbors)),
        Paragraph("Which unit and which neighbors?", f"Unit: {neighbors.unit}. {_relation(neighbors)}"),
        Paragraph("Which accountant?", _accountant(statement.budget)),
        Paragraph("Which sampling?", _sampling(events)),
        Paragraph("What did tuning cost?", _tuning(charges, trainings)),
        Paragraph("Which randomness?", _randomness(events)),
    )


def _who(neighbors: Neighbors) -> str:
    if isinstance(neighbors.unit, Person):
        column = neighbors.unit.column
        return (
            f"Every person in the data, with all of their rows. The column {column} identifies a person, and no query "
            f"uses more than {neighbors.unit.max_rows} of their rows."
        )
    if isinstance(neighbors.unit, Client):
        most, shared = neighbors.unit.per_person, neighbors.unit.shared
        if most == 1 and not shared:
            return (
                "Every client of the federation, with all of its data, and so every person who has a client to "
                "themselves. For one of several people whose data are held by one client, the bound is that of two "
                "clients."
            )
        whose = "which may hold data of others too" if shared else "which hold data of nobody else"
        number = "one client" if most == 1 else f"{most} clients"
        return f"Every person whose data are held by at most {number} of the federation, {whose}."
    return "Every row of the data. That protects every person only if each person has one row."


def _against() -> str:
    return (
        "Anyone who sees the results, whatever else they know (even all other rows) and however much they can compute, "
        "now or later. Whoever holds the raw data must be trusted."
    )


def _how_much(statement: Statement) -> str:
    budget = statement.budget
    spent = f"{100 * statement.used:.1f}% of that budget is used so far; what remains is {statement.room}. "
    spent += f"The bound {ADAPTIVE}."
    if statement.tight is not None:
        spent += (
            f" If everything charged had been fixed in advance, the bound would be ε = {statement.tight.upper:.4g} at "
            f"δ = {statement.delta:g}."
        )
    elif statement.tight_note:
        spent += f" For what was charged, {statement.tight_note}."
    return f"{budget.explain()} {spent}"


def _not_covered(neighbors: Neighbors) -> str:
    size = "" if neighbors.relation is ADD_REMOVE else " The number of units is treated as public."
    return (
        "Facts about people in general, which the data are there to show. Several people together get a weaker bound "
        "(see the family of four above). Public facts are not hidden: column names, types, group keys, bounds, the "
        f"questions and when they were asked.{size} Also not covered: the time a query takes, the raw data and the "
        "machine that holds them, releases about the same people that were not charged to this account, and anyone "
        "who can write to the ledger directly."
    )


def _relation(neighbors: Neighbors) -> str:
    return {
        ADD_REMOVE: "Neighbors differ in one unit, which is in one dataset and not in the other.",
        REPLACE_ONE: "Neighbors differ in one unit, whose data may be replaced by any other.",
        ZERO_OUT: "Neighbors differ in one unit, whose data are replaced by a record that contributes nothing.",
    }[neighbors.relation]


def _accountant(budget: Guarantee) -> str:
    rule = form_of(budget).rule
    return (
        f"For the bound: {rule}. It is valid even if earlier answers decide what is asked next. For the tight bound: "
        "privacy loss distributions, inverted numerically with certified bounds from both sides; the upper one "
        "is shown."
    )


def _sampling(events: Sequence[Event]) -> str:
    samplers: dict[str, None] = {}  # in order, each once
    for event in events:
        for nested in event.walk():
            match nested:
                case ev.PoissonSampled(rate, _):
                    samplers[f"Poisson: each unit joins each batch independently with probability {rate:.4g}"] = None
                case ev.TruncatedPoissonSampled(rate, largest, _, _):
                    most = f"at most {largest:,} in a batch"
                    samplers[f"Poisson: each unit joins each batch with probability {rate:.4g}, {most}"] = None
                case ev.SampledWithoutReplacement(size, population, _):
                    samplers[f"without replacement: batches of {size:,} of {population:,} units"] = None
                case ev.ShuffledEpoch(size, examples, _):
                    samplers[
                        f"shuffled epochs: batches of {size:,} of {examples:,} examples, priced without amplification"
                    ] = None
                case ev.RandomlyAllocated(steps, selected, _):
                    batches = f"{selected:,} of {steps:,} batches"
                    samplers[f"random allocation: each unit draws {batches} of an epoch for itself"] = None
                case ev.Shuffled(reports, _):
                    samplers[f"{reports:,} local reports, shuffled"] = None
    if not samplers:
        return "None. Every release used all of the data, and no amplification is claimed."
    return "; ".join(samplers) + ". The charged event is the one that the sampler itself reports."


def _tuning(charges: int, trainings: int) -> str:
    listed = "One charge is" if charges == 1 else f"{charges} charges are"
    shown = "One training run is" if trainings == 1 else f"{trainings} training runs are"
    return (
        f"{listed} listed in this report. All of them count, including trials whose results were discarded."
        f"{f' {shown} shown.' if trainings else ''} Trials on these data outside this account are not counted."
    )


def _randomness(events: Sequence[Event]) -> str:
    if any(not ev.is_secure(event) for event in events):
        return "Reproducible noise was used, which gives no protection."
    return "The operating system's. The noise of statistics is sampled exactly, on integers."


def headline(budget: Guarantee) -> tuple[str, str]:
    """The budget as a large number and a few words."""
    return form_of(budget).headline()
