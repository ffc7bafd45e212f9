"""Audits of trainings: canaries in one run, and the noisy sum of a step.

A training runs too long to be repeated thousands of times. One run is enough for gross faults: many canaries, each
included by its own fair coin. `canary_gradients` looks into the training (white box), `canary_examples` at the final
model only (black box), and `audit_training` takes any training as a function. For small faults, `noisy_sum` audits one
step: its sum has Gaussian noise, and the test of μ sees a fifth of it missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.auditing._audit import audit
from discreet.auditing._replay import Pair
from discreet.auditing.scores_test import KINDS, of_scores
from discreet.auditing.targets import refuse_private
from discreet.auditing.verdict import Audit
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.mechanisms import observation
from discreet.mechanisms.sampling import samplers
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.neighbors import relation as as_relation

if TYPE_CHECKING:
    from discreet.learning import Plan

Booleans = NDArray[np.bool_]
Collate = Callable[[list[Any]], Any]


@observation.on_generated_data()
def audit_training(
    train: Callable[[Booleans], ArrayLike],
    canaries: int,
    claim: Event | Guarantee,
    *,
    alpha: float = 0.01,
    delta: float | None = None,
    estimator: str = "auto",
    relation: Relation | str = ADD_REMOVE,
) -> Audit:
    """Audit a training in one run.

    Args:
        train: a function that gets one bool for each canary, trains on the data and on the canaries that are True, and
            gives one score for each canary, high for those that seem to have been used. White box: the inner product of
            the canary's gradient with the noisy sums. Black box: minus the loss of the canary under the final model.
        canaries: how many canaries there are. They should be unlike the data and unlike each other.
        claim: what the training claims: the event of its plan, or its guarantee.
        alpha: the probability of reporting a violation where there is none.
        delta: the δ at which ε is stated; by default that of the claim.
        estimator: "one_run" (Steinke, Nasr & Jagielski 2023), "one_run_f" (Mahloujifar, Melis & Chaudhuri 2024), or
            "independent", which sees more and assumes that the scores of canaries are independent of each other.
        relation: which datasets are neighbors, for the price of an event.

    Guarantee: none: `train` sees public or generated data. The coins are drawn here, fair and independent, which is all
    that the first two estimators assume.
    """
    number = _check.integer("canaries", canaries, "each is a coin to guess", at_least=10)
    level = float(_check.delta(alpha, "alpha"))
    _check.one_of("estimator", estimator, KINDS, "they are for the scores of one run")
    included = samplers.uniform(2, number).astype(np.bool_)
    scores = np.asarray(train(included.copy()), dtype=np.float64)
    if scores.shape != (number,):
        raise _check.fail("train", f"give {number} scores", scores.shape, "one for each canary")
    return of_scores(scores, included, claim, estimator, level, delta, as_relation(relation))


def canary_gradients(
    plan: Plan,
    model: Any,
    loss: Any,
    data: Any,
    *,
    optimizer: Any,
    canaries: int = 1000,
    claim: Event | Guarantee | None = None,
    alpha: float = 0.01,
    estimator: str = "auto",
    persons: Any = None,
    collate: Collate | None = None,
    opposed: bool = False,
    compile: bool | None = False,
) -> Audit:
    """Audit a plan in one training that the auditor looks into: white box.

    A copy of the model is trained on the data and on canaries. A canary's gradient is as long as the clip norm and lies
    in a table that is added to the model, so it meets no other gradient. The score of a canary is how much likelier the
    noisy sums are if it was included: no other score tells more. Seen are faults of sampling, clipping and the scale of
    noise. A tensor of the model that has no noise is not seen: `noisy_sum` looks there.

    Args:
        plan: the plan; its `examples` should count the canaries, of which about half are included (all of them where
            one unit is replaced).
        model: the model; it is not changed.
        loss: as for `learning.train`.
        data: as for `learning.train`; public or generated.
        optimizer: the optimizer of `model`; it is not changed.
        canaries: how many canaries there are.
        claim: what is claimed; by default the plan's event.
        alpha: the probability of reporting a violation where there is none.
        estimator: as for `audit_training`. The scores of these canaries are independent if noise and batches are, so
            "independent" suits a plan that is not suspected of reusing its noise.
        persons: as for `learning.train`.
        collate: as for `learning.train`.
        opposed: put an example with the opposite gradient beside each canary, which finds code that clips sums of
            examples. It suits plans whose batches hold everybody.
        compile: as for `learning.train`.

    Guarantee: none: it is for public or generated data, and charges nobody.
    """
    from discreet.learning.canaries import gradient_scores

    refuse_private("data", data)

    def train(included: Booleans) -> ArrayLike:
        return gradient_scores(
            plan, model, loss, data, included,
            optimizer=optimizer, persons=persons, collate=collate, opposed=opposed, compile=compile,
        )  # fmt: skip

    return _of_plan(plan, train, canaries, claim, alpha, estimator)


def canary_examples(
    plan: Plan,
    model: Any,
    loss: Any,
    data: Any,
    canaries: Any,
    *,
    optimizer: Any,
    claim: Event | Guarantee | None = None,
    alpha: float = 0.01,
    estimator: str = "auto",
    persons: Any = None,
    collate: Collate | None = None,
    compile: bool | None = False,
) -> Audit:
    """Audit a plan in one training of which the auditor sees the final model only: black box.

    A copy of the model is trained on the data and on the canaries that a coin chose. The score of a canary is by how
    much its loss fell. The result depends on the canaries: good ones are unlike the data and unlike each other, such as
    examples with wrong labels.

    Args:
        plan: the plan; its `examples` should count the canaries, of which about half are included (all of them where
            one unit is replaced).
        model: the model; it is not changed.
        loss: as for `learning.train`.
        data: as for `learning.train`; public or generated.
        canaries: examples of the same kind as `data`.
        optimizer: the optimizer of `model`; it is not changed.
        claim: what is claimed; by default the plan's event.
        alpha: the probability of reporting a violation where there is none.
        estimator: as for `audit_training`. Canaries share the model, so "independent" is not offered.
        persons: as for `learning.train`.
        collate: as for `learning.train`.
        compile: as for `learning.train`.

    Guarantee: none: it is for public or generated data, and charges nobody.
    """
    from discreet.learning.canaries import example_scores
    from discreet.learning.data.records import Records

    refuse_private("data", data)
    if estimator == "independent":
        remedy = "a model tells about one canary what it learned from others; use one_run or one_run_f"
        raise _check.fail("estimator", "be one_run or one_run_f", estimator, remedy)

    def train(included: Booleans) -> ArrayLike:
        return example_scores(
            plan, model, loss, data, canaries, included,
            optimizer=optimizer, persons=persons, collate=collate, compile=compile,
        )  # fmt: skip

    return _of_plan(plan, train, Records(canaries, collate).size, claim, alpha, estimator)


def _of_plan(
    plan: Plan,
    train: Callable[[Booleans], ArrayLike],
    canaries: int,
    claim: Event | Guarantee | None,
    alpha: float,
    estimator: str,
) -> Audit:
    promise = plan.event if claim is None else claim
    return audit_training(
        train, canaries, promise, alpha=alpha, delta=plan.delta, estimator=estimator, relation=plan.relation
    )


def noisy_sum(
    plan: Plan,
    model: Any,
    loss: Any,
    pair: Pair | tuple[Any, Any],
    *,
    claim: Event | Guarantee | None = None,
    alpha: float = 1e-6,
    max_samples: int = 2_000,
    distance: int = 1,
    persons: tuple[Any, Any] = (None, None),
    collate: Collate | None = None,
    compile: bool | None = False,
    autocast: Any = None,
) -> Audit:
    """Audit one step of a plan with Gaussian noise by the test of μ.

    The step is repeated at the same parameters, with everybody in its batch, on two datasets that differ in one unit.
    A good pair differs in a unit whose gradient is longer than the clip norm and opposite to the others. At a noise
    multiplier of 1, two thousand steps on each dataset see a fifth of missing noise if the datasets differ in ten such
    units, and half of it if they differ in one.

    Args:
        plan: the plan; its clipping and noise are tested, and its sampler is not.
        model: the model; it is not changed.
        loss: as for `learning.train`.
        pair: two datasets that are neighbors under the plan's relation; public or generated.
        claim: what one step claims; by default the plan's Gaussian.
        alpha: the probability of reporting a violation where there is none.
        max_samples: the steps on each dataset.
        distance: how many units the datasets differ in. A group shows a fault with fewer steps.
        persons: the persons of each dataset, as for `learning.train`.
        collate: as for `learning.train`.
        compile: as for `learning.train`.
        autocast: as for `learning.train`.

    Guarantee: none: it is for public or generated data, and charges nobody.
    """
    from discreet.learning.canaries import noisy_sums

    sides = (pair.first, pair.second) if isinstance(pair, Pair) else pair
    for side in sides:
        refuse_private("pair", side)
    if plan.noise.name != "gaussian":
        raise _check.fail("plan.noise", "be Gaussian", plan.noise.name, "the test of μ is for normal noise; use audit")
    draw = noisy_sums(plan, model, loss, sides, persons=persons, collate=collate, compile=compile, autocast=autocast)
    promise = plan.noise.event if claim is None else claim
    return audit(
        draw,
        promise,
        [(0, 1)],
        alpha=alpha,
        max_samples=max_samples,
        estimator="mu",
        relation=plan.relation,
        distance=distance,
        vectorized=True,
    )
