"""One exercise as a dialog: questions, typed answers, hints. It reads lines and says text, and knows no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from discreet.apps.learn import charts
from discreet.apps.learn.exercise import Exercise, ExerciseQuestion, letter
from discreet.apps.learn.progress import Progress

#: What may be typed instead of an answer.
COMMANDS = {"hint": "a hint", "solution": "the answer and its code", "quit": "stop; what is solved stays solved"}


def play(exercise: Exercise, progress: Progress, lines: Iterator[str], say: Callable[[str], None]) -> bool:
    """Ask the questions that are not solved yet. Returns whether all of them are solved at the end."""
    total = len(exercise.questions)
    start = min(progress.of(exercise.slug), total)
    if start == total:
        say(f"{exercise.title}: solved already. Start over with --restart.")
        return True
    say(f"{exercise.title}\n\n{exercise.story}")
    say(f"\nType an answer, or {', '.join(COMMANDS)}.")
    for number in range(start, total):
        say(f"\n{number + 1}/{total}  {_asked(exercise.questions[number])}")
        if not _answered(exercise.questions[number], lines, say):
            say(f"\nStopped at question {number + 1} of {total}. `discreet learn {exercise.slug}` continues here.")
            return False
        progress.record(exercise.slug, number + 1)
    say(f"\n{charts.as_text(exercise.chart)}\n\n{exercise.lesson}\n\nSolved: {exercise.title}.")
    return True


def _asked(question: ExerciseQuestion) -> str:
    rows = [f"     {letter(index)}) {choice.text}" for index, choice in enumerate(question.choices)]
    return "\n".join([question.asks, *rows])


def _answered(question: ExerciseQuestion, lines: Iterator[str], say: Callable[[str], None]) -> bool:
    """Take lines until one is right or shows the solution; False if the learner stops or the lines end."""
    for line in lines:
        typed = line.strip()
        word = typed.lower()
        if not typed:
            continue
        if word in ("quit", "exit", "q"):
            return False
        if word == "hint":
            say(f"Hint: {question.hint}")
        elif word == "solution":
            say(f"The answer is {question.shown}. {question.explanation}\n\n{_indented(question.code)}")
            return True
        else:
            reply = question.check(typed)
            say(f"Right. {reply.says}" if reply.right else f"Not yet. {reply.says}")
            if reply.right:
                return True
    return False


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.splitlines())
