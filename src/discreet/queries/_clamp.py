"""Clamping, to see what a bound does to public or already private numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.queries.grid import numbers


def clamp(values: ArrayLike, *, bounds: tuple[float, float]) -> NDArray[np.float64]:
    """Each value moved into [lower, upper]; a missing value (NaN, None) stays NaN, ±inf becomes the nearer bound.

    Guarantee: none. The result holds one number for each row and is as sensitive as the input; the queries clamp by
    themselves and never rely on the caller for it.

    >>> clamp([-5.0, 3.0, float("inf"), None], bounds=(0, 10))
    array([ 0.,  3., 10., nan])
    """
    low, high = _check.bounds(bounds)
    return np.clip(numbers(values), float(low), float(high))
