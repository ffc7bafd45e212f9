"""Attacks on exact statistics: a difference of two counts, many counts at once, and membership in an average."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet import datasets
from discreet.auditing.reidentification.demonstration import EPSILON, Demonstration, balanced, generator
from discreet.auditing.targets import additive
from discreet.mechanisms import Laplace, laplace
from discreet.queries import count

_PEOPLE = 1_000
# People whose secrets are reconstructed, and counts about random halves of them.
_SECRETS, _COUNTS = 100, 400
# People in the pool of an average, yes-or-no attributes of each, and people who are tested.
_POOL, _ATTRIBUTES, _TESTED = 200, 4_000, 400


def _rich() -> NDArray[np.bool_]:
    return np.array([income == datasets.INCOME[-1] for income in datasets.adult()["income"]])


def differencing() -> Demonstration:
    """Two counts that differ by one person."""
    secret = _rich()
    targets = balanced(np.arange(len(secret)), secret, _PEOPLE, "differencing")
    total = int(secret.sum())
    # Each of the two counts gets half of ε. They are released afresh for every attack.
    everybody = _released(total, len(targets))
    rest = np.where(secret[targets], _released(total - 1, len(targets)), _released(total, len(targets)))
    return Demonstration(
        "Differencing",
        "Two exact counts are published: people with a high income, and the same without one department. If the rest "
        "of the department is known, or it has one person, the difference is that person's secret.",
        "of attacked people, half of them rich, the income is guessed right",
        1.0,
        float(((everybody - rest > 0.5) == secret[targets]).mean()),
        0.5,
    )


def _released(value: int, times: int) -> NDArray[np.float64]:
    """A count with half of ε, again and again."""
    bounded = count([0] * value)
    return additive(Laplace.for_epsilon(bounded, EPSILON / 2), bounded, times)[:, 0].astype(np.float64)


def reconstruction() -> Demonstration:
    """Many exact counts determine every row (Dinur & Nissim 2003)."""
    secret = _rich()
    people = balanced(np.arange(len(secret)), secret, _SECRETS, "reconstruction")
    truth = secret[people].astype(np.float64)
    halves = generator("halves").random((_COUNTS, len(people))) < 0.5
    exact = halves @ truth
    # A person is in about half of the counts; at worst in all, and each gets its part of ε.
    each = EPSILON / _COUNTS
    noisy = np.array([float(laplace(count([0] * round(value)), epsilon=each).value) for value in exact])
    return Demonstration(
        "Reconstruction",
        f"{_COUNTS} counts about random groups of {len(people)} people are published. No count is about one person, "
        "but solving the equations gives every single secret.",
        "of the secrets are reconstructed",
        _solved(halves, exact, truth),
        _solved(halves, noisy, truth),
        0.5,
    )


def _solved(halves: NDArray[np.bool_], answers: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    solution, *_ = np.linalg.lstsq(halves.astype(np.float64), answers, rcond=None)
    return float(((solution > np.median(solution)) == (truth > 0.5)).mean())


def membership() -> Demonstration:
    """Whether a person is in the pool of which only averages are published (Homer et al. 2008)."""
    draw = generator("membership")
    shares = draw.beta(2.0, 2.0, _ATTRIBUTES)
    pool = draw.random((_POOL, _ATTRIBUTES)) < shares
    others = draw.random((_TESTED, _ATTRIBUTES)) < shares
    sums = pool.sum(axis=0)
    # One person moves every attribute's count, so each count gets its part of ε.
    each = EPSILON / _ATTRIBUTES
    noisy = np.array([float(laplace(count([0] * int(value)), epsilon=each).value) for value in sums])
    # Half way between the mean scores of people inside and outside of the pool.
    middle = float((shares * (1 - shares)).sum()) / _POOL / 2
    return Demonstration(
        "Membership in an average",
        f"Averages of {_ATTRIBUTES:,} yes-or-no attributes of {_POOL} patients are published. A person's own "
        "attributes lean toward the averages of a pool that they are in, a little for each attribute and plainly "
        "for all.",
        "of people, half of them in the pool, are guessed right",
        _told_apart(pool, others, sums / _POOL, shares, middle),
        _told_apart(pool, others, noisy / _POOL, shares, middle),
        0.5,
    )


def _told_apart(
    pool: NDArray[np.bool_],
    others: NDArray[np.bool_],
    averages: NDArray[np.float64],
    shares: NDArray[np.float64],
    middle: float,
) -> float:
    inside, outside = ((people - shares) @ (averages - shares) for people in (pool, others))
    return float(((inside > middle).mean() + (outside <= middle).mean()) / 2)
