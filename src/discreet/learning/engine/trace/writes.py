"""How often a tensor was written to: what was computed from it is out of date if that changes."""

from __future__ import annotations

from torch import Tensor

from discreet.learning.engine.independence import Watch

#: By torch's count, and by that of a `Watch`, which also sees writes that torch does not count.
Writes = tuple[int, int]


def count_writes(tensor: Tensor, watch: Watch | None) -> Writes:
    """How often a tensor was written to up to now."""
    return 0 if tensor.is_inference() else tensor._version, 0 if watch is None else watch.writes(tensor)
