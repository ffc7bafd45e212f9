"""Attacks on the Adult table without names: unique combinations, linkage, and what k-anonymity leaves open."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet import datasets
from discreet.auditing.reidentification.demonstration import (
    Demonstration,
    balanced,
    cells_of,
    noisy_guesses,
)

#: What a neighbor or a social network knows about people, in the order in which the pictures add it.
QUASI_IDENTIFIERS = (
    "age",
    "sex",
    "race",
    "education",
    "marital_status",
    "native_country",
    "occupation",
    "hours_per_week",
)
# Attacked people, and the size of a class that is called anonymous.
_PEOPLE, _CLASS = 2_000, 5
# Years of an age band in the anonymized table.
_BAND = 10


def _adult() -> dict[str, NDArray[np.generic]]:
    """The table, with an empty text for what is missing."""
    columns = {name: list(column) for name, column in datasets.adult().items()}
    return {name: np.array(["" if value is None else value for value in column]) for name, column in columns.items()}


def _rich(table: dict[str, NDArray[np.generic]]) -> NDArray[np.bool_]:
    return np.asarray(table["income"] == datasets.INCOME[-1])


def uniqueness() -> Demonstration:
    """How many people are the only ones with their combination of a few harmless facts."""
    table, secret = _adult(), _rich(_adult())
    curve = []
    for columns_known in range(1, len(QUASI_IDENTIFIERS) + 1):
        cells = cells_of(*(table[name] for name in QUASI_IDENTIFIERS[:columns_known]))
        unique = np.bincount(cells)[cells] == 1
        curve.append((f"+ {QUASI_IDENTIFIERS[columns_known - 1].replace('_', ' ')}", float(unique.mean())))
    targets = balanced(np.flatnonzero(unique), secret, _PEOPLE, "uniqueness")
    return Demonstration(
        "Unique people",
        "The Adult table has no names. Still, a few facts that neighbors know single people out. Whoever knows them "
        "reads the rest of the row, here whether the person earns more than 50,000 dollars.",
        "of unique people, the income is guessed right",
        1.0,
        noisy_guesses(cells, secret, targets),
        0.5,
        curve=tuple(curve),
    )


def linkage() -> Demonstration:
    """Join a public list with names to the table without names."""
    table, secret = _adult(), _rich(_adult())
    cells = cells_of(*(table[name] for name in QUASI_IDENTIFIERS[:6]))
    unique = np.bincount(cells)[cells] == 1
    targets = balanced(np.flatnonzero(unique), secret, _PEOPLE, "linkage")
    return Demonstration(
        "Linkage",
        "A public list has names, ages, schooling and marital status. Joined to the table without names, "
        f"{unique.mean():.0%} of the names match a single row, and their incomes are known.",
        "of people who match one row, the income is guessed right",
        1.0,
        noisy_guesses(cells, secret, targets),
        0.5,
    )


def k_anonymity() -> Demonstration:
    """Classes of at least k people, in many of which everybody has the same secret."""
    table, secret = _adult(), _rich(_adult())
    bands = np.asarray(table["age"], dtype=np.int64) // _BAND
    cells = cells_of(bands, table["sex"], table["education"], table["marital_status"])
    sizes = np.bincount(cells)[cells]
    kept = sizes >= _CLASS
    rich = np.bincount(cells, weights=secret)[cells]
    same = kept & ((rich == 0) | (rich == sizes))
    # Background knowledge: the attacker knows one other person of the class.
    nearly = kept & ((rich <= 1) | (rich >= sizes - 1))
    return Demonstration(
        "k-anonymity",
        f"Ages are put into bands of {_BAND} years and rows of fewer than {_CLASS} people are dropped, so nobody "
        "is unique. But in many classes everybody has the same income bracket: being in the class gives it away "
        "(homogeneity). Whoever knows one other person of the class can be sure about "
        f"{nearly[kept].mean():.0%} (background knowledge).",
        "of all people in the table, the attacker is certain of the income bracket",
        float(same[kept].mean()),
        0.0,  # every noisy count is possible whatever a person's bracket is, so nobody is ever certain
        0.0,
        curve=(("homogeneity", float(same[kept].mean())), ("with background knowledge", float(nearly[kept].mean()))),
    )
