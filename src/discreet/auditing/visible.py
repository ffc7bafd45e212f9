"""Values in a form that can be compared: equal forms mean that nobody can tell two results apart by looking at them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


def visible(value: Any) -> Any:
    """Nested tuples of types and texts that show everything that a reader of `value` could see."""
    kind = type(value).__qualname__
    match value:
        case None | bool() | int() | str() | bytes():
            return kind, value
        case float() | complex():
            return kind, repr(value)
        case np.ndarray():
            return kind, str(value.dtype), value.shape, visible(value.tolist())
        case np.generic():
            return kind, repr(value.item())
        case Mapping():
            return kind, tuple((visible(key), visible(entry)) for key, entry in value.items())
        case list() | tuple():
            return kind, tuple(visible(entry) for entry in value)
        case set() | frozenset():
            return kind, tuple(sorted(map(repr, value)))
    if hasattr(value, "dtypes") and hasattr(value, "to_dict"):  # a pandas or polars table
        columns = {str(name): value[name] for name in value.columns}
        index = repr(getattr(value, "index", None))
        types = tuple(str(kind) for kind in value.dtypes)
        return kind, index, types, tuple((name, visible(column.to_list())) for name, column in columns.items())
    if hasattr(value, "to_pylist"):  # Arrow
        return kind, str(getattr(value, "schema", "")), visible(value.to_pylist())
    if hasattr(value, "to_pandas"):  # a result of a private table
        return kind, visible(value.to_pandas())
    if dataclasses.is_dataclass(value):
        return kind, tuple((field.name, visible(getattr(value, field.name))) for field in dataclasses.fields(value))
    return kind, repr(value)
