"""δ and ε on a grid: how fine, and when it is fine enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from discreet.accounting.methods.grid import discretize
from discreet.accounting.methods.grid import fft as pld
from discreet.accounting.methods.grid.discretize import Loss

_WIDE = 3e-4  # relative width at which refining stops
_ROUNDS = 5
_MOST = 1 << 21
_ENOUGH = 1 << 20
_RARE = 1e-5

Parts = Sequence[tuple[Loss, int]]


@dataclass(frozen=True)
class Question:
    """Either an ε, whose δ is wanted, or a δ, whose ε is wanted."""

    epsilon: float | None = None
    delta: float | None = None


def bounds(upper: Parts, lower: Parts, question: Question) -> tuple[float, float]:
    """Bounds on the answer, lower and upper, from losses that are surely no better and surely no worse."""
    step, exact = _first_step(upper, lower)
    tail = _tail(upper, 1e-12 if question.delta is None else question.delta)
    best = (0.0, math.inf if question.epsilon is None else 1.0)
    guess: float | None = None
    for _ in range(_ROUNDS):
        one_pass = _Pass(upper, lower, step, tail, question, guess)
        found = one_pass.run()
        if found is None:
            # Too fine for the memory that is allowed: the last coarser answer stands, if there is one.
            if best[0] > 0:
                break
            step, exact = 8 * step, False
            continue
        best = (max(best[0], found.lower), min(best[1], found.upper))
        width = (best[1] - best[0]) / best[1] if 0 < best[1] < math.inf else 0.0
        fits_tail = question.delta is not None or best[1] <= 0 or tail <= _tail(upper, best[1])
        if fits_tail and (exact or (width < _WIDE and math.isfinite(best[1]))):
            break
        guess = best[1] if 0 < best[1] < math.inf else None
        if question.epsilon is not None and best[1] > 0:
            tail = min(tail, _tail(upper, best[1]))
        if not exact:
            if found.size >= _ENOUGH:
                break
            # The error is of second order in the step for smooth losses, of first order at worst.
            ratio = math.sqrt(_WIDE / width) * 0.8 if width > 0 and math.isfinite(best[1]) else 0.2
            finest = 0.9 * found.size / _MOST
            step = _aligned(upper, lower, step * max(min(0.5, max(0.03, ratio)), min(0.5, finest)))
    return best


def log_moment(parts: Parts, order: float) -> float:
    """An upper bound on the sum of the losses' ln E[e^{τL}], infinite losses left out."""
    total = 0.0
    for loss, count in parts:
        low, high = loss.support(1e-300)
        step = _aligned([(loss, 1)], [], max((high - low) / 4000, 1e-12))
        grid = discretize.pessimistic(loss, step, 1e-300)
        total += count * pld.log_moment(grid, step, order)
    return total


@dataclass(frozen=True)
class _Found:
    lower: float
    upper: float
    size: int


