"""Every statistic's 95% interval, over 20,000 releases: it covers the clamped and limited statistic, and is no wider
than 1.5 times what its error needs.

A release of 20,000 groups that hold the same rows is 20,000 independent releases. Coverage is an average of 20,000
coins; at a true coverage of 95% it falls below 94% with probability e^{-20000·KL(.94‖.95)} < 1e-8 (Chernoff), and a
true coverage of 93% passes with probability below 1e-6.

The errors of choices hold for all rows alike, so they are tried on the worst ones: there they cover 94% to 99%, and
nothing narrower would. On other rows they cover more (docs/proofs/intervals.md).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import discreet as dp
from discreet import analytics
from discreet.analytics.aggregates import registry
from discreet.analytics.aggregates.measurement import Sums
from discreet.mechanisms import DiscreteGaussian, Laplace
from discreet.mechanisms.refinement import Refinement
from discreet.queries.aggregated import Grouped
from tests.analytics.plans import exact

RELEASES = 20_000
BOUNDS = {"x": (0, 100), "y": (0, 50)}
ASKED = {
    "count": analytics.count("x"),
    "persons": analytics.count_distinct(),
    "sum": analytics.sum("x"),
    "mean": analytics.mean("x"),
    "mean far from the middle": analytics.mean("x", bounds=(0, 400)),  # where the count's noise matters as well
    "variance": analytics.variance("x"),
    "std": analytics.std("x"),
    "covariance": analytics.covariance("x", "y"),
    "correlation": analytics.correlation("x", "y"),
    "marginal": analytics.marginal("g", categories={"g": ["a", "b"]}),
    "values": analytics.count_values("id"),
    "outside": registry.OutsideBounds("x", (20, 60)),
    "rows_per_person": registry.RowsPerPerson(3),
    "groups_per_person": registry.GroupsPerPerson(3),
    "grid_gap": registry.GridGap(analytics.quantile("x", 0.5, candidates=range(0, 101, 20))),
}
OF_PERSONS = {"persons", "rows_per_person", "groups_per_person"}
#: ε at which noise is small: counts need noise of several rows, or their steps show.
SMALL = {"count": 0.2, "marginal": 0.2, "values": 0.2, "outside": 0.2, "grid_gap": 0.2}
#: ε at which noise is large: the error is 15% to 50% of the statistic. With still more noise, intervals of variances,
#: covariances and correlations cover more than 99%, as ranges of means and spreads then add to them.
LARGE = {"variance": 0.1, "std": 0.1, "covariance": 0.1, "correlation": 0.5}
ROWS = 2000


def rows() -> dict[str, object]:
    rng = np.random.default_rng(3)
    x = rng.gamma(4.0, 10.0, ROWS)
    y = 0.4 * x + rng.normal(10, 8, ROWS)
    return {"x": x, "y": y, "g": np.where(x > 40, "a", "b"), "id": np.arange(ROWS) % 400}


#: Choices, with a column whose rows are the worst ones for them: see `worst`.
CHOICES = {
    "median": analytics.median("x", bounds=(0, 8), levels=8),
    "high quantile": analytics.quantile("x", 0.9, bounds=(0, 8), levels=8),
    "refined": analytics.quantile("x", 0.9, bounds=(0, 8), levels=16, refine=True),
    "listed": analytics.quantile("x", 0.5, candidates=range(0, 17, 2)),
    "top_k": analytics.top_k("x", k=1, categories=range(12)),
    "three of top_k": analytics.top_k("x", k=3, categories=range(12)),
    "range_end": registry.RangeEnd("x", 0.1, tuple(float(cut) for cut in range(10))),
}


def test_every_statistic_is_here():
    named = {type(one).name for one in (*ASKED.values(), *CHOICES.values())}
    assert {kind.name for kind in registry.AGGREGATES} == named


def worst(name, error):
    """Rows for which every answer but the right ones is just worse than the stated error."""
    if "top_k" in name:  # the best ones are equally frequent, and the others do not occur
        return np.repeat(np.arange(CHOICES[name].k), math.floor(error) + 1)
    # The quantile lies between the rows of two neighboring answers; all others lie equally many ranks away.
    rank, values = {
        "median": (0.5, (3.0, 3.5)),
        "high quantile": (0.9, (0.0, 0.5)),
        "refined": (0.9, (0.0, 1e-9)),
        "listed": (0.5, (4.0, 6.0)),
        "range_end": (0.1, (-1.0, 0.5)),
    }[name]
    tens = math.floor(error / (1 - rank) / 10) + 1
    return np.repeat(values, [round(10 * rank) * tens, round(10 * (1 - rank)) * tens])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pure"), [*((name, False) for name in CHOICES), ("median", True), ("range_end", True)]
)
def test_errors_of_choices_cover_and_are_tight(account_of, name, pure):
    account = account_of(budget=None if pure else dp.ApproxDP(1e3, 1e-6), fresh=True)
    epsilon = 0.02

    def asked(rows):
        return dp.Private({"x": np.asarray(rows, dtype=float)}, account=account).aggregate(asked=CHOICES[name])

    error = asked([0.0]).preview(epsilon=epsilon).columns[0].error
    answer = asked(worst(name, error))
    (scores,) = exact(answer)["asked"]
    choice = answer._question.asked["asked"]
    mechanism = choice.mechanism(Fraction(epsilon), pure=pure)
    if isinstance(mechanism, Refinement):  # the error is the second pass's, whatever came out of the first
        scores, mechanism = scores.fine(scores.coarse.candidates[choice.marks.widest]), mechanism.second
    unit = error / mechanism.loss_bound(scores)
    losses = {}
    for candidate, score in zip(scores.candidates, scores.values.tolist(), strict=True):
        losses[candidate] = min(losses.get(candidate, math.inf), (int(scores.values.max()) - score) * unit)
    assert scores.values.max() == 0 or "top_k" in name  # so that losses are numbers of rows
    drawn = [mechanism.release(scores).value for _ in range(RELEASES)]
    missed = [max(losses[one] for one in several) for several in (drawn if "top_k" in name else [[d] for d in drawn])]
    assert 0.94 <= np.mean(np.array(missed) <= error) <= 0.99
    assert error <= 1.5 * np.quantile(missed, 0.99)  # what it takes to cover 99%


def repeated(bounded, coordinates):
    """The same values for each of 20,000 groups, whose sensitivity is that of one release."""
    inner = bounded.finish.inner if isinstance(bounded.finish, Grouped) else bounded.finish
    values = np.tile(np.atleast_1d(bounded.values), RELEASES)
    return replace(bounded, values=values, finish=Grouped(inner, coordinates), labels=tuple(range(RELEASES)))


def simulated(account, name, epsilon, gaussian=False):
    """The truth, all values and all intervals of a statistic."""
    asked = dp.Private(rows(), account=account, bounds=BOUNDS).aggregate(asked=ASKED[name])
    (bounded,) = exact(asked)["asked"]
    measurement = asked._question.asked["asked"]
    assert isinstance(measurement, Sums)
    noise = DiscreteGaussian.for_rho(bounded, epsilon**2 / 2) if gaussian else Laplace.for_epsilon(bounded, epsilon)
    truth = np.ravel(bounded.finish.value(bounded.values))
    coordinates = 1 if measurement.aggregate.counts else measurement.summed.coordinates
    released = noise.release(repeated(bounded, coordinates))
    low, high = released.confidence_interval(0.95)
    return np.tile(truth, RELEASES), np.asarray(released.value), low, high, bounded


def check(truth, value, low, high, slack):
    """Coverage of 94% to 99%, and at most 1.5 times the width of the central 95% of the errors."""
    covered = np.mean((low - 1e-9 <= truth) & (truth <= high + 1e-9))
    needed = np.subtract(*np.quantile(value - truth, [0.975, 0.025]))
    width = np.median(high - low)
    assert 0.94 <= covered <= 0.99, (covered, width / needed)
    assert width <= 1.5 * needed + slack, (covered, width / needed)


@pytest.mark.slow
@pytest.mark.parametrize("gaussian", [False, True], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("large", [False, True], ids=["small noise", "large noise"])
@pytest.mark.parametrize("name", [name for name in ASKED if name not in OF_PERSONS])
def test_intervals_of_rows_cover_and_are_tight(account, name, large, gaussian):
    epsilon = LARGE.get(name, 0.03) if large else SMALL.get(name, 1.0)
    truth, value, low, high, _ = simulated(account, name, epsilon, gaussian)
    check(truth, value, low, high, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ASKED)
def test_intervals_of_persons_cover_and_are_tight(account_of, name):
    """Each of 400 persons has 5 rows and counts as 3."""
    account = account_of(dp.person("id", max_rows=3, max_groups=1))
    epsilon = 5.0 if name == "correlation" else 0.2 if name in SMALL or name in OF_PERSONS else 1.0
    truth, value, low, high, _ = simulated(account, name, epsilon)
    check(truth, value, low, high, 2 if ASKED[name].counts else 0)
