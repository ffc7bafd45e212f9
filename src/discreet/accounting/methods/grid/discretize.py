"""Privacy losses on a grid: one discrete loss that is never better than the true one, one that is never worse.

Proofs: docs/proofs/pld-discretization.md.

- `pessimistic` splits the mass of each cell between its edges so that both P and Q are kept (connect the dots,
  arXiv 2207.04380, Section 4). Splitting undoes a post-processing, so the result dominates the truth.
- `optimistic` merges each cell around a grid point into one outcome (a post-processing, so the truth dominates it) and
  then lowers its loss ln(P/Q) to the grid. The grid's origin moves down by a common amount, chosen to lose the least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.losses.loss import PrivacyLoss

Floats = NDArray[np.float64]

# Bound on the relative error of a mass computed by `cells` or stored in an atom.
MASS_ERROR = 1e-12
# How far off a grid point, in steps, an atom may be and still be put on it. The grid is then moved by as much.
ON_GRID = 1e-9

# Atoms that are closer than this are one atom for the search of a lattice: their gap is round-off of the losses.
_SAME_ATOM = 1e-15
# How far off a lattice point, in spacings, an atom may be for the lattice to be worth a try. Putting an atom on the
# grid is decided later, by ON_GRID.
_ON_LATTICE = 1e-7
# Euclid's algorithm on spacings stops at a remainder below the first factor, and takes it for 0 below the second: the
# spacings carry round-off, so an exact common divisor leaves about 1e-15.
_SMALL_REMAINDER, _NO_REMAINDER = 1e-6, 1e-9
# A common lattice finer than the wanted step by more than this factor is not worth its longer vectors.
_FINER = 8
# The share of P that `has_density` may overlook on either side.
_DENSITY_TAIL = 1e-9
# Below this, Q is too close to the smallest normal float (2e-308) for ln(P/Q) to be trusted.
_UNDERFLOW = 1e-290
# Room for the round-off of an end of the support, in steps, before it is rounded to the grid.
_END_ERROR = 1e-6


@dataclass(frozen=True, eq=False)
class GridLoss:
    """P-masses of the losses origin + (start + i)·step, and the mass of an infinite loss.

    The masses are those of an upper or of a lower bound: they need not add up to one.
    """

    origin: float
    start: int
    mass: Floats
    infinite: float

    def losses(self, step: float) -> Floats:
        return np.asarray(self.origin + step * np.arange(self.start, self.start + len(self.mass)), dtype=np.float64)


@dataclass(frozen=True)
class Lattice:
    """Where the atoms of a loss lie: at origin + spacing·integer, if they do."""

    origin: float
    spacing: float


def lattice(loss: PrivacyLoss) -> Lattice | None:
    """The lattice through all atoms; None without atoms, or where they lie on none."""
    losses, _, _ = loss.atoms()
    if len(losses) == 0:
        return None
    gaps = np.diff(losses)
    gaps = gaps[gaps > _SAME_ATOM]
    if len(gaps) == 0:
        return Lattice(float(losses[-1]), math.inf)
    spacing = float(np.min(gaps))
    # The mean gap over the whole span does not carry the round-off of a single gap.
    steps = np.round((losses[-1] - losses[0]) / spacing)
    spacing = float((losses[-1] - losses[0]) / steps)
    positions = (losses - losses[-1]) / spacing
    if np.max(np.abs(positions - np.round(positions))) > _ON_LATTICE:
        return None
    return Lattice(float(losses[-1]), spacing)


def on_grid(loss: PrivacyLoss, step: float) -> bool:
    """Whether `loss` consists of atoms on its grid alone, so that discretizing it changes nothing."""
    losses, _, _ = loss.atoms()
    atoms = lattice(loss)
    if atoms is None or has_density(loss):
        return False
    positions = (losses - atoms.origin) / step
    return bool(np.max(np.abs(positions - np.round(positions))) < ON_GRID)


def has_density(loss: PrivacyLoss) -> bool:
    """Whether a loss has more than atoms."""
    low, high = loss.support(_DENSITY_TAIL)
    return bool(np.any(loss.cells(np.linspace(low, high, 4)).p > 0)) if high > low else False


def common_step(lattices: list[Lattice], target: float, *, continuous: bool) -> float:
    """A step near `target` that puts every lattice on the grid, if there is one; no larger than it for a density."""
    spacings = [each.spacing for each in lattices if math.isfinite(each.spacing)]
    if not spacings:
        return target
    unit = spacings[0]
    for spacing in spacings[1:]:
        unit = _divisor(unit, spacing)
    if unit < target / _FINER:
        return target
    if not continuous and unit >= target:
        return unit
    return unit / max(1, math.ceil(unit / target))


def _divisor(a: float, b: float) -> float:
    """Euclid's algorithm on two floats; a number far below both where they have no common divisor."""
    a, b = max(a, b), min(a, b)
    first = b
    while b > _SMALL_REMAINDER * first:
        a, b = b, abs(a - b * round(a / b))
    return a if b < _NO_REMAINDER * first else b


