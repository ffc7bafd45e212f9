"""Profiles as losses: a pair (P, Q) whose profile is a given convex function, from above or from below.

Every function δ of y = e^ε that is convex and falls from 1 at y = 0 to 0, no faster than 1 − y, is the profile of a
pair (Zhu, Dong & Wang 2022, Lemma 9). The largest profile of a family of mechanisms is such a function, so its pair
dominates each of them, and composes with everything else. Proof: docs/proofs/bounded-range.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.atoms import AtomLoss

Floats = NDArray[np.float64]

# Relative margin for the round-off of the sums that rebuild a profile from its atoms: thousands of additions.
_REBUILT_ERROR = 4e-12
# Tests with a smaller gain are left out: their quotients have no digits.
_NEGLIGIBLE = 1e-250


def from_above(epsilons: Floats, deltas: Floats) -> AtomLoss:
    """The pair whose profile joins the points (e^ε, δ) by chords: no smaller than any convex profile below them.

    The first point must have δ = 1 − e^ε, the last one δ = 0. Masses are second differences. Their round-off is
    measured by adding them up again, and made good by raising all of them.
    """
    y = np.exp(epsilons)
    gaps = y[:-1] * np.expm1(np.diff(epsilons))
    slopes = np.concatenate((np.ones(1), (deltas[:-1] - deltas[1:]) / gaps, np.zeros(1)))
    q = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    rebuilt = _rebuilt(_from_top(q)[1:], gaps, np.zeros(len(gaps)))
    raised = 1 + _REBUILT_ERROR + float(np.max(_ratio(deltas, rebuilt) - 1, initial=0.0))
    return AtomLoss(epsilons, raised * q * y, raised * q)


def from_below(epsilons: Floats, deltas: Floats, beyond: Floats) -> AtomLoss:
    """The pair whose profile is the largest of the tangents at the points (e^ε, δ): no larger than the true one.

    `beyond` is −dδ/de^ε at each point: Q of a loss beyond ε. The first tangent must be that of 1 − e^ε, the last 0.
    """
    y = np.exp(epsilons)
    gaps = y[:-1] * np.expm1(np.diff(epsilons))
    q = np.maximum(beyond[:-1] - beyond[1:], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.where(q > 0, (deltas[:-1] - deltas[1:] - beyond[1:] * gaps) / q, 0.0)
    inside = np.clip(inside, 0.0, gaps)
    rebuilt = _rebuilt(np.append(_from_top(q)[1:], 0.0), gaps, q * inside)
    lowered = 1 - _REBUILT_ERROR - float(np.max(_ratio(rebuilt, deltas) - 1, initial=0.0))
    kept = q > 0
    losses = (epsilons[:-1] + np.log1p(inside / y[:-1]))[kept]
    q = lowered * q[kept]
    return AtomLoss(losses, q * np.exp(losses), q)


def of_tests(epsilons: Floats, p: Floats, q: Floats) -> AtomLoss:
    """The pair of the largest P(S) − e^ε Q(S) over several tests S: no larger than the profile of the pair they test.

    `p` is P(S) of each test from below and `q` its Q(S) from above. `epsilons` are points near which the tests are
    good.
    """
    p, q = np.concatenate((np.array([1.0, 0.0]), p)), np.concatenate((np.array([1.0, 0.0]), q))
    every = p - np.exp(epsilons)[:, None] * q
    best = np.argmax(every, axis=1)
    values, beyond = every[np.arange(len(best)), best], q[best]
    values, beyond = np.where(values > _NEGLIGIBLE, values, 0.0), np.where(values > _NEGLIGIBLE, beyond, 0.0)
    values[0], beyond[0] = -np.expm1(epsilons[0]), 1.0
    values[-1], beyond[-1] = 0.0, 0.0
    return from_below(epsilons, values, beyond)


def _rebuilt(above: Floats, gaps: Floats, within: Floats) -> Floats:
    """δ at each point, from the Q-mass at or above the next point and what lies within each gap."""
    return np.append(_from_top(gaps * above + within), 0.0)


def _from_top(values: Floats) -> Floats:
    """Sums of the values from each one on."""
    return np.asarray(np.cumsum(values[::-1])[::-1], dtype=np.float64)


def _ratio(first: Floats, second: Floats) -> Floats:
    """first/second, where both are positive or the first one is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(first > 0, first / second, 1.0)
