"""An exercise: a story, questions with answers that the library computes, hints for wrong answers, and a chart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from discreet.apps.textbook.claim import run

# How far a typed number may be from the answer: learners round to two or three digits.
_TOLERANCE = 0.01
# A mistake is recognized more strictly, so that a hint never answers something else.
_MISTAKE_TOLERANCE = 0.004


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that learners often give, and what to tell them."""

    value: float
    hint: str


@dataclass(frozen=True)
class OfferedAnswer:
    """One of the answers to choose from, with what to say if it is chosen and wrong."""

    text: str
    hint: str = ""


@dataclass(frozen=True)
class ExerciseQuestion:
    """One question.

    Attributes:
        asks: the question.
        code: Python that computes the answer, after the textbook's preamble. Of a choice, the index of the right one.
        explains: what to say after the right answer; `{0:.3g}` is the answer.
        hint: what to say to a wrong answer that is no known mistake, or on request.
        mistakes: known wrong answers.
        choices: what to choose from; empty for a number.
        tolerance: how far a number may be from the answer, relatively.
    """

    asks: str
    code: str
    explains: str
    hint: str
    mistakes: tuple[Mistake, ...] = ()
    choices: tuple[OfferedAnswer, ...] = ()
    tolerance: float = _TOLERANCE

    @property
    def answer(self) -> float:
        """The right answer, as the library computes it; the index of the right choice."""
        return float(run(self.code)[0])

    @property
    def shown(self) -> str:
        """The right answer, as a learner would type it."""
        if self.choices:
            return letter(int(self.answer))
        return f"{self.answer:.4g}"

    @property
    def explanation(self) -> str:
        """`explains`, with the answer in its place."""
        return self.explains.format(self.answer)

    def check(self, typed: str) -> Reply:
        """Whether what was typed is right, and what to say to it."""
        if self.choices:
            return self._check_choice(typed)
        number = parsed(typed)
        if number is None:
            return Reply(False, "Type a number, such as 0.5, 12%, 1e-6 or 1,000.")
        if _near(number, self.answer, self.tolerance):
            return Reply(True, self.explanation)
        for mistake in self.mistakes:
            if _near(number, mistake.value, _MISTAKE_TOLERANCE):
                return Reply(False, mistake.hint)
        return Reply(False, self.hint)

    def _check_choice(self, typed: str) -> Reply:
        letters = [letter(index) for index in range(len(self.choices))]
        chosen = typed.strip().lower().rstrip(".)")
        if chosen not in letters:
            return Reply(False, f"Type one letter: {', '.join(letters)}.")
        index = letters.index(chosen)
        if index == int(self.answer):
            return Reply(True, self.explanation)
        return Reply(False, self.choices[index].hint or self.hint)


@dataclass(frozen=True)
class Reply:
    """What a typed answer is answered with."""

    right: bool
    says: str


@dataclass(frozen=True)
class Chart:
    """A picture: bars, or lines over a number.

    Attributes:
        title: what it shows.
        code: Python that gives (labels or x values, {name: y values}).
        x: the label of the horizontal axis.
        y: the label of the vertical axis.
        kind: "bars" for labels, "lines" for numbers.
        log: which axes are logarithmic: "", "x", "y" or "xy".
        marks: dashed lines at a value of "x" or "y", with a label each.
        describes: what a reader who cannot see it should know.
    """

    title: str
    code: str
    x: str
    y: str
    kind: Literal["bars", "lines"]
    describes: str
    log: str = ""
    marks: tuple[tuple[Literal["x", "y"], float, str], ...] = ()

    @property
    def data(self) -> tuple[list[Any], dict[str, list[float]]]:
        """Labels or x values, and the series by name."""
        across, series = run(self.code)
        return list(across), {str(name): [float(y) for y in values] for name, values in series.items()}


@dataclass(frozen=True)
class Exercise:
    """A problem of about ten minutes.

    Attributes:
        slug: its name on the command line and in addresses.
        title: what it is called.
        story: the situation, in Markdown.
        questions: in the order in which they are asked.
        chart: the picture.
        lesson: what to remember.
    """

    slug: str
    title: str
    story: str
    questions: tuple[ExerciseQuestion, ...]
    chart: Chart
    lesson: str


def letter(index: int) -> str:
    """The letter of a choice: a, b, c, …"""
    return "abcdefgh"[index]


def parsed(typed: str) -> float | None:
    """A typed number: `12%` is 12, `1,000` is 1000; None if it is no finite number."""
    text = typed.strip().rstrip("%").replace(",", "").replace("_", "").strip()
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _near(number: float, target: float, tolerance: float) -> bool:
    return abs(number - target) <= tolerance * abs(target)
