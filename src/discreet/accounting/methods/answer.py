"""Bounds on ε or δ of given losses in one direction, by the method that fits. A reader of `tight` comes here next."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import ContinuousLoss
from discreet.accounting.losses.families import has_closed_form, in_families
from discreet.accounting.losses.mixtures import GroupLoss
from discreet.accounting.methods import chernoff, concentration, single, smoothing
from discreet.accounting.methods.choose import choose, formula
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.fourier.quadrature import SampledGaussians
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.jumps import bounds as jumps
from discreet.accounting.methods.jumps import contour
from discreet.accounting.methods.jumps.guess import Coarse
from discreet.accounting.methods.target import Target
from discreet.numeric.rounding import down

#: Covers the round-off of an event's own numbers (1/σ, Σ1/σ², products of rates): thousands of roundings.
PAD = 1e-12
# With more different losses than this, a grid takes longer than anyone waits for the last digits.
MOST_ON_GRID = 12
# ln of the smallest top atom that is used: e^{−700} is a normal float.
_LEAST_LOG_MASS = -700.0
# Sampled Gaussians are cut at once below the first number of steps: few of them have no smooth sum. What is near then
# goes to a grid first, and from the second number on to a contour. From the third on, round-off may leave no lower end.
_FEW_STEPS, _MANY_STEPS, _VERY_MANY_STEPS = 20, 200, 10**5
# From this many steps on, smoothing is as narrow as asked for and a hundred times faster than a grid, which rounds each
# loss: the error of a grid grows with the number of steps.
_TOO_MANY_FOR_A_GRID = 10**7
# Orders whose moments are remembered during one Chernoff bound, which asks for about 110.
_REMEMBERED = 512

#: Bounds from below and from above.
BoundsPair = tuple[float, float]


def of_losses(losses: Losses, target: Target, adding: bool) -> BoundsPair:
    """Bounds on the answer in one direction, with a lower end from two moments where the method finds a poor one."""
    lower, upper = _by_method(losses, target, adding)
    if narrow((lower, upper)) or not upper > 0 or losses.concentrated > 0 or losses.steps < _VERY_MANY_STEPS:
        return lower, upper
    return max(lower, min(upper, concentration.lower(losses.for_grid(adding=adding), target))), upper


def _by_method(losses: Losses, target: Target, adding: bool) -> BoundsPair:
    """Bounds on the answer by the method that `choose` picks."""
    infinite = losses.infinite_mass()
    if target.epsilon is not None and target.epsilon >= losses.largest_loss(adding=adding):
        return infinite
    if target.delta is not None and infinite[0] > target.delta:
        return math.inf, math.inf
    if (only := losses.only_loss()) is not None:
        return _by_profile(only, infinite[1], target)
    match choose(losses):
        case "nothing":
            return 0.0, 0.0
        case "everything":
            return (math.inf, math.inf) if target.epsilon is None else (1.0, 1.0)
        case "moments":
            return 0.0, by_moments(losses, target, adding)
        case "formula":
            profile = formula(losses, adding=adding)
            assert profile is not None
            return _by_formula(profile, target)
        case "fourier":
            mixed = losses.others or losses.mu_squared > 0
            if not mixed and losses.steps < _FEW_STEPS:
                return _small_rates(losses, target, adding)
            by_fourier = _by_fourier(losses, target, adding)
            if by_fourier is not None and narrow(by_fourier):
                return by_fourier
            if mixed:
                return _rough(losses, target, adding, by_fourier)
            by_rates = _small_rates(losses, target, adding)
            return by_rates if by_fourier is None else _intersection(by_fourier, by_rates)
        case "smoothed":
            return _rough(losses, target, adding, None)
        case _:
            return _of_atoms(losses, target, adding)


def _of_atoms(losses: Losses, target: Target, adding: bool) -> BoundsPair:
    """A few losses without a smooth density among them: on a grid, or smoothed if there are too many steps for one."""
    many = losses.steps >= _TOO_MANY_FOR_A_GRID and all(has_closed_form(loss) for loss, _ in losses.others)
    if not many:
        return _on_grid(losses, target, adding)
    smoothed = _by_fourier(losses, target, adding, smoothed=True)
    if smoothed is not None and narrow(smoothed):
        return smoothed
    bounds = smoothed or (0.0, math.inf if target.epsilon is None else 1.0)
    bounds = _intersection(bounds, (0.0, by_moments(losses, target, adding)))
    # Atoms on a lattice are not rounded, and a grid may still be narrow.
    rounded = any(isinstance(loss, ContinuousLoss) for loss, _ in losses.others)
    return bounds if rounded else _intersection(bounds, _on_grid(losses, target, adding))


def _rough(losses: Losses, target: Target, adding: bool, smooth_bounds: BoundsPair | None) -> BoundsPair:
    """Bounds on losses that are not smooth enough for Fourier inversion, which gave `smooth_bounds` or declined.

    Smoothing takes any number of different losses. The grid is finer than any smoothing for a few of them.
    """
    bounds = smooth_bounds or (0.0, math.inf if target.epsilon is None else 1.0)
    if all(has_closed_form(loss) for loss, _ in losses.others):
        smoothed = _by_fourier(losses, target, adding, smoothed=True)
        bounds = bounds if smoothed is None else _intersection(bounds, smoothed)
        if narrow(bounds):
            return bounds
    if len(losses.others) <= MOST_ON_GRID:
        return _intersection(bounds, _on_grid(losses, target, adding))
    upper = by_moments(losses, target, adding)
    if target.delta is not None and losses.infinite_mass()[1] <= target.delta:
        upper = min(upper, max(0.0, losses.largest_loss(adding=adding)))
    return _intersection(bounds, (_by_top_atom(losses, target), upper))


def _by_top_atom(losses: Losses, target: Target) -> float:
    """From below, by the largest loss alone: δ(ε) ≥ P(L = l)(1 − e^{ε−l}). It decides where δ is below that P."""
    top = losses.top_atom()
    if top is None or top[1] < _LEAST_LOG_MASS:
        return 0.0
    loss, log_mass = top
    least = losses.infinite_mass()[0]
    if target.epsilon is not None:
        return down(least - math.exp(log_mass) * math.expm1(min(target.epsilon - loss, 0.0)) * (1 - PAD))
    assert target.delta is not None
    share = (target.delta - least) / math.exp(log_mass) * (1 + PAD)
    return max(0.0, (loss + math.log1p(-share)) * (1 - PAD)) if 0 < share < 1 else 0.0


def narrow(bounds: BoundsPair, width: float = grid.WIDE) -> bool:
    """Whether bounds are finite and their relative width is at most `width`."""
    low, high = bounds
    return math.isfinite(high) and (high - low <= width * high)


def _intersection(first: BoundsPair, second: BoundsPair) -> BoundsPair:
    return max(first[0], second[0]), min(first[1], second[1])


def _by_formula(bounds: single.BoundsAt, target: Target) -> BoundsPair:
    if target.epsilon is not None:
        return bounds(target.epsilon)
    assert target.delta is not None
    return single.solve(bounds, target.delta)


def _by_profile(only: AtomLoss | GroupLoss, infinite: float, target: Target) -> BoundsPair:
    """One loss that has a formula for its profile. `infinite` bounds P of an infinite loss."""
    low, high = _by_formula(only.profile, target)
    if target.delta is None or infinite > target.delta or isinstance(only, GroupLoss):
        return low, high
    most = max(0.0, only.support(0.0)[1])  # no loss beyond it is finite, and δ covers the infinite ones
    return min(low, most), min(high, most)


def _on_grid(losses: Losses, target: Target, adding: bool) -> BoundsPair:
    repeated = losses.for_grid(adding=adding)
    lower, upper = grid.bounds(repeated, target)
    infinite = losses.infinite_mass()[1]
    if math.isinf(upper) and infinite < (target.delta or 0.0):
        upper = by_moments(losses, target, adding)
    if target.delta is not None and infinite <= target.delta:
        upper = min(upper, max(0.0, losses.largest_loss(adding=adding)))
    return lower, upper


def by_moments(losses: Losses, target: Target, adding: bool) -> float:
    """Chernoff's bound from every moment that is known."""
    without_form = in_families(losses.others)[1]
    rest = smooth(losses, adding)

    @lru_cache(maxsize=_REMEMBERED)
    def others(order: float) -> float:
        return losses.concentrated * order * (order + 1) + grid.log_moment(without_form, order)

    def rough(order: float) -> float:
        return rest.cumulants(order)[0] + others(order)

    def certified(order: float) -> float:
        return rest.log_moment(order) + others(order)

    infinite = losses.infinite_mass()[1]
    if target.epsilon is not None:
        return min(1.0, infinite + chernoff.delta(certified, target.epsilon, rough))
    assert target.delta is not None
    left = target.delta - infinite
    return chernoff.epsilon(certified, left, rough) if left > 0 else math.inf


