"""What every mechanism asks before it runs, and says afterwards: is this really bounded, and whom does it protect?"""

from __future__ import annotations

from typing import Any

from discreet import events, neighbors
from discreet.bounded import Bounded, Scores
from discreet.errors import InvalidSensitivity
from discreet.guarantees import Guarantee, PureDP
from discreet.neighbors import Neighbors, Relation


def require_bounded(bounded: object, relation: Relation | str | None) -> Relation:
    """The relation to protect, for something that really is a `Bounded`; what only claims a bound is refused."""
    return _require("bounded", bounded, Bounded, relation)


def require_scores(scores: object, relation: Relation | str | None) -> Relation:
    """The relation to protect, for something that really is a `Scores`."""
    return _require("scores", scores, Scores, relation)


def _require(name: str, value: Any, kind: type[Bounded] | type[Scores], relation: Relation | str | None) -> Relation:
    if type(value) is not kind:
        raise InvalidSensitivity(
            f"{name} must be a {kind.__name__} made by a query, got {type(value).__name__}: "
            f"a mechanism trusts no sensitivity that did not come with the value; see discreet.queries"
        )
    bounded: Bounded | Scores = value
    wanted = bounded.relation if relation is None else neighbors.relation(relation)
    bounded.sensitivity(wanted)
    return wanted


def marked(
    event: events.Event, promise: Guarantee, unit: Any, relation: Relation, insecure_seed: int | None
) -> tuple[events.Event, Guarantee]:
    """The event and the promise, saying for whom they hold; worth nothing if the noise can be repeated."""
    protects = Neighbors(relation, unit)
    if insecure_seed is not None:
        return events.Insecure(event), PureDP(float("inf"), protects=protects)
    return event, promise.protecting(protects)
