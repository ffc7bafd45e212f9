"""The best of a random number of runs: through the privacy profile of one run, and through its Rényi divergences.

Both rest on one inequality, proved in docs/proofs/selection.md. Let F and F′ be the probabilities, on two neighbors,
that a run is no better than some output. The selection's density there is f′(F) times that of one run (`trials`), and F
bounds F′ by the profile of one run. So over all pairs (F, F′) that the profile allows,

    H_{e^ε}(selection) ≤ Σ wⱼ · δ(ε − sⱼ),

where the largest of the lines (f′(F)·z − f′(F′))₊ changes its slope by wⱼ at z = e^{−sⱼ}. The weights add up to E[K].
Koskela, Redberg & Wang 2024 (arXiv 2402.06701) put all of the weight at the largest shift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from discreet.accounting.forms.gdp import pure_mu
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import DEFAULT_ORDERS, rdp
from discreet.accounting.forms.zcdp import pure_rho
from discreet.accounting.losses import of_events
from discreet.accounting.losses.atoms import AtomLoss
from discreet.accounting.losses.collapse import collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.from_profile import profile_loss
from discreet.accounting.losses.of_events import View
from discreet.accounting.prices import trials as laws
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.prices.profile_table import ProfileTable, profile_table
from discreet.accounting.refusal import unknown
from discreet.errors import UnknownEvent
from discreet.events import Event, NegativeBinomialTrials, PoissonTrials, SelectedFromRepeats, Trials
from discreet.neighbors import Relation
from discreet.numeric.rounding import Floats, raised, up

# Margin on ln f′, relative to 1 + its size: its formulas take about ten operations, so 1e-12 is ample.
_LOG_MARGIN = 1e-12
# Margins on the kinks and the weights of the largest line: they exceed the round-off of the hull (docs/proofs).
_HULL_MARGIN = 1e-10
# Values of f′ below this share of the largest are raised to it, so that none is lost to underflow.
_LEAST_SHARE = 1e-300
# The profile of the selection is tabulated like that of one run: at this many ε first, then more where ln δ falls by
# more than `_LARGEST_FALL` between two of them, down to `_SMALL_DELTA`, in at most `_ROUNDS` rounds.
_FIRST_POINTS, _LARGEST_FALL, _SMALL_DELTA, _ROUNDS = 65, 0.2, 1e-22, 6
_LARGEST_EPSILON = 600.0


class SelectionPrice(EventPrices):
    """The price of `SelectedFromRepeats`. From below, a score that is always the same leaves a single run."""

    has_losses = True

    def losses(self, event: SelectedFromRepeats, view: View) -> Losses:
        if not view.upper:
            return _single_run(event, view)
        if _nothing_lost(event, view.relation):
            return Losses(exact=False)
        return Losses(others=((_loss(event.event, event.trials, view.relation), 1),), exact=False)

    def pure(self, event: SelectedFromRepeats, relation: Relation) -> float:
        epsilon = pure(event.event, relation).epsilon
        if epsilon <= 0 or math.isinf(epsilon):
            return epsilon
        growth = laws.pure_growth(event.trials, epsilon)
        return up(epsilon + growth + _LOG_MARGIN * (1 + growth + abs(laws.log_mean(event.trials))))

    def zcdp(self, event: SelectedFromRepeats, relation: Relation) -> float:
        return pure_rho(self.pure(event, relation))

    def gdp(self, event: SelectedFromRepeats, relation: Relation) -> float:
        epsilon = self.pure(event, relation)
        if math.isinf(epsilon):
            raise unknown(event, "GDP accounting", "no μ is known to be valid for it")
        return pure_mu(epsilon)

    def rdp(self, event: SelectedFromRepeats, orders: Floats, relation: Relation) -> Floats:
        if _nothing_lost(event, relation):
            return np.zeros_like(orders)
        one_run = _curve(event.event, orders, relation)
        bounds = [_by_pairs(event, orders, one_run, relation)]
        match event.trials:
            case NegativeBinomialTrials():
                bounds.append(_negative_binomial(event, event.trials, orders, one_run, relation))
            case PoissonTrials():
                bounds.append(_poisson(event, event.trials, orders, one_run, relation))
        best = np.minimum(np.min(np.stack(bounds), axis=0), self.pure(event, relation))
        # Divergences grow with their order, so a bound at a larger order holds at every smaller one.
        sorting = np.argsort(orders)
        best[sorting] = np.minimum.accumulate(best[sorting][::-1])[::-1]
        return np.asarray(best, dtype=np.float64)


def _single_run(event: SelectedFromRepeats, view: View) -> Losses:
    """What one run loses from below, if there always is one; nothing where that is not known."""
    if laws.log_none(event.trials) > -math.inf:
        return Losses(exact=False)
    try:
        way = collapse(event.event, view.relation)[0]
        return replace(of_events.losses(way, view), exact=False)
    except UnknownEvent:
        return Losses(exact=False)


def _nothing_lost(event: SelectedFromRepeats, relation: Relation) -> bool:
    """Whether one run, and so the best of many, has the same law on both neighbors: δ(0) is 0."""
    return bool(profile_table(event.event, relation).deltas[0] <= 0)


def _curve(event: Event, orders: Floats, relation: Relation) -> Floats:
    return np.array([float(value) for value in rdp(event, orders.tolist(), relation).epsilons])


def _negative_binomial(
    event: SelectedFromRepeats, trials: NegativeBinomialTrials, orders: Floats, one_run: Floats, relation: Relation
) -> Floats:
    """D_α + (1+η)·min over β of [(1 − 1/β)·D_β + ln(1/γ)/β] + ln(E[K])/(α−1) (Papernot & Steinke 2022, Theorem 2)."""
    helpers = np.array(DEFAULT_ORDERS)
    divergences = _curve(event.event, helpers, relation)
    extra = float(np.min((1 - 1 / helpers) * divergences - math.log(trials.stop) / helpers))
    bound = one_run + (1 + float(trials.shape)) * extra + _log_mean(trials) / (orders - 1)
    return raised(np.maximum(bound, 0.0))


def _poisson(
    event: SelectedFromRepeats, trials: PoissonTrials, orders: Floats, one_run: Floats, relation: Relation
) -> Floats:
    """D_α + μ·δ(ln(α/(α−1))) + ln(μ)/(α−1) (Papernot & Steinke 2022, Theorem 6).

    The outcome of no trial at all is added to the moment, which their statement leaves out.
    """
    table = profile_table(event.event, relation)
    # α/(α−1) rounded down: the theorem asks for an ε that is no larger.
    deltas = table.delta(np.log1p(1 / (orders - 1)) * (1 - _LOG_MARGIN))
    moment = (orders - 1) * (one_run + float(trials.mean) * deltas) + _log_mean(trials)
    return _from_moment(trials, orders, moment)


def _by_pairs(event: SelectedFromRepeats, orders: Floats, one_run: Floats, relation: Relation) -> Floats:
    """ln of the largest f′(F)^α f′(F′)^{1−α}, added to (α−1)·D_α (docs/proofs/selection.md)."""
    better, worse = _selection(event.event, event.trials, relation).log_pairs
    growth = np.array([float(np.max(order * better - (order - 1) * worse)) for order in orders])
    with np.errstate(invalid="ignore"):
        return _from_moment(event.trials, orders, (orders - 1) * one_run + growth)


def _from_moment(trials: Trials, orders: Floats, moment: Floats) -> Floats:
    """D_α from (α−1)·D_α of the runs; the outcome of no trial at all has the same probability on both neighbors."""
    total = np.logaddexp(laws.log_none(trials), moment)
    return raised(np.maximum(total + _LOG_MARGIN * (1 + np.abs(moment)), 0.0) / (orders - 1))


def _log_mean(trials: Trials) -> float:
    mean = laws.log_mean(trials)
    return mean + _LOG_MARGIN * (1 + abs(mean))


@lru_cache(maxsize=64)
def _selection(event: Event, trials: Trials, relation: Relation) -> _Selection:
    return _Selection.of(profile_table(event, relation), trials)


@lru_cache(maxsize=64)
def _loss(event: Event, trials: Trials, relation: Relation) -> AtomLoss:
    return _selection(event, trials, relation).loss()


@dataclass(frozen=True, eq=False)
class _Selection:
    """One run's profile, and what selection makes of it.

    Attributes:
        table: the profile of one run.
        log_pairs: ln f′(F), rounded up, and ln f′(F′), rounded down, for pairs between which all others lie.
        shifts: the sⱼ.
        weights: the wⱼ.
    """

    table: ProfileTable
    log_pairs: tuple[Floats, Floats]
    shifts: Floats
    weights: Floats

    @classmethod
    def of(cls, table: ProfileTable, trials: Trials) -> _Selection:
        """Cut the range of u = 1 − F into cells. In each, F is at most that of its first end, and F′ at least that of
        its last end, so one line lies above those of all pairs in the cell.
        """
        even = laws.grid(trials)
        # The allowed pairs are their own mirror image, so 1 − T(1 − v) is the share that becomes v.
        ends = np.unique(np.concatenate((even, 1 - table.most_likely(1 - even))))
        ends = ends[(ends >= 0) & (ends <= 1)]
        better = laws.log_density(trials, ends[:-1])
        worse = laws.log_density(trials, table.most_likely(ends[1:]))
        better = better + _LOG_MARGIN * (1 + np.abs(better))
        worse = worse - _LOG_MARGIN * (1 + np.abs(worse))
        return cls(table, (better, worse), *_largest_line(better, worse))

    def delta(self, epsilons: Floats) -> Floats:
        """An upper bound on the selection's δ at each ε ≥ 0."""
        each = self.table.delta(epsilons[:, None] - self.shifts)
        total = np.sum(each * self.weights, axis=1) * (1 + _HULL_MARGIN)
        return np.asarray(np.minimum(1.0, total), dtype=np.float64)

    def loss(self) -> AtomLoss:
        """A pair of distributions with at least this profile."""
        finite = self.shifts[np.isfinite(self.shifts)]
        last = min(_LARGEST_EPSILON, float(self.table.epsilons[-1]) + max(0.0, float(np.max(finite, initial=0.0))))
        epsilons = np.linspace(0.0, last, _FIRST_POINTS)
        for _ in range(_ROUNDS):
            heights = np.log(np.maximum(self.delta(epsilons), _SMALL_DELTA))
            steep = np.flatnonzero(-np.diff(heights) > _LARGEST_FALL)
            if steep.size == 0:
                break
            epsilons = np.sort(np.append(epsilons, (epsilons[steep] + epsilons[steep + 1]) / 2))
        return profile_loss(epsilons, np.minimum.accumulate(self.delta(epsilons)))


