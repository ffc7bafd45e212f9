"""The batches of a plan: drawn as its event says, and split into physical batches of one fixed size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet import _check
from discreet.learning.data.patterns import PatternedSampler, PatternGuard
from discreet.learning.data.records import Indices, Records, padded, persons_rows, without_column
from discreet.learning.data.sampling import grouped, limited
from discreet.learning.distributed import Team
from discreet.learning.noise import Secret
from discreet.neighbors import Person

if TYPE_CHECKING:
    from discreet.learning.plan import Plan


class Batch:
    """One draw of a plan's sampler, for one step. Who is in it, and how many, is secret.

    Attributes:
        step: the step of the plan that it is for.
        plan: the plan that it was drawn for.
        source: the stream that it came from.
    """

    __slots__ = ("_records", "_rows", "plan", "source", "step")

    def __init__(self, plan: Plan, step: int, source: BatchStream, records: Records, rows: Indices) -> None:
        self.plan = plan
        self.step = step
        self.source = source
        self._records = records
        self._rows = rows

    def pieces(self, device: torch.device | str, share: tuple[int, int] = (0, 1)) -> Iterator[tuple[Any, Tensor]]:
        """Physical batches of one fixed size with their masks, over the share (rank, number of ranks) of the draw."""
        rank, ranks = share
        rows, size = self._rows[rank::ranks], self.plan.physical_batch_size
        if rows.ndim == 2:
            persons = max(1, size // rows.shape[1])
            for start in range(0, len(rows), persons):
                yield _of_persons(self._records, rows[start : start + persons], persons, device)
            return
        for start in range(0, len(rows), size):
            filled, mask = padded(rows[start : start + size], size)
            yield self._records.fetch(filled, device), torch.from_numpy(mask).to(device)

    def __repr__(self) -> str:
        return f"Batch(step={self.step})"


def _of_persons(records: Records, lines: Indices, size: int, device: torch.device | str) -> tuple[Any, Tensor]:
    """The rows of some persons as [persons, places, …] with the mask of their places, and the mask of the persons.

    A place without a row holds a copy of the person's first one. Persons are padded as examples are.
    """
    order, mask = padded(np.arange(len(lines)), size)
    members = lines[order] >= 0
    filled = np.where(members, lines[order], lines[order][:, :1])
    rows = records.fetch(filled.reshape(-1), device)
    shaped = pytree.tree_map_only(Tensor, lambda x: x.unflatten(0, filled.shape), rows)
    return (shaped, torch.from_numpy(members).to(device)), torch.from_numpy(mask).to(device)


class BatchStream:
    """A plan's batches in order, drawn from secrets of its own. `position` is the number of the next batch."""

    def __init__(
        self,
        plan: Plan,
        data: Any,
        persons: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        *,
        secret: Secret | None = None,
        position: int = 0,
    ) -> None:
        self._plan = plan
        self._rows: list[Indices] | None = None
        if isinstance(plan.unit, Person):
            if persons is None:
                data, persons = without_column(data, plan.unit)
            self._records = Records(data, collate)
            self._rows = persons_rows(persons, self._records.size)
        elif persons is not None:
            raise _check.fail("persons", "be None", "ids", "the plan protects examples; make it with unit=dp.person(…)")
        else:
            self._records = Records(data, collate)
        units = self._records.size if self._rows is None else len(self._rows)
        plan.sampler.check_number(units)
        self._guard = None
        if isinstance(plan.sampler, PatternedSampler):
            self._guard = PatternGuard(plan.sampler, plan.steps, units)
        # All processes of a run draw the same batches, and each takes its share of every batch.
        self._secret = Team.here().share_secret(plan.secret("sampling")) if secret is None else secret
        #: For the choice among a person's rows. It is never saved, also where the order of persons is.
        self._choice = None if self._rows is None else Team.here().share_secret(plan.secret("rows"))
        self.position = position

    def __iter__(self) -> Iterator[Batch]:
        while self.position < self._plan.steps:
            yield self.next()

    def next(self) -> Batch:
        """The batch at `position`; advances the position."""
        plan, step = self._plan, self.position
        units = self._records.size if self._rows is None else len(self._rows)
        drawn = plan.sampler.draw(step, units, self._secret)
        if self._guard is not None:
            self._guard.admit(step, drawn)
        if self._rows is not None and self._choice is not None and isinstance(plan.unit, Person):
            take = grouped if plan.sums_persons else limited
            drawn = take(self._rows, drawn, plan.unit.max_rows, step, self._choice)
        self.position += 1
        return Batch(plan, step, self, self._records, drawn)

    def rehearsal(self, device: torch.device | str) -> Any:
        """Some rows in the shape of a physical batch, for a dry run of the model; None if there are no rows."""
        size = min(self._records.size, self._plan.physical_batch_size)
        if size == 0:
            return None
        if self._plan.sums_persons and isinstance(self._plan.unit, Person):
            max_rows = self._plan.unit.max_rows
            persons = max(1, self._plan.physical_batch_size // max_rows)
            lines = (np.arange(persons * max_rows) % self._records.size).reshape(persons, max_rows)
            return _of_persons(self._records, lines, persons, device)[0]
        return self._records.fetch(padded(np.arange(size), self._plan.physical_batch_size)[0], device)

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps: the position, and the secret if the price does not depend on it."""
        secret = None if self._plan.sampler.secret_order else self._secret.reveal()
        return {"position": self.position, "secret": secret}

    def secret_state(self) -> bytes | None:
        """The secret that decides the groups. Only the secret file of a plan with correlated noise keeps it."""
        return self._secret.reveal() if self._guard is not None and self._plan.sampler.secret_order else None
