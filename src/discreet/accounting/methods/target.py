"""What is asked of a method: the δ at an ε, or the ε at a δ."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """Either an ε, whose δ is wanted, or a δ, whose ε is wanted. Exactly one of them is given."""

    epsilon: float | None = None
    delta: float | None = None
