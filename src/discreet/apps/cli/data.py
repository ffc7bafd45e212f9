"""`discreet data`: write the data of the examples to a file."""

from __future__ import annotations

from typing import Literal

import click

from discreet import datasets
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.errors import InvalidArgument


@click.group("data")
def group() -> None:
    """Write the data that the examples use. No budget is needed: it was published long ago."""


@group.command(
    "adult",
    cls=Command,
    example="""discreet data adult people.parquet
    discreet data adult others.parquet --part test""",
)
@click.argument("file", metavar="FILE")
@click.option(
    "--part",
    type=click.Choice(["train", "test"]),
    default="train",
    show_default=True,
    help="train: 32,561 people; test: 16,281 others.",
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@with_output
def adult(output: Output, file: str, part: Literal["train", "test"], overwrite: bool) -> None:
    """Write the Adult data (people in the 1994 US census) to FILE, a Parquet file.

    Columns: age, sex, education, occupation, hours (of work a week), income and others. discreet.datasets
    has their public values.
    """
    try:
        path = datasets.write_adult(file, part=part, overwrite=overwrite)
    except OSError as error:
        raise InvalidArgument(
            f"FILE must be writable, got {file!r}: {error.strerror or 'it cannot be written'}"
        ) from None
    if output.json:
        output.emit({"file": str(path)})
    else:
        output.say(f"wrote {path}")
