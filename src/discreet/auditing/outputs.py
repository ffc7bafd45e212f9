"""Outputs of any kind as rows of numbers, so that one can threshold, project and count them."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.auditing.visible import visible
from discreet.release import Release

Floats = NDArray[np.float64]

# Stands for a missing number and for an infinite one: an output like any other, and far from the rest.
_FAR = 1e150


class Encoder:
    """Turns outputs into rows of floats: numbers as they are, anything else as the number of its first appearance.

    Both datasets share one encoder. What an output is called depends on nothing but the outputs, so an event on rows is
    an event on outputs.
    """

    def __init__(self) -> None:
        self._codes: dict[Any, float] = {}
        self._width: int | None = None

    def rows(self, outputs: Sequence[Any] | NDArray[Any]) -> Floats:
        """One row for each output."""
        if isinstance(outputs, np.ndarray) and outputs.dtype.kind in "biuf":
            return self._checked(outputs.reshape(len(outputs), -1).astype(np.float64))
        return self._checked(np.array([self._row(output) for output in outputs], dtype=np.float64))

    def _row(self, output: Any) -> Floats:
        value = output.value if isinstance(output, Release) else output
        if isinstance(value, numbers.Real | np.generic) and not isinstance(value, np.datetime64 | np.str_):
            return np.array([float(value)])
        array = np.asarray(value) if isinstance(value, np.ndarray | list | tuple) else None
        if array is not None and array.dtype.kind in "biuf" and array.size:
            return array.ravel().astype(np.float64)
        return np.array([self._codes.setdefault(visible(value), float(len(self._codes)))])

    def _checked(self, rows: Floats) -> Floats:
        if self._width is None:
            self._width = rows.shape[1]
        if rows.shape[1] != self._width:
            remedy = "a shape that depends on data is an output that no noise protects; give it back as a value"
            raise _check.fail("target", f"give {self._width} numbers in every run", rows.shape[1], remedy)
        return np.nan_to_num(rows, nan=-2 * _FAR, posinf=_FAR, neginf=-_FAR)
