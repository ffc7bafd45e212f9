"""The `discreet` program: its list of commands, and how errors become one line and an exit code."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Sequence

import click

import discreet
from discreet.apps.cli import (
    allocate,
    audit,
    belief,
    candidates,
    certificate,
    check,
    choose,
    compare,
    completion,
    count,
    data,
    demo,
    learn,
    ledger,
    pate,
    plan,
    price,
    query,
    report,
    serve,
    text,
    tour,
    train,
)
from discreet.apps.cli.printing import NotPrinted, Output, print_any_character, printable
from discreet.errors import (
    BudgetExceeded,
    DiscreetError,
    Exhausted,
    InvalidArgument,
    KeyReused,
    NotALedger,
    TermsDiffer,
    UnknownEvent,
)

OK, FAILED, BAD_INPUT, NO_BUDGET = 0, 1, 2, 3

#: Every command and command group. Each lives in its own file; a new one is added here.
COMMANDS: tuple[click.Command, ...] = (
    demo.command,
    tour.command,
    learn.command,
    data.group,
    ledger.group,
    query.command,
    count.command,
    train.command,
    pate.command,
    text.group,
    check.command,
    audit.command,
    report.command,
    certificate.group,
    serve.command,
    plan.command,
    candidates.command,
    price.group,
    compare.command,
    allocate.command,
    choose.command,
    belief.command,
    completion.command,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(discreet.__version__, prog_name="discreet", message="%(prog)s %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """One privacy budget for everything that touches your data.

    Every command takes --json and --debug, and shows an example in its --help. Exit codes: 0 success, 2 invalid input,
    3 the budget has no room, 1 any other failure.
    """
    context.ensure_object(Output)


for command in COMMANDS:
    program.add_command(command)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    output = Output()
    # Known before the flags are parsed: an error in these is JSON, too.
    output.json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    print_any_character()
    try:
        answer = program.main(
            None if arguments is None else list(arguments), prog_name="discreet", standalone_mode=False, obj=output
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return BAD_INPUT
    except click.UsageError as error:
        hint = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        return _failed(output, error.format_message().rstrip(".") + hint, BAD_INPUT)
    except click.ClickException as error:
        return _failed(output, error.format_message(), BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _failed(output, "interrupted; anything already charged stays charged", FAILED)
    except BrokenPipeError:
        _drop_standard_output()
        return FAILED
    except BudgetExceeded as error:
        return _failed(output, str(error), NO_BUDGET)
    except (InvalidArgument, UnknownEvent, Exhausted, TermsDiffer, KeyReused, NotALedger) as error:
        return _failed(output, str(error), BAD_INPUT)
    except NotPrinted as error:
        _drop_standard_output()
        return _failed(output, str(error), FAILED)
    except DiscreetError as error:
        return _failed(output, str(error), FAILED)
    except Exception as error:
        # A foreign exception's message may quote data. Its type does not.
        text = f"unexpected failure ({type(error).__name__}); --debug shows where, and may show data"
        return _failed(output, text, FAILED)
    return answer if isinstance(answer, int) else OK


def _drop_standard_output() -> None:
    """Discard what is still buffered for a reader that has gone, so that Python does not fail on it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(output: Output, message: str, code: int) -> int:
    if output.debug:
        traceback.print_exc()
    text = " ".join(message.split())
    if output.json:
        click.echo(json.dumps({"error": text, "exit_code": code}), err=True)
    else:
        click.echo(printable(f"error: {text}"), err=True)
    return code
