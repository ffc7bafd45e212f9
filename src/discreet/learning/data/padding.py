"""Sequences of different lengths as tensors of one public length, with a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from discreet import _check

#: What torch's and Hugging Face's losses skip.
_IGNORED = -100


@dataclass(frozen=True)
class PadTo:
    """Makes tensors of an example's sequences: cut to `length`, or padded at the end, with a mask of what is real.

    Use it as `collate=`. An example is a dict by name of lists, arrays or tensors; numbers stay as they are.

    Attributes:
        length: the public length of all sequences.
        fill: what to pad with, by name; by default -100 for "labels", which losses skip, and 0 for the rest.
        mask: the name of a mask that is added if the example has none: 1 at real positions, 0 at padding. None adds
            none.

    Guarantee:
        The result depends on one example and on `length`. (Padding to the longest example of a batch would make the
        shape, and so everybody's positions, depend on who is in it.)

    >>> PadTo(4)([{"input_ids": [7, 8, 9], "labels": [7, 8, 9]}])["labels"]
    tensor([[   7,    8,    9, -100]])
    """

    length: int
    fill: Mapping[str, float] = field(default_factory=dict)
    mask: str | None = "attention_mask"

    def __post_init__(self) -> None:
        _check.settle_integers(self, "length", remedy="it is the number of positions of every padded sequence")

    def __call__(self, examples: Sequence[Any]) -> dict[str, Tensor]:
        """The tensors of a list of examples, with one row for each."""
        rows = [self._row(example) for example in examples]
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    def _row(self, example: Any) -> dict[str, Tensor]:
        if not isinstance(example, Mapping):
            remedy = "give a dataset of dicts such as {'input_ids': […], 'labels': […]}, or write your own collate"
            raise _check.fail("data", "hold dicts for PadTo", type(example).__name__, remedy)
        row, real = {}, None
        for name, values in example.items():
            tensor = values.detach() if isinstance(values, Tensor) else torch.from_numpy(_array(values))
            if tensor.dim() == 0:
                row[name] = tensor
                continue
            kept = tensor[: self.length]
            value = self.fill.get(name, _IGNORED if name == "labels" else 0)
            row[name] = torch.full((self.length, *kept.shape[1:]), value, dtype=tensor.dtype)
            row[name][: len(kept)] = kept
            real = len(kept) if real is None else max(real, len(kept))
        if self.mask is not None and self.mask not in row and real is not None:
            row[self.mask] = (torch.arange(self.length) < real).long()
        return row


def _array(values: Any) -> np.ndarray[Any, Any]:
    """An array of a list. An empty list has no type of its own: it counts as one of integers, as token ids are."""
    return np.zeros(0, dtype=np.int64) if isinstance(values, Sequence) and not len(values) else np.asarray(values)
