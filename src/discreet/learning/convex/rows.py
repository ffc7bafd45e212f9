"""Feature rows whose L2 norm is bounded, exactly and whatever they hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]


def table(features: Any, name: str = "features") -> Floats:
    """A table of numbers as float64; its type and its number of columns are public facts."""
    array = np.asarray(features.to_numpy() if hasattr(features, "to_numpy") else features)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or array.shape[1] == 0:
        shape = f"{array.dtype} of {array.ndim} dimensions"
        raise _check.fail(name, "be a table of numbers with one row for each example", shape, "encode categories first")
    return np.ascontiguousarray(array, dtype=np.float64)


def bounded_rows(features: Floats, norm: float, intercept: bool) -> Floats:
    """Each row scaled down to an L2 norm of at most `norm`, in exact arithmetic; with `intercept`, a constant column.

    With a constant both it and the rest have at most norm/√2, so together they have at most `norm`. A row with a value
    that is not finite becomes zeros: nothing raises, and no row depends on another.
    """
    limit = norm / math.sqrt(2) * (1 - 8 * UNIT) if intercept else norm
    largest = np.max(np.abs(features), axis=1, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    # Divided by its largest entry, no row overflows or vanishes when it is squared.
    unit = np.where(usable[:, None], features, 0.0) / np.where(usable, largest, 1.0)[:, None]
    lengths = np.sqrt(np.sum(unit * unit, axis=1))
    # Lengths are wrong by at most d + 3 units of round-off, and the scaled entries by 3 more. The factor leaves more.
    margin = 1 - (2 * features.shape[1] + 32) * UNIT
    with np.errstate(over="ignore"):
        too_long = lengths * np.where(usable, largest, 0.0) > limit * margin
        shorter = unit * (limit * margin / np.where(lengths > 0, lengths, 1.0))[:, None]
    rows = np.where(too_long[:, None], shorter, np.where(usable[:, None], features, 0.0))
    return np.column_stack((rows, np.full(len(rows), limit))) if intercept else np.ascontiguousarray(rows)
