"""From files to a model's arrays. Each row is encoded by itself, using only public facts."""

from __future__ import annotations

import gzip
import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.apps.training.config import Fact, Images, Table
from discreet.errors import InvalidArgument, MissingExtra

LabeledArrays = tuple[NDArray[np.float32], NDArray[np.int64]]


def load(source: Table | Images) -> LabeledArrays:
    """Inputs and labels, one row for each example.

    Guarantee: a row of the result depends on one row of the data and on public facts. Rows whose label is none of the
    classes are dropped. No error message quotes a value.
    """
    return load_images(source) if isinstance(source, Images) else load_table(source)


def load_table(source: Table) -> LabeledArrays:
    """A Parquet or CSV file."""
    try:
        from discreet.analytics.table.source import engine_table
    except ModuleNotFoundError as missing:
        raise MissingExtra("tables need Ibis and DuckDB: pip install 'discreet[analytics]'") from missing
    columns = _columns(engine_table(source.file), source, {**source.columns, source.label: source.classes})
    return encode(columns, source.columns, source.label, source.classes)


def load_questions(source: Table | Images, path: Path) -> NDArray[np.float32]:
    """The inputs of another file with the same columns or image sizes; it needs no labels."""
    if isinstance(source, Images):
        return _scaled_images(_idx(path, 3))
    from discreet.analytics.table.source import engine_table

    questions = replace(source, file=path)
    return encode_inputs(_columns(engine_table(path), questions, source.columns), source.columns)


def load_with_persons(source: Table, person: str) -> tuple[NDArray[np.float32], NDArray[np.int64], list[Any]]:
    """Inputs, labels and persons of a table, without the rows whose label is none of the classes.

    Guarantee: as `load`.
    """
    from discreet.analytics.table.source import engine_table

    columns = _columns(
        engine_table(source.file), source, {**source.columns, source.label: source.classes}, extra=(person,)
    )
    labeled = _indexes(columns[source.label], source.classes) >= 0
    return *encode(columns, source.columns, source.label, source.classes), columns[person][labeled].tolist()


def _columns(
    table: Any, source: Table, facts: Mapping[str, Fact], extra: tuple[str, ...] = ()
) -> dict[str, NDArray[Any]]:
    """The cells of the columns with facts, and of others; types are checked before any cell is read."""
    names = tuple(dict.fromkeys((*facts, *extra)))
    for name in names:
        if name not in table.columns:
            columns = ", ".join(table.columns)
            raise InvalidArgument(f"{name!r} must be a column of {source.file.name}, which has {columns}")
    for name, fact in facts.items():
        _check_kind(name, table[name], fact)
    arrow = table.select(*names).to_pyarrow()
    return {name: _objects(arrow.column(name).to_pylist()) for name in arrow.column_names}


def _objects(cells: list[Any]) -> NDArray[Any]:
    """Cells as they are, in one dimension, whatever they hold."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _check_kind(name: str, column: Any, fact: Fact) -> None:
    """Refuse facts that no cell can match: the budget would be spent on inputs of 0, or on no labels.

    A column's type is public. Text columns may hold numbers, as in a CSV file without types.
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
        remedy = "quote text, but not numbers and dates; give bounds only for numbers"
        raise InvalidArgument(f"{name} must be a column of {wanted}, got one of type {column.type()}: {remedy}")


def encode(
    columns: Mapping[str, NDArray[Any]], facts: Mapping[str, Fact], label: str, classes: tuple[Any, ...]
) -> LabeledArrays:
    """Numbers clamped to their bounds and scaled to [−1, 1]; categories as one column for each public value.

    Missing values, values that are not numbers, and unknown categories become 0.

    >>> inputs, labels = encode(
    ...     {"age": np.array([75, 150]), "sex": np.array(["m", None]), "rich": np.array([1, 0])},
    ...     {"age": (0.0, 100.0), "sex": ("f", "m")}, "rich", (0, 1),
    ... )
    >>> inputs.tolist(), labels.tolist()
    ([[0.5, 0.0, 1.0], [1.0, 0.0, 0.0]], [1, 0])
    """
    labels = _indexes(columns[label], classes)
    labeled = labels >= 0
    return encode_inputs(columns, facts)[labeled], labels[labeled]


def encode_inputs(columns: Mapping[str, NDArray[Any]], facts: Mapping[str, Fact]) -> NDArray[np.float32]:
    """The inputs alone, as `encode` makes them, of all rows."""
    inputs = [
        _scaled(columns[name], fact) if is_bounds(fact) else _one_hot(columns[name], fact)
        for name, fact in facts.items()
    ]
    return np.concatenate(inputs, axis=1)


def is_bounds(fact: Fact) -> bool:
    """Whether a fact is (lower, upper) rather than a list of categories."""
    return len(fact) == 2 and all(isinstance(bound, float) for bound in fact)


def _scaled(column: NDArray[Any], fact: Fact) -> NDArray[np.float32]:
    low, high = float(fact[0]), float(fact[1])
    numbers = np.array([_number(value) for value in column.tolist()], dtype=np.float64)
    scaled = 2 * (np.clip(numbers, low, high) - low) / (high - low) - 1
    return np.nan_to_num(scaled, nan=0.0).astype(np.float32)[:, None]


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # other types raise, and are caught
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _one_hot(column: NDArray[Any], values: tuple[Any, ...]) -> NDArray[np.float32]:
    indexes = _indexes(column, values)
    encoded = np.zeros((len(indexes), len(values)), dtype=np.float32)
    rows = np.flatnonzero(indexes >= 0)
    encoded[rows, indexes[rows]] = 1.0
    return encoded


def _indexes(column: NDArray[Any], values: tuple[Any, ...]) -> NDArray[np.int64]:
    """The index of each cell in `values`, or -1."""
    index_of = {value: index for index, value in enumerate(values)}
    return np.array([_index(cell, index_of) for cell in column.tolist()], dtype=np.int64)


def _index(cell: object, index_of: dict[Any, int]) -> int:
    try:
        return index_of.get(cell, -1)
    except TypeError:  # a list or another cell that cannot be hashed
        return -1


def load_images(source: Images) -> LabeledArrays:
    """Two idx files: images as floats in [−1, 1] with one channel, and their labels."""
    pixels, labels = _idx(source.images, 3), _idx(source.labels, 1)
    if len(pixels) != len(labels):
        raise InvalidArgument(f"{source.labels.name} must hold one label for each image in {source.images.name}")
    labeled = labels < source.classes
    return _scaled_images(pixels[labeled]), labels[labeled].astype(np.int64)


def _scaled_images(pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.asarray((pixels.astype(np.float32) / 127.5 - 1.0)[:, None])


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An idx file of bytes, as on LeCun's MNIST page: two zeros, 8, the number of dimensions, their sizes, the data."""
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
        raise InvalidArgument(
            f"{str(path)!r} must be as long as its header says: it is truncated, or has trailing bytes"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
