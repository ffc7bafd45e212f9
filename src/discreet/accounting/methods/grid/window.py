"""Where the tilted loss of a composition lies, and its moments: which part of a grid an FFT has to cover."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.methods.grid.discretize import GridLoss

Floats = NDArray[np.float64]

# Atoms of the coarse copies that a tilt and a window are chosen with.
_COARSE = 4096
# −ln of the share of the tilted mass that may leave the window: e^{−23} is 1e-10, far below the wanted width.
_ESCAPE = 23.0
# Exponents are cut off here: e^709 is the largest float.
_LARGEST_EXPONENT = 700.0
# Tilts, in standard deviations, that are tried for Chernoff's bounds on both ends of the window. Each is valid.
_WINDOW_TILTS = 0.125 * 2.0 ** np.arange(10)
#: Relative margin for the round-off of a Chernoff bound on the mass outside of the window.
ESCAPE_ERROR = 1e-6


def merged(loss: GridLoss, step: float) -> tuple[Floats, Floats]:
    """The same loss in at most `_COARSE` atoms: enough to choose a tilt and a window with."""
    losses, mass = loss.losses(step), loss.mass
    width = -(-len(mass) // _COARSE)
    if width == 1:
        return losses, mass
    starts = np.arange(0, len(mass), width)
    sums = np.add.reduceat(mass, starts)
    means = np.add.reduceat(mass * losses, starts)
    kept = sums > 0
    if not kept.any():
        raise OverflowError("the masses of a privacy loss left the range of floats")
    return means[kept] / sums[kept], sums[kept]


def cumulants(atoms: Sequence[tuple[Floats, Floats, int]], tilt: float) -> tuple[float, float, float]:
    """K, K′ and K″ at a real point."""
    k = slope = curvature = 0.0
    for losses, mass, count in atoms:
        with np.errstate(divide="ignore"):
            exponent = np.log(mass) + tilt * losses
        top = float(np.max(exponent))
        weight = np.exp(exponent - top)
        total = float(np.sum(weight))
        mean = float(weight @ losses) / total
        k += count * (top + math.log(total))
        slope += count * mean
        curvature += count * float(weight @ (losses - mean) ** 2) / total
    return k, slope, curvature


@dataclass(frozen=True)
class GridWindow:
    """The grid points that an FFT covers, and a bound on the tilted mass outside of them."""

    first: int
    size: int
    escaped: float


def window(
    coarse: Sequence[tuple[Floats, Floats, int]],
    fine: Sequence[tuple[Floats, Floats, int]],
    tilt: float,
    log_scale: float,
    step: float,
    origin: float,
) -> GridWindow:
    """Where all but e^{−_ESCAPE} of the tilted mass lies, with what may lie outside bounded by Chernoff."""
    k, _, curvature = cumulants(coarse, tilt)
    spread = math.sqrt(max(curvature, step * step))
    upward, downward = math.inf, -math.inf
    s_up = s_down = 1.0
    for s in _WINDOW_TILTS / spread:
        reach = (cumulants(coarse, tilt + s)[0] - k + _ESCAPE) / s
        if reach < upward:
            upward, s_up = reach, float(s)
        reach = -(cumulants(coarse, tilt - s)[0] - k + _ESCAPE) / s
        if reach > downward:
            downward, s_down = reach, float(s)
    low, high = downward - 2 * step, upward + 2 * step
    above = cumulants(fine, tilt + s_up)[0] - log_scale - s_up * high
    under = cumulants(fine, tilt - s_down)[0] - log_scale + s_down * low
    # Merging lowers the moments: widen by what the full losses need.
    wider_up, wider_down = max(0.0, (above + _ESCAPE) / s_up), max(0.0, (under + _ESCAPE) / s_down)
    low, high = low - wider_down, high + wider_up
    above, under = above - s_up * wider_up, under - s_down * wider_down
    first = math.floor((low - origin) / step)
    return GridWindow(
        first,
        math.ceil((high - origin) / step) - first + 1,
        (math.exp(min(above, _LARGEST_EXPONENT)) + math.exp(min(under, _LARGEST_EXPONENT))) * (1 + ESCAPE_ERROR),
    )


def log_moment(loss: GridLoss, step: float, order: float) -> float:
    """ln Σ mass·e^{order·loss}."""
    return cumulants([(loss.losses(step), loss.mass, 1)], order)[0] if loss.mass.any() else -math.inf
