"""Votes of teachers, as the noise on the counts that they are a function of (post-processing)."""

from __future__ import annotations

import math
from dataclasses import replace

from discreet.accounting.prices.price import EventPrices
from discreet.events import Event, Gaussian, GaussianVoteCheck, GaussianVotes, Laplace, LaplaceVotes
from discreet.neighbors import Relation
from discreet.numeric.rounding import exact, float_root_down, infinite

Votes = GaussianVotes | GaussianVoteCheck | LaplaceVotes


class VotesPrice(EventPrices):
    """One vote moves: two counts by 1 each, the largest count by 1."""

    def simpler(self, event: Votes, relation: Relation, accountant: str) -> Event:
        return _noise(event)

    def scaled(self, event: Votes, factor: float) -> Event:
        return replace(event, noise=math.inf if infinite(event.noise) else float(exact(event.noise)) * factor)


def _noise(event: Votes) -> Event:
    if infinite(event.noise):
        return Gaussian(math.inf)
    match event:
        case GaussianVotes(noise):
            return Gaussian(float_root_down(exact(noise) ** 2 / 2))
        case GaussianVoteCheck(noise):
            return Gaussian(noise)
        case LaplaceVotes(noise):
            return Laplace(exact(noise) / 2)  # type: ignore[arg-type]  # an exact number, as `settle` leaves it
