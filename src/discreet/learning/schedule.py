"""Clip norms that change during a training: (step, clip norm) pairs with straight lines between them."""

from __future__ import annotations

from itertools import pairwise

from discreet import _check
from discreet.learning.clipping import checked_norm

Schedule = tuple[tuple[int, float], ...]


def checked_schedule(value: object) -> Schedule:
    """`value` as a schedule: pairs of a step and a norm that float32 has room for, with growing steps."""
    remedy = "give pairs (step, clip norm) with growing steps, such as ((0, 1.0), (500, 0.1))"
    if not isinstance(value, tuple | list) or not value:
        raise _check.fail("clip_schedule", "be a tuple of pairs", value, remedy)
    points = []
    for pair in value:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise _check.fail("clip_schedule", "be a tuple of pairs", value, remedy)
        step = _check.integer("clip_schedule", pair[0], remedy, at_least=0)
        points.append((step, checked_norm("clip_schedule", pair[1])))
    if any(left >= right for (left, _), (right, _) in pairwise(points)):
        raise _check.fail("clip_schedule", "have growing steps", value, remedy)
    return tuple(points)


def norm_at(schedule: Schedule, step: int) -> float:
    """The clip norm of a step: constant before the first point and after the last, linear in between."""
    if step <= schedule[0][0]:
        return schedule[0][1]
    for (left, low), (right, high) in pairwise(schedule):
        if step <= right:
            return low + (high - low) * (step - left) / (right - left)
    return schedule[-1][1]
