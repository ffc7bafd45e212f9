"""One event priced by every method: what each would charge, and why some do not apply."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from discreet import _check
from discreet import events as ev
from discreet.accounting import composition, tight
from discreet.accounting.forms.conversions import gdp_delta, gdp_epsilon, rdp_epsilon, zcdp_epsilon
from discreet.accounting.forms.gdp import gdp, limit
from discreet.accounting.forms.pure import amplified, pure
from discreet.accounting.forms.rdp import DEFAULT_ORDERS, rdp
from discreet.accounting.forms.zcdp import zcdp
from discreet.accounting.shuffle import shuffled_epsilon
from discreet.errors import UnknownEvent
from discreet.events import Event
from discreet.guarantees import GDP, ApproxDP
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, ZERO_OUT, Relation
from discreet.numeric.rounding import exact, float_down, float_up, reported

Standing = Literal["valid", "approximation", "not applicable"]

# The δ/q that a sampled step is priced at, for a δ near its rate q: no larger δ is of any use.
_LARGEST_DELTA = 0.5


@dataclass(frozen=True)
class ComparisonRow:
    """One method's answer: an upper bound on ε where it is valid, and the reason where it has none."""

    method: str
    epsilon: float | None
    standing: Standing
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """What each method charges for one event at one δ; prints as a table."""

    event: Event
    delta: float
    relation: Relation
    lines: tuple[ComparisonRow, ...]

    def rows(self) -> list[dict[str, object]]:
        """The table for machines: one dictionary for each method."""
        return [
            {"method": row.method, "epsilon": row.epsilon, "standing": row.standing, "note": row.note}
            for row in self.lines
        ]

    def epsilon(self, method: str) -> float | None:
        """The ε of one method, by its name in the table."""
        for row in self.lines:
            if row.method == method:
                return row.epsilon
        raise _check.fail("method", "be a row of the table", method, ", ".join(row.method for row in self.lines))

    def __str__(self) -> str:
        shown = [(row.method, _number(row.epsilon), row.standing, row.note) for row in self.lines]
        table = [("method", "epsilon", "standing", "note"), *shown]
        widths = [max(len(line[column]) for line in table) for column in range(3)]
        lines = [
            f"{name:<{widths[0]}}  {value:>{widths[1]}}  {standing:<{widths[2]}}  {note}".rstrip()
            for name, value, standing, note in table
        ]
        return f"{self.event!r}\nδ = {self.delta:g}, {self.relation.value}\n\n" + "\n".join(lines)


def compare(event: Event, delta: float, relation: Relation = ADD_REMOVE) -> Comparison:
    """Price `event` at `delta` by basic and advanced composition, zCDP, RDP, GDP, optimal composition and exactly.

    Every row is a certified upper bound, except the GDP limit, which is labeled as an approximation. The steps of basic
    and advanced composition get equal parts of δ.

    >>> table = compare(ev.Repeated(ev.Laplace(10.0), 100), 1e-5)
    >>> [row.method for row in table.lines if row.standing == "valid"][:3]
    ['basic', 'advanced', 'optimal pure']
    """
    delta = float_down(_check.delta(delta))
    methods: list[tuple[str, Callable[[], tuple[float, str]]]] = [
        ("basic", lambda: _basic(event, delta, relation)),
        ("advanced", lambda: _advanced(event, delta, relation)),
        ("optimal pure", lambda: _optimal(event, delta, relation)),
        ("zCDP, textbook", lambda: (zcdp_epsilon(zcdp(event, relation), delta, "textbook"), "")),
        ("zCDP, tight", lambda: (zcdp_epsilon(zcdp(event, relation), delta), "")),
        ("RDP, textbook", lambda: (rdp_epsilon(rdp(event, DEFAULT_ORDERS, relation), delta, "textbook"), "")),
        ("RDP, tight", lambda: (rdp_epsilon(rdp(event, DEFAULT_ORDERS, relation), delta), "")),
        ("GDP", lambda: (gdp_epsilon(gdp(event, relation), delta), "")),
    ]
    lines = [_row(name, method) for name, method in methods]
    lines.append(_limit_row(event, delta, relation))
    lines.append(_row("tight", lambda: _tight(event, delta, relation)))
    return Comparison(event, delta, relation, tuple(lines))


def _row(method: str, price: Callable[[], tuple[float, str]]) -> ComparisonRow:
    try:
        epsilon, note = price()
    except UnknownEvent as error:
        return ComparisonRow(method, None, "not applicable", str(error))
    if math.isinf(epsilon):
        return ComparisonRow(method, None, "not applicable", "it gives no finite ε")
    return ComparisonRow(method, epsilon, "valid", note)


def _limit_row(event: Event, delta: float, relation: Relation) -> ComparisonRow:
    name, note = "GDP limit", "a limit for many steps, may lie below the truth"
    if relation is REPLACE_ONE:
        return ComparisonRow(name, None, "not applicable", "the limit is stated for add/remove")
    try:
        mu = limit(event)
    except UnknownEvent as error:
        return ComparisonRow(name, None, "not applicable", str(error))
    if mu <= 0 or math.isinf(mu) or gdp_delta(GDP(mu), 0.0) <= delta:
        return ComparisonRow(name, 0.0 if mu < math.inf else None, "approximation", note)
    return ComparisonRow(name, gdp_epsilon(GDP(mu), delta), "approximation", note)


