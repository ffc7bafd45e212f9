"""Moments of a sampled Gaussian's loss up to a cut, by Gauss's rule on panels whose error is bounded.

As `quadrature`, but for u ≤ c only: E[e^{sL(u)}; u ≤ c] with u ~ N(0, 1). A trapezoidal rule is slow at such an end,
and Gauss's rule is not. On each panel the integrand is analytic in every ellipse around it on which |Im u| ≤ π/(2μ),
which bounds the error (docs/proofs/rare-jumps.md). Panels are narrow where the integrand turns fast, and end where it
has no weight left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet.accounting.losses.continuous import mixture_loss, normal
from discreet.accounting.methods.fourier.quadrature import QuadratureRule
from discreet.numeric.rounding import UNIT

Floats = NDArray[np.float64]

# Nodes of a panel, and ρ of its ellipse: ρ^{−2n} is 1e-39.
_NODES, _RHO = 32, 4.0
_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(_NODES)
# Half-axes of the ellipse around [−1, 1], and ln of the error over the largest value on it (docs/proofs/rare-jumps.md).
_ALONG, _ACROSS = (_RHO + 1 / _RHO) / 2, (_RHO - 1 / _RHO) / 2
_LOG_ERROR = math.log(8 * _RHO / (_RHO - 1)) - 2 * _NODES * math.log(_RHO)
# Half the width of a panel at most, how far ln |integrand| may change within that, and panels at most.
_WIDEST, _CHANGE, _MOST_PANELS = 0.6, 12.0, 400
# A panel is at most this many times as long as the one before, and gets shorter in such steps.
_LONGER, _SHORTER = 2.0, 0.8
# (1 + √2)/2, and room for the round-off of w(1 − w), as in `quadrature`.
_TURN, _SWING_ERROR = 1.2072, 1 + 1e-12
# The largest w(1 − w), at w = 1/2.
_MOST_SWING = 0.25
# Cells of the bound on what lies beyond the last panel, and a relative margin for the round-off of their sum.
_TAIL_CELLS, _TAIL_ERROR = 400, 1e-9
# Roundings of one node's term, next to those of its exponent: its weight, as numpy computes it, errs by up to 525.
_NODE_ROUNDINGS = 768
# `natural_fall`: the X of its proof, how far out its cells go, their number, and a relative margin for round-off.
_SWING, _FALL_REACH, _FALL_CELLS, _FALL_ERROR = 2.0, 8.0, 96, 1e-9
_ROOT = math.sqrt(2 * math.pi)
# e^709 is the largest float.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class CutGaussian:
    """A Poisson-sampled Gaussian, cut off at u = `end`; `reverse` if a unit is added."""

    rate: float
    mu: float
    end: float
    reverse: bool

    def order(self, tilt: float) -> float:
        """The s of E[e^{sL}] at a real tilt."""
        return -tilt if self.reverse else tilt + 1.0

    def loss(self, u: Floats) -> Floats:
        """L(u)."""
        return mixture_loss(self.mu * (u - self.mu / 2), self.rate)

    def place(self, loss: float) -> float:
        """The u of a loss; −inf below the least one."""
        grown = math.expm1(loss) + self.rate
        return math.log(grown / self.rate) / self.mu + self.mu / 2 if grown > 0 else -math.inf

    def share(self, u: Floats) -> Floats:
        """w(u) = q r/g, the probability that the unit was in the sample, given u."""
        return np.asarray(special.expit(self.mu * (u - self.mu / 2) + math.log(self.rate) - math.log1p(-self.rate)))


def certified(event: CutGaussian, tilt: float, reach: float, within: float) -> QuadratureRule | None:
    """A rule for frequencies up to `reach` that is good to about `within`; None where it takes too many panels."""
    s = event.order(tilt)
    low = min(-math.sqrt(max(0.0, -2 * math.log(within))), event.end) - 1.0
    high, above = _last(event, s, low, within)
    edges = _edges(event, s, reach, low, high)
    if edges is None:
        return None
    center, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    u = (center[:, None] + half[:, None] * _PLACES).ravel()
    base = (half[:, None] * _WEIGHTS).ravel() * np.exp(-u * u / 2) / _ROOT
    losses = event.loss(u)
    grown = np.expm1(np.minimum(s * losses, _LARGEST_EXPONENT))
    # E[e^{sL}; u ≤ c] = P(u ≤ c) + E[e^{sL} − 1; u ≤ c]: the second part is small at small rates, and keeps its digits.
    missing = float(special.ndtr(-event.end))
    change = float(base @ grown)
    total = 1.0 + change - missing
    if not (math.isfinite(total) and total > 0):
        return None
    below = float(special.ndtr(low)) * max(1.0, math.exp(min(_LARGEST_EXPONENT, s * math.log1p(-event.rate))))
    outside = above + below
    # What is left out changes the sums for s + iω, for s and for 0, and through the second one the whole ratio.
    panel_errors = _panel_errors(event, s, reach, center, half) + _panel_errors(event, 0.0, 0.0, center, half)
    moved = (4 * panel_errors + 8 * outside) / total
    weights = base * (1 + grown) / total
    sensitivity = np.abs(losses) + event.share(u) * (np.abs(event.mu * u) + event.mu**2)
    term = 2 * len(u) + _NODE_ROUNDINGS + 8 * u * u
    # Of ln E[e^{sL}]: each term of the sum errs relative to itself, and by its exponent's error.
    summed = float(base @ (np.abs(grown) * term + 8 * abs(s) * sensitivity * (1 + grown)))
    log_moment = math.log1p(change - missing)
    error = moved + UNIT * ((summed + 8 * missing + 2 * abs(change)) / total + 4 * abs(log_moment))
    each = weights * (UNIT * (term + 8 * abs(s) * sensitivity + 8 * np.abs(s * losses)))
    phase = float(np.sum(weights * sensitivity))
    roundings = (np.array([np.sum(each)]), np.array([each @ np.abs(losses)]), np.array([phase]))
    sign = -1.0 if event.reverse else 1.0
    return QuadratureRule(
        sign * losses[None, :],
        weights[None, :],
        np.array([log_moment]),
        np.array([error]),
        reach,
        np.array([moved]),
        roundings,
    )


def _last(event: CutGaussian, s: float, low: float, within: float) -> tuple[float, float]:
    """Where the panels end, and a bound on what max(1, e^{sL}) has between that and the cut."""
    edges = np.linspace(low, event.end, _TAIL_CELLS + 1)
    loss = np.maximum(s * event.loss(edges), 0.0)
    log_mass = np.maximum(loss[1:], loss[:-1]) + special.log_ndtr(-edges[:-1])
    mass = np.exp(np.minimum(log_mass, _LARGEST_EXPONENT))
    beyond = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    first = int(np.argmax(beyond <= within / 8))
    return float(edges[first]), float(beyond[first]) * (1 + _TAIL_ERROR)


def _edges(event: CutGaussian, s: float, reach: float, low: float, high: float) -> Floats | None:
    """Edges of panels from `low` to `high`; None where there would be too many."""
    edges = [low]
    widest = min(_WIDEST, math.pi / 2 / event.mu / _ACROSS)
    factor, offset = (abs(s) + _TURN * reach) * event.mu, math.log(event.rate) - math.log1p(-event.rate)
    while edges[-1] < high:
        start, half = edges[-1], min(widest, _LONGER * (edges[-1] - edges[-2]) / 2 if len(edges) > 1 else widest)
        # The integrand changes fastest at the right end of the ellipse.
        while True:
            log_odds = event.mu * (start + (1 + _ALONG) * half - event.mu / 2) + offset
            share = 1 / (1 + math.exp(-log_odds)) if log_odds > -_LARGEST_EXPONENT else 0.0
            if half * (abs(start) + 1 + factor * share) <= _CHANGE:
                break
            half *= _SHORTER
        edges.append(min(high, start + 2 * half))
        if len(edges) > _MOST_PANELS:
            return None
    return np.array(edges)


def _panel_errors(event: CutGaussian, s: float, reach: float, center: Floats, half: Floats) -> float:
    """A bound on the sum of all panels' errors for every |ω| ≤ `reach`."""
    along, across = _ALONG * half, _ACROSS * half
    left, right = center - along, center + along
    nearest = np.maximum(0.0, np.abs(center) - along)
    share = event.share(right)
    if s >= 0:
        modulus = s * event.loss(right)
    else:
        first = event.share(left)
        swing = np.maximum(first * (1 - first), share * (1 - share))
        swing = np.where((first < 0.5) & (share > 0.5), _MOST_SWING, swing) * _SWING_ERROR
        modulus = s * (event.loss(left) + np.log1p(-4 * swing * np.sin(event.mu * across / 2) ** 2) / 2)
    exponent = modulus - nearest**2 / 2 + across**2 / 2 + _TURN * reach * share * event.mu * across
    return float(np.sum(half / _ROOT * np.exp(np.minimum(exponent + _LOG_ERROR, _LARGEST_EXPONENT))))


