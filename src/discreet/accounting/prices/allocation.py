"""The price of random allocation: each unit is in `selected` of `steps` batches, which it draws for itself.

Proofs: docs/proofs/random-allocation.md. For one batch of t, the pair is P = (1/t) Σᵢ (P₁ in step i, Q₁ elsewhere)
against Q₁ᵗ (Feldman & Shenfeld 2025, arXiv 2502.08202; Chua et al. 2024, arXiv 2412.16802, who call it balls and bins).
Its loss is computed from both sides by `losses.averages`, without simulation. For k of t batches, a uniformly random
set of k is one batch from each block of a random partition into k blocks; with the partition known, the price is that
of k allocations of one batch among ⌊t/k⌋ or ⌈t/k⌉ (compare arXiv 2502.08202, Section 3). This is exact for k = 1 only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.accounting.forms import sampled_renyi
from discreet.accounting.losses import averages
from discreet.accounting.losses.collapse import ACCOUNTANT, collapse
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import ContinuousLoss, GaussianShift
from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.prices.reduced import losses_of
from discreet.accounting.refusal import unknown
from discreet.errors import UnknownEvent
from discreet.events import Event, PoissonSampled, RandomlyAllocated, Repeated
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation
from discreet.numeric.rounding import UNIT, Floats, exp_minus_linear, log_expm1, raised

if TYPE_CHECKING:
    from discreet.accounting.losses.of_events import View

# Laws that are remembered: a plan asks for the same one from both directions, and after each block of steps.
_REMEMBERED = 64
# An infinite loss with more than this probability has no place in `averages`, which sums finite ratios.
_NEVER = 1e-250
# Moments of an average are summed up to this order; above it the unallocated divergence is the bound.
_MOST_ORDER = 256
# Relative margin of one sum of `_MOST_ORDER` moments, whose binomial weights err by the size of their logarithms.
_MOMENT_MARGIN = 4096 * UNIT
# Exponents beyond this are summed as logarithms.
_LARGE = 50.0
# Exponents are cut off here: e^709 is the largest float.
_LARGEST_EXPONENT = 700.0
# Relative margin for the round-off of a sum over a law, which has at most some thousand terms.
_SUM_ERROR = 1e-9


class AllocationPrice(EventPrices):
    """Random allocation. What knows only additive prices charges `selected` runs of the event on known batches."""

    has_losses = True

    def simpler(self, event: RandomlyAllocated, relation: Relation, accountant: str) -> Event:
        """`selected` runs of the event: revealing which batches a unit is in can only cost more (convexity)."""
        return Repeated(event.event, event.selected)

    def losses(self, event: RandomlyAllocated, view: View) -> Losses:
        if view.relation is REPLACE_ONE:
            return self._replaced(event, view)
        try:
            return self._drawn(event, view)
        except OverflowError:  # with so little noise nothing is hidden, and nothing is lost by taking batches as known
            return losses_of(self.simpler(event, view.relation, ACCOUNTANT), event, view) if view.upper else Losses()

    def _drawn(self, event: RandomlyAllocated, view: View) -> Losses:
        if view.upper:
            total = Losses(exact=False)
            for steps, count in _blocks(event):
                total += _averaged(event, steps, view).times(count)
            return total
        if event.selected == 1:
            return _averaged(event, event.steps, view)
        # From below: a unit whose data matter in one step alone is in that step's batch with probability k/t.
        rate = event.selected / event.steps
        return losses_of(PoissonSampled(rate, event.event), event, view)

    def _replaced(self, event: RandomlyAllocated, view: View) -> Losses:
        """Under replace-one both neighbors have the unit in the same batches, which are taken as known."""
        if not view.upper:
            return Losses(exact=False)
        return losses_of(self.simpler(event, view.relation, ACCOUNTANT), event, view)

    def rdp(self, event: RandomlyAllocated, orders: Floats, relation: Relation) -> Floats | None:
        from discreet.accounting.forms.rdp import rdp

        simpler_curve = np.array(rdp(self.simpler(event, relation, "RDP accounting"), tuple(orders), relation).epsilons)
        if (
            relation is REPLACE_ONE
            or event.selected == event.steps
            or not np.any(np.isfinite(simpler_curve) & (simpler_curve > 0))
        ):
            return simpler_curve
        amplified = np.zeros_like(orders)
        try:
            for steps, count in _blocks(event):
                amplified += count * _renyi(event, steps, orders)
        except (UnknownEvent, OverflowError):
            return simpler_curve
        return np.asarray(np.minimum(simpler_curve, raised(amplified)))


def _blocks(event: RandomlyAllocated) -> Iterator[tuple[int, int]]:
    """The sizes of the blocks of a partition into `selected` nearly equal ones, with how many there are of each."""
    size, larger = divmod(event.steps, event.selected)
    yield size, event.selected - larger
    if larger:
        yield size + 1, larger


def _step_loss(event: RandomlyAllocated) -> PrivacyLoss | None:
    """The loss of one step on a batch that contains the unit; None where it reveals nothing."""
    from discreet.accounting.losses import of_events

    ways = collapse(event.event, ADD_REMOVE)
    if len(ways) != 1 or any(leaf.parts() for leaf, _ in ways[0]):
        raise unknown(event, ACCOUNTANT, "the event within samples again, or has parts that run in parallel")
    inner = of_events.losses(ways[0], of_events.View(ADD_REMOVE, adding=False, upper=True, opposite=0))
    if inner.nothing_lost:
        return None
    match inner.for_grid(adding=False):
        case [(loss, 1)] if inner.exact and inner.concentrated == 0 and inner.inflation == 0 and loss.infinite < _NEVER:
            return loss
    raise unknown(event, ACCOUNTANT, "its step has no single loss that is known exactly; Rényi DP may price it")


@lru_cache(maxsize=_REMEMBERED)
def _law(step: Event, steps: int, upper: bool) -> averages.RatioLaw | None:
    loss = _step_loss(RandomlyAllocated(steps, 1, step))
    return None if loss is None else averages.average(loss, steps, upper=upper)


def _averaged(event: RandomlyAllocated, steps: int, view: View) -> Losses:
    if steps == 1:
        return losses_of(event.event, event, view)
    law = _law(event.event, steps, view.upper)
    if law is None:
        return Losses(exact=False)
    return Losses(others=((law.loss(adding=view.adding, upper=view.upper), 1),), exact=False)


# --- Rényi divergences


def _renyi(event: RandomlyAllocated, steps: int, orders: Floats) -> Floats:
    """The divergence of one batch among `steps`, the larger of its two directions; inf beyond `_MOST_ORDER`."""
    moments = _average_moments(event.event, steps)
    law = _law(event.event, steps, True)
    loss = _step_loss(event)
    assert law is not None
    assert loss is not None

    def both(order: float) -> float:
        if order > _MOST_ORDER:
            return math.inf
        removing = sampled_renyi.interpolated(order, lambda k: float(moments[k]))
        return max(removing, _toward_average(law, loss, order - 1)) / (order - 1)

    return raised(np.array([both(float(order)) for order in orders]))


@lru_cache(maxsize=_REMEMBERED)
def _average_moments(step: Event, steps: int) -> Floats:
    """ln E[Zᵏ] under Q for k = 0 … `_MOST_ORDER`, rounded up: (k − 1)·D_k of removal.

    With A_k and B_k the moments of averages over n and m steps, E[Zᵏ] of all n + m steps is
    Σ_j C(k,j) λʲ(1−λ)^{k−j} A_j B_{k−j} with λ = n/(n + m). The weights sum to 1 and no moment is below 1, so the
    excess over 1 is a sum of terms ≥ 0.
    """
    from discreet.accounting.forms.rdp import rdp

    k = np.arange(2, _MOST_ORDER + 1, dtype=np.float64)
    first_moments = np.concatenate((np.zeros(2), (k - 1) * np.array(rdp(step, tuple(k)).epsilons)))
    total, count = first_moments, 1
    for bit in f"{steps:b}"[1:]:
        total, count = _merged(total, count, total, count), 2 * count
        if bit == "1":
            total, count = _merged(total, count, first_moments, 1), count + 1
    return total


def _merged(left: Floats, left_count: int, right: Floats, right_count: int) -> Floats:
    log_left = math.log(left_count / (left_count + right_count))
    log_right = math.log(right_count / (left_count + right_count))
    order, j = np.arange(len(left))[:, None], np.arange(len(left))[None, :]
    rest = np.maximum(order - j, 0)
    factorials = special.gammaln(np.arange(len(left)) + 1.0)
    weights = factorials[order] - factorials[j] - factorials[rest] + j * log_left + rest * log_right
    terms = np.where(j <= order, weights + log_expm1(left[j] + right[rest]), -np.inf)
    largest = np.max(terms, axis=1)
    excess = np.full(len(left), -np.inf)
    some = np.isfinite(largest)
    excess[some] = largest[some] + np.log(np.sum(np.exp(terms[some] - largest[some, None]), axis=1))
    # ln(1 + e^x), where the margin exceeds what is left out above e^50.
    merged = np.where(excess > _LARGE, excess, np.log1p(np.exp(np.minimum(excess, _LARGE))))
    return np.asarray(np.where(np.isinf(left), np.inf, merged * (1 + _MOMENT_MARGIN)))


def _toward_average(law: averages.RatioLaw, loss: PrivacyLoss, power: float) -> float:
    """ln E[Z^{−s}] under Q for s > 0, rounded up: s·D_{s+1} of addition.

    As E[Z] = 1, E[Z^{−s}] − 1 = E[f(Z)] with f(z) = z^{−s} − 1 + s(z − 1) ≥ 0, a convex function, so the law from above
    bounds it. With l = ln z and h(x) = eˣ − 1 − x, f = h(−sl) + s·h(l). What the law lost on the side of P adds at most
    s·lost_p. What it lost on the side of Q adds at most E[Z^{−s}; lost] + s·lost_q.
    """
    ratio = np.log(law.values / law.count)
    exponent = -power * ratio
    near = np.abs(exponent) < _LARGE
    with np.errstate(over="ignore", divide="ignore"):
        far = np.exp(
            np.minimum(np.log(law.masses) + exponent, _LARGEST_EXPONENT)
        )  # f(z) < z^{−s} + s·z; s·z is added below
        terms = np.where(near, law.masses * exp_minus_linear(np.where(near, exponent, 0.0)), far)
        terms += law.masses * power * exp_minus_linear(ratio)
    excess = float(np.sum(terms)) + power * (law.lost_p + law.lost_q) + _lost_power(law, loss, power)
    # Round-off of the values moves f by at most its slope, s(z^{−s} + z) per relative error.
    excess += law.value_error * power * (2 + excess)
    return math.log1p(excess * (1 + 2 * law.mass_error + _SUM_ERROR)) if math.isfinite(excess) else math.inf


def _lost_power(law: averages.RatioLaw, loss: PrivacyLoss, power: float) -> float:
    """A bound on E[Z^{−s}] over what the law lost on the side of Q.

    A bounded loss has Z ≥ e^{low}. For Gaussian noise, Cauchy and Schwarz give √(lost·E[Z^{−2s}]), and an average is no
    less than the geometric mean: E[Z^{−2s}] ≤ E[Y^{−2s/t}]ᵗ = exp(s(1 + 2s/t)μ²).
    """
    if not loss.unbounded:
        exponent = math.log(law.lost_q) - power * loss.support(0.0)[0] if law.lost_q > 0 else -math.inf
    elif isinstance(loss, ContinuousLoss) and isinstance(loss.shift, GaussianShift):
        growth = power * (1 + 2 * power / law.count) * loss.shift.mu**2
        exponent = (math.log(law.lost_q) + growth) / 2
    else:
        return math.inf
    return math.exp(exponent) if exponent < _LARGEST_EXPONENT else math.inf
