"""Randomized response: each person randomizes their own answer, so that nobody else has to be trusted with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check, events
from discreet.guarantees import PureDP
from discreet.mechanisms import observation
from discreet.mechanisms.protection import marked
from discreet.mechanisms.sampling import entropy, samplers
from discreet.mechanisms.sampling.fixed_point import bernoulli, exp_neg
from discreet.neighbors import REPLACE_ONE, Rows
from discreet.numeric.rounding import float_up, rounded_down
from discreet.queries.statistics.histogram import categorized
from discreet.release import Release


@dataclass(frozen=True)
class RandomizedResponse:
    """Report the truth with probability e^ε/(e^ε + k − 1), else one of the other k − 1 categories at random.

    Privacy: ε-DP in the local model: replacing one person's answer changes the odds of their report by at most e^ε
    (Warner 1965 for k = 2; Kairouz, Oh & Viswanath 2014 for any k). Event: `RandomizedResponse(ε, k)`, once for each
    person, about disjoint people. Who took part is visible.

    Error: of an estimated share f among n reports, Var ≈ (k − 2 + e^ε)/((e^ε − 1)² n) for rare categories.
    """

    epsilon: Fraction
    categories: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))
        if len(self.categories) < 2 or len(set(self.categories)) != len(self.categories):
            raise _check.fail(
                "categories", "be at least two distinct values", self.categories, "each report is one of them"
            )

    def event(self) -> events.RandomizedResponse:
        """The event of one person's report."""
        return events.RandomizedResponse(self.epsilon, len(self.categories))

    def guarantee(self) -> PureDP:
        """The guarantee of one person's report."""
        return PureDP(float_up(self.epsilon))

    def release(self, values: ArrayLike, *, insecure_seed: int | None = None) -> Release[list[Any]]:
        """One report per person, in their order. An answer outside the categories becomes a uniformly random one.

        Guarantee: ε-DP for one person under replace-one, in the local model. Not protected: who takes part.
        """
        event, promise = marked(self.event(), self.guarantee(), Rows(), REPLACE_ONE, insecure_seed)

        def draw() -> Release[list[Any]]:
            return Release(self._reports(values, entropy.bits(insecure_seed)), event, promise)

        return observation.through(self, values, REPLACE_ONE, event, draw)

    def _reports(self, values: ArrayLike, bits: entropy.Bits) -> list[Any]:
        truth, labels = categorized(values, self.categories)
        k = len(labels)
        keep = bernoulli(self._truth_probability, truth.size, bits)
        lie = (truth + 1 + samplers.uniform(k - 1, truth.size, bits)) % k
        uniform = samplers.uniform(k, truth.size, bits)
        report = np.where(truth < 0, uniform, np.where(keep, truth, lie))
        return [labels[i] for i in report]

    def _truth_probability(self, precision: int) -> tuple[int, int]:
        """Integers that enclose 2^precision/(1 + (k − 1)e^{−ε})."""
        low, high = exp_neg(self.epsilon, precision + 16)
        others, fixed_one = len(self.categories) - 1, 1 << (precision + 16)
        return (fixed_one << precision) // (fixed_one + others * high), (fixed_one << precision) // (
            fixed_one + others * low
        ) + 1

    def frequencies(self, reports: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Unbiased estimates of each category's share, and their standard errors, from released reports.

        Answers outside the categories are reported at random, so they spread evenly over all shares.

        Guarantee: post-processing of released reports.
        """
        k, n = len(self.categories), len(reports)
        if n == 0:
            raise _check.fail("reports", "have an entry", 0, "without reports there is nothing to estimate")
        where, _ = categorized(list(reports), self.categories)
        reported = np.bincount(where[where >= 0], minlength=k) / n
        growth = float(np.expm1(float(self.epsilon)))
        lie = 1 / (growth + k)  # the probability of each false category
        shares = (reported - lie) / (growth * lie)
        return shares, np.sqrt(reported * (1 - reported) / n) / (growth * lie)


def randomized_response(
    values: ArrayLike,
    *,
    categories: Sequence[Any] = (False, True),
    epsilon: float,
    insecure_seed: int | None = None,
) -> Release[list[Any]]:
    """Randomize each person's answer; `RandomizedResponse(...).frequencies(reports)` estimates the shares.

    Args:
        values: one answer per person.
        categories: all possible answers, two or more; they are public.
        epsilon: the privacy loss ε > 0 of each person's report.
        insecure_seed: repeatable reports, for tests and teaching only.

    Guarantee: ε-DP for one person under replace-one, in the local model (see `RandomizedResponse`). Not protected: who
    takes part.

    >>> len(randomized_response([True, False, True], epsilon=1.0).value)
    3
    """
    mechanism = RandomizedResponse(_check.epsilon(epsilon), tuple(categories))
    return mechanism.release(values, insecure_seed=insecure_seed)
