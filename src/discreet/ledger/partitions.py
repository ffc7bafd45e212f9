"""Charges to disjoint parts of a table: what they add up to, and how an account keeps them.

A unit lies in few parts of a partition, so only what was charged to these can reveal it. An account keeps a total for
each part and counts the costliest ones, separately at each Rényi order and for the δ that is set aside.
docs/proofs/partitions.md proves that this is valid for adaptively chosen events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, NamedTuple

from discreet import _check
from discreet.accounting.adaptive.form import Price, Ratio
from discreet.codec import canonical, parse
from discreet.errors import NotALedger, TermsDiffer
from discreet.ledger.names import checked_text
from discreet.ledger.totals import Totals, added, settled
from discreet.neighbors import Neighbors, Person, Relation

#: An account's row holds the total of each part that was charged, so there must not be too many.
MAX_PARTS = 1000
_LONGEST_KEY = 1000


@dataclass(frozen=True)
class Part:
    """One part of a partition of a table. `Private.partition` makes it.

    Attributes:
        partition: the partition's name in the ledger.
        key: the part's name in the partition.
        max_parts: in how many parts one unit may lie: 1 for rows, and what a query enforces for persons.
        definition: a text that differs for different partitions. A name stands for one definition.
    """

    partition: str
    key: str
    max_parts: int
    definition: str

    def __post_init__(self) -> None:
        for name in ("partition", "key", "definition"):
            if not checked_text(name, getattr(self, name), _LONGEST_KEY):
                raise _check.fail(name, "not be empty", "", "it names a part in the ledger")
        _check.settle_integers(self, "max_parts", remedy="it is in how many parts one unit may lie")

    def require_unit(self, neighbors: Neighbors) -> None:
        """Refuse more than one part for a row: a row lies in one."""
        if self.max_parts != 1 and not isinstance(neighbors.unit, Person):
            raise _check.fail("max_parts", "be 1 where rows are protected", self.max_parts, "a row lies in one part")

    def text(self) -> str:
        """The part as an entry's text states it."""
        return f"[{quoted(self.partition)},{quoted(self.key)},{self.max_parts},{quoted(self.definition)}]"

    @classmethod
    def of_list(cls, value: Any) -> Part:
        """The part of plain JSON values."""
        if not (isinstance(value, list) and [type(item) for item in value] == [str, str, int, str]):
            raise TypeError(value)
        return cls(*value)

    def __str__(self) -> str:
        return f"{self.partition}: {self.key}"


def counted_parts(max_parts: int, relation: Relation) -> int:
    """How many parts neighbors can differ in: those of one unit, and under replace-one those of two."""
    return max_parts * (2 if relation is Relation.REPLACE_ONE else 1)


class PartitionCharges(NamedTuple):
    """What was charged to the parts of one partition, by key; the `most` costliest of them count."""

    definition: str
    most: int
    parts: dict[str, Totals]

    def costliest(self, orders: int) -> Totals:
        """The sum of the costliest parts, at each order and for δ."""
        return _sum_of_largest(list(self.parts.values()), self.most, orders)