def pessimistic(loss: PrivacyLoss, step: float, tail: float) -> GridLoss:
    """A loss on the grid that dominates `loss`: its δ(ε) is no smaller, at every ε and after any composition."""
    origin, first, edges = _grid(loss, step, tail)
    cells = loss.cells(edges)
    mass = np.zeros(len(edges))
    mass[1:] += cells.upper_share
    mass[:-1] += np.maximum(cells.p - cells.upper_share, 0.0)
    # The two shares carry the error of 1 − e^{−step} and of the masses; both are raised by more than that.
    mass[1:] += MASS_ERROR * cells.p
    mass[:-1] += MASS_ERROR * cells.p
    losses, p, _ = loss.atoms()
    lift = 0.0
    if len(losses):
        index = (losses - origin) / step - first
        near = np.round(index)
        on_grid = np.abs(index - near) < ON_GRID
        below = np.clip(np.where(on_grid, near, np.floor(index)).astype(np.int64), 0, len(edges) - 2)
        at = origin + step * (first + below)
        share = np.clip(np.expm1(np.minimum(at - losses, 0.0)) / math.expm1(-step), 0.0, 1.0)
        raised = 1 + MASS_ERROR
        nearest = origin + step * (first + near)
        lift = float(np.max(np.where(on_grid, losses - nearest, 0.0), initial=0.0))
        np.add.at(mass, below + 1, np.where(on_grid, 0.0, share * p * raised))
        np.add.at(mass, below, np.where(on_grid, 1.0, 1 - share) * p * raised)
    # Mass above the grid counts as an infinite loss, mass below it as the lowest loss.
    outside = tail if loss.unbounded else 0.0
    mass[0] += outside
    # An atom that is off the grid by round-off was put on it, so the whole grid is lifted by as much.
    return GridLoss(origin + lift, first, mass, loss.infinite * (1 + MASS_ERROR) + outside)


def optimistic(loss: PrivacyLoss, step: float, tail: float) -> GridLoss:
    """A loss on the grid that `loss` dominates: its δ(ε) is no larger, at every ε and after any composition."""
    origin, first, edges = _grid(loss, step, tail)
    middle = np.concatenate((edges - step / 2, edges[-1:] + step / 2))
    cells = loss.cells(middle)
    p, q = cells.p * (1 - MASS_ERROR), cells.q * (1 + MASS_ERROR)
    losses, atom_p, atom_q = loss.atoms()
    if len(losses):
        index = np.clip(np.round((losses - origin) / step).astype(np.int64) - first, 0, len(edges) - 1)
        np.add.at(p, index, atom_p * (1 - MASS_ERROR))
        np.add.at(q, index, atom_q * (1 + MASS_ERROR))
    p[q < _UNDERFLOW] = 0.0  # where Q underflows, the loss is unknown: a lower bound may leave it out
    with np.errstate(divide="ignore", invalid="ignore"):
        below = edges - np.where(p > 0, np.log(p) - np.log(q), edges)
    drop = _cheapest_drop(np.maximum(below, 0.0), p, step)
    moved = (below > drop) & (p > 0)
    mass = np.concatenate((np.zeros(1), np.where(moved, 0.0, p)))
    mass[:-1] += np.where(moved, p, 0.0)
    return GridLoss(origin - drop, first - 1, mass, loss.infinite * (1 - MASS_ERROR))


def _cheapest_drop(below: Floats, p: Floats, step: float) -> float:
    """How far to lower the whole grid, so that this and one step for each cell still above cost the least on average.

    `below` is how far each cell's loss lies below its grid point. Lowering the grid by the k-th smallest of them leaves
    only the cells with larger ones to move by a whole step.
    """
    order = np.argsort(below)
    ordered, weight = below[order], p[order]
    above = np.concatenate((np.cumsum(weight[::-1])[::-1][1:], np.zeros(1)))
    cost = ordered + step * above
    return float(ordered[int(np.argmin(cost))])


def _grid(loss: PrivacyLoss, step: float, tail: float) -> tuple[float, int, Floats]:
    """The grid's origin, the index of its first point, and its points, with one to spare on either side."""
    atoms = lattice(loss)
    origin = 0.0 if atoms is None else atoms.origin
    low, high = loss.support(tail)
    if not math.isfinite(high - low) or not math.isfinite(low - origin):
        raise OverflowError("a privacy loss left the range of floats")
    first = math.floor((low - origin) / step - _END_ERROR) - 1
    last = math.ceil((high - origin) / step + _END_ERROR) + 1
    return origin, first, np.asarray(origin + step * np.arange(first, last + 1), dtype=np.float64)
