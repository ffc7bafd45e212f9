"""The arguments of torch's operations by name, and which of them are written to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from discreet.learning.engine.independence.table import name_of


def named_arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """An operation's arguments by name, with the defaults of those that were left out."""
    names, defaults, _ = signature(func)
    return defaults | dict(zip(names, args, strict=False)) | kwargs


#: They write to running statistics, which their schemas do not say.
_UNDECLARED = {"aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm"}


def undeclared(name: str, given: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operation writes to, though its schema does not say so, and torch does not count it."""
    if name not in _UNDECLARED or not given.get("training"):
        return []
    return [given[each] for each in ("running_mean", "running_var") if isinstance(given.get(each), Tensor)]


@functools.cache
def signature(func: Any) -> tuple[tuple[str, ...], dict[str, Any], tuple[str, ...]]:
    """The names of an operation's arguments, the defaults, and the names of those that it writes to."""
    schema = func._schema.arguments
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    written = tuple(a.name for a in schema if a.alias_info is not None and a.alias_info.is_write)
    return tuple(argument.name for argument in schema), defaults, written


def drawn_from_nothing(func: Any, given: Mapping[str, Any]) -> bool:
    """Whether random numbers are drawn from sizes and numbers alone; a tensor that they overwrite is not looked at."""
    written = set(signature(func)[2])
    functional = {"self"} if name_of(func) in ("aten.uniform", "aten.random") else set()
    return not any(isinstance(value, Tensor) for name, value in given.items() if name not in written | functional)
