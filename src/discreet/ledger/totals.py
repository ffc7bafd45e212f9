"""What an account has spent, as exact numbers that are quick to add, to compare and to write down.

Totals are integers over denominators that rarely change: prices are floats, whose denominators are powers of two, so a
spend adds one integer at each order and shifts nothing.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, cached_property
from json.encoder import encode_basestring_ascii as quoted
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.accounting.adaptive.form import Price, Ratio
from discreet.codec import encode
from discreet.errors import NotALedger
from discreet.events import Event
from discreet.numeric.texts import sum_text, sum_value

if TYPE_CHECKING:
    from discreet.ledger.partitions import Divided

# Binary digits after the point. Sums of floats never need more; sums of other rationals are rounded up to this many, so
# that what is stored does not grow with history.
_BITS = 1200
# No stored exponent has more decimal digits: totals are rounded to `_BITS` long before.
_EXPONENT_DIGITS = 4


class Denominators(tuple[int, ...]):
    """The denominators of an account's totals, one for each order; 0 where the total is infinite."""

    # Cached: every total that is written needs it, and it takes half as long as all the rest of writing a total.
    @cached_property
    def exponents(self) -> tuple[int, ...] | None:
        """Their binary logarithms if all are powers of two above 1, as those of sums of floats are."""
        powers = all(d > 1 and d.bit_count() == 1 for d in self)
        return tuple(d.bit_length() - 1 for d in self) if powers else None