def smooth(losses: Losses, adding: bool) -> fourier.Smooth:
    """The losses in the form that Fourier inversion takes, without those that have no formula."""
    terms = np.array(losses.sampled, dtype=np.float64).reshape(-1, 3)
    sampled = SampledGaussians(terms[:, 0].copy(), terms[:, 1].copy(), terms[:, 2].copy(), adding)
    return fourier.Smooth(losses.mu_squared, sampled, in_families(losses.others)[0])


def _small_rates(losses: Losses, target: Target, adding: bool) -> BoundsPair:
    """Sampled Gaussians whose rare large losses rule at the saddle: a cut, and a contour or a grid for what is near."""
    coarse = Coarse.of(losses.sampled, adding)
    guess = coarse.guess(target)
    first, second = (contour, jumps) if losses.steps >= _MANY_STEPS else (jumps, contour)
    jump_bounds = first.bounds(coarse, guess, target)
    return jump_bounds if narrow(jump_bounds) else _intersection(jump_bounds, second.bounds(coarse, guess, target))


def _by_fourier(losses: Losses, target: Target, adding: bool, *, smoothed: bool = False) -> BoundsPair | None:
    """Fourier inversion at its saddle; None where it declines.

    With `smoothed`, a little Gaussian noise is added first, and what it may change to the answer.
    """
    least, most = losses.infinite_mass()
    composition = smooth(losses, adding)
    if target.epsilon is not None:
        point = fourier.locate(composition, epsilon=target.epsilon)
        samples = smoothing.invert(composition, point, target) if smoothed else fourier.invert(composition, point)
        if samples is None:
            return None
        low, high = samples.at(target.epsilon)
        return low + least, min(1.0, high + most)
    assert target.delta is not None
    left = target.delta - most
    if left <= 0:
        return None
    point = fourier.locate(composition, delta=left)
    samples = smoothing.invert(composition, point, target) if smoothed else fourier.invert(composition, point)
    if samples is None:
        return None
    low, high = samples.solve(left, point.epsilon)
    if most > 0:  # from below, more of δ may be left for the finite losses
        low = samples.solve(target.delta - least, point.epsilon)[0]
    if not high > 0:
        # ε = 0 may be enough already.
        return (0.0, 0.0) if samples.at(0.0)[1] <= left else (0.0, max(high, 0.0))
    return max(low, 0.0), high
