"""Which frequency protocol to use: the one with the smallest exact variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from discreet import _check
from discreet.mechanisms.local.frequencies import FrequencyProtocol
from discreet.mechanisms.local.hadamard import HadamardResponse
from discreet.mechanisms.local.hashing import LocalHashing
from discreet.mechanisms.local.response import GeneralizedResponse
from discreet.mechanisms.local.subset import SubsetSelection
from discreet.mechanisms.local.unary import UnaryEncoding

_PROTOCOLS: tuple[type[FrequencyProtocol], ...] = (
    GeneralizedResponse,
    SubsetSelection,
    UnaryEncoding,
    LocalHashing,
    HadamardResponse,
)
# A long report must be this much better than a short one: below it, fewer bytes matter more.
_TIE = 0.01


@dataclass(frozen=True, eq=False)
class ProtocolChoice:
    """A protocol, and how it compares with the others.

    Attributes:
        protocol: the protocol with the smallest standard error of a rare category; of nearly equal ones, the one with
            the shortest reports.
        table: for each protocol its name, the standard error of a rare category's share, and the bytes of a payload.
    """

    protocol: FrequencyProtocol
    table: tuple[tuple[str, float, int], ...]

    def __str__(self) -> str:
        name = type(self.protocol).__name__
        own = next(row for row in self.table if row[0] == name)
        least, worst = self.table[0][1], self.table[-1][1]
        why = "has the smallest error of a rare category's share"
        if own[1] > least:
            why = f"has an error within {own[1] / least - 1:.1%} of the smallest, and the shortest reports of these"
        lines = [f"{name} {why}; the largest is {worst / own[1]:.3g} times as large", ""]
        lines += [f"{row[0]:<20} ±{1.96 * row[1]:.4g} (95%), {row[2]} bytes" for row in self.table]
        return "\n".join(lines)


def best_for(categories: int | tuple[object, ...], epsilon: float, people: int) -> ProtocolChoice:
    """The frequency protocol with the smallest exact variance for these categories, ε and number of people.

    Args:
        categories: the public categories, or how many there are.
        epsilon: the ε of one report.
        people: how many people report.
    """
    people = _check.integer("people", people, "it is the number of reports")
    listed = tuple(range(categories)) if isinstance(categories, int) else tuple(categories)
    protocols = [kind(_check.epsilon(epsilon), listed) for kind in _PROTOCOLS]
    errors = [float(np.sqrt(protocol.variance(0.0, people))) for protocol in protocols]
    least = min(errors)
    near = [i for i, error in enumerate(errors) if error <= least * (1 + _TIE)]
    best = min(near, key=lambda i: (protocols[i].size, errors[i]))
    table = sorted(
        ((type(protocol).__name__, error, protocol.size) for protocol, error in zip(protocols, errors, strict=True)),
        key=lambda row: row[1],
    )
    return ProtocolChoice(protocols[best], tuple(table))
