"""Fourier inversion of sampled Gaussians whose rare large losses are cut off, at any number of steps.

What lies beyond the cut is a formula (`cut`). What remains has moments of every order, so the contour may cross the
real line at the saddle. A little Gaussian noise makes the integrand fall (`smoothing`), whatever the losses are, and
what that adds is a certified part of the width. Proof: docs/proofs/rare-jumps.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from discreet.accounting.methods.chernoff import log_constant
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier import panels, saddle
from discreet.accounting.methods.fourier.panels import CutGaussian
from discreet.accounting.methods.fourier.quadrature import QuadratureRule, SampledGaussians
from discreet.accounting.methods.jumps.cut import CutLoss, Far, far
from discreet.accounting.methods.jumps.guess import BEYOND, Coarse, Guess, cumulants
from discreet.accounting.methods.smoothing import Smoothed
from discreet.accounting.methods.target import Target
from discreet.numeric.rounding import SLACK
from discreet.numeric.search import Bracket, bisect

# The relative width of ε that smoothing may cause; and more where the contour would be too long. That of δ, over these.
_WIDTHS, _OF_DELTA = (2e-5, 1e-4), 2.5
# Passes: each knows ε and δ better than the one before. One more is made where the answer differs from the guess by so
# much, or ln δ.
_PASSES, _SAME_EPSILON, _SAME_DELTA = 6, 0.005, 0.3
#: The relative width at which no other pass is made.
ENOUGH = 3e-4
# The least tilt with Chernoff's bound within e^2 of δ is taken; the first and the last one that are tried, over ε.
_NEAR, _FIRST, _LAST = 2.0, 0.3, 3e4
# −ln of what aliases, relative to δ, and of how far the integrand has fallen where the contour ends.
_ALIAS, _FALLEN, _MORE_FALLEN = 18.0, 26.0, 8.0
# Orders for the alias from above, over the tilt.
_ORDERS = (1.1, 1.2, 1.35, 1.6, 2.0, 2.6, 3.5)
_MOST_NODES = 1 << 14
# The share of a step's mass that its quadrature may err by, over the number of steps.
_WITHIN = 1e-9
# Least share of δ for which the near part needs digits.
_LEAST_SHARE = 1e-3
# How far beyond the ε of the cut the answer is looked for, as a part of the room that the cut leaves.
_INSIDE = 0.95
_SOLVED = 1e-12
# The least slope of −ln δ over ln ε, and how far the next guess may be from this one.
_LEAST_SLOPE, _FURTHER = 0.1, 2.0
# Relative margin for the operations on certified moments.
_CHERNOFF_ERROR = 1e-12
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Cut:
    """Bounds on δ at any ε, tight near the one that they were made for: samples of what is near, and a formula."""

    near: Smoothed
    far: Far
    epsilon: float

    def at(self, epsilon: float) -> tuple[float, float]:
        """Lower and upper bounds on δ(ε)."""
        low, high = self.near.at(epsilon)
        least, most = self.far.at(epsilon)
        return (low + least) * (1 - SLACK), min(1.0, (high + most) * (1 + SLACK))

    def solve(self, delta: float) -> tuple[float, float]:
        """Bounds on the ε at which δ(ε) = `delta`; 0 and inf where these samples do not decide.

        Far from the ε that the cut was made for, what the other losses make up for is no longer small.
        """
        if self.at(0.0)[1] <= delta:
            return 0.0, 0.0
        begin, end = self.ends()
        lower, upper = 0.0, math.inf
        if self.at(end)[1] <= delta:
            upper = begin if self.at(begin)[1] <= delta else _change(lambda e: self.at(e)[1] <= delta, begin, end).high
        if self.at(begin)[0] >= delta:
            lower = end if self.at(end)[0] >= delta else _change(lambda e: self.at(e)[0] < delta, begin, end).low
        return lower, upper

    def ends(self) -> tuple[float, float]:
        """The least and the largest ε at which a solution is looked for."""
        room = 1 + _INSIDE * (BEYOND - 1)
        return self.epsilon / room, self.epsilon * room

    def better(self, delta: float) -> float:
        """About the ε at which δ(ε) = `delta`, also where it is outside of the ends."""
        begin, end = self.ends()
        logs = [math.log(max(sum(self.at(epsilon)) / 2, _TINY)) for epsilon in (begin, end)]
        slope = max((logs[0] - logs[1]) / (end - begin), _LEAST_SLOPE / end)
        return min(max(end + (logs[1] - math.log(delta)) / slope, begin / _FURTHER), end * _FURTHER)


def _change(holds: Callable[[float], bool], begin: float, end: float) -> Bracket:
    return bisect(holds, begin, end, relative=_SOLVED)


def bounds(coarse: Coarse, guess: Guess, target: Target) -> tuple[float, float]:
    """Bounds on the answer, lower and upper; a poor guess costs time, not truth."""
    best = (0.0, math.inf if target.epsilon is None else 1.0)
    for _ in range(_PASSES):
        made = next((each for each in (_made(coarse, guess, target, width) for width in _WIDTHS) if each), None)
        if made is None:
            break
        if target.epsilon is not None:
            low, high = made.at(target.epsilon)
            moved = replace(guess, delta=max(high, _TINY))
        else:
            assert target.delta is not None
            low, high = made.solve(target.delta)
            moved = replace(guess, epsilon=made.better(target.delta)) if high > 0 else guess
        best = max(best[0], low), min(best[1], high)
        if target.epsilon is None and not best[0] <= moved.epsilon <= best[1]:
            moved = replace(guess, epsilon=math.sqrt(max(best[0], best[1] / _FURTHER**2) * best[1]))
        if math.isfinite(best[1]) and best[1] - best[0] <= ENOUGH * best[1]:
            break
        same = abs(moved.epsilon - guess.epsilon) <= _SAME_EPSILON * guess.epsilon
        if same and abs(math.log(moved.delta / guess.delta)) <= _SAME_DELTA:
            break
        guess = moved
    return best


def _made(coarse: Coarse, guess: Guess, target: Target, width: float) -> Cut | None:
    """Samples for an answer near the guess; None where they would be too many."""
    epsilon = guess.epsilon
    if epsilon <= 0:  # every scale here is one of ε
        return None
    losses, beyond = _cut(coarse, guess)
    counts = np.array([count for _, count in losses], dtype=np.float64)
    left = max(guess.delta - beyond.at(epsilon)[0], _LEAST_SHARE * guess.delta)
    kept = coarse.kept(beyond.cut)

    def rough(order: float) -> tuple[float, float, float]:
        return cumulants(kept, order)

    tilt = saddle.relaxed(rough, epsilon, math.log(left), _FIRST / epsilon, _LAST / epsilon, _NEAR)
    # δ changes by about μ²κ(κ+1)δ, and ε by that over κ, the slope of −ln δ.
    slope = max(guess.point.tilt, tilt)
    added = width * epsilon / (slope + 1) if target.epsilon is None else _OF_DELTA * width / (slope * (slope + 1))
    goal = _ALIAS - math.log(left)
    order = _alias_order(rough, tilt, epsilon, added, goal)
    last = _rule(losses, order, 0.0)
    if last is None:
        return None
    above = added * order * (order + 1) / 2 + float(counts @ (last.log_moment + last.error)) + log_constant(order)
    above += _CHERNOFF_ERROR * (1 + abs(above))
    period = max((above - order * epsilon + goal) / (order - tilt), goal / tilt)
    if not 0 < period < math.inf:
        return None
    step = 2 * math.pi / period
    needed = 2 * (_FALLEN + max(0.0, rough(tilt)[0] - tilt * epsilon - math.log(left)))
    # Up to here the losses' own fall is known; from here on that of the noise is enough.
    most = math.sqrt((needed + _MORE_FALLEN) / added)
    fall = added + _natural_fall(losses, tilt, most)
    nodes = math.ceil(math.sqrt(needed / fall) / step) + 1
    if nodes > _MOST_NODES:
        return None
    rule = _rule(losses, tilt, step * nodes)
    if rule is None:
        return None
    rates, mus = np.array([loss.rate for loss, _ in losses]), np.array([loss.mu for loss, _ in losses])
    smooth = fourier.Smooth(added, SampledGaussians(rates, mus, counts, coarse.adding))
    built = fourier.sampled(smooth, tilt, step, nodes, rule)
    if built is None:
        return None
    values, error, _ = built
    log_scale, relative = fourier.log_scale_of(smooth, tilt, rule)
    end = step * nodes
    error += math.exp(-fall * end * end / 2) * (step / end**2 + 1 / end) / math.pi
    beyond_most = math.exp(-added * most * most / 2) / math.pi
    error += beyond_most * (step / most**2 + 1 / most)
    near = Smoothed(tilt, log_scale, step, values, error, relative, order, above, added=added, fall=fall)
    return Cut(replace(near, beyond=beyond_most * (step + 1 / (added * most))), beyond, epsilon)


def _natural_fall(losses: list[tuple[CutLoss, int]], tilt: float, most: float) -> float:
    """A number a for which the losses' own part of the integrand is at most e^{−aω²/2} for |ω| ≤ `most`."""
    rules = [(loss, count, _rule([(loss, 1)], tilt, 0.0)) for loss, count in losses]
    return sum(
        count * panels.natural_fall(_as_cut(loss), tilt, float(rule.log_moment[0] + rule.error[0]), most)
        for loss, count, rule in rules
        if rule is not None
    )