@dataclass(frozen=True, eq=False)
class Divided:
    """The totals of an account with partitions: what was charged to all rows, and to the parts of each partition."""

    whole: Totals
    partitions: dict[str, PartitionCharges]

    def total(self) -> Totals:
        """All charges together, as far as one unit can be in them."""
        costliest = [partition.costliest(len(self.whole.numerators)) for partition in self.partitions.values()]
        return _sum([self.whole, *costliest])._replace(divided=self)

    def changed(self, change: Price, claimed: Fraction) -> Totals:
        """The totals after a charge to all rows."""
        return replace(self, whole=self.whole.changed(change, claimed)).total()

    def charged(self, part: Part, relation: Relation, change: Price, claimed: Fraction) -> Totals:
        """The totals after a charge to one part."""
        before = self._partition(part, relation)
        nothing = Totals.of_ratios([(0, 1)] * len(self.whole.numerators), Fraction(0))
        own = before.parts.get(part.key, nothing).changed(change, claimed)
        after = before._replace(parts=dict(sorted({**before.parts, part.key: own}.items())))
        return replace(self, partitions=dict(sorted({**self.partitions, part.partition: after}.items()))).total()

    def counted_for(self, part: Part, relation: Relation) -> Totals:
        """What counts against the next charge to a part: this part, the costliest other parts, and all the rest."""
        own = self._partition(part, relation)
        orders = len(self.whole.numerators)
        others = [totals for key, totals in own.parts.items() if key != part.key]
        beside = _sum_of_largest(others, own.most - 1, orders)
        elsewhere = [charges.costliest(orders) for name, charges in self.partitions.items() if name != part.partition]
        mine = [own.parts[part.key]] if part.key in own.parts else []
        return _sum([self.whole, *elsewhere, beside, *mine])

    def _partition(self, part: Part, relation: Relation) -> PartitionCharges:
        """The partition of a part, or a new one; another definition under the same name is refused."""
        earlier = self.partitions.get(part.partition)
        most = counted_parts(part.max_parts, relation)
        if earlier is None:
            return PartitionCharges(part.definition, most, {})
        if (earlier.definition, earlier.most) != (part.definition, most):
            raise TermsDiffer(
                f"partition {part.partition!r} exists with another definition: another table, filter, column, keys or "
                "max_parts, or another content of a public table; give it another name, and both add up. A table in "
                "memory or of Ibis is known by the name that dp.Private(…, name=…) gives it"
            )
        if part.key not in earlier.parts and len(earlier.parts) >= MAX_PARTS:
            raise _check.fail("partition", f"have at most {MAX_PARTS} parts", part.partition, "merge some of them")
        return earlier

    def text(self, total: Totals) -> str:
        """The totals as canonical text."""
        partitions = ",".join(
            f'{quoted(name)}:{{"definition":{quoted(charges.definition)},"most":{charges.most},"parts":{{'
            + ",".join(f"{quoted(key)}:{own.text()}" for key, own in charges.parts.items())
            + "}}"
            for name, charges in self.partitions.items()
        )
        plain = total._replace(divided=None).text()
        return f'{plain[:-1]},"partitions":{{{partitions}}},"whole":{self.whole.text()}}}'


def after_charge(totals: Totals, part: Part, relation: Relation, change: Price, claimed: Fraction) -> Totals:
    """The totals of an account after a charge to a part."""
    return (totals.divided or Divided(totals, {})).charged(part, relation, change, claimed)


def counted_for(totals: Totals, part: Part, relation: Relation, limits: Sequence[Fraction]) -> Totals:
    """The totals with which a filter decides about the next charge to a part as `after_charge` does.

    At an order without room nothing fits, whichever part it is charged to: there the account's total counts.
    """
    apart = (totals.divided or Divided(totals, {})).counted_for(part, relation)
    ratios = [
        own if total is not None and Fraction(*total) <= limit else total
        for own, total, limit in zip(apart.ratios, totals.ratios, limits, strict=True)
    ]
    return Totals.of_ratios(ratios, apart.claimed)


def totals_of_text(text: str) -> Totals:
    """The totals of an account's canonical text, with or without partitions; any other text is refused."""
    if not isinstance(text, str) or '"partitions"' not in text:
        return Totals.of_text(text)
    try:
        value = parse(text)
        partitions = {
            name: PartitionCharges(
                charges["definition"],
                charges["most"],
                {key: Totals.of_text(canonical(own)) for key, own in charges["parts"].items()},
            )
            for name, charges in value["partitions"].items()
        }
        totals = Divided(Totals.of_text(canonical(value["whole"])), partitions).total()
        if totals.text() == text:
            return totals
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    raise NotALedger("an account's totals are not readable: the ledger was edited")


def _sum(several: Iterable[Totals]) -> Totals:
    """The sum of totals, rounded up where it would grow too long."""
    listed = list(several)
    ratios = [_added(column) for column in zip(*(totals.ratios for totals in listed), strict=True)]
    claimed = _added([totals.claimed.as_integer_ratio() for totals in listed])
    assert claimed is not None  # a sum of finite numbers
    return Totals.of_ratios(ratios, Fraction(*claimed))


def _sum_of_largest(several: Sequence[Totals], most: int, orders: int) -> Totals:
    """The sum of the largest amounts at each order, and of the largest δ."""
    ratios = [_added(_largest(column, most)) for column in zip(*(totals.ratios for totals in several), strict=True)]
    claimed = _added(_largest([totals.claimed.as_integer_ratio() for totals in several], most))
    assert claimed is not None  # a sum of finite numbers
    return Totals.of_ratios(ratios or [(0, 1)] * orders, Fraction(*claimed))


def _largest(amounts: Sequence[Ratio | None], most: int) -> list[Ratio | None]:
    """The largest amounts; None, which is infinite, comes first."""
    ordered = sorted(
        amounts, key=lambda amount: (amount is not None, Fraction(0) if amount is None else -Fraction(*amount))
    )
    return ordered[:most]


def _added(amounts: Iterable[Ratio | None]) -> Ratio | None:
    total: Ratio = (0, 1)
    for amount in amounts:
        if amount is None:
            return None
        total = added(total, amount)
    return settled(total)
