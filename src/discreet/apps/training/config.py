"""The configuration of `discreet train`: all public facts of a training, checked before any data is opened."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.apps.sections import Section
from discreet.errors import InvalidArgument

#: What is public about a column: the bounds of a number, or all values of a category.
Fact = tuple[float, float] | tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A Parquet or CSV file: numbers with public bounds, categories with public values, and a label column."""

    file: Path
    label: str
    classes: tuple[Any, ...]
    columns: Mapping[str, Fact]


@dataclass(frozen=True)
class Images:
    """A pair of idx files, the format of MNIST, optionally compressed with gzip."""

    images: Path
    labels: Path
    classes: int


@dataclass(frozen=True)
class Model:
    """A model of the zoo and its optimizer."""

    kind: str = "mlp"
    hidden: tuple[int, ...] = (32,)
    optimizer: str = "adam"
    learning_rate: float = 0.02


@dataclass(frozen=True)
class Budget:
    """What the training may cost, and how long it runs."""

    epsilon: float
    delta: float
    examples: int
    batch_size: int
    epochs: float
    clip_norm: float = 1.0
    sampling: str = "poisson"


@dataclass(frozen=True)
class HeldOut:
    """People who are not trained on, and the ε for measuring the accuracy on them."""

    data: Table | Images
    epsilon: float


@dataclass(frozen=True)
class Config:
    """A complete configuration."""

    data: Table | Images
    model: Model
    budget: Budget
    ledger: str
    account: str
    folder: Path
    purpose: str
    evaluation: HeldOut | None


def read_config(path: str | Path, text: str) -> Config:
    """Parse and check a configuration. Relative paths start at the folder of the file."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"CONFIG must be TOML, got {str(path)!r}: {error}") from None
    return config_of(tree, Path(path).parent)


def config_of(tree: Mapping[str, Any], here: Path) -> Config:
    """The configuration of a parsed file in the folder `here`."""
    root = Section("the file", tree)
    data = read_data(root.section("data"), here)
    model = root.section("model", optional=True)
    plan = root.section("plan")
    ledger = root.section("ledger")
    output = root.section("output", optional=True)
    evaluation = None
    if "evaluate" in tree:
        section = root.section("evaluate")
        epsilon = section.number("epsilon")
        evaluation = HeldOut(read_held_out(section, data, here), epsilon)
        section.done()
    config = Config(
        data=data,
        model=Model(
            kind=model.text("kind", "mlp"),
            hidden=tuple(model.whole_numbers("hidden", [32])),
            optimizer=model.text("optimizer", "adam"),
            learning_rate=model.number("learning_rate", 0.02),
        ),
        budget=Budget(
            epsilon=plan.number("epsilon"),
            delta=plan.number("delta"),
            examples=plan.whole("examples"),
            batch_size=plan.whole("batch_size"),
            epochs=plan.number("epochs"),
            clip_norm=plan.number("clip_norm", 1.0),
            sampling=plan.text("sampling", "poisson"),
        ),
        ledger=location(ledger.text("file"), here),
        account=ledger.text("account"),
        purpose=ledger.text("purpose", "private training"),
        folder=here / output.text("folder", "trained"),
        evaluation=evaluation,
    )
    for section in (model, plan, ledger, output, root):
        section.done()
    return config


def read_data(section: Section, here: Path) -> Table | Images:
    """The table or the pair of idx files that a section describes."""
    if section.has("images"):
        images = Images(
            here / section.text("images"), here / section.text("labels"), section.whole("classes", at_least=2)
        )
        section.done()
        return images
    columns = section.section("columns")
    facts = {name: _fact(name, columns.values(name)) for name in columns.names()}
    columns.done()
    table = Table(
        file=here / section.text("file"),
        label=section.text("label"),
        classes=tuple(section.values("classes")),
        columns=facts,
    )
    if len(set(table.classes)) < 2 or not facts or table.label in facts:
        raise InvalidArgument("[data] must list at least two classes, and at least one column besides the label")
    section.done()
    return table


def read_held_out(section: Section, data: Table | Images, here: Path) -> Table | Images:
    """The data of other people, with the same columns."""
    if isinstance(data, Table):
        return Table(here / section.text("file"), data.label, data.classes, data.columns)
    return Images(here / section.text("images"), here / section.text("labels"), data.classes)


def _fact(name: str, values: list[Any]) -> Fact:
    """Two numbers are bounds; anything else is a list of categories."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(values) == 2 and len(numbers) == 2:
        low, high = _check.bounds(tuple(values), f"[data.columns] {name}")
        return float(low), float(high)
    if len(values) < 2 or len(set(values)) != len(values):
        remedy = "give [lower, upper] for a number, or all possible values of a category"
        raise _check.fail(f"[data.columns] {name}", "be bounds or distinct categories", values, remedy)
    return tuple(str(value) if isinstance(value, str) else value for value in values)


def location(text: str, here: Path) -> str:
    """Where a ledger is: a URL, or a path that starts at `here`."""
    return text if "://" in text else str(here / text)
