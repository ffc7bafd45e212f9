"""δ and ε on a grid: which step to begin with, and when it is fine enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.methods.fourier import saddle
from discreet.accounting.methods.grid import discretize, overshoot, window
from discreet.accounting.methods.grid import fft as pld
from discreet.accounting.methods.target import Target

#: The relative width of an answer at which refining stops: better than anyone reads a price, and cheap to reach.
WIDE = 1e-4
# The relative width from which on the other lower bound of a pass, which takes as long again, is not asked for.
_VERY_NARROW = 1e-6
# Grids that are tried at most. The error falls like the square of the step, so a second or third one is enough.
_ROUNDS = 5
# The longest vector that is allowed (16 MiB of floats), and the length from which on a finer grid is not tried.
_MOST = 1 << 21
_ENOUGH = 1 << 20

# Room for the round-off and the tails of both neighbors that splitting added, see `_coupled`.
_TAILS_ADDED = 2.1

# Mass outside of the grids of all losses together, as a share of δ: far below the wanted width.
_TAIL_SHARE = 1e-7
# The δ that tails are first sized for when it is not known yet; a later pass uses the δ that was found.
_UNKNOWN_DELTA = 1e-12
# Tails are not made smaller than this: the smallest normal float is 2e-308.
_SMALLEST_TAIL = 1e-300

# The first grid: this many points across the bulk of the narrowest loss (its support but for 1e-6), but no more than
# 2^16 across the longest one (but for 1e-30), or 2^20 where all losses are atoms on lattices.
_BULK_TAIL, _FAR_TAIL = 1e-6, 1e-30
_BULK_POINTS, _SMOOTH_POINTS, _LATTICE_POINTS = 400, 1 << 16, 1 << 20
# Points, and the least step, of the grid on which moments are summed; moments alone need no fine grid.
_MOMENT_POINTS, _LEAST_STEP = 4000, 1e-12
# The largest tilt of an estimate, in standard deviations of the loss.
_STEEPEST = 60.0
# How much coarser a grid gets that was too long for memory.
_COARSER = 8

# The next step as a factor of the last one. The error is of second order in the step for smooth losses and of first
# order at worst, so aim a little below the square root of what is missing, and stay within these factors.
_AIM, _UNKNOWN_WIDTH = 0.8, 0.2
_LEAST_FACTOR, _MOST_FACTOR = 0.03, 0.5
# Aim at this part of the longest vector.
_FILL = 0.9

RepeatedLosses = Sequence[tuple[PrivacyLoss, int]]


@dataclass(frozen=True, eq=False)
class GridCurve:
    """Bounds on δ at every ε from one grid, tight near what it was made for.

    Attributes:
        above: the composition from above.
        implied: the lower bound that it implies, before what splitting added is taken off; None where there is none.
        shape: the bump of what splitting added; None where nothing was split.
        lifted: how far atoms that are off the grid by round-off were moved, with their grid.
        merged: the composition from below.
    """

    above: pld.ComposedLoss
    implied: pld.ComposedLoss | None
    shape: overshoot.Bump | None
    lifted: float
    merged: pld.ComposedLoss | None = None

    def __call__(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper bounds on δ(ε)."""
        lower = self.coupled(epsilon)
        if self.merged is not None:
            lower = max(lower, self.merged.at(epsilon))
        return lower, self.above.at(epsilon)

    def coupled(self, epsilon: float) -> float:
        """From below, less what splitting the losses may have added (`overshoot`)."""
        if self.implied is None:
            return 0.0
        return overshoot.lower(self.above, self.implied, self.shape, epsilon + self.lifted)


def bounds(repeated: RepeatedLosses, target: Target) -> tuple[float, float]:
    """Bounds on the answer for a composition, lower and upper."""
    return _refined(repeated, target, WIDE)[0]


def curve(repeated: RepeatedLosses, target: Target, wide: float = WIDE) -> GridCurve | None:
    """Bounds at every ε, of a relative width of about `wide` near the target; None where no grid is short enough."""
    return _refined(repeated, target, wide)[1]


