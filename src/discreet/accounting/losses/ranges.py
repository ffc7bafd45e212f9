"""Selections of bounded range: the exponential mechanism, with scores that are chosen as one goes or all in advance.

A mechanism of range ε is a post-processing of one with the two losses t and t − ε, for some t in [0, ε] (Dong, Durfee &
Rogers 2020, arXiv 1909.13830, Section 4). Whoever chooses the scores chooses t, and may choose it anew after every
outcome. With s = e^t, y = e^x and p(s) = (e^ε − s)/(e^ε − 1), the largest δ of k such steps is

    δ_k(y) = max over s in [1, e^ε] of p(s)·δ_{k−1}(y/s) + (1 − p(s))·δ_{k−1}(y e^ε/s),   δ_0(y) = max(0, 1 − y).

Here it is computed on a grid of x: from below with t on the grid, which some attacker plays, and from above with
every t, by the chords between grid points. Both are pairs that compose with everything else. Proofs:
docs/proofs/bounded-range.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses import atoms, envelopes
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.collapse import Way
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.losses.one_range import RangeLoss
from discreet.events import DeclaredExponentials, Exponential

Floats = NDArray[np.float64]
BoundedRangeEvent = Exponential | DeclaredExponentials
#: Ranges ε, increasing, and how often each runs.
Ranges = tuple[tuple[float, int], ...]

# How many upper bounds `selections` tries for several ranges where it does not know the best one.
_BOUNDS = 3
#: The variant that prices many different ranges in groups: one to try where the others leave an interval wide.
GROUPED = 3

# Steps that are steered together. More steps than that are several blocks, each dominated by its own pair.
_BLOCK = 256
# Grid cells within one ε: as many as fit into the first number for the whole block, between the other two, and fewer
# than the last one where a short block would cost more than a long one. The relative width of ε is about 1/(2·cells²).
_CELLS, _LEAST_CELLS, _MOST_CELLS = 5120, 16, 512
# Selections of different ranges: states (how many of each are left) at most, the products of states, ranges, steps and
# squared cells that fix the grid, how many numbers of cells are tried for a better fit, and what counts as a fit.
_MOST_STATES, _MIXED_WORK, _TRIED, _ON_GRID = 256, 3e7, 50, 1e-12
# Of two numbers of cells that fit equally well, the larger one is taken; this is far below any real misfit.
_FINER = 1e-12
# Grid points that are updated together.
_ROWS = 256
# Values below this are not followed: products of them would underflow.
_NEGLIGIBLE = 1e-250
# No block has losses beyond this, so that their exponentials stay in the range of floats.
_LARGEST_LOSS = 300.0
# Relative round-off of one step of the recursion: some twenty operations on positive numbers.
_STEP_ERROR = 1e-14

# Points of the grid of a block whose scores are known in advance, and its reach in standard deviations of the loss.
_POINTS, _REACH = 4096, 45.0
# Points from there to the largest loss on either side, where next to no probability is left.
_FAR_POINTS = 65
# Relative error allowed for an incomplete beta function: a thousand times what SciPy's has.
_BETA_ERROR = 1e-10

# Which t the steps before the last block play, from below, as a share of ε. Any t is valid.
SPLITS = (0.5, 0.25, 0.75, 0.95)


def selections(way: Way, *, upper: bool, variant: int) -> Losses:
    """All exponential mechanisms of a composition.

    `Exponential` may be chosen after the outcomes of everything before it, in any order. Equal ones are priced
    together, and a few different ones too, in the worst order. Many different ones are priced as if all had the
    largest range; by ε²/8-zCDP, which adds up in any order (Cesar & Rogers 2021, Lemma 3.4); one by one; or in groups.
    """
    chosen = _chosen(way)
    together = _together(chosen, upper=upper) if variant == 0 else None
    batches = [(leaf, count) for leaf, count in way if isinstance(leaf, DeclaredExponentials)]
    total = Losses()
    if upper:
        for batch, count in batches:
            total += declared_above(float(batch.epsilon), batch.count).times(count)
        if together is not None:
            return total + Losses.of(together)
        if variant == 1:
            return total + Losses(concentrated=math.fsum(count * epsilon**2 / 8 for epsilon, count in chosen))
        if variant == 2 and len(chosen) > 1:
            return sum((Losses.of(_alone(epsilon)).times(count) for epsilon, count in chosen), total)
        if variant == GROUPED and len(chosen) > 1:
            from discreet.accounting.losses import grouped_ranges

            in_groups = grouped_ranges.above(chosen)
            if in_groups is not None:
                return total + in_groups
        return total + adaptive_above(chosen[-1][0], sum(count for _, count in chosen)) if chosen else total
    # One family of attacks at most can be chosen for the result that all other parts lead to: the last one to run.
    if together is not None:
        total += Losses.of(together)
    elif chosen:
        for epsilon, count in chosen[:-1]:
            total += unsteered(epsilon, count, variant)
        total += steered_last(*chosen[-1], variant)
    for number, (batch, count) in enumerate(batches):
        epsilon, draws = float(batch.epsilon), batch.count
        last_batches = 1 if number == 0 and not chosen else 0
        if last_batches:
            total += declared_last(epsilon, draws, variant)
        total += unsteered(epsilon, draws * (count - last_batches), variant)
    return total


def variants(way: Way, *, upper: bool) -> int:
    """How many variants of `selections`, and of selections on samples, are worth a try."""
    chosen = _chosen(way)
    alone = len(chosen) == 1 and chosen[0][1] <= largest_block(chosen[0][0])
    best_known = not chosen or alone or _together(chosen, upper=upper) is not None
    if upper:
        return 1 if best_known else _BOUNDS if len(chosen) > 1 else 2
    inner_events = [nested for leaf, _ in way if not isinstance(leaf, Exponential) for nested in leaf.walk()]
    return (
        1 if best_known and not any(isinstance(nested, BoundedRangeEvent) for nested in inner_events) else len(SPLITS)
    )


def in_groups(way: Way) -> bool:
    """Whether the variant `GROUPED` differs from the others: there are several ranges, too many to steer together."""
    chosen = _chosen(way)
    return len(chosen) > 1 and _together(chosen, upper=True) is None


def _chosen(way: Way) -> Ranges:
    """The ranges of all `Exponential` in a composition, with how often each runs, in increasing order."""
    return tuple(sorted((float(leaf.epsilon), count) for leaf, count in way if isinstance(leaf, Exponential)))


def _together(chosen: Ranges, *, upper: bool) -> AtomLoss | None:
    """The pair of selections of several ranges; None where there is only one range, or they are too many."""
    if len(chosen) < 2:
        return None
    return mixed_above(chosen) if upper else mixed_below(chosen)


def adaptive_above(epsilon: float, count: int) -> Losses:
    """`count` selections of range ε, each of which may depend on everything released before it."""
    return _in_blocks(steered_above, epsilon, count)


def declared_above(epsilon: float, count: int) -> Losses:
    """`count` selections of range ε whose scores are all fixed before the first of them."""
    return _in_blocks(lambda each, size: declared_pair(each, size, True), epsilon, count)


def steered_last(epsilon: float, count: int, variant: int) -> Losses:
    """From below: the last block of selections after everything else, each chosen after the outcomes before it."""
    size = min(count, largest_block(epsilon))
    if size < 1:
        return Losses()
    return unsteered(epsilon, count - size, variant) + Losses.of(steered_below(epsilon, size))


def declared_last(epsilon: float, count: int, variant: int) -> Losses:
    """From below: selections with scores declared in advance, after everything else."""
    if variant == 0 and count <= largest_block(epsilon):
        return Losses.of(declared_pair(epsilon, count, False))
    return unsteered(epsilon, count, variant)


def unsteered(epsilon: float, count: int, variant: int) -> Losses:
    """From below: selections that all split the range alike, whatever came before."""
    return Losses.of(fixed(epsilon, variant)).times(count) if count else Losses()


def _in_blocks(pair: Callable[[float, int], AtomLoss], epsilon: float, count: int) -> Losses:
    size = min(count, largest_block(epsilon))
    if size < 1:
        return Losses.of(atoms.randomized_response(epsilon)).times(count)
    blocks, rest = divmod(count, size)
    total = Losses.of(pair(epsilon, size)).times(blocks)
    return total + Losses.of(pair(epsilon, rest)) if rest else total


def single(epsilon: float) -> AtomLoss:
    """A pair that dominates one selection of range ε, whatever its scores are."""
    return atoms.randomized_response(epsilon) if epsilon > _LARGEST_LOSS else steered_above(epsilon, 1)


def _alone(epsilon: float) -> PrivacyLoss:
    """The same pair as that of `single`, by its formula."""
    return atoms.randomized_response(epsilon) if epsilon > _LARGEST_LOSS else RangeLoss(epsilon)


def fixed(epsilon: float, variant: int) -> AtomLoss:
    """One selection between two candidates, with a given split of the range ε."""
    top = epsilon * SPLITS[variant % len(SPLITS)]
    return atoms.two_points(top - epsilon, top)


def largest_block(epsilon: float) -> int:
    """The most selections of range ε that are steered together."""
    return min(_BLOCK, math.floor(_LARGEST_LOSS / epsilon))


@lru_cache(maxsize=64)
def steered_above(epsilon: float, steps: int, cells: int | None = None) -> AtomLoss:
    """A pair that dominates `steps` selections of range ε, however they are chosen; `cells` are those within ε."""
    game = _Game.equal(epsilon, steps) if cells is None else _Game(epsilon / cells, cells, steps * cells, cells)
    values = game.start()
    for step in range(1, steps + 1):
        inside = game.within(step * game.cells)
        values[inside] = np.maximum(game.best_above(values, inside) * (1 + _STEP_ERROR), _NEGLIGIBLE)
    return envelopes.from_above(game.epsilons(), game.whole(values))


@lru_cache(maxsize=64)
def steered_below(epsilon: float, steps: int) -> AtomLoss:
    """A pair that the best attack on `steps` selections of range ε dominates at every target."""
    game = _Game.equal(epsilon, steps)
    values, beyond = game.start(), game.start_beyond()
    for step in range(1, steps + 1):
        inside = game.within(step * game.cells)
        values[inside], beyond[inside] = game.best_below(values, beyond, inside)
    return game.pair_below(values, beyond, steps)


@lru_cache(maxsize=64)
def mixed_above(chosen: Ranges) -> AtomLoss | None:
    """A pair that dominates selections of several ranges, in whatever order they run; None where that takes too long.

    δ of what is left to run is the largest over which range comes next. Ranges are rounded up to the grid.
    """
    games = _games(chosen, math.ceil)
    if games is None:
        return None
    values_left = {tuple(0 for _ in chosen): games[0].start()}
    for left in itertools.product(*(range(count + 1) for _, count in chosen)):
        if left in values_left:
            continue
        inside = games[0].within(sum(count * game.cells for count, game in zip(left, games, strict=True)))
        values = games[0].start()
        for which, game in enumerate(games):
            if left[which]:
                before = values_left[tuple(count - (which == k) for k, count in enumerate(left))]
                values[inside] = np.maximum(values[inside], game.best_above(before, inside))
        values[inside] = np.maximum(values[inside] * (1 + _STEP_ERROR), _NEGLIGIBLE)
        values_left[left] = values
    return envelopes.from_above(games[0].epsilons(), games[0].whole(values_left[tuple(count for _, count in chosen)]))


@lru_cache(maxsize=64)
def mixed_below(chosen: Ranges) -> AtomLoss | None:
    """A pair that the best attack on selections of several ranges dominates: the largest range runs last.

    Ranges are rounded down to the grid: an attacker need not use all of a range.
    """
    games = _games(chosen, math.floor)
    if games is None:
        return None
    values, beyond, steps, reach = games[0].start(), games[0].start_beyond(), 0, 0
    for game, (_, count) in zip(reversed(games), reversed(chosen), strict=True):
        for _ in range(count if game.cells else 0):
            steps, reach = steps + 1, reach + game.cells
            inside = game.within(reach)
            values[inside], beyond[inside] = game.best_below(values, beyond, inside)
    return games[0].pair_below(values, beyond, steps)


def _games(chosen: Ranges, rounded: Callable[[float], int]) -> list[_Game] | None:
    """One game for each range, all on one grid; None where there are too many states or the losses are too large.

    The number of cells within the largest range is the one of some fifty at which the ranges fit the grid best.
    """
    states, steps = math.prod(count + 1 for _, count in chosen), sum(count for _, count in chosen)
    largest = chosen[-1][0]
    if states > _MOST_STATES or steps > _BLOCK or math.fsum(epsilon * n for epsilon, n in chosen) > _LARGEST_LOSS:
        return None
    most = math.isqrt(int(_MIXED_WORK / (states * len(chosen) * steps)))
    if most < _LEAST_CELLS:
        return None
    most = min(most, _MOST_CELLS)

    def cells(number: int) -> list[int]:
        return [_rounded(epsilon / largest * number, rounded) for epsilon, _ in chosen]

    def misfit(number: int) -> float:
        sizes = zip(cells(number), chosen, strict=True)
        return sum(count * abs(size * largest / number - epsilon) for size, (epsilon, count) in sizes)

    best = min(
        range(most, max(_LEAST_CELLS, most - _TRIED) - 1, -1), key=lambda number: misfit(number) + _FINER / number
    )
    sizes = cells(best)
    half = sum(size * count for size, (_, count) in zip(sizes, chosen, strict=True))
    return [_Game(largest / best, size, half, max(sizes)) for size in sizes]


def _rounded(value: float, rounded: Callable[[float], int]) -> int:
    """A number of cells; one that is off an integer by round-off is that integer."""
    nearest = round(value)
    return nearest if abs(value - nearest) <= _ON_GRID * value else rounded(value)


class _Game:
    """The recursion for one range of `cells` cells, on a grid of x = width·i, with a margin on either side."""

    def __init__(self, width: float, cells: int, half: int, margin: int) -> None:
        self.width, self.cells, self.half, self.margin = width, cells, half, margin
        epsilon = self.epsilon = width * cells
        if cells == 0:
            return  # nothing is selected
        # The largest t first, so that weights line up with windows of values in increasing order of x.
        t = self.width * np.arange(self.cells, -1, -1)
        t[0] = epsilon
        self.to_lower = np.expm1(t - epsilon) / math.expm1(-epsilon)  # p(s): the loss is t
        self.to_higher = np.expm1(t) / math.expm1(epsilon)  # 1 − p(s): the loss is t − ε
        self.q_to_lower = self.to_lower * np.exp(-t)
        self.q_to_higher = self.to_higher * np.exp(epsilon - t)

    @classmethod
    def equal(cls, epsilon: float, steps: int) -> _Game:
        """The game of this many selections of one range."""
        cells = max(_LEAST_CELLS, min(_MOST_CELLS, _CELLS // steps, math.isqrt(_MOST_CELLS**2 * 4 // steps)))
        return cls(epsilon / cells, cells, steps * cells, cells)

    def all_epsilons(self) -> Floats:
        """The grid, margins included."""
        end = self.half + self.margin
        return self.width * np.arange(-end, end + 1, dtype=np.float64)

    def whole(self, values: Floats) -> Floats:
        """What lies between the margins."""
        return values[self.margin : -self.margin]

    def epsilons(self) -> Floats:
        """The grid without its margins: −kε to kε."""
        return self.whole(self.all_epsilons())

    def start(self) -> Floats:
        """δ_0. It stays δ_k outside of (−kε, kε)."""
        return np.maximum(-np.expm1(self.all_epsilons()), 0.0)

    def start_beyond(self) -> Floats:
        """−dδ_0/dy."""
        return np.where(self.all_epsilons() < 0, 1.0, 0.0)

    def within(self, reach: int) -> slice:
        """Where the δ of steps differs from that of no steps; their ranges add up to this many cells."""
        middle = self.half + self.margin
        return slice(middle - reach + 1, middle + reach)

    def pair_below(self, values: Floats, beyond: Floats, steps: int) -> AtomLoss:
        """The pair of values and slopes from below, after this many steps."""
        lowered, slopes = self.whole(values) * (1 - 2 * steps * _STEP_ERROR), self.whole(beyond)
        lowered[0] = values[self.margin]
        kept = lowered > _NEGLIGIBLE
        return envelopes.from_below(self.epsilons(), np.where(kept, lowered, 0.0), np.where(kept, slopes, 0.0))

    def _rows(self, inside: slice) -> list[slice]:
        """The grid points inside, in runs that fit into a processor's cache together with all their t."""
        return [slice(start, min(start + _ROWS, inside.stop)) for start in range(inside.start, inside.stop, _ROWS)]

    def _every(self, windows: Floats, rows: slice) -> Floats:
        """For each x of a run, the value of every t on the grid: from those at x − t and at x − t + ε."""
        below = windows[rows.start - self.cells : rows.stop - self.cells]
        every: Floats = below * self.to_lower
        every += windows[rows] * self.to_higher
        return every

    def best_below(self, values: Floats, beyond: Floats, inside: slice) -> tuple[Floats, Floats]:
        """The best t on the grid, and the slope of its profile."""
        windows = np.lib.stride_tricks.sliding_window_view(values, self.cells + 1)
        best = np.concatenate([np.argmax(self._every(windows, rows), axis=1) for rows in self._rows(inside)])
        x = np.arange(inside.start, inside.stop)
        lower, higher = x - self.cells + best, x + best
        reached = values[lower] * self.to_lower[best] + values[higher] * self.to_higher[best]
        return reached, beyond[lower] * self.q_to_lower[best] + beyond[higher] * self.q_to_higher[best]

    def best_above(self, values: Floats, inside: slice) -> Floats:
        """No less than any t gives: between two t on the grid, the value exceeds both ends by at most κ/4."""
        drop = values[:-1] - values[1:]
        bend = math.exp(self.width) * math.expm1(self.width) / math.expm1(self.epsilon) / 4
        kappa = np.maximum(bend * (math.exp(self.epsilon) * drop[: -self.cells] - drop[self.cells :]), 0.0)
        either = np.maximum(np.append(kappa, 0.0), np.append(0.0, kappa))  # of the cells on both sides of a t
        windows = np.lib.stride_tricks.sliding_window_view(values, self.cells + 1)
        excess = np.lib.stride_tricks.sliding_window_view(either, self.cells + 1)
        largest = []
        for rows in self._rows(inside):
            every = self._every(windows, rows)
            every += excess[rows.start - self.cells : rows.stop - self.cells]
            largest.append(np.max(every, axis=1))
        return np.concatenate(largest)