def _tight(event: Event, delta: float, relation: Relation) -> tuple[float, str]:
    interval = tight.epsilon(event, delta, relation)
    return interval.upper, f"the truth is in [{interval.lower:.6g}, {interval.upper:.6g}]"


# --- steps: what basic and advanced composition add up -------------------------------------------------------------


def _steps(event: Event, times: int = 1) -> list[tuple[Event, int]]:
    """The events below `Repeated` and `Composed`, each with how often it runs."""
    match event:
        case ev.Repeated(inner, count):
            return _steps(inner, times * count)
        case ev.Composed(parts):
            return [step for part in parts for step in _steps(part, times)]
        case _:
            return [(event, times)] if times else []


def _claims(event: Event, delta: float, relation: Relation) -> tuple[list[ApproxDP], list[int]]:
    """An (ε, δ) for each step, and the counts; steps that need a δ share `delta` equally."""
    steps = _steps(event)
    sharing = sum(count for step, count in steps if _needs_delta(step, relation))
    share = float_down(Fraction(delta) / sharing) if sharing else 0.0
    return [_claim(step, share, relation) for step, _ in steps], [count for _, count in steps]


def _needs_delta(step: Event, relation: Relation) -> bool:
    return isinstance(step, ev.Shuffled) or math.isinf(pure(step, relation).epsilon)


def _claim(step: Event, delta: float, relation: Relation) -> ApproxDP:
    """(ε, δ) of one step; (ε, 0) where it has a pure ε."""
    if not _needs_delta(step, relation):
        return ApproxDP(pure(step, relation).epsilon, 0.0)
    match step:
        case ev.Claimed(epsilon, proved) if proved <= delta:
            return ApproxDP(float_up(exact(epsilon)), delta)
        case ev.MayFail(probability, inner) if probability < delta:
            fails = exact(probability)
            inside = _claim(inner, float_down((Fraction(delta) - fails) / (1 - fails)), relation)
            return ApproxDP(inside.epsilon, delta)
        case ev.Shuffled():
            return ApproxDP(shuffled_epsilon(step, delta, relation), delta)
        case ev.PoissonSampled(rate, inner) if relation is not REPLACE_ONE:
            return ApproxDP(reported(_amplified(inner, float_up(exact(rate)), delta, relation)), delta)
        case ev.SampledWithoutReplacement(size, population, inner) if relation is not ZERO_OUT:
            return ApproxDP(_amplified(inner, float_up(Fraction(size, population)), delta, relation), delta)
        case _:
            bounds = [zcdp_epsilon(zcdp(step, relation), delta)]
            try:
                bounds.append(gdp_epsilon(gdp(step, relation), delta))
            except UnknownEvent:
                bounds.append(rdp_epsilon(rdp(step, DEFAULT_ORDERS, relation), delta))
            return ApproxDP(reported(min(bounds)), delta)


def _amplified(inner: Event, rate: float, delta: float, relation: Relation) -> float:
    """ln(1 + q(e^ε − 1)) at qδ from (ε, δ): Balle, Barthe & Gaboardi 2018, Theorems 8 and 9."""
    if rate <= 0:
        return 0.0
    inside = _claim(inner, min(_LARGEST_DELTA, float_down(Fraction(delta) / Fraction(rate))), relation)
    return amplified(inside.epsilon, rate)


def _basic(event: Event, delta: float, relation: Relation) -> tuple[float, str]:
    claims, counts = _claims(event, delta, relation)
    total = sum(
        (count * Fraction(_finite(claim.epsilon)) for claim, count in zip(claims, counts, strict=True)), Fraction(0)
    )
    return float_up(total), ""


def _advanced(event: Event, delta: float, relation: Relation) -> tuple[float, str]:
    claims, counts = _claims(event, delta / 2, relation)
    spent = sum((count * Fraction(claim.delta) for claim, count in zip(claims, counts, strict=True)), Fraction(0))
    slack = float_down(Fraction(delta) - spent)
    return composition.advanced_of(claims, counts, slack).epsilon, ""


def _optimal(event: Event, delta: float, relation: Relation) -> tuple[float, str]:
    """Optimal composition of equal pure steps; different ones are all taken at the largest ε."""
    claims, counts = _claims(event, delta, relation)
    if any(claim.delta > 0 for claim in claims):
        raise UnknownEvent("its steps are not all pure")
    largest, count = max((claim.epsilon for claim in claims), default=0.0), sum(counts)
    if largest <= 0:
        return 0.0, ""
    note = "" if min(claim.epsilon for claim in claims) >= largest else "every step at the largest ε"
    return composition.optimal_pure(largest, count, delta), note


def _finite(epsilon: float) -> float:
    if math.isinf(epsilon):
        raise UnknownEvent("a step has no finite ε")
    return epsilon


def _number(epsilon: float | None) -> str:
    return "–" if epsilon is None else f"{epsilon:.5g}"
