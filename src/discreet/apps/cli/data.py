"""`discreet data`: write the data of the examples to files."""

from __future__ import annotations

from typing import Literal

import click

from discreet import datasets
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.errors import InvalidArgument


@click.group("data")
def group() -> None:
    """Write the data that the examples use. No budget is needed: it was published long ago, or is made up."""


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


@group.command("hospital", cls=Command, example="discreet data hospital clinic")
@click.argument("folder", metavar="DIR")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed gives another hospital.")
@click.option("--overwrite", is_flag=True, help="Replace the files if they exist.")
@with_output
def hospital(output: Output, folder: str, seed: int, overwrite: bool) -> None:
    """Write a made-up hospital to DIR: patients.csv (20,000) and visits.csv (about 100,000, in 2023 and 2024).

    Patients: patient, born, sex, district. Visits: visit, patient, day, ward, nights, cost. None of them exist.
    """
    try:
        paths = datasets.write_hospital(folder, seed=seed, overwrite=overwrite)
    except OSError as error:
        raise InvalidArgument(
            f"DIR must be writable, got {folder!r}: {error.strerror or 'it cannot be written'}"
        ) from None
    if output.json:
        output.emit({"files": [str(path) for path in paths]})
    else:
        output.say("\n".join(f"wrote {path}" for path in paths))
