"""A function from a Python file that the user names as FILE:FUNCTION."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discreet.errors import InvalidArgument

# The name under which a file is imported, and only while it is.
_MODULE = "discreet_user_file"


def loaded(target: str, example: str, what: str) -> Callable[..., Any]:
    """Run the file and return its function.

    Args:
        target: FILE:FUNCTION.
        example: such a text, for messages.
        what: what the function does, for messages.
    """
    path, colon, name = target.rpartition(":")
    if not colon or not path or not name.isidentifier():
        raise InvalidArgument(f"FILE:FUNCTION must name both, got {target!r}: such as {example}")
    if not Path(path).is_file():
        raise InvalidArgument(f"FILE must be a Python file that exists, got {path!r}: such as {example}")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"FILE must be a Python file, got {path!r}: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"FILE must run without an error, got {problem}") from error
    finally:
        sys.modules.pop(spec.name, None)
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidArgument(f"FUNCTION must be defined in {path}, got {name!r}: it {what}")
    answer: Callable[..., Any] = function
    return answer