@dataclass(frozen=True)
class _Pass:
    """One pass over one grid; `guess` is roughly the answer, where an earlier pass found it."""

    upper: Parts
    lower: Parts
    step: float
    tail: float
    question: Question
    guess: float | None

    def run(self) -> _Found | None:
        above = self._composed("upper", self.upper)
        if above is None:
            return None
        high = self._answer(above)
        low = 0.0
        if self.lower is self.upper:
            low = self._coupled(above)
            if math.isfinite(high) and high - low <= _WIDE * high:
                return _Found(low, high, len(above.losses))
        below = self._composed("lower", self.lower)
        if below is not None:
            low = max(low, self._answer(below))
        return _Found(low, high, len(above.losses))

    def _composed(self, side: pld.Side, parts: Parts) -> pld.ComposedLoss | None:
        if any(_length(loss, self.step, self.tail) > _MOST for loss, _ in parts):
            return None
        rule = discretize.pessimistic if side == "upper" else discretize.optimistic
        return pld.compose(
            [(rule(loss, self.step, self.tail), count) for loss, count in parts],
            self.step,
            side,
            epsilon=self.guess if self.question.epsilon is None else self.question.epsilon,
            delta=self.guess if self.question.delta is None else self.question.delta,
            most=_MOST,
        )

    def _answer(self, composed: pld.ComposedLoss) -> float:
        if self.question.epsilon is not None:
            return composed.at(self.question.epsilon)
        assert self.question.delta is not None
        solved = composed.solve(self.question.delta)
        if solved is None:
            return math.inf if composed.side == "upper" else 0.0
        return max(solved, 0.0)

    def _coupled(self, above: pld.ComposedLoss) -> float:
        """From below, by how far splitting may have moved the sum of the losses (docs/proofs/pld-discretization.md).

        Given the losses, each split moves its own by at most one step and keeps E[e^{−D}] = 1, so that the sum moves up
        by more than η with probability at most β = e^{−2(η − nh²/8)²/nh²} (Hoeffding). Then
        δ(ε) ≥ δ⁺(ε + η) − Σ_j β^{j²} δ⁺(ε − jη).
        """
        often = sum(count for loss, count in self.upper if not discretize.on_grid(loss, self.step))
        total = sum(count for _, count in self.upper)
        below = above.from_below(total, 2.1 * total * self.tail)
        moved = often * self.step**2 / 8 + self.step * math.sqrt(often * -math.log(_RARE) / 2)
        moved += 2 * discretize.ON_GRID * self.step * total

        def bound(epsilon: float) -> float:
            if often == 0:
                return below.at(epsilon + moved)
            lost = _RARE * above.at(epsilon - moved) + _RARE**4 * above.at(epsilon - 2 * moved) + 2 * _RARE**9
            return max(0.0, below.at(epsilon + moved) - lost)

        if self.question.epsilon is not None:
            return bound(self.question.epsilon)
        assert self.question.delta is not None
        solved = below.solve(self.question.delta * (1 + (4 * _RARE if often else 0.0)))
        if solved is None or not math.isfinite(solved):
            return 0.0 if solved is None else (solved if often == 0 else 0.0)
        epsilon = solved - moved
        return epsilon if epsilon > 0 and bound(epsilon) >= self.question.delta else 0.0


def _length(loss: Loss, step: float, tail: float) -> float:
    low, high = loss.support(tail)
    return (high - low) / step


def _tail(parts: Parts, delta: float) -> float:
    return max(1e-300, 1e-7 * delta / max(1, sum(count for _, count in parts)))


def _gains(loss: Loss) -> bool:
    """Whether a finer grid is a better one: the loss has a density, or atoms off every lattice."""
    return discretize.has_density(loss) or (len(loss.atoms()[0]) > 0 and discretize.lattice(loss) is None)


def _aligned(upper: Parts, lower: Parts, target: float) -> float:
    parts = [loss for loss, _ in (*upper, *lower)]
    lattices = [found for found in map(discretize.lattice, parts) if found is not None]
    return discretize.common_step(lattices, target, continuous=any(map(_gains, parts)))


def _first_step(upper: Parts, lower: Parts) -> tuple[float, bool]:
    """A step to begin with, and whether every loss lies on its grid, so that no finer one can be better."""
    parts = [loss for loss, _ in (*upper, *lower)]
    widths = [high - low for low, high in (loss.support(1e-6) for loss in parts)]
    narrowest = min((width for width in widths if width > 0), default=1.0)
    longest = max((high - low for low, high in (loss.support(1e-30) for loss in parts)), default=1.0)
    fine = any(map(_gains, parts))
    # Atoms on lattices ask for the coarsest grid that holds them all, if it is not too long.
    step = _aligned(upper, lower, max(narrowest / 400, longest / (1 << 16)) if fine else longest / (1 << 20) or 1.0)
    return step, all(discretize.on_grid(loss, step) for loss in parts)
