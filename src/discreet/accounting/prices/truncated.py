"""The price of Poisson batches that are cut to a largest size: that of Poisson batches, which may fail.

Truncation makes one unit's presence matter for others, but only if a batch overflows, which has probability
τ ≤ P[Bin(n, q) > B] for at most n units. So each step is within τ, in total variation, of a Poisson step, with the unit
and without it (Chua et al. 2024, arXiv 2411.04205, add T(1 + e^ε)τ to δ for T steps). As one event that composes with
all others: the step is dominated by a Poisson step that also fails with probability η = (τ(1 + Γ) + H(Γ))/(1 − q), for
any Γ ≥ 1, where H(Γ) is the δ of the Poisson step at ε = ln Γ (docs/proofs/truncated-batches.md).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from discreet.accounting.losses.collapse import ACCOUNTANT
from discreet.accounting.losses.composed import Losses
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.prices.reduced import losses_of
from discreet.events import Event, MayFail, PoissonSampled, TruncatedPoissonSampled
from discreet.neighbors import Relation
from discreet.numeric.rounding import UNIT, exact, float_up, up

if TYPE_CHECKING:
    from discreet.accounting.losses.of_events import View

# Values of ln Γ that are tried. Every one gives a bound, and between neighbors η changes by less than a factor of 2.
_LOG_RATIOS = tuple(0.5 * k for k in range(81))
# Roundings of ln C(n, m) q^m (1−q)^{n−m}, in units of the sizes of its terms.
_LOG_ROUNDINGS = 16
# Logarithms below this are probabilities that no float holds: they are rounded up to it.
_LEAST_LOG = -690.0
_REMEMBERED = 1024


class TruncatedPrice(EventPrices):
    """A step on a truncated Poisson batch."""

    has_losses = True

    def simpler(self, event: TruncatedPoissonSampled, relation: Relation, accountant: str) -> Event:
        poisson = PoissonSampled(event.rate, event.event)
        if event.rate <= 0 or event.largest >= event.units:
            return poisson
        return MayFail(_failure(event, relation), poisson)

    def losses(self, event: TruncatedPoissonSampled, view: View) -> Losses:
        """From below: a dataset with few units never overflows, so its batches are Poisson batches."""
        if view.upper:
            return losses_of(self.simpler(event, view.relation, ACCOUNTANT), event, view)
        return losses_of(PoissonSampled(event.rate, event.event), event, view)


@lru_cache(maxsize=_REMEMBERED)
def _failure(event: TruncatedPoissonSampled, relation: Relation) -> float:
    """η, rounded up."""
    from discreet.accounting.tight import delta

    overflow = overflow_probability(event.units, event.rate, event.largest)
    stays = 1 - float_up(exact(event.rate))
    if overflow >= 1 or stays <= 0:
        return 1.0
    poisson = PoissonSampled(event.rate, event.event)
    best = 1.0
    for log_ratio in _LOG_RATIOS:
        truncated = up(overflow * up(1 + math.exp(log_ratio)))
        if truncated >= best * stays:
            break  # the first term grows with Γ
        beyond = delta(poisson, log_ratio, relation).upper
        best = min(best, up(up(truncated + beyond) / stays))
    return best


def overflow_probability(units: int, rate: float, largest: int) -> float:
    """P[Bin(n, q) > B], rounded up, for 0 < q < 1: its first term, and a geometric series for the rest.

    The ratio of consecutive terms, (n − k)q/((k + 1)(1 − q)), falls with k, so the terms from m = B + 1 on sum to at
    most the first over 1 − r, with r the ratio at m.

    >>> overflow_probability(10, 0.5, 8) >= 11 / 1024
    True
    >>> overflow_probability(100, 0.01, 50) < 1e-70
    True
    """
    first = largest + 1
    q = float_up(exact(rate))
    if first > units:
        return 0.0
    if q >= 1:
        return 1.0
    ratio = up((units - first) * q / ((first + 1) * (1 - q)))
    if ratio >= 1:
        return 1.0
    terms = (
        math.lgamma(units + 1),
        -math.lgamma(first + 1),
        -math.lgamma(units - first + 1),
        first * math.log(q),
        (units - first) * math.log1p(-q),
        -math.log1p(-ratio),
    )
    logarithm = math.fsum(terms) + _LOG_ROUNDINGS * UNIT * math.fsum(abs(term) for term in terms)
    return min(1.0, up(math.exp(max(logarithm, _LEAST_LOG))))
