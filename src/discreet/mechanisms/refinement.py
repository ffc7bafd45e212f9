"""Two private choices, the second among candidates that the first one places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from discreet import events
from discreet.guarantees import PureDP
from discreet.mechanisms import observation
from discreet.mechanisms.selection import Selection
from discreet.neighbors import Neighbors, Relation
from discreet.numeric.rounding import float_up
from discreet.queries.statistics.quantile import RefinedScores
from discreet.release import Release


@dataclass(frozen=True)
class Refinement:
    """A draw among coarse candidates, and then one among those that refine the outcome.

    Privacy: the second draw's candidates follow from the first one's outcome alone, so both cost what two mechanisms
    cost that run one after the other. Event: `Composed` of both (docs/proofs/analytics-person-bounds.md).

    Error: that of the second draw, whatever the first one chose, where the second's candidates cover all answers.
    """

    first: Selection
    second: Selection

    def event(self) -> events.Composed:
        """The event of both draws."""
        return events.Composed((self.first.event(), self.second.event()))

    def guarantee(self) -> PureDP:
        """The guarantee of both draws."""
        return PureDP(float_up(self.first.epsilon + self.second.epsilon))

    def release(self, name: str, groups: Sequence[RefinedScores], relation: Relation) -> list[Release[Any]]:
        """Draw twice for each group. `name` marks, for audits, the draws of all groups that share one bound.

        Guarantee: ε-DP for one unit under `relation`, ε being the sum of both, if the bounds of the scores hold for
        the changes of all groups added up.
        """
        with observation.jointly(f"{name}, first pass"):
            chosen = [self.first.release(scores.coarse, relation=relation).value for scores in groups]
        with observation.jointly(name):
            fine = [scores.fine(level) for scores, level in zip(groups, chosen, strict=True)]
            drawn = [self.second.release(scores, relation=relation) for scores in fine]
        return [
            Release(draw.value, self.event(), self.guarantee().protecting(Neighbors(relation, scores.coarse.unit)))
            for draw, scores in zip(drawn, groups, strict=True)
        ]
