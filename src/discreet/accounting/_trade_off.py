"""Trade-off curves: the least type II error of any test that tells neighbors apart, at each type I error.

(ε, δ)-DP bounds the type II error β at the type I error α by β ≥ 1 − δ − e^ε α and β ≥ e^{−ε}(1 − δ − α) (Wasserman &
Zhou 2010; Dong, Roth & Su 2022). The curve of an event is the largest of these lines over all ε, at its δ(ε).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.accounting import points, tight
from discreet.accounting.losses import of_events
from discreet.accounting.losses.collapse import Way, collapse
from discreet.errors import MissingExtra
from discreet.events import Composed, Event, Shuffled, ShuffledEpoch
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

Floats = NDArray[np.float64]
#: Who is tested for: "removing", whether a unit is in the data, against the null hypothesis that it is not; "adding",
#: the other way round; or None, the easier of the two for an attacker.
Direction = Literal["removing", "adding"]

# np.exp overflows above 709; beyond 700 a line bounds nothing at any α that a float holds.
_LARGEST_EXPONENT = 700.0
# The grid of ε goes out to where δ, less the mass of infinite losses, is below this.
_SMALL_DELTA = 1e-9
# Points of the grid, and a power that places them more densely near ε = 0, where the curve bends most.
_POINTS, _POWER = 97, 1.5
# The length of the grid is at least the first. One point lies far beyond it.
_LEAST_REACH, _FAR_FACTOR, _FAR = 1e-9, 10, 50.0
# Round-off of a line, relative to 1 (or to e^{−ε}): some five operations. And of the points where two lines cross.
_LINE_ERROR, _CROSSING_ERROR = 2e-15, 1e-12
# Numbers of type I errors times lines that are compared at a time, to bound the memory.
_AT_ONCE = 1 << 22


def supporting_lines(alpha: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """The least type II error at each type I error α that (ε, δ)-DP at each of these pairs leaves to any test.

    max over ε of max(1 − δ − e^ε α, e^{−ε}(1 − δ − α), 0): every one of them holds.

    >>> supporting_lines(np.array([0.0, 0.5]), np.array([1.0]), np.array([0.0])).round(4).tolist()
    [1.0, 0.1839]
    """
    return np.maximum(_steep(alpha, epsilons, deltas), _flat(alpha, epsilons, deltas))


def _steep(alpha: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """max over ε of max(1 − δ − e^ε α, 0)."""
    return _largest(alpha, 1 - deltas, np.exp(np.minimum(epsilons, _LARGEST_EXPONENT)))


def _flat(alpha: Floats, epsilons: Floats, deltas: Floats) -> Floats:
    """max over ε of max(e^{−ε}(1 − δ − α), 0)."""
    shrink = np.exp(-np.minimum(epsilons, _LARGEST_EXPONENT))
    return _largest(alpha, shrink * (1 - deltas), shrink)


def _largest(alpha: Floats, at_zero: Floats, fall: Floats) -> Floats:
    """max(0, max over lines of at_zero − fall·α) at each α."""
    result = np.zeros(len(alpha))
    rows = max(1, _AT_ONCE // max(1, len(fall)))
    for begin in range(0, len(alpha), rows):
        lines = at_zero - fall * alpha[begin : begin + rows, None]
        result[begin : begin + rows] = np.maximum(lines.max(axis=1), 0.0)
    return result


@dataclass(frozen=True, eq=False)
class ProfilePair:
    """Bounds on the two profiles of a pair of neighbors, at the same ε: of removing a unit, and of adding it.

    `lower` and `upper` are curves of the test whose null hypothesis is that the unit is not in the data.
    """

    epsilons: Floats
    removing: tuple[Floats, Floats]
    adding: tuple[Floats, Floats]
    #: Lower bounds on the masses of infinite losses.
    infinite: tuple[float, float] = (0.0, 0.0)

    def mirrored(self) -> ProfilePair:
        """The test with the hypotheses exchanged."""
        return ProfilePair(self.epsilons, self.adding, self.removing, self.infinite[::-1])

    def lower(self, alpha: Floats) -> Floats:
        """The type II error that no test falls below."""
        # A larger δ lowers every line by as much as its round-off may have raised it.
        steep = _steep(alpha, self.epsilons, self.removing[1] + _LINE_ERROR)
        return np.maximum(steep, _flat(alpha, self.epsilons, self.adding[1] + _LINE_ERROR))

    def upper(self, alpha: Floats) -> Floats:
        """An upper bound on the largest line over all ε, from lower bounds on δ at some (docs/proofs/trade-off.md).

        D(x) = δ(ln x) is convex and falls. Between two points it lies above the line through the two points before, and
        above that through the two points after. The largest 1 − D(x) − xα is then at a point of the grid, or where two
        such lines cross. For x < 1, D(x) = 1 − x + C(x) with C(x) = x·δ′(−ln x), δ′ of the other direction.
        """
        at_zero, fall = self._corners
        return np.minimum(_largest(alpha, at_zero, fall) + _LINE_ERROR, 1 - alpha)

    @cached_property
    def _corners(self) -> tuple[Floats, Floats]:
        """Lines in α such that at every α one of them is above all 1 − D(x) − xα."""
        growth = np.exp(self.epsilons)
        shrink = 1 / growth[:0:-1]
        left = [np.concatenate((np.zeros(1), shrink * side[:0:-1], side[:1])) for side in self.adding]
        right = self.removing
        # Each half continues with the first point of the other one.
        x, y = _corners(
            np.concatenate((np.zeros(1), shrink, np.ones(1), growth[1:2])),
            *(np.append(low, side[1] + growth[1] - 1) for low, side in zip(left, right, strict=True)),
            first_slope=self.infinite[1],
            skipped=slice(0, -1),
        )
        below = x * (1 + _LINE_ERROR) - y, x * (1 - _LINE_ERROR)
        x, y = _corners(
            np.concatenate((shrink[-1:], growth)),
            *(np.append(1 - shrink[-1] + low[-2], side) for low, side in zip(left, right, strict=True)),
            first_slope=-1.0,
            skipped=slice(1, None),
        )
        # Beyond the last point D may fall to the mass of infinite losses.
        x, y = np.append(x, growth[-1]), np.append(y, self.infinite[0])
        above = 1 + _LINE_ERROR - y, x * (1 - _LINE_ERROR)
        return np.concatenate((below[0], above[0])), np.concatenate((below[1], above[1]))


def _corners(at: Floats, least: Floats, most: Floats, *, first_slope: float, skipped: slice) -> tuple[Floats, Floats]:
    """Points below a convex function whose lower hull bounds it from below: those of the grid, and where lines cross.

    `least` and `most` bound the function at the points `at`; it rises or falls at least like `first_slope` from the
    first point on. Only corners at or between the points that `skipped` keeps are given.
    """
    kept = at[skipped]
    xs, ys = list(kept), list(least[skipped])
    for k in range(len(at) - 1):
        if not kept[0] <= at[k] < kept[-1]:
            continue
        # The line through k−1 (from above) and k (from below), continued beyond k.
        before = first_slope if k == 0 else (least[k] - most[k - 1]) / (at[k] - at[k - 1])
        # The line through k+1 (from below) and k+2 (from above), continued back beyond k+1; at the end D only falls.
        after = (most[k + 2] - least[k + 1]) / (at[k + 2] - at[k + 1]) if k + 2 < len(at) else 0.0
        if not before < after:
            continue
        x = at[k] + (least[k + 1] - least[k] - after * (at[k + 1] - at[k])) / (before - after)
        if at[k] < x < at[k + 1]:
            height = least[k] + before * (x - at[k])
            xs.append(x)
            ys.append(height - _CROSSING_ERROR * (abs(least[k]) + abs(before) * (x - at[k])))
    return np.array(xs), np.array(ys)


@dataclass(frozen=True)
class TradeOff:
    """The trade-off curve of one event: the least type II error β at each type I error α.

    Both bounds are certified: no test errs less than `lower`, and `upper` lies above the largest curve that the event
    guarantees, which for most events is the curve of the best test. Evaluating either takes microseconds for each α.

    Attributes:
        event: what was run.
        relation: which datasets are neighbors.
        direction: whether the test is for a unit that was removed, or added; None is the easier of the two.

    >>> from discreet.events import Gaussian
    >>> curve = trade_off(Gaussian(1.0))
    >>> [round(float(beta), 3) for beta in curve.lower([0.05, 0.5])]
    [0.74, 0.159]
    """

    event: Event
    relation: Relation
    direction: Direction | None
    _pairs: tuple[ProfilePair, ...] = field(repr=False, compare=False)

    def lower(self, alpha: ArrayLike) -> Floats:
        """The type II error that no test falls below, at each type I error."""
        at = _probabilities(alpha)
        return np.asarray(np.min([pair.lower(at) for pair in self._pairs], axis=0))

    def upper(self, alpha: ArrayLike) -> Floats:
        """A type II error that the tight curve does not exceed, at each type I error."""
        at = _probabilities(alpha)
        return np.asarray(np.min([pair.upper(at) for pair in self._pairs], axis=0))

    def profiles(self) -> list[tuple[Floats, Floats, Floats]]:
        """The (ε, δ) pairs behind `lower`: ε, δ in the direction of the test and δ in the other, for each kind of pair.

        Every line β ≥ 1 − δ − e^ε α of the first δ and β ≥ e^{−ε}(1 − δ − α) of the second holds by itself. Several
        kinds of pairs can meet one event; `lower` is the least curve of all.
        """
        return [(pair.epsilons, pair.removing[1], pair.adding[1]) for pair in self._pairs]

    def compose(self, other: TradeOff) -> TradeOff:
        """The curve of both events on the same data, fixed in advance: the curve of their composition."""
        if not isinstance(other, TradeOff) or (other.relation, other.direction) != (self.relation, self.direction):
            remedy = "compose curves of the same relation and direction"
            raise _check.fail("other", "be a trade-off curve like this one", other, remedy)
        return trade_off(Composed((self.event, other.event)), self.relation, self.direction)

    def plot(self, axes: Any = None) -> Any:
        """Draw the curve into `axes` of matplotlib, or into a new figure; return the axes."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as missing:
                raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
            axes = Figure(figsize=(5, 5), layout="constrained").subplots()
        # Dense at both ends, where a curve is steep.
        alpha = (1 - np.cos(np.linspace(0.0, math.pi, 401))) / 2
        lower, upper = self.lower(alpha), self.upper(alpha)
        axes.plot([0, 1], [1, 0], color="#999999", linestyle=":", label="guessing")
        axes.fill_between(alpha, lower, upper, color="#2a9d8f", alpha=0.4, linewidth=0)
        axes.plot(alpha, lower, color="#2a9d8f", label="no test errs less")
        axes.set(xlabel="type I error: false alarms", ylabel="type II error: misses", xlim=(0, 1), ylim=(0, 1))
        axes.set_title(_short(self.event), fontsize=10)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def trade_off(event: Event, relation: Relation = ADD_REMOVE, direction: Direction | None = None) -> TradeOff:
    """The trade-off curve of `event`, as certified bounds on it: what an attacker can do, and what an audit tests.

    Args:
        event: what was run; a `Composed` has the curve of the whole composition.
        relation: which datasets are neighbors.
        direction: "removing" tests the null hypothesis that the unit is not in the data, "adding" that it is. None
            gives the least error of either.
    """
    if not isinstance(event, Event):
        raise _check.fail("event", "be an event", event, "events are the dataclasses in discreet.events")
    if direction not in {None, "removing", "adding"}:
        raise _check.fail("direction", "be 'removing', 'adding' or None", direction, "None is the easier of the two")
    which = as_relation(relation)
    one_sided = any(isinstance(nested, ShuffledEpoch) for nested in event.walk())
    with np.errstate(all="ignore"):  # every method bounds or declines its own overflows
        if isinstance(event, Shuffled):
            pairs = [_shuffled(event, which)]
        else:
            pairs = [
                _pair(way, which, opposite, one_sided)
                for way in collapse(event, which)
                for opposite in of_events.splits(way)
            ]
    if direction is None:
        pairs += [pair.mirrored() for pair in pairs if pair.removing is not pair.adding]
    elif direction == "adding":
        pairs = [pair.mirrored() for pair in pairs]
    return TradeOff(event, which, direction, tuple(pairs))


