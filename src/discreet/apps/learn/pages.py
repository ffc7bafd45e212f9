"""The exercises as pages of the documentation, from the same objects that the terminal asks."""

from __future__ import annotations

from collections.abc import Iterable

from discreet.apps.learn.exercise import Exercise, ExerciseQuestion, letter
from discreet.apps.textbook.claim import PREAMBLE

_NOTE = "<!-- Written by tools/make_textbook.py from discreet.apps.learn. Change it there, then run it again. -->"

_INDEX = """\
# Exercises

{note}

Ten problems of about ten minutes each. In a terminal, `discreet learn` lists them and `discreet learn odds` asks the
first one. It checks what you type, gives a hint for a wrong answer, and remembers what you solved in a file
(`--progress FILE`; by default `learn.json` in `~/.local/state/discreet`). The pages below have the same questions, with
the answers folded away.

Every answer is computed by the library. The code that computes it is shown with it, and starts from these lines:

```py
{preamble}```

| exercise | what it is about |
|---|---|
{rows}

[The textbook, checked](../textbook.md) has the claims that these problems come from.
"""


def index_text(exercises: Iterable[Exercise]) -> str:
    """The page that lists all exercises."""
    rows = "\n".join(f"| [{exercise.slug}]({exercise.slug}.md) | {exercise.title} |" for exercise in exercises)
    return _INDEX.format(note=_NOTE, preamble=PREAMBLE, rows=rows)


def text(exercise: Exercise) -> str:
    """The page of one exercise."""
    questions = "\n".join(
        _question_text(number, question) for number, question in enumerate(exercise.questions, start=1)
    )
    picture = f"![{exercise.chart.describes}](../img/exercise-{exercise.slug}.png)"
    return (
        f"# {exercise.title}\n\n{_NOTE}\n\n{exercise.story}\n\n"
        f"`discreet learn {exercise.slug}` asks these questions in a terminal.\n\n"
        f"{questions}\n## The picture\n\n{picture}\n\n## What to remember\n\n{exercise.lesson}\n"
    )


def _question_text(number: int, question: ExerciseQuestion) -> str:
    choices = "".join(f"- {letter(index)}) {choice.text}\n" for index, choice in enumerate(question.choices))
    mistakes = "".join(f"- *{mistake.value:g}?* {mistake.hint}\n" for mistake in question.mistakes)
    mistakes += "".join(
        f"- *{letter(index)}?* {choice.hint}\n" for index, choice in enumerate(question.choices) if choice.hint
    )
    return (
        f"## Question {number}\n\n{question.asks}\n\n"
        + (f"{choices}\n" if choices else "")
        + _folded("A hint", question.hint)
        + (_folded("Common mistakes", mistakes.rstrip()) if mistakes else "")
        + _folded("The answer", f"**{question.shown}**. {question.explanation}\n\n```py\n{question.code}\n```")
    )


def _folded(title: str, text: str) -> str:
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>\n\n'