def _largest_line(better: Floats, worse: Floats) -> tuple[Floats, Floats]:
    """Shifts and weights of the largest of the lines f′(F)·z − f′(F′) and 0.

    The largest line at z belongs to a corner of the lower convex hull of the points (f′(F), f′(F′)) and (0, 0), and
    changes where the hull's slope is z.
    """
    top = float(np.max(better))
    points = [(0.0, 0.0)]
    slopes = np.maximum(np.exp(better - top), _LEAST_SHARE)
    for a, b in sorted(zip(slopes.tolist(), np.exp(worse - top).tolist(), strict=True)):
        while len(points) > 1 and _above_chord(points[-2], points[-1], (a, b)):
            points.pop()
        if a > points[-1][0]:
            points.append((a, b))
    corners = np.array(points)
    weights = np.diff(corners[:, 0])
    kinks = np.diff(corners[:, 1]) / weights
    with np.errstate(divide="ignore"):
        shifts = -np.log(kinks) + _HULL_MARGIN
    return shifts, weights * math.exp(top) * (1 + _HULL_MARGIN)


def _above_chord(left: tuple[float, float], middle: tuple[float, float], right: tuple[float, float]) -> bool:
    (a0, b0), (a1, b1), (a2, b2) = left, middle, right
    return (b1 - b0) * (a2 - a0) >= (b2 - b0) * (a1 - a0)
