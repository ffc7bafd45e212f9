"""What given votes cost: far less than the event where most teachers agree, and itself a fact about the data.

A data-dependent price is for the owner of the data: it tells how much was given away by these answers, and must not be
published or charged. `events.GaussianVotes` and its like hold for all votes; they are what a ledger is charged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet import _check, accounting
from discreet.accounting import pate
from discreet.learning.pate._answers import Answers
from discreet.learning.pate.voting import ConfidentVoting, GaussianVoting, LaplaceVoting, Voting

#: The Rényi orders that are tried: fine where one or a few answers have their best one, coarse beyond.
ORDERS = tuple(np.concatenate([np.arange(1.25, 10, 0.25), np.arange(10, 64, 2), np.geomspace(64, 512, 16)]).tolist())


@dataclass(frozen=True)
class DataDependentPrice:
    """ε of these very votes at δ: **not private**, and no promise that holds for a neighbor.

    Attributes:
        epsilon: computed from the votes (Papernot et al. 2018, Theorem 6). Secret.
        delta: the δ it holds at.
        order: the Rényi order at which it was found. Secret.
        data_independent: ε of the event, which is what may be charged and published.
    """

    epsilon: float
    delta: float
    order: float
    data_independent: float

    def __str__(self) -> str:
        return (
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} for these votes (secret: it depends on the data); "
            f"ε = {self.data_independent:.4g} for all votes (charge and publish this one)"
        )


def data_dependent(answers: Answers, voting: Voting, delta: float) -> DataDependentPrice:
    """What these answers cost given their votes, beside what they cost for all votes.

    Args:
        answers: from `Ensemble.ask` in this process: kept answers hold no votes.
        voting: the voting that was used.
        delta: the δ at which ε is stated.

    Guarantee: none. The result is computed from exact votes and is for the owner of the data.
    """
    if answers.counts is None:
        raise _check.fail("answers", "hold their votes", "answers that were read back", "votes are never stored")
    chance = float(_check.delta(delta))
    epsilon, order = to_epsilon(spent_by_order(answers, voting).sum(axis=0), chance)
    independent = accounting.epsilon(answers.event, chance).upper
    # What holds for all votes holds for these; it is lower where leads are short, because it is not priced by Rényi DP.
    return DataDependentPrice(min(epsilon, independent), chance, order, independent)


def spent_by_order(answers: Answers, voting: Voting) -> NDArray[np.float64]:
    """The Rényi divergences of each question at `ORDERS`, one row for each: **not private**."""
    counts = np.empty((0, 0)) if answers.counts is None else answers.counts
    rows = [_price(votes, bool(given), voting) for votes, given in zip(counts.tolist(), answers.answered, strict=True)]
    return np.array(rows).reshape(len(rows), len(ORDERS))


def to_epsilon(spent: NDArray[np.float64], delta: float) -> tuple[float, float]:
    """ε at `delta` from divergences at `ORDERS`, and the order that gives it.

    ε(δ) ≤ D_α + ln((α−1)/α) − ln(δα)/(α−1) (Canonne, Kamath & Steinke 2020, Proposition 12).
    """
    orders = np.array(ORDERS)
    epsilons = spent + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), ORDERS[best]


def _price(votes: list[int], answered: bool, voting: Voting) -> NDArray[np.float64]:
    """The Rényi divergences of one question at `ORDERS`."""
    if isinstance(voting, LaplaceVoting):
        return pate.laplace_votes_rdp(votes, voting.noise, ORDERS)
    if not isinstance(voting, GaussianVoting):
        raise _check.fail("voting", "be one with a theorem", type(voting).__name__, "use those of this package")
    price = np.zeros(len(ORDERS))
    if isinstance(voting, ConfidentVoting):
        price += pate.vote_check_rdp(float(max(votes)), voting.threshold, voting.check_noise, ORDERS)
    return price + pate.gaussian_votes_rdp(votes, voting.noise, ORDERS) if answered else price
