"""How far a family of claims is refuted: the largest of them, from the side where the refutation holds."""

from __future__ import annotations

from collections.abc import Callable

from discreet.numeric.search import bisect


def largest(refuted: Callable[[float], bool], *, at_most: float, rounds: int) -> float:
    """The largest x ≥ 0 that is refuted, if whatever is below a refuted one is refuted too; 0 if none is.

    Args:
        refuted: whether a claim with this ε or μ is refuted.
        at_most: where doubling ends.
        rounds: halvings of the last interval; its lower end, which is refuted, is the result.
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while high < at_most and refuted(high):
        low, high = high, 2 * high
    return bisect(lambda claim: not refuted(claim), low, high, rounds=rounds).low
