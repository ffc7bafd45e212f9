"""The audit of a claim: look for an event that neighbors produce more differently than the claim allows.

1. Many pairs are screened with a few runs each; the most promising one is tested (the test uses new runs).
2. A pilot, the first runs of the pair, chooses the event; the other runs test it. So nothing is chosen and tested on
   the same runs.
3. The test is repeated at a few sizes, each with its part of α, so that a gross violation is found early.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from discreet import _check
from discreet.auditing import targets, witnesses
from discreet.auditing._replay import Pair
from discreet.auditing.claims import claimed
from discreet.auditing.pair_test import PairTest
from discreet.auditing.scores_test import of_scores
from discreet.auditing.search_neighbors import neighboring_values
from discreet.auditing.targets import AttackerAccess
from discreet.auditing.verdict import ASSUMES, Audit
from discreet.bounded import Bounded
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.mechanisms import observation
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

Estimator = Literal["auto", "threshold", "histogram", "mu", "one_run", "one_run_f", "independent"]

# Runs on each dataset of each pair, if there are several pairs to choose from.
_SCREENING = 500


@observation.on_generated_data()
def audit(
    target: Any,
    claim: Event | Guarantee | None = None,
    neighbors: Any = None,
    *,
    access: AttackerAccess = "black_box",
    alpha: float = 1e-6,
    max_samples: int = 20_000,
    estimator: Estimator = "auto",
    relation: Relation | str | None = None,
    distance: int = 1,
    delta: float | None = None,
    vectorized: bool = False,
) -> Audit:
    """Try to refute a claim, and say how hard one tried.

    Args:
        target: a mechanism; a local randomizer; a function of a dataset, such as a question to a private table that it
            builds; or an array with one score for each canary of a single run.
        claim: the event that was run or the guarantee that is promised. Mechanisms know theirs.
        neighbors: pairs of neighboring datasets (what the target takes); for an array of scores, which canaries were
            included. `neighboring_values`, `neighboring_numbers` and `neighboring_tables` look for pairs. For a
            mechanism that adds noise, a single `Bounded` stands for the pairs around it.
        access: "black_box" runs the target once for each output; "white_box" runs a pipeline once on each dataset and
            draws again from the mechanisms that it reaches, which is much faster.
        alpha: the probability of reporting a violation where there is none.
        max_samples: the most runs on each dataset of the pair that is tested.
        estimator: "threshold" or "histogram" (by default what fits the outputs) assume nothing about them; "mu"
            assumes normal outputs and needs fewer runs; "one_run", "one_run_f" and "independent" are for an array of
            scores.
        relation: which datasets are neighbors, for the price of an event; by default what the target protects.
        distance: how many units the datasets of each pair differ in. A group shows a fault with fewer runs.
        delta: the δ at which ε is stated; by default that of the claim.
        vectorized: the target takes a dataset and a number of runs, and gives that many outputs.

    Guarantee: none. An audit runs its target many times and quotes outputs, so it is for public or generated data. It
    refuses what is behind an account: a target that charges one must open it itself, in a temporary ledger.

    >>> import discreet as dp
    >>> from discreet.auditing import audit, neighboring_values
    >>> count = dp.queries.count([0] * 10)
    >>> audit(dp.mechanisms.Laplace(1), neighbors=count, max_samples=3000).violated
    False
    """
    level = float(_check.delta(alpha, "alpha"))
    _check.integer("distance", distance, "it is the number of units that differ")
    if isinstance(target, np.ndarray):
        wanted = ADD_REMOVE if relation is None else as_relation(relation)
        return of_scores(target, neighbors, claim, estimator, level, delta, wanted)
    most = _check.integer("max_samples", max_samples, "it is the number of runs on each dataset", at_least=500)
    _check.one_of("estimator", estimator, ("auto", "threshold", "histogram", "mu"), "see ASSUMES for what each assumes")
    opened = targets.opened(target, access, vectorized=vectorized)
    pairs = _pairs(neighbors, relation, distance)
    promise: Event | Guarantee | None = claim
    if promise is None and opened.event is not None:
        promise = opened.event(pairs[0].first)
    if promise is None:
        raise _check.fail("claim", "be given", None, "a function does not say what it promises")
    wanted = _relation(relation, opened, pairs[0], promise)
    spent = 0
    claims = {
        grows: claimed(promise, relation=wanted, grows=grows, distance=distance, delta=delta)
        for grows in {pair.grows for pair in pairs}
    }
    sources = [opened.on(pair) for pair in pairs]
    number = 0
    if len(pairs) > 1:
        promising = []
        for source in sources:
            both = source.rows(0, _SCREENING), source.rows(1, _SCREENING)
            promising.append(witnesses.chosen(*both, claims[source.pair.grows], most).merit)
            spent += 2 * _SCREENING
        number = int(np.argmax(promising))
    tested = PairTest(number, sources[number], claims[pairs[number].grows], estimator, distance)
    outcome = tested.mu(most, level) if estimator == "mu" else tested.events(most, level)
    return Audit(
        claim=str(claims[pairs[number].grows]),
        delta=claims[pairs[number].grows].delta,
        alpha=level,
        samples=spent + outcome.runs,
        pairs=len(pairs),
        estimator=outcome.estimator,
        assumes=ASSUMES[outcome.estimator],
        violated=outcome.violated,
        witness=outcome.witness,
        epsilon_lower=outcome.epsilon_lower,
        power=outcome.power,
        curves=outcome.curves,
    )


def _pairs(neighbors: Any, relation: Relation | str | None, distance: int) -> list[Pair]:
    if isinstance(neighbors, Bounded):
        return neighboring_values(neighbors, relation, distance=distance)
    if isinstance(neighbors, Pair):
        neighbors = [neighbors]
    if isinstance(neighbors, tuple) and len(neighbors) == 2 and not isinstance(neighbors[0], Pair | tuple):
        neighbors = [neighbors]
    remedy = "give pairs of datasets, or search them with neighboring_numbers, neighboring_tables or neighboring_values"
    if not isinstance(neighbors, Iterable):
        raise _check.fail("neighbors", "be pairs of datasets", neighbors, remedy)
    pairs = [given if isinstance(given, Pair) else Pair(*given) for given in neighbors]
    if not pairs:
        raise _check.fail("neighbors", "hold a pair of datasets", 0, remedy)
    for pair in pairs:
        targets.refuse_private("neighbors", pair.first)
        targets.refuse_private("neighbors", pair.second)
    return pairs


def _relation(
    given: Relation | str | None, opened: targets.AuditTarget, pair: Pair, promise: Event | Guarantee
) -> Relation:
    if given is not None:
        return as_relation(given)
    if isinstance(promise, Guarantee) and promise.protects is not None:
        return promise.protects.relation
    first = getattr(pair.first, "relation", None)
    return first if isinstance(first, Relation) else opened.relation
