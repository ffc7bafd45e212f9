"""The frozen registry of a federation: who can be drawn, each client once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.neighbors import Client

#: Flower's node ids are unsigned integers of 64 bits.
_LARGEST_ID = 2**64 - 1


@dataclass(frozen=True)
class Registry:
    """The clients of a federation, fixed in advance. Make it with `clients`.

    Attributes:
        number: the public number of clients; sums are divided by rate × number, however many of them reply.
        ids: the node ids of the clients; None if they are not known yet, and those that are connected when the training
            starts are taken.
        per_person: the most clients that hold data of one person.
        shared: whether a client may hold data of several people, as a hospital does.
    """

    number: int
    ids: tuple[int, ...] | None = None
    per_person: int = 1
    shared: bool = False

    def __post_init__(self) -> None:
        _check.settle_integers(self, "number", remedy="it is the public number of clients")
        if self.ids is not None:
            remedy = "it is the id of a node"
            ids = tuple(_check.integer("ids", each, remedy, at_least=0, at_most=_LARGEST_ID) for each in self.ids)
            if len(set(ids)) != len(ids):
                raise InvalidArgument(
                    "ids must be distinct, got one of them twice: a client that is drawn twice moves a sum twice as far"
                )
            if len(ids) != self.number:
                raise _check.fail("ids", f"be the ids of all {self.number} clients", len(ids), "list each client once")
            object.__setattr__(self, "ids", ids)
        remedy = "it is the most clients that hold data of one person, so at most all of them"
        _check.settle_integers(self, "per_person", remedy=remedy, at_most=self.number)
        _ = self.unit  # checks `shared`

    @property
    def unit(self) -> Client:
        """Whom a plan over this registry protects."""
        return Client(self.per_person, self.shared)

    @property
    def group(self) -> int:
        """How many clients must be added or removed to add or remove the unit.

        Without a person's data, their own clients are gone, and a shared client sends another update instead. That is a
        removal and an addition, and moves a sum by up to twice the clip norm.
        """
        return self.per_person * (2 if self.shared else 1)

    def frozen(self, connected: Iterable[int]) -> Registry:
        """This registry with ids: its own, or those of the nodes that are connected, if they are as many as planned."""
        if self.ids is not None:
            return self
        present = tuple(sorted(set(connected)))
        if len(present) != self.number:
            raise InvalidArgument(
                f"the number of connected nodes must be the {self.number} of the plan, got {len(present)}: start when "
                "all clients are connected, or list their node ids with clients([…])"
            )
        return replace(self, ids=present)


def clients(who: int | Iterable[int], *, per_person: int = 1, shared: bool = False) -> Registry:
    """The registry of a federation.

    Args:
        who: the node ids of the clients, or their public number. With a number, the nodes that are connected when the
            training starts are frozen as the registry; a node that connects later is never drawn.
        per_person: the most clients that hold data of one person. With more than 1 the unit of privacy is a person, and
            the price is that of a group of that many clients.
        shared: whether a client may hold data of several people, as a hospital does. Then the unit is a person too, and
            the price that of a group of twice as many: without the person, a client sends another update, which is a
            removal and an addition. The default is right for devices of one person each.

    >>> clients(1000)
    Registry(number=1000, ids=None, per_person=1, shared=False)
    >>> str(clients([11, 12, 13], per_person=2).unit)
    'one person (at most 2 clients)'
    >>> clients(100, shared=True).group
    2
    """
    if isinstance(who, int | np.integer):
        return Registry(int(who) if not isinstance(who, bool) else who, None, per_person, shared)
    try:
        ids = tuple(who)
    except TypeError:
        raise _check.fail("who", "be a number of clients or their node ids", who, "for example clients(1000)") from None
    return Registry(len(ids), ids, per_person, shared)


def registry_of(value: object) -> Registry:
    """`value` as a registry: one, or the public number of clients."""
    if isinstance(value, Registry):
        return value
    if isinstance(value, int | np.integer):
        return clients(value)  # type: ignore[arg-type] # numpy's integers are integers
    raise _check.fail("clients", "be a number or a Registry", value, "make one with clients(1000) or clients([…ids])")