def _refined(repeated: RepeatedLosses, target: Target, wide: float) -> tuple[tuple[float, float], GridCurve | None]:
    """Bounds on the answer, and the last grid's curve."""
    last: GridCurve | None = None
    step, exact = _first_step(repeated)
    tail = _tail(repeated, _UNKNOWN_DELTA if target.delta is None else target.delta)
    best = (0.0, math.inf if target.epsilon is None else 1.0)
    guess: float | None = None
    for _ in range(_ROUNDS):
        grid_pass = _GridPass(repeated, step, tail, target, guess).run()
        if grid_pass is None:
            # Too fine for the memory allowed: the last coarser answer stands, if there is one.
            if best[0] > 0:
                break
            step, exact = _COARSER * step, False
            continue
        last = grid_pass.curve
        best = (max(best[0], grid_pass.lower), min(best[1], grid_pass.upper))
        width = (best[1] - best[0]) / best[1] if 0 < best[1] < math.inf else 0.0
        fits_tail = target.delta is not None or best[1] <= 0 or tail <= _tail(repeated, best[1])
        if fits_tail and (exact or (width < wide and math.isfinite(best[1]))):
            break
        guess = best[1] if 0 < best[1] < math.inf else None
        if target.epsilon is not None and best[1] > 0:
            tail = min(tail, _tail(repeated, best[1]))
        if not exact:
            if grid_pass.size >= _ENOUGH:
                break
            width_known = width > 0 and math.isfinite(best[1])
            factor = math.sqrt(wide / width) * _AIM if width_known else _UNKNOWN_WIDTH
            factor = min(_MOST_FACTOR, max(_LEAST_FACTOR, factor))
            finest = min(_MOST_FACTOR, _FILL * grid_pass.size / _MOST)
            step = _aligned(repeated, step * max(factor, finest))
    return best, last


def above(repeated: RepeatedLosses, delta: float, finer: float) -> pld.ComposedLoss | None:
    """An upper bound on δ at every ε from one grid, best near `delta`; None where the grid would be too long.

    The grid is `finer` times as fine as the first one that `bounds` tries.
    """
    step = _aligned(repeated, _first_step(repeated)[0] / finer)
    return _GridPass(repeated, step, _tail(repeated, delta), Target(delta=delta), None).upper()


def estimate(repeated: RepeatedLosses, delta: float) -> float:
    """About the ε at which the finite losses of a composition have this δ: by the saddle point of coarse atoms."""
    coarse = []
    for loss, count in repeated:
        low, high = loss.support(_BULK_TAIL * delta)
        step = max((high - low) / _BULK_POINTS, _LEAST_STEP)
        points = discretize.pessimistic(loss, step, _BULK_TAIL * delta)
        coarse.append((points.losses(step), points.mass, count))
    spread = math.sqrt(max(window.cumulants(coarse, 0.0)[2], _SMALLEST_TAIL))

    def rough(tilt: float) -> tuple[float, float, float]:
        return window.cumulants(coarse, tilt)

    return saddle.for_delta(rough, math.log(delta), 1 / spread, limit=_STEEPEST / spread).epsilon


def log_moment(repeated: RepeatedLosses, order: float) -> float:
    """An upper bound on the sum of the losses' ln E[e^{τL}], infinite losses left out."""
    total = 0.0
    for loss, count in repeated:
        low, high = loss.support(_SMALLEST_TAIL)
        step = _aligned([(loss, 1)], max((high - low) / _MOMENT_POINTS, _LEAST_STEP))
        grid = discretize.pessimistic(loss, step, _SMALLEST_TAIL)
        total += count * window.log_moment(grid, step, order)
    return total


@dataclass(frozen=True)
class _Found:
    """The bounds of one pass, and its curve."""

    lower: float
    upper: float
    curve: GridCurve

    @property
    def size(self) -> int:
        """The length of the grid."""
        return len(self.curve.above.losses)