def _cut(coarse: Coarse, guess: Guess) -> tuple[list[tuple[CutLoss, int]], Far]:
    """The losses up to the cut, and what lies beyond it."""
    room = 1 + _INSIDE * (BEYOND - 1)

    def at(cut: float, order: float) -> tuple[list[tuple[CutLoss, int]], Far]:
        losses = [(CutLoss(rate, mu, coarse.adding, cut), count) for rate, mu, count in coarse.sampled]
        return losses, far(losses, order)

    losses, beyond = at(*coarse.cut(guess.epsilon, guess.delta))
    if beyond.rest(guess.epsilon / room if coarse.adding else guess.epsilon * room) > _LEAST_SHARE * guess.delta:
        # No certified moment for this Chernoff bound: cut where none is needed.
        return at(coarse.farthest(guess.epsilon), 0.0)
    return losses, beyond


def _alias_order(rough: saddle.Cumulants, tilt: float, epsilon: float, added: float, goal: float) -> float:
    """The order at which Chernoff's bound on what aliases from above allows about the shortest period."""

    def period(order: float) -> float:
        above = rough(order)[0] + added * order * (order + 1) / 2 + log_constant(order)
        return (above - order * epsilon + goal) / (order - tilt)

    return min((factor * tilt for factor in _ORDERS), key=period)


def _rule(losses: list[tuple[CutLoss, int]], tilt: float, reach: float) -> QuadratureRule | None:
    """The quadrature of all losses up to the cut, for frequencies up to `reach`."""
    within = _WITHIN / sum(count for _, count in losses)
    rules = []
    for loss, _ in losses:
        rule = panels.certified(_as_cut(loss), tilt, reach, within)
        if rule is None:
            return None
        rules.append(rule)
    return panels.stacked(rules)


def _as_cut(loss: CutLoss) -> CutGaussian:
    return CutGaussian(loss.rate, loss.mu, loss.end, loss.adding)
