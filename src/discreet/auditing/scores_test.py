"""The test of a claim by the scores of one run with many canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check, accounting
from discreet.auditing import one_run, witnesses
from discreet.auditing._replay import Pair
from discreet.auditing.claims import Claim, claimed
from discreet.auditing.counts import clopper_pearson
from discreet.auditing.outputs import Encoder
from discreet.auditing.pair_test import PairTest, drawn, least_missing
from discreet.auditing.targets import PairOutputs
from discreet.auditing.verdict import ASSUMES, Audit, Power, Witness
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.neighbors import ADD_REMOVE, Relation

Floats = NDArray[np.float64]

#: How the scores of one run are tested.
KINDS = ("auto", "one_run", "one_run_f", "independent")
# Power is stated with this probability.
_PROBABILITY = 0.999
# Scores on either side that independent canaries need: the first of them choose an event.
_LEAST_SCORES = 300
# One in this many scores chooses what is tested, since a fault can be of any kind.
_PILOT_SHARE = 4
# One in this many scores chooses the threshold of a bound on μ, among so many.
_CHOOSING_SHARE, _THRESHOLDS = 12, 65
# Standard errors that are taken off when a threshold is chosen: what the test will take off, and what the choosing
# scores may be off by, so that a threshold at which few of them lie is not chosen by chance.
_DOUBT, _CHANCE = 2.24, 3.4


def of_scores(
    scores: NDArray[Any],
    included: Any,
    claim: Event | Guarantee | None,
    estimator: str,
    alpha: float,
    delta: float | None,
    relation: Relation,
) -> Audit:
    """One run with many canaries; α is divided among the numbers of guesses that are tried, as the claim suggests."""
    _check.one_of("estimator", estimator, KINDS, "these are for the scores of one run")
    if claim is None:
        raise _check.fail("claim", "be given", None, "scores do not say what was promised")
    numbers, coins = one_run.checked(scores, included)
    if estimator == "independent":
        grows = relation is ADD_REMOVE
        return _independent(numbers, coins, claimed(claim, relation=relation, grows=grows, delta=delta), alpha)
    promise = claimed(claim, relation=relation, delta=delta)
    kind = "one_run_f" if estimator == "auto" else estimator

    def shown(guesses: one_run.Guesses, level: float) -> float:
        return guesses.epsilon_lower(promise.delta, level) if kind == "one_run" else guesses.mu_lower(level)

    shares, levels = one_run.levels(len(numbers), _mu(promise), alpha, shown)
    attempts = one_run.attempts(numbers, coins, shares)
    refuted = [
        _refuted(guesses, promise, kind, level, relation) for guesses, level in zip(attempts, levels, strict=True)
    ]
    lower = max(shown(guesses, level) for guesses, level in zip(attempts, levels, strict=True))
    if kind == "one_run_f":
        lower = one_run.epsilon_of(lower, promise.delta)
    strongest = (
        refuted.index(True) if True in refuted else int(np.argmax([each.right / each.made for each in attempts]))
    )
    top = float(np.sort(numbers)[-attempts[strongest].made // 2])
    event = witnesses.Distinguisher(witnesses.Scored("score", lambda rows: rows[:, 0]), top, False, (), 0.5, 0.0)
    outside, inside = numbers[~coins][:, None], numbers[coins][:, None]
    alarms = event.count(outside)
    rate = np.array([alarms / max(1, len(outside))])
    words = f"{event} (and {attempts[strongest].right:,} of {attempts[strongest].made:,} guesses right)"
    allowed = max(float(curve.power(rate)[0]) for curve in promise.forward)
    witness = Witness(
        pair=0,
        backward=False,
        event=words,
        false_alarms=(alarms, len(outside)),
        hits=(event.count(inside), len(inside)),
        allowed=allowed,
        p_value=alpha if True in refuted else 1.0,
    )
    return Audit(
        claim=str(promise),
        violated=True in refuted,
        witness=witness,
        epsilon_lower=lower,
        delta=promise.delta,
        power=Power(_missing(promise, kind, len(numbers), (shares, levels), relation), _PROBABILITY),
        alpha=alpha,
        samples=1,
        pairs=1,
        estimator=kind,
        assumes=ASSUMES[kind],
        curves=drawn(promise, event, outside, inside),
    )


def _independent(scores: Floats, coins: NDArray[np.bool_], promise: Claim, alpha: float) -> Audit:
    """Scores of canaries as outputs of independent runs: of the others on one dataset, of the included on the other."""
    sides = scores[~coins], scores[coins]
    runs = min(map(len, sides))
    if runs < _LEAST_SCORES:
        remedy = f"about {3 * _LEAST_SCORES} canaries are enough; one_run_f takes fewer"
        raise _check.fail("scores", f"be {_LEAST_SCORES} with and without each coin", runs, remedy)
    queues = [iter(side) for side in sides]

    def draw(side: int, count: int) -> Floats:
        return np.fromiter(queues[side], dtype=np.float64, count=count)

    source = PairOutputs(Pair(0, 1), draw, Encoder(), lambda outputs, pair: outputs)
    outcome = PairTest(0, source, promise, "threshold", 1, _PILOT_SHARE).events(runs, alpha)
    return Audit(
        claim=str(promise),
        violated=outcome.violated,
        witness=outcome.witness,
        epsilon_lower=one_run.epsilon_of(_mu_lower(*sides, alpha), promise.delta),
        delta=promise.delta,
        power=outcome.power,
        alpha=alpha,
        samples=1,
        pairs=1,
        estimator="independent",
        assumes=ASSUMES["independent"],
        curves=outcome.curves,
    )


def _mu_lower(outside: Floats, inside: Floats, alpha: float) -> float:
    """A lower bound on μ by the two rates at one threshold (Clopper & Pearson 1934), which the first scores chose."""
    pilots = [side[: len(side) // _CHOOSING_SHARE] for side in (outside, inside)]
    others = [side[len(side) // _CHOOSING_SHARE :] for side in (outside, inside)]
    thresholds = np.unique(np.quantile(np.concatenate(pilots), np.linspace(0, 1, _THRESHOLDS), method="nearest"))
    rates, hits = (
        (len(pilot) - np.searchsorted(np.sort(pilot), thresholds) + 0.5) / (len(pilot) + 1) for pilot in pilots
    )
    doubt, chance = (
        np.hypot(*(_spread(share, len(side)) for share, side in zip((rates, hits), sides, strict=True)))
        for sides in (others, pilots)
    )
    merit = special.ndtri(hits) - special.ndtri(rates) - _DOUBT * doubt - _CHANCE * chance
    best = thresholds[int(np.argmax(merit))]
    counts = [int(np.count_nonzero(other >= best)) for other in others]
    most = clopper_pearson(counts[0], len(others[0]), alpha / 2)[1]
    least = clopper_pearson(counts[1], len(others[1]), alpha / 2)[0]
    return max(0.0, float(special.ndtri(least) - special.ndtri(most)))


def _spread(share: Floats, runs: int) -> Floats:
    """The standard deviation of the normal quantile of a rate."""
    density = np.exp(-(special.ndtri(share) ** 2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(np.sqrt(share * (1 - share) / runs) / density)


def _refuted(guesses: one_run.Guesses, promise: Claim, kind: str, level: float, relation: Relation) -> bool:
    if kind == "one_run_f":
        # A guess is about one coin, whichever side it shows: the claim holds in both directions.
        return all(guesses.refutes(curve, level) for curve in (*promise.forward, *promise.backward))
    return guesses.p_value(_epsilon(promise, relation), promise.delta) <= level


def _epsilon(promise: Claim, relation: Relation) -> float:
    """The ε that the claim has at its δ."""
    if isinstance(promise.promise, Event):
        return float(accounting.epsilon(promise.promise, delta=promise.delta, relation=relation).upper)
    lines = [(curve.slopes, curve.intercepts) for curve in promise.forward]
    return max(float(np.log(np.min(slopes[intercepts <= promise.delta * (1 + 1e-9)]))) for slopes, intercepts in lines)


def _mu(promise: Claim) -> float:
    """The μ of the claim: of a Gaussian that stays within it."""
    return min(curve.largest_mu() for curve in (*promise.forward, *promise.backward))


def _missing(
    promise: Claim, kind: str, canaries: int, tried: tuple[list[float], list[float]], relation: Relation
) -> float | None:
    """The least share of missing noise that ideal canaries would have shown, if noise is Gaussian."""
    mu = _mu(promise)
    if not 0 < mu < np.inf:
        return None

    def seen(missing: float) -> bool:
        expected = one_run.expected_attempts(canaries, mu / (1 - missing), _PROBABILITY, tried[0])
        return any(
            _refuted(guesses, promise, kind, level, relation) for guesses, level in zip(expected, tried[1], strict=True)
        )

    return least_missing(seen)
