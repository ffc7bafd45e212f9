"""The base of every command: examples in its help, `--json` and `--debug`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from discreet.apps.cli.printing import Output

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help ends with examples. The tests run each example as typed."""

    def __init__(self, *args: Any, example: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = tuple(line.strip() for line in example.strip().split("\n"))
        self.params += [_flag("--json", "Print JSON."), _flag("--debug", "Show a traceback on failure.")]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
            for line in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _flag(name: str, text: str) -> click.Option:
    def remember(context: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(context.ensure_object(Output), name.removeprefix("--"), True)

    return click.Option([name], is_flag=True, expose_value=False, is_eager=True, callback=remember, help=text)


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the command its `Output` as the first argument."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(click.get_current_context().ensure_object(Output), *args, **kwargs)

    return called


def options(*decorators: Callable[[Any], Any]) -> Callable[[CommandFunction], CommandFunction]:
    """Combine several options into one decorator, in the order in which the help shows them."""

    def decorate(function: CommandFunction) -> CommandFunction:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
