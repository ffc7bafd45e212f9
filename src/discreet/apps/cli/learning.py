"""`discreet train` and `discreet check`: a model from a file of public facts, and whether a model can be trained so."""

from __future__ import annotations

import importlib.util
import math
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from discreet import _check
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.output import Output, plain, read_text
from discreet.errors import InvalidArgument, MissingExtra


@click.command("train", cls=Command, example="discreet train config.toml")
@click.argument("config", metavar="CONFIG")
@click.option("--progress", is_flag=True, help="Show a progress bar. It shows exact losses: for the data's owner only.")
@with_output
def train(output: Output, config: str, progress: bool) -> None:
    """Train a small model with DP-SGD as CONFIG (a TOML file) says: data, model, plan, ledger.

    The data are a table (Parquet, CSV) with public bounds and categories, or a pair of idx image files; the models are
    logistic, mlp and cnn. The account is charged before the first step. Writes the model, its privacy statement and a
    report into one folder. docs/cli.md has a whole CONFIG.
    """
    try:
        from discreet.apps.training import carry_out, read_config
    except ModuleNotFoundError as missing:
        raise MissingExtra("training from a file needs more: pip install 'discreet[all]'") from missing
    found = read_config(config, read_text(config))
    shown = progress and not output.json
    with nullcontext() if shown else output.working("Training"):  # there is room for one moving line
        done = carry_out(found, progress=shown, source=config)
    scores = [
        {"name": one.name, "value": one.value, "low": one.low, "high": one.high, "cost": one.cost}
        for one in done.training.evaluations
    ]
    if output.json:
        files = [str(path) for path in done.files]
        output.emit(plain({"guarantee": done.guarantee, "steps": done.steps, "evaluations": scores, "files": files}))
        return
    output.say(f"trained in {done.steps:,} steps: {done.guarantee}")
    for one in done.training.evaluations:
        output.say(f"{one.name}: {one.value:.4g} (95%: {one.low:.4g} to {one.high:.4g}). {one.cost}")
    output.say("wrote " + ", ".join(str(path) for path in done.files))


@click.command("check", cls=Command, example="discreet check model.py:build --shape 1,28,28 --classes 10")
@click.argument("target", metavar="FILE:FUNCTION")
@click.option("--shape", help="The shape of one example, such as 784 or 1,28,28: the model is then tried on noise.")
@click.option("--classes", type=int, default=10, show_default=True, help="With --shape: the number of classes.")
@with_output
def check(output: Output, target: str, shape: str | None, classes: int) -> int:
    """Say whether a torch model can be trained privately, and how each of its parameters will be clipped.

    FUNCTION of FILE takes nothing and returns the model. The file is run as Python code, with all that it does: check
    only files that you trust. Exit code 1 where the model cannot be trained as it is.
    """
    sizes = None if shape is None else _shape(shape)
    _check.integer("--classes", classes, "a label is one of several", at_least=2, at_most=10**5)
    try:
        from discreet.learning import zoo
        from discreet.learning.compatibility import findings
    except ModuleNotFoundError as missing:
        raise MissingExtra("the check needs torch: pip install 'discreet[learning]'") from missing
    model = _built(target)
    if not callable(getattr(model, "named_modules", None)):
        raise InvalidArgument(f"FUNCTION must return a torch module, got {type(model).__name__}: return the model")
    found = [(one.module, one.problem, one.remedy) for one in findings(model)]
    covered = None
    if not found and sizes is not None:
        try:
            covered = zoo.rehearse(model, sizes, classes).splitlines()
        except InvalidArgument as refused:
            found = [("the whole model", str(refused), "")]
        except Exception as error:  # on random numbers, so its message holds no data
            problem = f"{type(error).__name__}: {error}"
            raise InvalidArgument(f"--shape must be what the model takes, got {shape!r}: {problem}") from error
    if output.json:
        problems = [{"module": module, "problem": problem, "remedy": remedy} for module, problem, remedy in found]
        output.emit({"trainable": not found, "findings": problems, "coverage": covered})
    elif found:
        output.table(("module", "problem", "remedy"), found)
    else:
        output.say("this model can be trained privately" + ("" if covered else ", as far as its modules show"))
        for line in covered or ():
            output.say(f"  {line}")
    return 1 if found else 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError:
        sizes = ()
    if sizes and all(1 <= size <= 10**5 for size in sizes) and math.prod(sizes) <= 10**7:
        return sizes
    raise InvalidArgument(f"--shape must be sizes with commas between them, got {text!r}: such as 1,28,28")


def _built(target: str) -> Any:
    """The model that a function of a file returns. This runs the file."""
    path, colon, name = target.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise InvalidArgument(f"FILE:FUNCTION must name both, got {target!r}: such as model.py:build")
    if not Path(path).is_file():
        raise InvalidArgument(f"FILE must be a Python file that exists, got {path!r}: such as model.py:build")
    spec = importlib.util.spec_from_file_location("discreet_checked_model", path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"FILE must be a Python file, got {path!r}: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not callable(function):
            raise InvalidArgument(
                f"FUNCTION must be defined in {path}, got {name!r}: it takes nothing, returns a model"
            )
        return function()
    except InvalidArgument:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"FILE must run and build its model, got {problem}") from error
    finally:
        sys.modules.pop(spec.name, None)
