"""What all mechanisms that choose among public candidates share."""

from __future__ import annotations

from fractions import Fraction

from discreet import neighbors
from discreet.bounded import Scores
from discreet.errors import InvalidSensitivity
from discreet.neighbors import Relation


def require_scores(scores: object, relation: Relation | str | None) -> Relation:
    """The relation to protect, for something that really is a `Scores`."""
    if type(scores) is not Scores:
        raise InvalidSensitivity(
            f"scores must be a Scores made by a query, got {type(scores).__name__}: "
            f"a mechanism trusts no sensitivity that did not come with the value; see discreet.queries.votes"
        )
    wanted = scores.relation if relation is None else neighbors.relation(relation)
    scores.sensitivity(wanted)
    return wanted


def rate(scores: Scores, epsilon: Fraction, relation: Relation) -> Fraction:
    """What a unit of score is worth in the exponent: ε/2Δ, or ε/Δ where one unit moves all scores one way."""
    spread = scores.sensitivity(relation) * (1 if scores.is_monotone(relation) else 2)
    return epsilon / spread


def penalties(scores: Scores) -> list[int]:
    """How far each score lies below the best, as exact integers."""
    values: list[int] = scores.values.tolist()
    best = max(values)
    return [best - value for value in values]
