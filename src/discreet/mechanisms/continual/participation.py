"""Who may still take part: it keeps each person within the participations that a stream is planned for."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.mechanisms.continual.stream import Stream
from discreet.queries.grid import plain


@dataclass(frozen=True, eq=False)
class Participation:
    """How often, and when last, each person took part. Secret: it lists who is in the data.

    Attributes:
        participations: the most steps that one person takes part in.
        separation: any two steps of one person are at least this far apart.
        seen: for each person, the number of steps and the last one.
    """

    participations: int
    separation: int = 1
    seen: dict[Hashable, tuple[int, int]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, stream: Stream) -> Participation:
        """Nobody has taken part yet."""
        return cls(stream.participations, stream.separation)

    def admit(self, step: int, persons: Sequence[Any]) -> tuple[Participation, NDArray[np.bool_]]:
        """The record after a step, and which of its rows to use: a mask for `where=` of the step's query.

        A person's rows are used if they took part in fewer than `participations` steps before and not within the last
        `separation`. All rows of one person in one step count as one participation; how many of them the query uses is
        up to the query. Rows without a person are left out.

        Guarantee: a person's rows are used or not depending on their own rows alone, so that a person changes nothing
        about anybody else. Not protected: the record itself.
        """
        at = _check.integer("step", step, "steps are counted from 1")
        after, mask = dict(self.seen), np.zeros(len(persons), dtype=np.bool_)
        admitted: dict[Hashable, bool] = {}
        for row, person in enumerate(persons):
            name = plain(person)
            if name is None:
                continue
            if name not in admitted:
                taken, last = self.seen.get(name, (0, -self.separation))
                admitted[name] = taken < self.participations and at - last >= self.separation
                if admitted[name]:
                    after[name] = (taken + 1, at)
            mask[row] = admitted[name]
        return Participation(self.participations, self.separation, after), mask
