"""One attack beside the same release with differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.mechanisms import laplace
from discreet.mechanisms.sampling import entropy
from discreet.neighbors import REPLACE_ONE
from discreet.queries import histogram

Integers = NDArray[np.int64]

#: The ε of every protected release of the tour, for whatever a person's row holds. No attacker guesses a bit about a
#: person with more than 1/(1 + e^−ε) = 52.5%.
EPSILON = 0.1
# Generated tables are the same each time. The key is public: these tables hold nobody.
_KEY = b"generated people of the tour    "


@dataclass(frozen=True)
class Demonstration:
    """An attack on a release without names, and on the same release with noise.

    Attributes:
        name: a short name.
        story: what is released, and what the attacker does.
        measured: what `plain`, `protected` and `chance` are shares of.
        plain: how often the attack succeeds on the release without noise.
        protected: how often it succeeds on the release with ε-DP.
        chance: how often a guess succeeds that never saw the release.
        epsilon: the ε of the protected release, for one person.
        curve: more numbers to draw: a label and the share of people found at each step.
    """

    name: str
    story: str
    measured: str
    plain: float
    protected: float
    chance: float
    epsilon: float = EPSILON
    curve: tuple[tuple[str, float], ...] = ()

    @property
    def limit(self) -> float:
        """The most that ε-DP leaves to any attacker who guesses one bit about a person, starting from even odds."""
        return float(special.expit(self.epsilon))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.plain:.0%} without noise, {self.protected:.0%} with ε = {self.epsilon:g}, "
            f"{self.chance:.0%} by chance ({self.measured})"
        )


def generator(name: str) -> Any:
    """numpy's generator for generated tables and for who is attacked; repeatable, and never for noise."""
    return entropy.keyed(_KEY, name)


def cells_of(*columns: NDArray[Any]) -> Integers:
    """The number of each row's combination of values: equal rows have equal numbers."""
    combined = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, codes = np.unique(column, return_inverse=True)
        _, combined = np.unique(combined * (int(codes.max()) + 1) + codes, return_inverse=True)
        combined = combined.astype(np.int64)
    return combined


def balanced(candidates: Integers, secret: NDArray[np.bool_], people: int, name: str) -> Integers:
    """As many people with the secret as without, so that a guess is right half of the time."""
    draw = generator(name)
    having, lacking = candidates[secret[candidates]], candidates[~secret[candidates]]
    half = min(people // 2, len(having), len(lacking))
    return np.concatenate([draw.permutation(having)[:half], draw.permutation(lacking)[:half]])


def noisy_guesses(cells: Integers, secret: NDArray[np.bool_], targets: Integers) -> float:
    """How often an attacker is right who sees noisy counts of each target's cell, with and without the secret.

    The counts are released with ε-DP for a row that is replaced. Another secret takes a person out of one count and
    puts them into the other, so noise for a row that is only added would leave 2ε to the attacker.
    """
    target_cells = np.unique(cells[targets])
    keys = np.concatenate([2 * target_cells, 2 * target_cells + 1])
    counts = histogram(2 * cells + secret, categories=keys.tolist())
    noisy = np.asarray(laplace(counts, epsilon=EPSILON, relation=REPLACE_ONE).value, dtype=np.float64)
    index = np.searchsorted(target_cells, cells[targets])
    # Ties are broken by noise of their own: half of them are right.
    margin = noisy[len(target_cells) + index] - noisy[index]
    right = np.where(margin > 0, secret[targets], ~secret[targets]).astype(np.float64)
    return float(np.where(margin == 0, 0.5, right).mean())