def _pair(way: Way, relation: Relation, opposite: int, one_sided: bool) -> ProfilePair:
    directions = of_events.directions(way)
    most = max(points.reach(way, relation, adding, opposite, _SMALL_DELTA) for adding in directions)
    inside = max(most, _LEAST_REACH) * np.linspace(0.0, 1.0, _POINTS) ** _POWER
    epsilons = np.unique(np.minimum(np.append(inside, _FAR_FACTOR * inside[-1] + _FAR), _LARGEST_EXPONENT))
    sides = []
    for adding in directions:
        lower, upper = points.bounds(way, relation, adding, opposite, epsilons)
        sides.append((0 * lower if one_sided else lower, upper))
    infinite = [0.0 if one_sided else points.infinite_mass(way, relation, adding, opposite) for adding in directions]
    return ProfilePair(epsilons, sides[0], sides[-1], (infinite[0], infinite[-1]))


def _shuffled(event: Shuffled, relation: Relation) -> ProfilePair:
    """Shuffled reports by themselves. Either dataset may be the first, so both ends hold in both directions."""
    most = min(tight.epsilon(event, _SMALL_DELTA, relation).upper, _LARGEST_EXPONENT)
    epsilons = np.unique(max(most, _LEAST_REACH) * np.linspace(0.0, 1.0, _POINTS // 3) ** _POWER)
    deltas = [tight.delta(event, float(epsilon), relation) for epsilon in epsilons]
    both = np.array([delta.lower for delta in deltas]), np.array([delta.upper for delta in deltas])
    return ProfilePair(epsilons, both, both)


def _probabilities(alpha: ArrayLike) -> Floats:
    remedy = "it is a probability of a false alarm"
    try:
        at = np.atleast_1d(np.asarray(alpha, dtype=np.float64))
    except (TypeError, ValueError):
        raise _check.fail("alpha", "be numbers in [0, 1]", alpha, remedy) from None
    if at.ndim != 1 or not np.all((at >= 0) & (at <= 1)):
        raise _check.fail("alpha", "be a list of numbers in [0, 1]", alpha, remedy)
    return at


# Letters of an event that fit over a chart.
_TITLE = 60


def _short(event: Event) -> str:
    text = str(event)
    return text if len(text) <= _TITLE else text[: _TITLE - 1] + "…"
