"""What a server reads of a reply: its arrays, and nothing else."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
from numpy.lib import format
from numpy.typing import NDArray

#: How the header of each version of numpy's format is read.
_HEADERS: dict[tuple[int, int], Any] = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}


def arrays_of(record: Any) -> dict[str, NDArray[Any]]:
    """The arrays of one of Flower's records. They may be read-only."""
    return {name: _array(array) for name, array in record.items()}


def _array(array: Any) -> NDArray[Any]:
    """The numbers of a serialized array where they lie; Flower's own conversion copies them, more than once."""
    stream = io.BytesIO(array.data)
    header = _HEADERS.get(format.read_magic(stream)) if array.stype == "numpy.ndarray" else None
    if header is None:
        return np.asarray(array.numpy())
    shape, by_columns, dtype = header(stream)
    if dtype.hasobject:
        raise ValueError("an array of objects is not read: it could run code")
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    flat = np.frombuffer(array.data, dtype, math.prod(shape), stream.tell())
    return flat.reshape(shape, order="F" if by_columns else "C")


def arrays_of_reply(reply: Any) -> dict[str, NDArray[Any]] | None:
    """The arrays of a reply; None if it reports an error, and {} if it cannot be read."""
    if reply.has_error():
        return None
    try:
        records = list(reply.content.array_records.values())
        return arrays_of(records[0]) if len(records) == 1 else {}
    except Exception:  # whatever a client sent, it must not stop the round, nor tell by an error that it was drawn
        return {}
