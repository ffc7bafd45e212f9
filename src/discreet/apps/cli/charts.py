"""Writing a chart into a file that the user named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from discreet.errors import InvalidArgument

_FORMATS = (".svg", ".png", ".pdf")


def draw_chart(plot: Callable[[], Any], path: str) -> None:
    """Draw with `plot`, which returns matplotlib axes, and save the figure in the format of the path's ending."""
    if Path(path).suffix not in _FORMATS:
        raise InvalidArgument(f"--plot must end in {', '.join(_FORMATS)}, got {path!r}: the ending sets the format")
    try:
        plot().figure.savefig(path, dpi=150)
    except OSError as error:
        raise InvalidArgument(f"--plot must be writable, got {path!r}: {error.strerror}") from None
