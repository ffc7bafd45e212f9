"""Runs functions that TorchScript compiled as the Python code that they were compiled from.

TorchScript makes constants where nothing sees it. So they look like tensors that the model kept from another batch.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_lock = threading.Lock()
#: How many passes run a function as Python now.
_passes: Counter[tuple[int, str]] = Counter()


@dataclass(frozen=True, eq=False)
class ScriptedFunction:
    """A compiled function, the global variable that holds it, and the function that it was compiled from."""

    variables: dict[str, Any]
    name: str
    compiled: Any
    python: Callable[..., Any]

    def replace(self, change: int) -> None:
        """Count a pass that begins (1) or ends (-1), and run as Python while there are any."""
        key = id(self.variables), self.name
        with _lock:
            _passes[key] += change
            self.variables[self.name] = self.python if _passes[key] else self.compiled


def scripted_functions(model: nn.Module, loss: Any) -> list[ScriptedFunction]:
    """The compiled functions that the code of a model and its loss finds by name."""
    names = {kind.__module__ for module in model.modules() for kind in type(module).__mro__}
    scopes = [
        vars(sys.modules[name]) for name in sorted(names) if name in sys.modules and name.split(".")[0] != "torch"
    ]
    scopes.append(getattr(loss, "__globals__", {}))
    return [
        ScriptedFunction(variables, name, value, value._torchdynamo_inline)
        for variables in {id(scope): scope for scope in scopes}.values()
        for name, value in list(variables.items())
        if isinstance(value, torch.jit.ScriptFunction) and hasattr(value, "_torchdynamo_inline")
    ]


@contextmanager
def as_python(functions: Sequence[ScriptedFunction]) -> Iterator[None]:
    """Run these functions as Python code within."""
    for function in functions:
        function.replace(1)
    try:
        yield
    finally:
        for function in functions:
            function.replace(-1)
