"""What a claim's own curve sees: 10% of missing noise, tested against three kinds of claims about one release.

- the event, whose whole certified trade-off curve is tested;
- one point (ε, δ) of it, at δ = 1e-5;
- a Gaussian stand-in: the μ-GDP with the same (ε, δ), or the least μ whose curve lies above that of the event.

All know the best event for their claim, so the claims alone are compared: runs on each dataset for 99.9% at one false
alarm in a million, by the normal approximation. A stand-in with the same (ε, δ) can lie below the true curve; then an
honest mechanism is called a violation, and the note says after how many runs. Each note also says what `audit` reports
with one and a half times as many runs as the event's own curve needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks._table import Row
from discreet import accounting, events
from discreet.accounting import closed_forms
from discreet.auditing import Pair, audit
from discreet.auditing.claims import Claim, Curve, claimed
from discreet.events import Event
from discreet.guarantees import GDP, ApproxDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Relation

ALPHA, POWER, DELTA = 1e-6, 0.999, 1e-5
DEVIATIONS = float(special.ndtri(POWER) - special.ndtri(ALPHA))
MISSING = 0.1
METRIC = "runs on each dataset to see 10% of missing noise"
Floats = NDArray[np.float64]
Rates = tuple[Floats, Floats]


@dataclass(frozen=True)
class Curved:
    """A mechanism on two neighbors.

    Attributes:
        name: the mechanism.
        event: what it claims.
        rates: the rates of its events on the smaller dataset and on the other, if noise is `share` of what is claimed.
        draw: its outputs, for a side and a number of runs.
        relation: which datasets are neighbors.
    """

    name: str
    event: Event
    rates: Callable[[float], Rates]
    draw: Callable[[float], Callable[[int, int], Floats]]
    relation: Relation = ADD_REMOVE


def laplace() -> Curved:
    """Noise of scale 1 on 0 or 1."""
    thresholds = np.linspace(-3.0, 8.0, 441)

    def rates(share: float) -> Rates:
        low, high = (np.exp(-np.abs(thresholds - shift) / share) / 2 for shift in (0.0, 1.0))
        return np.where(thresholds > 0, low, 1 - low), np.where(thresholds > 1, high, 1 - high)

    def draw(share: float) -> Callable[[int, int], Floats]:
        generator = np.random.default_rng()
        return lambda side, runs: side + generator.laplace(0.0, share, runs)

    return Curved("Laplace ε=1", events.Laplace(1.0), rates, draw)


def randomized_response() -> Curved:
    """One of four answers, the true one with odds of e^ε to 1 against each other one; less noise is a larger ε."""

    def chances(share: float) -> tuple[float, float]:
        odds = math.exp(1 / share)
        return odds / (odds + 3), 1 / (odds + 3)

    def rates(share: float) -> Rates:
        true, lie = chances(share)
        return np.array([lie]), np.array([true])

    def draw(share: float) -> Callable[[int, int], Floats]:
        generator, (true, lie) = np.random.default_rng(), chances(share)

        def answers(side: int, runs: int) -> Floats:
            weights = [true if answer == side else lie for answer in range(4)]
            return generator.choice(4, size=runs, p=weights).astype(np.float64)

        return answers

    event = events.RandomizedResponse(Fraction(1), 4)
    return Curved("randomized response ε=1, 4 answers", event, rates, draw, REPLACE_ONE)


def sampled_gaussian(rate: float, noise: float) -> Curved:
    """A unit that is drawn with probability `rate` and then moves the sum by 1; the whole Gaussian at rate 1."""
    thresholds = noise * np.linspace(-7.0, 7.0, 1401) + 0.5

    def rates(share: float) -> Rates:
        low = special.ndtr(-thresholds / (share * noise))
        return low, (1 - rate) * low + rate * special.ndtr((1 - thresholds) / (share * noise))

    def draw(share: float) -> Callable[[int, int], Floats]:
        generator = np.random.default_rng()

        def sums(side: int, runs: int) -> Floats:
            return side * (generator.random(runs) < rate) + generator.normal(0.0, share * noise, runs)

        return sums

    if rate == 1:
        return Curved("Gaussian (1, 1e-5)", events.Gaussian(noise), rates, draw)
    event = events.PoissonSampled(rate, events.Gaussian(noise))
    return Curved(f"Gaussian σ={noise:g} on a sample of {rate:.0%}", event, rates, draw)


def needed(rates: Rates, claim: Claim) -> float:
    """The runs that the best event of either direction needs to refute a claim; infinite if none can."""
    least = math.inf
    for backward in (False, True):
        below, above = rates[::-1] if backward else rates
        for low, high in ((below, above), (1 - below, 1 - above)):
            runs = np.max([_best_line(low, high, curve) for curve in claim.curves(backward=backward)], axis=0)
            least = min(least, float(runs.min()))
    return least


def _best_line(low: Floats, high: Floats, curve: Curve) -> Floats:
    """The runs that each event needs to refute a curve by the one of its lines that suits the event best."""
    excess = high[:, None] - low[:, None] * curve.slopes - curve.intercepts
    spread = np.sqrt((high * (1 - high))[:, None] + (low * (1 - low))[:, None] * curve.slopes**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        runs = np.where(excess > 1e-12, (DEVIATIONS * spread / excess) ** 2, np.inf)
    return np.asarray(runs.min(axis=1))


def least_mu(claim: Claim) -> float:
    """The least μ whose curve lies above those of the claim."""
    rates = special.expit(np.linspace(-12.0, 12.0, 20_001))
    power = np.max([curve.power(rates) for curve in (*claim.forward, *claim.backward)], axis=0)
    inside = power < 1 - 1e-9
    return float(np.max(special.ndtri(power[inside]) - special.ndtri(rates[inside])))


def curve_rows(*, quick: bool) -> list[Row]:
    """All claims about all mechanisms."""
    mechanisms = [
        laplace(),
        randomized_response(),
        sampled_gaussian(1.0, closed_forms.gaussian_noise_multiplier(1.0, DELTA)),
        sampled_gaussian(0.1, 1.0),
    ]
    return [row for mechanism in mechanisms for row in _rows(mechanism, quick=quick)]


def _rows(mechanism: Curved, *, quick: bool) -> list[Row]:
    weak, honest = mechanism.rates(1 - MISSING), mechanism.rates(1.0)
    grows = mechanism.relation is ADD_REMOVE
    own = claimed(mechanism.event, relation=mechanism.relation, grows=grows, delta=DELTA)
    epsilon = accounting.epsilon(mechanism.event, delta=DELTA, relation=mechanism.relation).upper
    same = 1 / closed_forms.gaussian_noise_multiplier(epsilon, DELTA)
    claims: list[tuple[str, Any]] = [
        (f"the point (ε, δ) = ({epsilon:.3g}, 1e-5)", ApproxDP(epsilon, DELTA)),
        (f"the Gaussian with this (ε, δ), μ = {same:.3g}", GDP(same)),
        (f"the least Gaussian above the curve, μ = {least_mu(own):.3g}", GDP(least_mu(own))),
    ]
    ours, rows = needed(weak, own), []
    size = int(1.5 * ours)
    seen = "" if quick else _audited(mechanism, mechanism.event, size)
    rows.append(Row(mechanism.name, METRIC, ours, "the event's own curve", ours, "lower", seen))
    for name, promise in claims:
        claim = claimed(promise, relation=mechanism.relation, delta=DELTA)
        alarm, theirs = needed(honest, claim), needed(weak, claim)
        if alarm < 1e9:
            note = f"below the curve: an honest mechanism is called a violation from {alarm:,.0f} runs on"
            rows.append(Row(mechanism.name, METRIC, ours, name, None, "lower", note))
            continue
        verdict = "no event refutes it" if math.isinf(theirs) else "" if quick else _audited(mechanism, promise, size)
        rows.append(Row(mechanism.name, METRIC, ours, name, theirs if theirs < math.inf else None, "lower", verdict))
    return rows


def _audited(mechanism: Curved, promise: Any, size: int) -> str:
    """What `audit` says of the mechanism with and without the fault."""
    verdicts = []
    for share in (1 - MISSING, 1.0):
        pair = [Pair(0, 1, grows=mechanism.relation is ADD_REMOVE)]
        report = audit(
            mechanism.draw(share), promise, pair, relation=mechanism.relation, max_samples=size, vectorized=True
        )
        verdicts.append("a violation" if report.violated else "none")
    return f"audit with {size:,} runs: {verdicts[0]}; of the honest one: {verdicts[1]}"