@dataclass(frozen=True)
class _GridPass:
    """One pass over one grid; `guess` is roughly the answer, if an earlier pass found one."""

    repeated: RepeatedLosses
    step: float
    tail: float
    target: Target
    guess: float | None

    def run(self) -> _Found | None:
        above = self._composed("upper")
        if above is None:
            return None
        curve = self._curve(above)
        high, low = self._answer(above), self._coupled(curve)
        if math.isfinite(high) and high - low <= _VERY_NARROW * high:
            return _Found(low, high, curve)
        below = self._composed("lower")
        if below is not None:
            low = max(low, self._answer(below))
        return _Found(low, high, replace(curve, merged=below))

    def upper(self) -> pld.ComposedLoss | None:
        """The composition from above; None where it is too long."""
        return self._composed("upper")

    def _composed(self, side: pld.Side) -> pld.ComposedLoss | None:
        if any(_length(loss, self.step, self.tail) > _MOST for loss, _ in self.repeated):
            return None
        rule = discretize.pessimistic if side == "upper" else discretize.optimistic
        return pld.compose(
            [(rule(loss, self.step, self.tail), count) for loss, count in self.repeated],
            self.step,
            side,
            epsilon=self.guess if self.target.epsilon is None else self.target.epsilon,
            delta=self.guess if self.target.delta is None else self.target.delta,
            most=_MOST,
        )

    def _answer(self, composed: pld.ComposedLoss) -> float:
        if self.target.epsilon is not None:
            return composed.at(self.target.epsilon)
        assert self.target.delta is not None
        solved = composed.solve(self.target.delta)
        if solved is None:
            return math.inf if composed.side == "upper" else 0.0
        return max(solved, 0.0)

    def _curve(self, above: pld.ComposedLoss) -> GridCurve:
        splits = sum(count for loss, count in self.repeated if not discretize.on_grid(loss, self.step))
        total = sum(count for _, count in self.repeated)
        shape = overshoot.bump(splits, self.step) if splits > 0 else None
        if splits > 0 and shape is None:
            return GridCurve(above, None, None, 0.0)
        # An atom that is off the grid by round-off was moved, and its whole grid lifted by as much.
        lifted = 2 * discretize.ON_GRID * self.step * sum(n for loss, n in self.repeated if len(loss.atoms()[0]))
        return GridCurve(above, above.from_below(total, _TAILS_ADDED * total * self.tail), shape, lifted)

    def _coupled(self, curve: GridCurve) -> float:
        """The lower end that the composition from above implies."""
        if self.target.epsilon is not None:
            return curve.coupled(self.target.epsilon)
        assert self.target.delta is not None
        solved = None if curve.implied is None else curve.implied.solve(self.target.delta)
        if solved is None:
            return 0.0
        if math.isinf(solved):
            return solved if curve.shape is None else 0.0
        if curve.shape is None:
            return max(0.0, solved - curve.lifted)
        slope = max(curve.above.exceeds(solved) / self.target.delta - 1, curve.above.tilt)
        return overshoot.solve_lower(curve.coupled, self.target.delta, solved, slope)


def _length(loss: PrivacyLoss, step: float, tail: float) -> float:
    low, high = loss.support(tail)
    return (high - low) / step


def _tail(repeated: RepeatedLosses, delta: float) -> float:
    """The mass that one loss may leave outside of its grid on either side, for an answer near `delta`."""
    return max(_SMALLEST_TAIL, _TAIL_SHARE * delta / max(1, sum(count for _, count in repeated)))


def _gains(loss: PrivacyLoss) -> bool:
    """Whether a finer grid gives a better bound: the loss has a density, or atoms off every lattice."""
    return discretize.has_density(loss) or (len(loss.atoms()[0]) > 0 and discretize.lattice(loss) is None)


def _aligned(repeated: RepeatedLosses, target: float) -> float:
    """A step near `target` that puts the atoms of all losses on the grid, if there is one."""
    losses = [loss for loss, _ in repeated]
    lattices = [lattice for lattice in map(discretize.lattice, losses) if lattice is not None]
    return discretize.common_step(lattices, target, continuous=any(map(_gains, losses)))


def _first_step(repeated: RepeatedLosses) -> tuple[float, bool]:
    """A step to begin with, and whether every loss lies on its grid, so that no finer one can be better."""
    losses = [loss for loss, _ in repeated]
    widths = [high - low for low, high in (loss.support(_BULK_TAIL) for loss in losses)]
    narrowest = min((width for width in widths if width > 0), default=1.0)
    longest = max((high - low for low, high in (loss.support(_FAR_TAIL) for loss in losses)), default=1.0)
    if any(map(_gains, losses)):
        step = _aligned(repeated, max(narrowest / _BULK_POINTS, longest / _SMOOTH_POINTS))
    else:
        # Atoms on lattices need only the coarsest grid that holds them all, if it is not too long.
        step = _aligned(repeated, longest / _LATTICE_POINTS or 1.0)
    return step, all(discretize.on_grid(loss, step) for loss in losses)
