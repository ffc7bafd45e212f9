"""`discreet learn`: exercises in the terminal, with checked answers and hints."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.apps.learn import EXERCISES, Exercise, Progress, default_path, play

# Characters of a line that people read easily, also in a wide terminal.
_WIDEST = 100


@click.command(
    "learn",
    cls=Command,
    example="""discreet learn
    discreet learn odds""",
)
@click.argument("exercise", required=False, type=click.Choice([listed.slug for listed in EXERCISES]))
@click.option(
    "--progress", metavar="FILE", help="Where solved questions are kept.  [default: ~/.local/state/discreet/learn.json]"
)
@click.option("--restart", is_flag=True, help="Forget the solved questions of this exercise, and start over.")
@with_output
def command(output: Output, exercise: str | None, progress: str | None, restart: bool) -> None:
    """Solve ten problems in differential privacy, about ten minutes each.

    Without EXERCISE, list them and show which are solved. Answers are read from the standard input, one on each line;
    type hint, solution or quit at any time. Each right answer is saved at once.
    """
    kept = Progress.load(default_path() if progress is None else Path(progress))
    if exercise is None:
        if restart:
            raise click.UsageError("--restart needs an EXERCISE to start over.", click.get_current_context())
        _list(output, kept)
        return
    chosen = next(listed for listed in EXERCISES if listed.slug == exercise)
    if restart:
        kept.record(chosen.slug, 0)
    if output.json:
        output.emit(
            _state(chosen, kept) | {"story": chosen.story, "asks": [question.asks for question in chosen.questions]}
        )
        return
    play(chosen, kept, _typed(), lambda text: output.say(_wrapped(text)))


def _list(output: Output, kept: Progress) -> None:
    if output.json:
        output.emit({"progress": str(kept.path), "exercises": [_state(listed, kept) for listed in EXERCISES]})
        return
    rows = [(listed.slug, listed.title, f"{_solved(listed, kept)} of {len(listed.questions)}") for listed in EXERCISES]
    output.table(("exercise", "title", "solved"), rows)
    following = next((listed for listed in EXERCISES if _solved(listed, kept) < len(listed.questions)), None)
    output.say("\nAll solved." if following is None else f"\nNext: discreet learn {following.slug}")


def _state(exercise: Exercise, kept: Progress) -> dict[str, object]:
    return {
        "exercise": exercise.slug,
        "title": exercise.title,
        "questions": len(exercise.questions),
        "solved": _solved(exercise, kept),
    }


def _solved(exercise: Exercise, kept: Progress) -> int:
    return min(kept.of(exercise.slug), len(exercise.questions))


def _wrapped(text: str) -> str:
    """Text in lines that fit a terminal; a pipe gets it as it is. Indented lines are tables and code, and stay."""
    if not sys.stdout.isatty():
        return text
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    lines = [[line] if line.startswith(" ") else textwrap.wrap(line, width) or [""] for line in text.split("\n")]
    return "\n".join(line for wrapped in lines for line in wrapped)


def _typed() -> Iterator[str]:
    """The lines that are typed, with a prompt in a terminal. They end with the input."""
    while True:
        if sys.stdin.isatty():
            click.echo("> ", nl=False)
        try:
            line = sys.stdin.readline()
        except (OSError, ValueError):  # no standard input, or one that is no text
            return
        if not line:
            return
        yield line
