"""All commands together, and what becomes of an error: one line with the remedy, and a code that scripts can use."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

import discreet
from discreet.apps.cli import compare, completion, demo, learning, ledger, price, query, report
from discreet.apps.cli.output import Output, printable
from discreet.errors import (
    BudgetExceeded,
    DiscreetError,
    Exhausted,
    InvalidArgument,
    KeyReused,
    LedgerError,
    NotALedger,
    TermsDiffer,
    UnknownEvent,
)

OK, FAILED, BAD_INPUT, NO_BUDGET = 0, 1, 2, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(discreet.__version__, prog_name="discreet", message="%(prog)s %(version)s")
@click.pass_context
def program(context: click.Context) -> None:
    """One privacy budget for everything that touches your data.

    Each command takes --json for machines and --debug for a traceback, and has an example in its --help. Exit codes:
    0 it worked, 2 something given is wrong, 3 the budget has no room, 1 anything else.
    """
    context.ensure_object(Output)


for part in (
    demo.command,
    ledger.group,
    query.command,
    learning.train,
    learning.check,
    report.command,
    price.group,
    compare.command,
    completion.command,
):
    program.add_command(part)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    output = Output()
    try:
        answer = program.main(
            None if arguments is None else list(arguments), prog_name="discreet", standalone_mode=False, obj=output
        )
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return BAD_INPUT
    except click.UsageError as error:
        where = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
        return _failed(output, error.format_message().rstrip(".") + where, BAD_INPUT)
    except click.ClickException as error:
        return _failed(output, error.format_message(), BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _failed(output, "stopped before it was done; what was charged stays charged", FAILED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: nobody is left to tell
        return FAILED
    except BudgetExceeded as error:
        return _failed(output, str(error), NO_BUDGET)
    except (InvalidArgument, UnknownEvent, Exhausted, TermsDiffer, KeyReused, NotALedger) as error:
        return _failed(output, str(error), BAD_INPUT)
    except LedgerError as error:
        return _failed(output, str(error), FAILED)
    except DiscreetError as error:
        return _failed(output, str(error), FAILED)
    except Exception as error:
        # The message of a foreign exception may quote data; its type does not.
        text = f"this failed unexpectedly ({type(error).__name__}); --debug shows where, and may show data"
        return _failed(output, text, FAILED)
    return answer if isinstance(answer, int) else OK


def _failed(output: Output, message: str, code: int) -> int:
    if output.debug:
        traceback.print_exc()
    click.echo(printable(f"error: {' '.join(message.split())}"), err=True)
    return code