def natural_fall(event: CutGaussian, tilt: float, log_moment: float, most: float) -> float:
    """A number a with |E[e^{iωL}]|² ≤ 1 − aω² for |ω| ≤ `most` under the tilt; `log_moment` is at least ln E[e^{sL}].

    |E[e^{iωL}]|² = E[cos ω(L − L′)] for two independent losses, and 1 − cos x ≥ x²(1 − cos X)/X² for |x| ≤ X. Only
    losses in an interval of length X/most are counted, and of these only how far apart their cells are.
    """
    s = event.order(tilt)
    bulk = np.linspace(-_FALL_REACH, min(event.end, _FALL_REACH), _FALL_CELLS)
    exponent = s * event.loss(bulk) - bulk * bulk / 2
    weight = np.cumsum(np.exp(exponent - np.max(exponent)))
    middle = float(event.loss(bulk[[int(np.searchsorted(weight, weight[-1] / 2))]])[0])
    begin, end = event.place(middle - _SWING / most / 2), min(event.place(middle + _SWING / most / 2), event.end)
    edges = np.linspace(max(begin, -_FALL_REACH), min(end, _FALL_REACH), _FALL_CELLS + 1)
    if not edges[0] < edges[-1]:
        return 0.0
    losses = event.loss(edges)
    least = np.minimum(s * losses[1:], s * losses[:-1])
    mass = normal(edges[:-1], edges[1:]) * np.exp(np.minimum(least - log_moment, 0.0))
    apart = np.maximum(losses[None, :-1] - losses[1:, None], 0.0)
    return 2 * float(mass @ apart**2 @ mass) * (1 - math.cos(_SWING)) / _SWING**2 * (1 - _FALL_ERROR)


def stacked(rules: list[QuadratureRule]) -> QuadratureRule:
    """Rules of several events as one; shorter ones are filled up with nodes without weight."""
    most = max(rule.losses.shape[1] for rule in rules)

    def filled(values: Floats) -> Floats:
        return np.pad(values, ((0, 0), (0, most - values.shape[1])))

    return QuadratureRule(
        np.concatenate([filled(rule.losses) for rule in rules]),
        np.concatenate([filled(rule.weights) for rule in rules]),
        np.concatenate([rule.log_moment for rule in rules]),
        np.concatenate([rule.error for rule in rules]),
        rules[0].reach,
        np.concatenate([rule.moved for rule in rules]),
        (
            np.concatenate([rule.roundings[0] for rule in rules]),
            np.concatenate([rule.roundings[1] for rule in rules]),
            np.concatenate([rule.roundings[2] for rule in rules]),
        ),
    )
