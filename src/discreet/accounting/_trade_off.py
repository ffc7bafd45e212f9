"""Trade-off curves: the least type II error of any test that tells neighbors apart, at each type I error.

(ε, δ)-DP bounds the type II error β at the type I error α by β ≥ 1 − δ − e^ε α and β ≥ e^{−ε}(1 − δ − α) (Wasserman &
Zhou 2010; Dong, Roth & Su 2022). The curve of an event is the largest of these lines over all ε, at its δ(ε).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# np.exp overflows above 709; beyond 700 a line bounds nothing at any α that a float holds.
_LARGEST_EXPONENT = 700.0


def supporting_lines(alpha: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """The least type II error at each type I error α that (ε, δ)-DP at each of these pairs leaves to any test.

    max over ε of max(1 − δ − e^ε α, e^{−ε}(1 − δ − α), 0): every one of them holds.

    >>> supporting_lines(np.array([0.0, 0.5]), np.array([1.0]), np.array([0.0])).round(4).tolist()
    [1.0, 0.1839]
    """
    growth = np.exp(np.minimum(epsilons, _LARGEST_EXPONENT))
    steep = 1 - deltas - growth * alpha[:, None]
    flat = (1 - deltas - alpha[:, None]) / growth
    return np.asarray(np.maximum(0.0, np.maximum(steep.max(axis=1), flat.max(axis=1))))


def supporting_between(alpha: Floats, epsilons: Floats, lower: Floats) -> Floats:
    """An upper bound on the same maximum over all ε ≥ 0, from lower bounds on δ at increasing ε that start at 0.

    Between two of these ε, δ is at least the lower bound at the second, and e^ε at least that of the first. So the
    lines of each ε with the next δ lie above all lines between.
    """
    return supporting_lines(alpha, epsilons, np.append(lower[1:], 0.0))
