"""A claim of a textbook: what it says, the line of code that checks it, and what comes out."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

ClaimVerdict = Literal["holds", "holds in part", "does not hold"]
#: The five introductions that the claims are taken from, by their subject.
Chapter = Literal["foundations", "machine learning", "deep learning", "noise", "glossary"]

#: What the code of every claim starts from.
PREAMBLE = """\
import math
import numpy as np
import discreet as dp
from discreet import accounting, events
from discreet.accounting import calibrate, closed_forms
from discreet.accounting.closed_forms import gaussian_delta, gaussian_noise_multiplier
from discreet.accounting.forms import conversions
from discreet.events import Claimed, Gaussian, L2Laplace, Laplace
from discreet.events import PoissonSampled, Repeated
"""

# Digits of a number that is shown.
_DIGITS = 4


@dataclass(frozen=True)
class TextbookClaim:
    """One claim, in our own words, with what decides about it.

    Attributes:
        name: a short title.
        sources: which of the five introductions make the claim.
        says: the claim.
        code: Python, run after `PREAMBLE`; the value of its last expression is what we get. A tuple is several values.
        verdict: whether the claim holds.
        supported: from the values to whether they support the verdict. A test calls it.
        because: the reason, with places for the values: `{0:.4g}` is the first.
    """

    name: str
    sources: tuple[Chapter, ...]
    says: str
    code: str
    verdict: ClaimVerdict
    supported: Callable[..., bool]
    because: str

    @property
    def values(self) -> tuple[Any, ...]:
        """What the code gives."""
        return run(self.code)

    @property
    def reason(self) -> str:
        """`because`, with the values in their places."""
        return self.because.format(*self.values)

    @property
    def plain_reason(self) -> str:
        """`reason` for a terminal: links become their text."""
        return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", self.reason)

    @property
    def still_holds(self) -> bool:
        """Whether the values still support the verdict."""
        return bool(self.supported(*self.values))

    @property
    def shown(self) -> str:
        """The values as text."""
        return ", ".join(_shown(value) for value in self.values)


@cache
def run(code: str) -> tuple[Any, ...]:
    """The value of the last expression of `code`, as a tuple. The code is a constant of this project, never input."""
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the code of a claim ends with an expression, got {ast.unparse(last)!r}")
    names: dict[str, Any] = {}
    exec(PREAMBLE, names)
    exec(compile(ast.Module(statements, []), "<claim>", "exec"), names)
    value = eval(compile(ast.Expression(last.value), "<claim>", "eval"), names)
    return value if isinstance(value, tuple) else (value,)


def shows(value: float, text: str) -> bool:
    """Whether a value, rounded to the digits of `text`, is what `text` says.

    >>> shows(5.8502, "5.850"), shows(5.8502, "5.84")
    (True, False)
    """
    digits = len(text.partition(".")[2])
    return f"{value:.{digits}f}" == text


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{float(value):.{_DIGITS}g}"
