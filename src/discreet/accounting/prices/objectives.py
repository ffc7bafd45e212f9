"""The minimizer of a noisy objective: a Gaussian loss folded at 0, and a constant for the change of volume.

docs/proofs/convex-minima.md bounds the loss in both directions by κ + μ|Z| + μ²/2, with Z ~ N(0, 1), μ = L/σ and
κ = ln(1 + β/Λ). δ(ε) and the Rényi divergences of that variable are what is charged; they agree with Redberg, Koskela
& Wang 2023 (arXiv 2401.00583), who derive them for linear models.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from discreet.accounting.closed_forms import gaussian_delta, least
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.from_profile import profile_loss
from discreet.accounting.losses.of_events import View
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.refusal import unknown
from discreet.events import PerturbedObjective
from discreet.neighbors import REPLACE_ONE, Relation
from discreet.numeric.rounding import Floats, down, exact, float_up, infinite, raised, reciprocal_up, up

# The profile is tabulated up to κ + `_REACH` μ + μ²/2, where δ is below 1e-28, at this many ε.
_REACH, _POINTS = 11.5, 600
# Beyond this ε no float holds e^ε; the mass there counts as infinite loss.
_LARGEST_EPSILON = 600.0
# Absolute error of ln Φ(x) + ln 2, whose terms are at most ln 2 in size for x ≥ 0: some 20 units of round-off.
_LOG_ERROR = 4e-15
# Roundings that a Rényi divergence is raised by: its ten or so operations, log_ndtr among them, err by far less.
_RDP_ROUNDINGS = 256.0


def objective_delta(epsilon: float, noise_multiplier: float, curvature: float) -> float:
    """An upper bound on δ(ε): E[(1 − e^{ε−κ−μ²/2−μ|Z|})₊].

    With e = ε − κ it is 2·δ_Gauss(e) for e ≥ μ²/2, and 1 − 2e^e Φ(−μ) below.

    >>> objective_delta(1.0, 4.0, 0.0) < 2.001 * gaussian_delta(1.0, 0.25)
    True
    """
    mu, kappa = reciprocal_up(noise_multiplier), volume_change(curvature)
    beyond = down(epsilon - kappa) - 4 * math.ulp(max(epsilon, kappa))  # the subtraction may cancel
    if beyond >= up(mu * mu / 2):
        return min(1.0, up(2 * gaussian_delta(beyond, mu)))
    return min(1.0, max(0.0, up(1 - down(2 * math.exp(down(beyond)) * float(special.ndtr(-mu))))))


def objective_multiplier(epsilon: float, delta: float, curvature: float) -> float:
    """The smallest σ/L with δ(ε) ≤ `delta`; ε must exceed κ = ln(1 + β/Λ), which no noise lowers."""
    return least(lambda multiplier: objective_delta(epsilon, multiplier, curvature) <= delta)


def volume_change(curvature: float) -> float:
    """κ = ln(1 + β/Λ), rounded up."""
    return up(math.log1p(float_up(exact(curvature)))) if curvature > 0 else 0.0


class PerturbedObjectivePrice(EventPrices):
    """The price of `PerturbedObjective`, when a unit is added or removed."""

    has_losses = True

    def losses(self, event: PerturbedObjective, view: View) -> Losses:
        _check_relation(event, view.relation)
        if not view.upper or _nothing_lost(event):  # from below nothing is known: data may have no minimizer to move
            return Losses()
        epsilons, deltas = _table(event)
        return Losses(others=((profile_loss(epsilons, deltas), 1),), exact=False)

    def pure(self, event: PerturbedObjective, relation: Relation) -> float:
        _check_relation(event, relation)
        return 0.0 if _nothing_lost(event) else math.inf

    def zcdp(self, event: PerturbedObjective, relation: Relation) -> float:
        """κ + μ√(2/π) + μ²/2: the largest D_α/α, which is reached as α → 1 (docs/proofs/convex-minima.md)."""
        _check_relation(event, relation)
        mu = reciprocal_up(event.noise_multiplier)
        return up(volume_change(event.curvature) + mu * math.sqrt(2 / math.pi) + mu * mu / 2)

    def rdp(self, event: PerturbedObjective, orders: Floats, relation: Relation) -> Floats:
        """κ + αμ²/2 + ln(2Φ((α − 1)μ))/(α − 1)."""
        _check_relation(event, relation)
        mu, kappa = reciprocal_up(event.noise_multiplier), volume_change(event.curvature)
        with np.errstate(over="ignore"):
            folded = (special.log_ndtr((orders - 1) * mu) + math.log(2)) / (orders - 1)
            # ln Φ + ln 2 cancels near 0; there ln(2Φ(x)) ≤ x√(2/π), by concavity.
            folded = np.minimum(np.maximum(folded, 0.0) + _LOG_ERROR / (orders - 1), mu * math.sqrt(2 / math.pi))
            return raised(kappa + orders * (mu * mu / 2) + folded, _RDP_ROUNDINGS)


def _nothing_lost(event: PerturbedObjective) -> bool:
    return infinite(event.noise_multiplier) and event.curvature <= 0


def _check_relation(event: PerturbedObjective, relation: Relation) -> None:
    if relation is REPLACE_ONE:
        raise unknown(
            event, "accounting", "its theorem adds or removes one unit; price it under ADD_REMOVE or ZERO_OUT"
        )


@lru_cache(maxsize=64)
def _table(event: PerturbedObjective) -> tuple[Floats, Floats]:
    """Upper bounds on δ at enough ε; δ is convex in e^ε, so chords between them are upper bounds too."""
    mu, kappa = reciprocal_up(event.noise_multiplier), volume_change(event.curvature)
    last = min(_LARGEST_EPSILON, kappa + mu * mu / 2 + _REACH * mu)
    start = min(kappa, last)
    epsilons = np.unique(np.concatenate(([0.0, start], np.linspace(start, last, _POINTS))))
    deltas = [objective_delta(float(epsilon), event.noise_multiplier, event.curvature) for epsilon in epsilons]
    return epsilons, np.minimum.accumulate(deltas)
