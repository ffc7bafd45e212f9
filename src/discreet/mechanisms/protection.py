"""Checks and labels that all mechanisms share: the input must be bounded, and the output says whom it protects."""

from __future__ import annotations

from typing import Any

from discreet import events, neighbors
from discreet.bounded import Bounded, Scores
from discreet.errors import InvalidSensitivity
from discreet.guarantees import Guarantee, PureDP
from discreet.neighbors import Neighbors, Relation


def require_bounded(bounded: object, relation: Relation | str | None) -> Relation:
    """The relation to protect. Anything but a `Bounded` itself is refused, even if it claims a bound."""
    return _require("bounded", bounded, Bounded, relation)


def require_scores(scores: object, relation: Relation | str | None) -> Relation:
    """The relation to protect. Anything but a `Scores` itself is refused."""
    return _require("scores", scores, Scores, relation)


def _require(name: str, value: Any, kind: type[Bounded] | type[Scores], relation: Relation | str | None) -> Relation:
    if type(value) is not kind:
        raise InvalidSensitivity(
            f"{name} must be a {kind.__name__} made by a query, got {type(value).__name__}: "
            f"a mechanism trusts only a sensitivity that came with the value; see discreet.queries"
        )
    bounded: Bounded | Scores = value
    wanted = bounded.relation if relation is None else neighbors.relation(relation)
    bounded.sensitivity(wanted)
    return wanted


def marked(
    event: events.Event, promise: Guarantee, unit: Any, relation: Relation, insecure_seed: int | None
) -> tuple[events.Event, Guarantee]:
    """The event, and the promise with whom it protects. With an `insecure_seed` neither promises anything."""
    protects = Neighbors(relation, unit)
    if insecure_seed is not None:
        return events.Insecure(event), PureDP(float("inf"), protects=protects)
    return event, promise.protecting(protects)
