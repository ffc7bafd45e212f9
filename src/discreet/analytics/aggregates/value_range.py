"""A private range of a column: the places of a low and a high quantile among powers of two, for unknown bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from discreet import _check
from discreet.analytics.aggregates.aggregate import Aggregate, Bounds
from discreet.analytics.aggregates.measurement import LEVEL, Choice, DrawingMechanism
from discreet.analytics.aggregates.terms import EachCut
from discreet.bounded import Scores
from discreet.mechanisms import Exponential, NoisyMax
from discreet.neighbors import Relation, Unit
from discreet.queries.statistics.quantile import fraction, scores_of_bins
from discreet.queries.weighted import scale

#: The exponents of the powers of two that ends are chosen among by default: a millionth to a trillion.
EXPONENTS = (-20, 40)
#: Wider exponents would leave what every engine compares exactly.
_WIDEST = 400
#: The least share outside: a quantile of a thousandth on each side.
_LEAST = Fraction(2, 1000)


@dataclass(frozen=True)
class RangeEnd(Aggregate):
    """An end of a range: the nearest cut beyond a quantile. Errors say how many more rows may lie beyond the end."""

    name = "range_end"
    error_in = "rank"

    column: str
    rank: float
    cuts: tuple[float, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def measurement(self, unit: Unit, declared: Mapping[str, Bounds]) -> Choice:
        """One row moves each score as `queries.statistics.quantile.scores_of_bins` says."""
        return _BestBin(self, unit, (EachCut(self.column, self.cuts),), self.cuts, fraction(self.rank), scale(unit))


@dataclass(frozen=True)
class _BestBin(Choice):
    """Which interval between cuts holds the quantile, in units of 1/`scale` rows."""

    cuts: tuple[float, ...]
    quantile: Fraction
    scale: int

    def scores(self, counts: Sequence[int], relation: Relation) -> Scores:
        upper = self.quantile > Fraction(1, 2)
        return scores_of_bins(
            self.cuts, self.quantile, counts, self.unit, upper=upper, scale=self.scale, relation=relation
        )

    def mechanism(self, epsilon: Fraction, *, pure: bool = False) -> Exponential | NoisyMax:
        return NoisyMax(epsilon) if pure else Exponential(epsilon)

    def score_error(self, mechanism: DrawingMechanism, relation: Relation) -> float:
        """In ranks: how many rows more than the quantile's share may lie beyond the end."""
        assert isinstance(mechanism, Exponential | NoisyMax)
        scores = self.scores([0] * self.coordinates, relation)
        return mechanism.loss_bound(scores, LEVEL, relation) / (self.quantile.denominator * self.scale)


def range_ends(inside: float, exponents: tuple[int, int], column: str) -> dict[str, Aggregate]:
    """The two ends of a range that holds a share `inside` of the rows.

    The interval that holds the quantile of half of the share outside has the score 0. The one that is chosen has a
    score within the rank error of it, so at most that half lies beyond its outer end, plus the rank error.
    """
    share = _check.real("inside", inside, "it is the share of rows that should lie in the range, such as 0.98")
    if not Fraction(1, 2) <= share <= 1 - _LEAST:
        raise _check.fail("inside", "lie in [0.5, 0.998]", inside, "the last rows belong to single people")
    remedy = "they are the powers of two that the least and the largest end may be, such as (-20, 40)"
    if not isinstance(exponents, tuple | list) or len(exponents) != 2:
        raise _check.fail("exponents", "be two integers", exponents, remedy)
    low, high = (_check.integer("exponents", e, remedy, at_least=-_WIDEST, at_most=_WIDEST) for e in exponents)
    if low >= high:
        raise _check.fail("exponents", "ascend", exponents, remedy)
    sizes = [2.0**exponent for exponent in range(low, high + 1)]
    cuts = (*(-size for size in reversed(sizes)), 0.0, *sizes)
    tail = float((1 - share) / 2)
    return {"lower": RangeEnd(column, tail, cuts), "upper": RangeEnd(column, 1 - tail, cuts)}
