"""What `discreet train` reads: every public fact of a training, checked before any data is opened."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.errors import InvalidArgument

Fact = tuple[float, float] | tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A Parquet or CSV file: numbers with public bounds, categories with public values, one column as label."""

    file: Path
    label: str
    classes: tuple[Any, ...]
    columns: Mapping[str, Fact]


@dataclass(frozen=True)
class Images:
    """A pair of idx files, as MNIST has them, packed with gzip or not."""

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
    """What the training may cost, and how it runs."""

    epsilon: float
    delta: float
    examples: int
    batch_size: int
    epochs: float
    clip_norm: float = 1.0
    sampling: str = "poisson"


@dataclass(frozen=True)
class Evaluation:
    """People who were not trained on, and what a private look at the accuracy may cost."""

    data: Table | Images
    epsilon: float


@dataclass(frozen=True)
class Config:
    """A whole training."""

    data: Table | Images
    model: Model
    budget: Budget
    ledger: str
    account: str
    folder: Path
    purpose: str
    evaluation: Evaluation | None


def read_config(path: str | Path, text: str) -> Config:
    """The training that a TOML text describes; relative paths in it start where the file lies."""
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"CONFIG must be TOML, got {str(path)!r}: {error}") from None
    here = Path(path).parent
    whole = _Section("the file", tree)
    data = _data(whole.section("data"), here)
    model = whole.section("model", optional=True)
    plan = whole.section("plan")
    ledger = whole.section("ledger")
    output = whole.section("output", optional=True)
    evaluation = None
    if "evaluate" in tree:
        section = whole.section("evaluate")
        epsilon = section.number("epsilon")
        evaluation = Evaluation(_held_out(section, data, here), epsilon)
        section.done()
    made = Config(
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
        ledger=_place(ledger.text("file"), here),
        account=ledger.text("account"),
        purpose=ledger.text("purpose", "private training"),
        folder=here / output.text("folder", "trained"),
        evaluation=evaluation,
    )
    for section in (model, plan, ledger, output, whole):
        section.done()
    return made


def _data(section: _Section, here: Path) -> Table | Images:
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
        raise InvalidArgument(
            "[data] must have two classes or more and at least one column that is not the label: list them"
        )
    section.done()
    return table


def _held_out(section: _Section, data: Table | Images, here: Path) -> Table | Images:
    """Other people with the same columns."""
    if isinstance(data, Table):
        return Table(here / section.text("file"), data.label, data.classes, data.columns)
    return Images(here / section.text("images"), here / section.text("labels"), data.classes)


def _fact(name: str, values: list[Any]) -> Fact:
    """Two numbers are bounds; anything else is a list of categories."""
    numbers = [one for one in values if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(values) == 2 and len(numbers) == 2:
        low, high = _check.bounds(tuple(values), f"[data.columns] {name}")
        return float(low), float(high)
    if len(values) < 2 or len(set(values)) != len(values):
        remedy = "give [lower, upper] for a number, or all possible values of a category"
        raise _check.fail(f"[data.columns] {name}", "be bounds or distinct categories", values, remedy)
    return tuple(str(one) if isinstance(one, str) else one for one in values)


def _place(text: str, here: Path) -> str:
    return text if "://" in text else str(here / text)


class _Section:
    """One table of the file, of which every key must be asked for."""

    def __init__(self, name: str, content: Mapping[str, Any]) -> None:
        self._name = name
        self._content = content
        self._asked: set[str] = set()

    def has(self, key: str) -> bool:
        return key in self._content

    def names(self) -> list[str]:
        return list(self._content)

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any = None) -> Any:
        self._asked.add(key)
        value = self._content.get(key, default)
        if value is None:
            raise InvalidArgument(f"{key} must be given in {self._name}, got nothing: it is {words}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _check.fail(f"{key} in {self._name}", f"be {words}", value, "see docs/cli.md for an example")
        return value

    def section(self, key: str, *, optional: bool = False) -> _Section:
        found = self._get(key, dict, f"a table [{key}]", {} if optional else None)
        return _Section(f"[{key}]", found)

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._get(key, str, "a text", default))

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._get(key, (int, float), "a number", default))

    def whole(self, key: str, *, at_least: int = 1) -> int:
        return _check.integer(
            f"{key} in {self._name}", self._get(key, int, "an integer"), "see docs/cli.md", at_least=at_least
        )

    def values(self, key: str) -> list[Any]:
        return list(self._get(key, list, "a list"))

    def whole_numbers(self, key: str, default: list[int]) -> list[int]:
        found = self._get(key, list, "a list of integers", default)
        return [_check.integer(f"{key} in {self._name}", one, "it lists hidden units") for one in found]

    def done(self) -> None:
        """Refuse what nobody asked for: a misspelt key must not be silently without effect."""
        left = sorted(set(self._content) - self._asked)
        if left:
            known = ", ".join(sorted(self._asked))
            raise InvalidArgument(f"{left[0]!r} must not stand in {self._name}: known there are {known}")
