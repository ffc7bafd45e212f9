"""The privacy statement in words: what a careful reviewer asks for, answered from the ledger's own entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from discreet import events as ev
from discreet.accounting.adaptive.budgets import form_of
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.statement import ADAPTIVE, Statement
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Neighbors, Person


@dataclass(frozen=True)
class Paragraph:
    """One question of a reviewer, and its answer."""

    question: str
    answer: str


def promise(
    statement: Statement, neighbors: Neighbors, events: Sequence[Event], *, charges: int, trainings: int = 0
) -> tuple[Paragraph, ...]:
    """The whole statement, question by question."""
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
            f"Every person in the data, with all of their rows: a person is found by the id in {column}, and no query "
            f"uses more than {neighbors.unit.max_rows} of their rows."
        )
    return "Every row of the data. That is every person where each person has one row, and not otherwise."


def _against() -> str:
    return (
        "Anyone who sees what was released, whatever else they know (even all other rows), and however much they can "
        "compute, now or later. Whoever holds the raw data must be trusted."
    )


def _how_much(statement: Statement) -> str:
    budget = statement.budget
    spent = f"{100 * statement.used:.1f}% of that budget is used so far; what remains is {statement.room}. "
    spent += f"The bound {ADAPTIVE}."
    if statement.tight is not None:
        spent += (
            f" If everything charged had been fixed in advance, it would be ε = {statement.tight.upper:.4g} at "
            f"δ = {statement.delta:g}."
        )
    elif statement.tight_note:
        spent += f" For what was charged, {statement.tight_note}."
    return f"{budget.explain()} {spent}"


def _not_covered(neighbors: Neighbors) -> str:
    size = "" if neighbors.relation is ADD_REMOVE else " The number of units is treated as public."
    return (
        "What is true of people in general, which the data are there to tell. Several people together get a weaker "
        "bound (see the family of four above). Public facts: column names, types, group keys, bounds, the questions "
        f"asked and when.{size} The time a query takes, the raw data and the machine that holds them, other releases "
        "from the same people that were not charged to this account, and whoever writes to the ledger by other means."
    )


def _relation(neighbors: Neighbors) -> str:
    return {
        ADD_REMOVE: "Neighbors differ in one unit that is present in one dataset and absent from the other.",
        REPLACE_ONE: "Neighbors differ in one unit whose data are exchanged for any other.",
        ZERO_OUT: "Neighbors differ in one unit whose data are exchanged for a record that contributes nothing.",
    }[neighbors.relation]


def _accountant(budget: Guarantee) -> str:
    rule = form_of(budget).rule
    return (
        f"The bound: {rule}, valid when answers decide what is asked next. The tight figure: privacy loss "
        "distributions, inverted numerically with a certificate from both sides; the upper end is shown."
    )


def _sampling(events: Sequence[Event]) -> str:
    found: dict[str, None] = {}
    for event in events:
        for part in event.walk():
            match part:
                case ev.PoissonSampled(rate, _):
                    found[f"Poisson: each unit joins a batch on its own with probability {rate:.4g}"] = None
                case ev.SampledWithoutReplacement(size, population, _):
                    found[f"without replacement: {size:,} of {population:,} units in a batch"] = None
                case ev.ShuffledEpoch(size, examples, _):
                    found[f"shuffled epochs: batches of {size:,} of {examples:,} examples, priced unamplified"] = None
                case ev.Shuffled(reports, _):
                    found[f"{reports:,} local reports, shuffled"] = None
    if not found:
        return "None: every release saw all of the data, and no amplification is claimed."
    return "; ".join(found) + ". The event that was charged is the sampler's own."


def _tuning(charges: int, trainings: int) -> str:
    what = "one charge is" if charges == 1 else f"{charges} charges are"
    runs = (
        ""
        if not trainings
        else f" {'One training run is' if trainings == 1 else f'{trainings} training runs are'} shown."
    )
    return (
        f"{what.capitalize()} listed below, and all of them count, also those for trials whose result was thrown "
        f"away.{runs} What was tried on these data outside of this account is not counted here."
    )


def _randomness(events: Sequence[Event]) -> str:
    if any(not ev.is_secure(event) for event in events):
        return "Reproducible noise was used: this is no protection."
    return "The operating system's. Statistics carry exactly sampled noise on integers."


def headline(budget: Guarantee) -> tuple[str, str]:
    """The budget as a large figure and a few words."""
    return form_of(budget).headline()
