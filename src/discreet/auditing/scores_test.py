"""The test of a claim by the scores of one run with many canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check, accounting
from discreet.auditing import one_run, witnesses
from discreet.auditing.claims import Claim, claimed
from discreet.auditing.pair_test import drawn, least_missing
from discreet.auditing.verdict import ASSUMES, Audit, Power, Witness
from discreet.events import Event
from discreet.guarantees import Guarantee

# Power is stated with this probability.
_PROBABILITY = 0.999


def of_scores(
    scores: NDArray[Any],
    included: Any,
    claim: Event | Guarantee | None,
    estimator: str,
    alpha: float,
    delta: float | None,
) -> Audit:
    """One run with many canaries; α is divided among the numbers of guesses that are tried."""
    kinds = ("auto", "one_run", "one_run_f")
    _check.one_of("estimator", estimator, kinds, "scores of one run are tested by one_run or one_run_f")
    if claim is None:
        raise _check.fail("claim", "be given", None, "scores do not say what was promised")
    promise = claimed(claim, delta=delta)
    kind = "one_run_f" if estimator == "auto" else estimator
    attempts = one_run.attempts(scores, included)
    level = alpha / len(attempts)
    refuted = [_refuted(guesses, promise, kind, level) for guesses in attempts]
    if kind == "one_run":
        lower = max(guesses.epsilon_lower(promise.delta, level) for guesses in attempts)
    else:
        lower = one_run.epsilon_of(max(guesses.mu_lower(level) for guesses in attempts), promise.delta)
    place = refuted.index(True) if True in refuted else int(np.argmax([each.right / each.made for each in attempts]))
    numbers, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
    top = float(np.sort(numbers)[-attempts[place].made // 2])
    event = witnesses.Distinguisher(witnesses.Scored("score", lambda rows: rows[:, 0]), top, False, (), 0.5, 0.0)
    outside, inside = numbers[~coins][:, None], numbers[coins][:, None]
    alarms = event.count(outside)
    rate = np.array([alarms / max(1, len(outside))])
    words = f"{event} (and {attempts[place].right:,} of {attempts[place].made:,} guesses right)"
    allowed = max(float(curve.power(rate)[0]) for curve in promise.forward)
    found = Witness(
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
        witness=found,
        epsilon_lower=lower,
        delta=promise.delta,
        power=Power(_missing(promise, kind, len(numbers), level), _PROBABILITY),
        alpha=alpha,
        samples=1,
        pairs=1,
        estimator=kind,
        assumes=ASSUMES[kind],
        curves=drawn(promise, event, outside, inside),
    )


def _refuted(guesses: one_run.Guesses, promise: Claim, kind: str, level: float) -> bool:
    if kind == "one_run_f":
        # A guess is about one coin, whichever side it shows: the claim holds in both directions.
        return all(guesses.refutes(curve, level) for curve in (*promise.forward, *promise.backward))
    return guesses.p_value(_epsilon(promise), promise.delta) <= level


def _epsilon(promise: Claim) -> float:
    """The ε that the claim has at its δ."""
    if isinstance(promise.promise, Event):
        return float(accounting.epsilon(promise.promise, delta=promise.delta).upper)
    lines = [(curve.slopes, curve.intercepts) for curve in promise.forward]
    return max(float(np.log(np.min(slopes[intercepts <= promise.delta * (1 + 1e-9)]))) for slopes, intercepts in lines)


def _missing(promise: Claim, kind: str, canaries: int, level: float) -> float | None:
    """The least share of missing noise that ideal canaries would have shown, if noise is Gaussian."""
    mu = min(curve.largest_mu() for curve in (*promise.forward, *promise.backward))
    if not 0 < mu < np.inf:
        return None

    def seen(missing: float) -> bool:
        expected = one_run.expected_attempts(canaries, mu / (1 - missing), _PROBABILITY)
        return any(_refuted(guesses, promise, kind, level) for guesses in expected)

    return least_missing(seen)
