"""Events in words: what `str(event)` says, in statements and over charts. `repr` has every number exactly."""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

#: Parts of a composition that are named; of the others the number is given.
_NAMED = 3
_PROPER = {"Gaussian", "Laplace", "L2", "Poisson", "Toeplitz", "Skellam"}
#: Fields whose names are shorter in words.
_PLAIN = {"noise_multiplier": "noise", "epsilon": "ε", "delta": "δ"}


def in_words(event: Any) -> str:
    """An event in words.

    >>> from discreet import events as ev
    >>> in_words(ev.Repeated(ev.PoissonSampled(0.01, ev.Gaussian(1.1)), 3000))
    '3,000 × Poisson sampled, rate 0.01: Gaussian, noise 1.1'
    >>> in_words(ev.DiscreteLaplace(10240, Fraction(20480)))
    'discrete Laplace, noise 2'
    """
    inner = event.parts()
    numbers = {field.name: getattr(event, field.name) for field in fields(event)}
    numbers = {name: value for name, value in numbers.items() if value not in (inner, *inner) and value is not None}
    if inner and set(numbers) == {"count"}:
        return f"{numbers['count']:,} × {inner[0]}"
    head = _head(event, numbers)
    if not inner:
        return head
    named = [str(nested) for nested in inner[:_NAMED]]
    more = [f"{len(inner) - _NAMED:,} more"] if len(inner) > _NAMED else []
    return f"{head}: {'; '.join(named + more)}"


def _head(value: Any, numbers: dict[str, Any]) -> str:
    named = (f"{_PLAIN.get(name, name.replace('_', ' '))} {_value(number)}" for name, number in _noise(numbers))
    return ", ".join([_name(type(value).__name__), *named])


def _noise(numbers: dict[str, Any]) -> list[tuple[str, Any]]:
    """The numbers of an event, with noise in grid units as a multiple of the sensitivity."""
    rest = dict(numbers)
    if {"sensitivity", "scale"} <= set(rest):
        rest = {"noise": rest.pop("scale") / rest.pop("sensitivity"), **rest}
    if {"sensitivity_squared", "variance"} <= set(rest):
        rest = {"noise": math.sqrt(rest.pop("variance") / rest.pop("sensitivity_squared")), **rest}
    if rest.get("coordinates") == 1:
        del rest["coordinates"]
    return list(rest.items())


def _name(text: str) -> str:
    words = re.findall(r"L2|[A-Z][a-z0-9]*", text)
    return " ".join(word if word in _PROPER else word.lower() for word in words)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Fraction):
        return f"{float(value):.4g}"
    if isinstance(value, tuple):
        shown = ", ".join(_value(each) for each in value[:_NAMED])
        return f"({shown}, …)" if len(value) > _NAMED else f"({shown})"
    if is_dataclass(value):
        return f"({_head(value, {field.name: getattr(value, field.name) for field in fields(value)})})"
    return str(value)