class Amounts(tuple[Fraction | None, ...]):
    """A price that remembers its numerators over an account's denominators.

    The same few events are charged again and again, and an account keeps its denominators from one spend to the next.
    Without this, adding a price to the totals and writing them would take half as long again.
    """

    # The denominators that were asked for last, with the answer.
    _last: tuple[Denominators, tuple[int, ...] | None] | None = None

    @property
    def ratios(self) -> tuple[Ratio | None, ...]:
        """The amounts as numerators and denominators."""
        return tuple(None if amount is None else amount.as_integer_ratio() for amount in self)

    def over(self, denominators: Denominators) -> tuple[int, ...] | None:
        """The numerators of this price over `denominators`; None if one of them is not an integer."""
        last = self._last  # read once: another thread may replace it
        if last is not None and last[0] is denominators:
            return last[1]
        pairs = zip(self.ratios, denominators, strict=True)
        whole = tuple(ratio[0] * (d // ratio[1]) for ratio, d in pairs if ratio is not None and d and not d % ratio[1])
        numerators = whole if len(whole) == len(self) else None
        self._last = denominators, numerators
        return numerators


class Totals(NamedTuple):
    """What an account has spent: at each order (None if it is infinite), and of the δ set aside.

    Numerators and denominators need not be in lowest terms; the text is. `divided` says what was charged to the parts
    of partitions, if anything was; the other fields hold all charges together.
    """

    numerators: tuple[int | None, ...]
    denominators: Denominators
    claimed: Fraction
    divided: Divided | None = None

    @classmethod
    def of_ratios(cls, ratios: Sequence[Ratio | None], claimed: Fraction) -> Totals:
        """The totals of their numerators and denominators."""
        pairs = [(None, 0) if ratio is None else ratio for ratio in ratios]
        return cls(tuple([n for n, _ in pairs]), Denominators([d for _, d in pairs]), claimed)

    @property
    def ratios(self) -> list[Ratio | None]:
        """What was spent at each order, as numerators and denominators."""
        return [None if n is None else (n, d) for n, d in zip(self.numerators, self.denominators, strict=True)]

    @property
    def spent(self) -> Price:
        """What was spent at each order."""
        return tuple(None if ratio is None else Fraction(*ratio) for ratio in self.ratios)

    def changed(self, change: Price, claimed: Fraction) -> Totals:
        """The totals after adding `change`, rounded up where they would grow too long."""
        if self.divided is not None:
            return self.divided.changed(change, claimed)
        price = change if isinstance(change, Amounts) else Amounts(change)
        numerators = price.over(self.denominators)
        if numerators is not None:  # no denominator changes, so none grows too long
            after = Totals(tuple(map(add, self.numerators, numerators)), self.denominators, self.claimed)
        else:
            pairs = zip(self.ratios, price.ratios, strict=True)
            # Over the larger denominator, so that the next spend of this price is a sum of integers.
            ratios = [
                None if old is None or new is None else _over(max(old[1], new[1]), settled(added(old, new)))
                for old, new in pairs
            ]
            after = Totals.of_ratios(ratios, self.claimed)
        if not claimed:
            return after
        total = settled(added(self.claimed.as_integer_ratio(), claimed.as_integer_ratio()))
        return after._replace(claimed=Fraction(*total))

    def text(self) -> str:
        """The totals as canonical text."""
        if self.divided is not None:
            return self.divided.text(self)
        claimed = sum_text(self.claimed) if self.claimed else "0/1"
        return f'{{"claimed":"{claimed}","spent":[{self._spent_text()}]}}'

    def _spent_text(self) -> str:
        """The totals as `price_text` would write them, but fast where denominators are powers of two."""
        numbers: list[int] = []
        for n, exponent in zip(self.numerators, self.denominators.exponents or (), strict=False):
            if not n:
                break
            zeros = 0 if n & 1 else (n & -n).bit_length() - 1
            if zeros >= exponent:
                break
            numbers += (n >> zeros, exponent - zeros) if zeros else (n, exponent)
        if len(numbers) == 2 * len(self.numerators):
            return _template(len(self.numerators)) % tuple(numbers)
        return price_text(self.spent)[1:-1]

    @classmethod
    def of_text(cls, text: str) -> Totals:
        """The totals of their canonical text; any other text is refused."""
        match = _TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is not None:
            with contextlib.suppress(ValueError):
                totals = cls.of_ratios([_ratio(amount) for amount in match[2].split(",")], sum_value(match[1]))
                if totals.text() == text:
                    return totals
        raise NotALedger("an account's totals are not readable: the ledger was edited")


_TEXT = re.compile(r'\{"claimed":"([^"]*)","spent":\[([^\]]*)\]\}')


@cache
def _template(count: int) -> str:
    return ",".join(('"%x/2^%d"',) * count)


def _ratio(text: str) -> Ratio | None:
    """A total of its JSON. The caller compares the text of the result, so this need not be strict."""
    if text == "null":
        return None
    n, _, exponent = text[1:-1].partition("/2^")
    if not exponent:
        return sum_value(text[1:-1]).as_integer_ratio()
    if len(exponent) > _EXPONENT_DIGITS:
        raise ValueError(exponent)
    return int(n, 16), 1 << int(exponent)


def added(left: Ratio, right: Ratio) -> Ratio:
    """The sum in lowest terms; by shifts alone if both denominators are powers of two, as those of floats are."""
    (n, d), (m, e) = left, right
    if d & (d - 1) or e & (e - 1):
        return (Fraction(n, d) + Fraction(m, e)).as_integer_ratio()
    if d < e:
        n, d = n * (e // d), e
    total = n + m * (d // e)
    if total & 1 or d == 1:
        return total, d
    factor = min(total & -total, d) if total else d
    return total // factor, d // factor


def settled(total: Ratio) -> Ratio:
    """`total`, or the next larger multiple of 2^-1200 if its denominator is longer than that."""
    n, d = total
    if d.bit_length() <= _BITS + 1:
        return total
    return Fraction(-((-n << _BITS) // d), 1 << _BITS).as_integer_ratio()


def _over(denominator: int, ratio: Ratio) -> Ratio:
    """The same number over a larger denominator, if that is possible and not too long."""
    n, d = ratio
    fits = not denominator % d and denominator.bit_length() <= _BITS + 1
    return (n * (denominator // d), denominator) if fits else ratio


def price_text(price: Price) -> str:
    """A price as canonical JSON; null is infinite."""
    amounts = ["null" if amount is None else f'"{sum_text(amount)}"' for amount in price]
    return f"[{','.join(amounts)}]"


def charge_text(account: str, change: Price, claimed: Fraction, event: Event | None) -> str:
    """Who was charged what for which event, as an entry's text says it."""
    code = "null" if event is None else encode(event)
    return f'"account":{quoted(account)},"change":{price_text(change)},"claimed":"{sum_text(claimed)}","event":{code}'


def price_of_list(value: Any) -> Price:
    """The price of plain JSON values."""
    if not isinstance(value, list):
        raise NotALedger("a price is not readable: the ledger was edited")
    return tuple(None if amount is None else sum_value(amount) for amount in value)
