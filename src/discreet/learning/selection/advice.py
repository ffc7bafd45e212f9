"""How many candidates are worth trying: what a search of each length costs, and how good its winner is on average.

Both numbers are public: the price follows from the event of one run, and the expected winner from an assumption about
the candidates' scores, not from data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check, accounting, events
from discreet.errors import MissingExtra
from discreet.learning.selection.trials import generating
from discreet.numeric.search import bisect

#: Mean numbers of trials that are priced.
MEANS = (2, 5, 10, 20, 50, 100)
#: Normal scores are summed between these many standard deviations.
_REACH = 12.0
#: Where a point's label stands, in points from it: the two lowest curves are close.
_OFFSETS = {"logarithmic": (7, -3), "geometric": (-14, 5), "poisson": (5, -10), "all in the open": (5, -10)}
_COLORS = {"logarithmic": "#2a9d8f", "geometric": "#264653", "poisson": "#e9a23b", "all in the open": "#e76f51"}


Shares = NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """A search of some length: its price, and its winner.

    Attributes:
        law: "logarithmic", "geometric" or "poisson" for `RandomStopping`; "all in the open" runs every candidate once
            and publishes every result.
        trials: the law of the number of trials; None in the open.
        mean: the mean number of trials.
        epsilon: ε of the whole search.
        best: the expected score of the winner, if there is one.
        none: the probability that nothing runs and nobody wins.
    """

    law: str
    trials: events.Trials | None
    mean: float
    epsilon: float
    best: float
    none: float


@dataclass(frozen=True)
class SearchAdvice:
    """Searches by price, and the one that a budget is best spent on.

    Attributes:
        searches: all that were priced.
        run_epsilon: ε of a single run, for comparison.
        delta: the δ of all prices.
        budget: the ε that may be spent; None without a budget.
        worth: the search within the budget whose winner is best on average; None if none fits.
        unit: what scores are measured in.
    """

    searches: tuple[Search, ...]
    run_epsilon: float
    delta: float
    budget: float | None
    worth: Search | None
    unit: str

    def plot(self, axes: Any = None) -> Any:
        """The expected score of the winner against ε into `axes` of matplotlib, or a new figure; return the axes."""
        if axes is None:
            try:
                from matplotlib.figure import Figure
            except ModuleNotFoundError as missing:
                raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
            axes = Figure(figsize=(6.5, 4.0), layout="constrained").subplots()
        for law, color in _COLORS.items():
            mine = sorted((search for search in self.searches if search.law == law), key=lambda search: search.mean)
            label = law if law == "all in the open" else f"random stopping, {law}"
            axes.plot(
                [search.epsilon for search in mine], [search.best for search in mine], "o-", color=color, label=label
            )
            for search in mine:
                point, offset = (search.epsilon, search.best), _OFFSETS[law]
                axes.annotate(f"{search.mean:g}", point, offset, textcoords="offset points", fontsize=8, color=color)
        axes.axvline(self.run_epsilon, color="#999999", linestyle=":", label="one run")
        if self.budget is not None:
            axes.axvline(self.budget, color="#d62828", linestyle="--", label="budget")
        axes.set(xscale="log", xlabel=f"ε at δ = {self.delta:g}", ylabel=f"expected score of the winner, {self.unit}")
        axes.set_title("numbers at the points: mean number of trials", fontsize=10)
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def worth_trying(
    run: events.Event,
    delta: float,
    *,
    epsilon: float | None = None,
    scores: Sequence[float] | None = None,
    means: Sequence[float] = MEANS,
) -> SearchAdvice:
    """Price searches of several lengths, and say which one a budget is best spent on.

    Args:
        run: what one run costs, with its score if that is a release.
        delta: the δ at which prices are compared.
        epsilon: the ε that may be spent; without it, nothing is recommended.
        scores: scores of candidates that are thought typical, from public data or from a guess. By default scores are
            normal, and the expected winner is in standard deviations above the average candidate.
        means: mean numbers of trials.

    Guarantee: it reads no data and spends nothing. Scores of private runs may be passed only if they were released.
    """
    chance = float(_check.delta(delta))
    limit = None if epsilon is None else float(_check.epsilon(epsilon))
    lengths = [float(_check.real("means", mean, "it is a mean number of trials")) for mean in means]
    if not lengths or min(lengths) <= 1:
        raise _check.fail("means", "be numbers above 1", tuple(means), "a search has more than one trial on average")
    below = _below(scores)
    searches = []
    for mean in lengths:
        for law, trials in _laws(mean).items():
            price = accounting.epsilon(events.SelectedFromRepeats(run, trials), chance).upper
            best, none = _expected(partial(generating, trials), below)
            searches.append(Search(law, trials, mean, price, best, none))
        count = round(mean)
        price = accounting.epsilon(events.Repeated(run, count), chance).upper
        best, none = _expected(partial(_power, count), below)
        searches.append(Search("all in the open", None, float(count), price, best, none))
    fitting = [search for search in searches if limit is not None and search.epsilon <= limit]
    worth = max(fitting, key=lambda search: (search.best, -search.epsilon), default=None)
    single = accounting.epsilon(run, chance).upper
    unit = "standard deviations" if scores is None else "as given"
    return SearchAdvice(tuple(searches), single, chance, limit, worth, unit)


def _power(count: int, shares: Shares) -> Shares:
    """E[x^K] for exactly `count` trials."""
    return np.asarray(shares**count)


def _laws(mean: float) -> dict[str, events.Trials]:
    """The laws of random stopping with this mean."""

    def too_short(stop: float) -> bool:
        return bool((1 / stop - 1) / np.log(1 / stop) <= mean)

    stop = bisect(too_short, 1e-12, 1 - 1e-12, relative=1e-9).high
    return {
        "logarithmic": events.NegativeBinomialTrials(0, stop),
        "geometric": events.NegativeBinomialTrials(1, float(1 / Fraction(mean))),
        "poisson": events.PoissonTrials(mean),
    }


def _below(scores: Sequence[float] | None) -> tuple[Shares, Shares]:
    """Scores in ascending order, and the share of candidates at or below each."""
    if scores is None:
        grid, step = np.linspace(-_REACH, _REACH, 4801, retstep=True)
        return grid - step / 2, np.asarray(special.ndtr(grid), dtype=np.float64)
    given = np.sort([float(_check.real("scores", score, "it is a candidate's score")) for score in scores])
    if not len(given):
        raise _check.fail("scores", "hold at least one score", tuple(scores), "omit it for normal scores")
    return given, np.arange(1, len(given) + 1) / len(given)


def _expected(law: Callable[[Shares], Shares], below: tuple[Shares, Shares]) -> tuple[float, float]:
    """The expected score of the best of K candidates, given that there is one, and the probability of none.

    P(K ≥ 1, all K scores ≤ s) = E[F(s)^K] − P(K = 0), with F the share of candidates at or below s.
    """
    values, shares = below
    none = float(law(np.zeros(1))[0])
    reached = (law(shares) - none) / (1 - none)
    mass = np.diff(np.concatenate([[0.0], reached]))
    return float(mass @ values), none
