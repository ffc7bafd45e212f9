"""The sparse vector technique: ask many questions, and pay only for the few above a threshold."""

from __future__ import annotations

import os
import threading
from fractions import Fraction
from typing import Any

from discreet import _check, events, neighbors
from discreet.bounded import Bounded
from discreet.errors import Exhausted, InvalidSensitivity
from discreet.guarantees import Guarantee, PureDP
from discreet.mechanisms import observation
from discreet.mechanisms.protection import marked, require_bounded
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import Relation, Rows, Unit
from discreet.numeric.rounding import float_up, rounded_down, rounded_up
from discreet.release import Release


class SparseVector:
    """A run of above-threshold tests that ends after `max_answers` positive answers. It has state: one run, one event.

    With ε = ε₁ + ε₂ and c = `max_answers`, the threshold gets noise of scale Δ/ε₁ once, and each query fresh noise of
    scale 2cΔ/ε₂ (cΔ/ε₂ if all queries are monotone). Only the outcome of the comparison is released, never the noisy
    value.

    Privacy: ε-DP for the whole run, however many queries are below (Lyu, Su & Li 2017, Algorithm 1 and Theorem 2; the
    proof shifts the noise by whole multiples of Δ, so it holds for discrete noise as it stands). ε₁ : ε₂ is
    1 : (2c)^{2/3}, or 1 : c^{2/3} if monotone, their optimum (§4.2). Event: `SparseVector(ε, c)`, at creation.

    Error: with probability at least 1 − β, among k queries every answer is right for values further than
    8cΔ(ln k + ln(2c/β))/ε from the threshold, up to the split (Dwork & Roth 2014, Theorem 3.26).
    """

    def __init__(
        self,
        *,
        threshold: float,
        epsilon: float,
        max_answers: int = 1,
        sensitivity: float = 1,
        granularity: float | Fraction = 1,
        monotone: bool = False,
        relation: Relation | str = neighbors.ADD_REMOVE,
        unit: Unit | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        """Draw the threshold's noise.

        Args:
            threshold: queries at or above it, up to noise, answer True.
            epsilon: the cost of the whole run.
            max_answers: the number of positive answers after which the run ends.
            sensitivity: the largest sensitivity of any query of this run, in the queries' units.
            granularity: the step of the grid that all queries of this run lie on; 1 for counts.
            monotone: accept only queries that one unit moves in the same direction, such as counts, and add less noise.
                For add/remove and zero-out only; a query that is not known to be monotone is refused.
            relation: which neighbors to protect.
            unit: who is protected, one row by default; for people with many rows pass the queries' `bounded.unit`.
            insecure_seed: repeatable answers, for tests and teaching only.
        """
        self._threshold = _check.real("threshold", threshold, "queries are compared with it")
        total = rounded_down(_check.epsilon(epsilon))
        self._answers = _check.integer("max_answers", max_answers, "the run ends after this many positive answers")
        self._step = _check.positive("granularity", granularity, "it is the step of the queries' grid")
        reach = _check.positive("sensitivity", sensitivity, "it bounds every query of this run") / self._step
        if reach.denominator != 1:
            raise _check.fail("sensitivity", "be a multiple of granularity", sensitivity, "both describe the same grid")
        self._reach = int(reach)
        self._relation = neighbors.relation(relation)
        self._monotone = _check.one_of("monotone", monotone, (False, True), "it says which queries the run accepts")
        if self._monotone and self._relation is neighbors.REPLACE_ONE:
            raise _check.fail(
                "monotone", "be False under replace-one", True, "replacing a unit moves queries both ways"
            )
        self._direction = 0
        self._owner = os.getpid()
        self._unit: Unit = Rows() if unit is None else unit
        self._bits = entropy.bits(insecure_seed)
        self._lock = threading.Lock()
        self._positive = 0
        factor = self._answers * (1 if self._monotone else 2)
        share = Fraction(1) / (1 + Fraction(factor ** (2 / 3)).limit_denominator(1000))
        exact = events.SparseVector(total, self._answers)
        self._event, self._guarantee = marked(exact, PureDP(float_up(total)), self._unit, self._relation, insecure_seed)
        self._query_scale = rounded_up(factor * self._reach / (total * (1 - share)))
        noise = samplers.discrete_laplace(rounded_up(self._reach / (total * share)), 1, self._bits)
        self._noisy_threshold = self._threshold / self._step + int(noise[0])

    @property
    def event(self) -> events.Event:
        """The event of the whole run, charged from its start."""
        return self._event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole run."""
        return self._guarantee

    @property
    def answers_left(self) -> int:
        """How many more positive answers the run may give."""
        return self._answers - self._positive

    def above(self, bounded: Bounded) -> Release[bool]:
        """Whether the noisy query is at or above the noisy threshold.

        Guarantee: this answer is part of the run's one event. A refused query (foreign sensitivity, unit or grid, or
        after the last positive answer) draws no noise and changes nothing.
        """
        require_bounded(bounded, self._relation)
        self._refuse_foreign(bounded)
        return observation.through(self, bounded, self._relation, self._event, lambda: self._answer(bounded))

    def _answer(self, bounded: Bounded) -> Release[bool]:
        with self._lock:
            if self._owner != os.getpid():
                raise Exhausted(
                    "a SparseVector must answer in the process that created it, got a fork: two processes would answer "
                    "with the same noise; create one in each process and pay for both"
                )
            if self._positive >= self._answers:
                raise Exhausted(
                    f"this SparseVector has given all {self._answers} positive answers: start a new one and pay for it"
                )
            noise = int(samplers.discrete_laplace(self._query_scale, 1, self._bits)[0])
            self._direction = bounded.direction
            value = int(bounded.values) * (bounded.granularity / self._step)
            answer = value + noise >= self._noisy_threshold
            self._positive += answer
        return Release(bool(answer), self._event, self._guarantee)

    def _refuse_foreign(self, bounded: Bounded) -> None:
        ratio = bounded.granularity / self._step
        if bounded.values.ndim:
            raise InvalidSensitivity(f"bounded must be a single number, got {bounded!r}: test one coordinate at a time")
        if ratio.denominator != 1:
            raise InvalidSensitivity(
                f"granularity must divide the query's, got {float(self._step):.6g} for a grid of step "
                f"{float(bounded.granularity):.6g}: create the run with granularity={bounded.granularity!r}"
            )
        if bounded.sensitivity(self._relation).l1 * ratio > self._reach:
            raise InvalidSensitivity(
                f"sensitivity of {bounded!r} must be ≤ {float(self._reach * self._step):.6g}, which this run was "
                f"created for: create it with the largest sensitivity of its queries"
            )
        if self._monotone and (not bounded.direction or bounded.direction == -self._direction):
            raise InvalidSensitivity(
                f"direction of {bounded!r} must be that of the run's other queries: in a monotone run one unit moves "
                f"all queries the same way; create the run with monotone=False"
            )
        if bounded.unit != self._unit:
            raise InvalidSensitivity(f"unit must be {self._unit}, got {bounded.unit}: this run protects {self._unit}")

    def __repr__(self) -> str:
        return f"<SparseVector: {self.answers_left} of {self._answers} answers left, {self._guarantee}>"

    def __reduce__(self) -> Any:
        raise TypeError("a SparseVector can't be copied or pickled: two copies would answer with the same noise")


def sparse_vector(
    *,
    threshold: float,
    epsilon: float,
    max_answers: int = 1,
    sensitivity: float = 1,
    granularity: float | Fraction = 1,
    monotone: bool = False,
    relation: Relation | str = neighbors.ADD_REMOVE,
    unit: Unit | None = None,
    insecure_seed: int | None = None,
) -> SparseVector:
    """Start a run of above-threshold tests; the arguments are those of `SparseVector`.

    Guarantee: ε-DP for the whole run, whatever the queries, until `max_answers` of them were above the threshold.

    >>> from discreet.queries import count
    >>> run = sparse_vector(threshold=500, epsilon=1.0, monotone=True)
    >>> [run.above(count([0] * n)).value for n in (3, 10, 5000)]
    [False, False, True]
    >>> run.answers_left
    0
    """
    return SparseVector(
        threshold=threshold,
        epsilon=epsilon,
        max_answers=max_answers,
        sensitivity=sensitivity,
        granularity=granularity,
        monotone=monotone,
        relation=relation,
        unit=unit,
        insecure_seed=insecure_seed,
    )
