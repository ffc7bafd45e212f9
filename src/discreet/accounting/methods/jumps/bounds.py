"""Bounds on δ or ε of sampled Gaussians whose rare large losses are cut off: a coarse grid first, then a fine one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from discreet.accounting.methods.grid import discretize, overshoot
from discreet.accounting.methods.grid.fft import ComposedLoss, compose
from discreet.accounting.methods.jumps.cut import CutLoss, Far, far
from discreet.accounting.methods.jumps.guess import BEYOND, Coarse, Guess
from discreet.accounting.methods.target import Target
from discreet.numeric.rounding import SLACK
from discreet.numeric.search import bisect

#: The relative width at which refining stops.
WIDE = 1.5e-4
# The most passes; each knows ε better than the one before. The first has about this many points.
_ROUNDS, _FIRST_POINTS = 9, 3000
# The longest grid that is composed, and the length that is aimed at.
_MOST, _ENOUGH = 1 << 20, 3 << 18
# What a step h costs in ε, over nh²(1 + slope): 1/12 from above, and from below the bump's area 2.1/4 (`overshoot`).
_COST = 0.65
# The relative width that the first pass may cost: enough to place the second.
_FIRST_WIDE = 0.05
# Aim at this part of the wanted width.
_AIM = 0.7
# A pass may be finer or coarser than the last one by these factors.
_LEAST_FACTOR, _MOST_FACTOR = 1e-3, 4.0
# A grid that is not finer than this is not worth another pass, unless ε or ln δ turned out to differ by so much.
_FINER, _SAME_EPSILON, _SAME_DELTA = 0.8, 0.01, 0.5
# How much coarser a grid gets that was too long, and how much further ε is looked for that was beyond the last one.
_COARSER, _FURTHER = 4.0, 1.6
# A δ of the grid's part below this share of the whole needs no digits of its own.
_LEAST_SHARE = 1e-3
# Bisection for ε stops here; slopes are no smaller than this.
_SOLVED, _LEAST_SLOPE = 1e-13, 1e-3
_TINY = 1e-300
# How far into the room that the cut leaves beyond the guessed ε the answer is looked for.
_INSIDE = 0.95


@dataclass(frozen=True, eq=False)
class _JumpsPass:
    """One grid with one cut: bounds on δ at any ε, tight near the one that it was made for."""

    above: ComposedLoss
    below: ComposedLoss
    shape: overshoot.Bump | None
    far: Far
    epsilon: float

    def upper(self, epsilon: float) -> float:
        return min(1.0, (self.above.at(epsilon) + self.far.at(epsilon)[1]) * (1 + SLACK))

    def lower(self, epsilon: float) -> float:
        beyond = self.far.at(epsilon)[0]
        if self.shape is None:
            return beyond * (1 - SLACK)
        return (overshoot.lower(self.above, self.below, self.shape, epsilon) + beyond) * (1 - SLACK)

    def slope(self, epsilon: float, delta: float) -> float:
        """About −d ln δ/dε, which is e^ε Q(S > ε)/δ = P(S > ε)/δ − 1."""
        beyond = 0.0 if self.far.adding else self.far.p
        return max((self.above.exceeds(epsilon) + beyond) / delta - 1, _LEAST_SLOPE)

    def answer(self, target: Target) -> tuple[float, float]:
        """Bounds on what is asked for, lower and upper."""
        if target.epsilon is not None:
            return self.lower(target.epsilon), self.upper(target.epsilon)
        assert target.delta is not None
        delta = target.delta
        if self.upper(0.0) <= delta:
            return 0.0, 0.0
        # Far beyond the ε that the cut was made for, what the other losses make up for is no longer small.
        ends = (
            self.epsilon * (1 + _INSIDE * (BEYOND - 1)),
            self.far.cut,
            max(float(self.above.losses[-1]), self.far.floor),
        )
        end = next((end for end in ends if self.upper(end) <= delta), math.inf)
        if math.isinf(end):
            return 0.0, math.inf
        upper = bisect(lambda epsilon: self.upper(epsilon) <= delta, 0.0, end, relative=_SOLVED).high
        return overshoot.solve_lower(self.lower, delta, upper, self.slope(upper, delta)), upper


# The least ε that the width of a step is chosen for, as a part of the cut: at ε = 0 no step would be fine enough.
_LEAST_EPSILON = 1e-3


def bounds(coarse: Coarse, guess: Guess, target: Target) -> tuple[float, float]:
    """Bounds on the answer, lower and upper; a poor guess costs time, not truth."""
    cut, _ = coarse.cut(guess.epsilon, guess.delta)
    steps = sum(count for _, _, count in coarse.sampled)
    wanted = _FIRST_WIDE * max(guess.epsilon, _LEAST_EPSILON * cut)
    step = min(2 * cut / _FIRST_POINTS, _step(wanted, steps, guess.point.tilt))
    best = (0.0, math.inf if target.epsilon is None else 1.0)
    for _ in range(_ROUNDS):
        made = _pass(coarse, guess, step)
        if made is None:
            if best[0] > 0:
                break
            step *= _COARSER
            continue
        low, high = made.answer(target)
        best = (max(best[0], low), min(best[1], high))
        if math.isfinite(best[1]) and best[1] - best[0] <= WIDE * best[1]:
            break
        last, last_step = guess, step
        guess, step = _next(guess, step, made, best, target, steps)
        moved = abs(guess.epsilon - last.epsilon) > _SAME_EPSILON * last.epsilon
        moved = moved or abs(math.log(guess.delta / last.delta)) > _SAME_DELTA
        if step > _FINER * last_step and not moved:
            break
    return best


def _next(
    guess: Guess, step: float, made: _JumpsPass, best: tuple[float, float], target: Target, steps: int
) -> tuple[Guess, float]:
    """What the next pass is made for, and its step."""
    if target.delta is not None:
        delta = target.delta
        epsilon = best[1] if 0 < best[1] < math.inf else _FURTHER * guess.epsilon
        slope = made.slope(epsilon, delta)
        wanted = WIDE * epsilon
    else:
        epsilon, delta = guess.epsilon, max(best[1], _TINY)
        slope = made.slope(epsilon, delta)
        wanted = WIDE / slope
    finer = _step(_AIM * wanted, steps, slope)
    finer = min(max(finer, _LEAST_FACTOR * step), _MOST_FACTOR * step)
    return replace(guess, epsilon=epsilon, delta=delta), max(finer, step * len(made.above.losses) / _ENOUGH)


def _step(width: float, steps: int, slope: float) -> float:
    """The step that costs `width` in ε."""
    return math.sqrt(width / (_COST * steps * (slope + 1)))


def _pass(coarse: Coarse, guess: Guess, step: float) -> _JumpsPass | None:
    """One pass; None where its grid would be too long."""
    losses, beyond = _cut(coarse, step, *coarse.cut(guess.epsilon, guess.delta))
    room = 1 + _INSIDE * (BEYOND - 1)
    if beyond.rest(guess.epsilon / room if coarse.adding else guess.epsilon * room) > _LEAST_SHARE * guess.delta:
        # No certified moment for this Chernoff bound: cut where none is needed.
        losses, beyond = _cut(coarse, step, coarse.farthest(guess.epsilon), 0.0)
    if any(loss.support(0.0)[1] - loss.support(0.0)[0] > _MOST * step for loss, _ in losses):
        return None
    left = max(guess.delta - beyond.at(guess.epsilon)[0], _LEAST_SHARE * guess.delta)
    repeated = [(discretize.pessimistic(loss, step, 0.0), count) for loss, count in losses]
    above = compose(repeated, step, "upper", epsilon=guess.epsilon, delta=left, most=_MOST)
    if above is None:
        return None
    steps = sum(count for _, count in losses)
    return _JumpsPass(above, above.from_below(steps, 0.0), overshoot.bump(steps, step), beyond, guess.epsilon)


def _cut(coarse: Coarse, step: float, cut: float, order: float) -> tuple[list[tuple[CutLoss, int]], Far]:
    """The losses up to the first grid point from `cut` on, and what lies beyond it."""
    point = step * max(1, math.ceil(cut / step))
    losses = [(CutLoss(rate, mu, coarse.adding, point), count) for rate, mu, count in coarse.sampled]
    return losses, far(losses, order)
