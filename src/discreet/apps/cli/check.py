"""`discreet check`: whether a model can be trained privately as it is."""

from __future__ import annotations

import math
from typing import Any

import click

from discreet import _check
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.loading import loaded
from discreet.apps.cli.printing import Output
from discreet.errors import InvalidArgument, MissingExtra


@click.command("check", cls=Command, example="discreet check model.py:build --shape 1,28,28 --classes 10")
@click.argument("target", metavar="FILE:FUNCTION")
@click.option("--shape", help="Shape of one example, such as 784 or 1,28,28. The model is then tried on random inputs.")
@click.option("--classes", type=int, default=10, show_default=True, help="With --shape: number of classes.")
@with_output
def command(output: Output, target: str, shape: str | None, classes: int) -> int:
    """Check whether a torch model can be trained privately, and how each parameter would be clipped.

    FUNCTION in FILE takes no arguments and returns the model. FILE runs as Python code: check only files that you
    trust. The exit code is 1 if the model cannot be trained as it is.
    """
    sizes = None if shape is None else _shape(shape)
    _check.integer("--classes", classes, "there are at least two classes", at_least=2, at_most=10**5)
    try:
        from discreet.learning import zoo
        from discreet.learning.compatibility import findings
    except ModuleNotFoundError as missing:
        raise MissingExtra("the check needs torch: pip install 'discreet[learning]'") from missing
    model = _built(target)
    if not callable(getattr(model, "named_modules", None)):
        raise InvalidArgument(f"FUNCTION must return a torch module, got {type(model).__name__}: return the model")
    problems = [(finding.module, finding.problem, finding.remedy) for finding in findings(model)]
    covered = None
    if not problems and sizes is not None:
        try:
            covered = zoo.rehearse(model, sizes, classes).splitlines()
        except InvalidArgument as refused:
            problems = [("the whole model", str(refused), "")]
        except Exception as error:  # the inputs are random, so the message holds no data
            problem = f"{type(error).__name__}: {error}"
            raise InvalidArgument(
                f"--shape must be the shape of the model's input, got {shape!r}: {problem}"
            ) from error
    if output.json:
        rows = [{"module": module, "problem": problem, "remedy": remedy} for module, problem, remedy in problems]
        output.emit({"trainable": not problems, "findings": rows, "coverage": covered})
    elif problems:
        output.table(("module", "problem", "remedy"), problems)
    else:
        output.say(
            "this model can be trained privately" + ("" if covered else ", judging by its modules; --shape tries it")
        )
        for line in covered or ():
            output.say(f"  {line}")
    return 1 if problems else 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    if sizes and all(1 <= size <= 10**5 for size in sizes) and math.prod(sizes) <= 10**7:
        return sizes
    raise InvalidArgument(f"--shape must be sizes separated by commas, got {text!r}: such as 1,28,28")


def _built(target: str) -> Any:
    """Run the file, call its function and return the model."""
    function = loaded(target, "model.py:build", "takes no arguments and returns a model")
    try:
        return function()
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"FILE must build its model without an error, got {problem}") from error