@lru_cache(maxsize=64)
def declared_pair(epsilon: float, steps: int, upper: bool) -> AtomLoss:
    """The pair of the largest profile of `steps` selections of range ε whose scores are fixed in advance.

    All steps then play the same t, one of (x + (l+1)ε)/(k+1), and the losses beyond x are those with at most l small
    ones: δ(x) = max over l of P(Bin(k, 1 − p) ≤ l) − e^x P(Bin(k, 1 − q) ≤ l) (Dong, Durfee & Rogers 2020, Theorem 3).
    """
    most = steps * epsilon
    near = min(most, _REACH * epsilon * math.sqrt(steps) / 2)
    x = np.linspace(-near, near, _POINTS + 1)
    if near < most:
        x = np.concatenate((np.linspace(-most, -near, _FAR_POINTS)[:-1], x, np.linspace(near, most, _FAR_POINTS)[1:]))
    smaller = np.arange(steps, dtype=np.float64)
    t = (x[:, None] + (smaller + 1) * epsilon) / (steps + 1)
    valid = (t > 0) & (t < epsilon)
    t = np.where(valid, t, epsilon / 2)
    p = np.expm1(t - epsilon) / math.expm1(-epsilon)
    large = special.betainc(steps - smaller, smaller + 1, p)
    small = special.betainc(steps - smaller, smaller + 1, p * np.exp(-t))
    error = _BETA_ERROR if upper else -_BETA_ERROR
    every = large * (1 + error) - np.exp(x)[:, None] * small * (1 - error)
    every = np.where(valid, every, -1.0)
    best = np.argmax(every, axis=1)
    row = np.arange(len(x))
    trivial = np.maximum(-np.expm1(x), 0.0)
    attained = every[row, best]
    values = np.maximum(attained, trivial)
    values[-1] = 0.0
    if upper:
        return envelopes.from_above(x, values)
    beyond = np.where(attained > trivial, small[row, best], np.where(x < 0, 1.0, 0.0))
    beyond[0], beyond[-1] = 1.0, 0.0
    return envelopes.from_below(x, values, beyond)
