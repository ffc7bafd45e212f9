"""A function on the list: how an engine computes it, and what is public about its values.

A function is total: it gives a value or a missing value for every row, and never an error. It looks at one row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.analytics.table.expressions.nodes import Expression

#: The least and the largest value that an expression can have, where these follow from public facts.
Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class RowFunction:
    """A function of values of one row.

    Attributes:
        name: its name in messages.
        build: makes the engine's expression from those of the arguments, and from public options.
        span: the range of the results for the ranges of the arguments, None where it is not known.
        domain: all values that it can give, in order, where these are few and publicly known.
        exact: whether its text arguments must be columns that tell different texts apart.
    """

    name: str
    build: Callable[..., Any]
    span: Callable[[Sequence[Range | None]], Range | None] | None = None
    domain: tuple[Any, ...] | None = None
    exact: bool = False


def within(low: float, high: float) -> Callable[[Sequence[Range | None]], Range]:
    """A range that does not depend on the arguments."""
    return lambda spans: (low, high)


class Methods(ABC):
    """What the methods of a family need of an expression. Abstract."""

    @abstractmethod
    def _call(self, function: RowFunction, *others: object, options: tuple[Any, ...] = ()) -> Expression:
        """The function of this expression, of others, and of public options."""
