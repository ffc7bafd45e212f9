"""What a server reads of a reply: its arrays, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrays_of(record: Any) -> dict[str, NDArray[Any]]:
    """The arrays of one of Flower's records."""
    return {name: np.asarray(array.numpy()) for name, array in record.items()}


def arrays_of_reply(reply: Any) -> dict[str, NDArray[Any]] | None:
    """The arrays of a reply; None if it reports an error, and {} if it cannot be read."""
    if reply.has_error():
        return None
    try:
        records = list(reply.content.array_records.values())
        return arrays_of(records[0]) if len(records) == 1 else {}
    except Exception:  # whatever a client sent, it must not stop the round, nor tell by an error that it was drawn
        return {}
