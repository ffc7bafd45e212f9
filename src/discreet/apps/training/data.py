"""From files to arrays that a model takes: each row by itself, by public facts alone."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.apps.training.config import Fact, Images, Table
from discreet.errors import InvalidArgument, MissingExtra

Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]


def load(source: Table | Images) -> Arrays:
    """Inputs and labels, one row for each example.

    Guarantee: a row of the result depends on one row of the data and on public facts. Rows whose label is none of the
    classes are left out. Nothing that is raised quotes a value.
    """
    return load_images(source) if isinstance(source, Images) else load_table(source)


def load_table(source: Table) -> Arrays:
    """A Parquet or CSV file."""
    try:
        from discreet.analytics.table.source import engine_table
    except ModuleNotFoundError as missing:
        raise MissingExtra("tables need Ibis and DuckDB: pip install 'discreet[analytics]'") from missing
    table = engine_table(source.file)
    for name in (*source.columns, source.label):
        if name not in table.columns:
            known = ", ".join(table.columns)
            raise InvalidArgument(f"{name!r} must be a column of {source.file.name}, which has {known}")
    for name, fact in {**source.columns, source.label: source.classes}.items():
        _check_kind(name, table[name], fact)
    arrow = table.select(*source.columns, source.label).to_pyarrow()
    columns = {name: np.array(arrow.column(name).to_pylist(), dtype=object) for name in arrow.column_names}
    return encode(columns, source.columns, source.label, source.classes)


def _check_kind(name: str, column: Any, fact: Fact) -> None:
    """Refuse facts that no cell can have: all rows would be 0, or none would have a label, and the budget be spent.

    A column's type is public. Text may hold numbers, as in a CSV file of which nothing is known.
    """
    from discreet.analytics.table.expressions import Constant
    from discreet.analytics.table.semantics import family

    alike = {"boolean": "number"}  # true is 1
    own = alike.get(family(column), family(column))
    if is_bounds(fact):
        wanted, fits = "numbers", own in ("number", "text")
    else:
        kinds = sorted({family(Constant(value).to_ibis(None)) for value in fact})
        wanted, fits = " and ".join(kinds), all(alike.get(kind, kind) == own for kind in kinds)
    if not fits:
        remedy = "text stands in quotes, numbers and dates do not; bounds are for numbers"
        raise InvalidArgument(f"{name} must be a column of {wanted}, got one of type {column.type()}: {remedy}")


def encode(
    columns: Mapping[str, NDArray[Any]], facts: Mapping[str, Fact], label: str, classes: tuple[Any, ...]
) -> Arrays:
    """Numbers clamped to their bounds and scaled to [−1, 1], categories as one column for each public value.

    What is missing, not a number, or none of the categories is 0.

    >>> inputs, labels = encode(
    ...     {"age": np.array([75, 150]), "sex": np.array(["m", None]), "rich": np.array([1, 0])},
    ...     {"age": (0.0, 100.0), "sex": ("f", "m")}, "rich", (0, 1),
    ... )
    >>> inputs.tolist(), labels.tolist()
    ([[0.5, 0.0, 1.0], [1.0, 0.0, 0.0]], [1, 0])
    """
    parts = [
        _scaled(columns[name], fact) if is_bounds(fact) else _one_hot(columns[name], fact)
        for name, fact in facts.items()
    ]
    places = _places(columns[label], classes)
    known = places >= 0
    return np.concatenate(parts, axis=1)[known], places[known]


def is_bounds(fact: Fact) -> bool:
    """Whether a fact is (lower, upper) rather than a list of categories."""
    return len(fact) == 2 and all(isinstance(one, float) for one in fact)


def _scaled(column: NDArray[Any], fact: Fact) -> NDArray[np.float32]:
    low, high = float(fact[0]), float(fact[1])
    numbers = np.array([_number(value) for value in column.tolist()], dtype=np.float64)
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    return np.nan_to_num(scaled, nan=0.0).astype(np.float32)[:, None]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number is caught
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _one_hot(column: NDArray[Any], values: tuple[Any, ...]) -> NDArray[np.float32]:
    places = _places(column, values)
    made = np.zeros((len(places), len(values)), dtype=np.float32)
    known = np.flatnonzero(places >= 0)
    made[known, places[known]] = 1.0
    return made


def _places(column: NDArray[Any], values: tuple[Any, ...]) -> NDArray[np.int64]:
    known = {value: place for place, value in enumerate(values)}
    return np.array([_place(value, known) for value in column.tolist()], dtype=np.int64)


def _place(value: object, known: dict[Any, int]) -> int:
    try:
        return known.get(value, -1)
    except TypeError:
        return -1


def load_images(source: Images) -> Arrays:
    """Two idx files: images as floats in [−1, 1] with one channel, and their labels."""
    pixels, labels = _idx(source.images, 3), _idx(source.labels, 1)
    if len(pixels) != len(labels):
        raise InvalidArgument(f"{source.labels.name} must hold one label for each image of {source.images.name}")
    known = labels < source.classes
    images = (pixels[known].astype(np.float32) / 127.5 - 1.0)[:, None]
    return images, labels[known].astype(np.int64)


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An idx file of bytes, as LeCun's MNIST page describes it: two zeros, 8, the dimensions, their sizes, the data."""
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged"
        raise InvalidArgument(f"{str(path)!r} must be an idx file: {reason}") from None
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes((0, 0, 8, dimensions)):
        raise InvalidArgument(f"{str(path)!r} must be an idx file of bytes with {dimensions} dimensions")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) != head + math.prod(shape):
        raise InvalidArgument(f"{str(path)!r} must be as long as its head says: it is cut off, or has more")
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
