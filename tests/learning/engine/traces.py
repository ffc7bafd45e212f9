"""The traced graph of a clipped sum, as the engine makes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from discreet.learning import Engine, Flat
from discreet.learning.engine.graph import compilation


def traced(model: nn.Module, loss: Any, batch: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The graph of the clipped sum of a batch, and its arguments."""
    kept = []
    original = compilation.trace_flat

    def keep(function, arguments):
        kept.append((original(function, arguments), arguments))
        return kept[-1][0]

    monkeypatch.setattr("discreet.learning.engine.engine.trace_flat", keep)
    mask = torch.ones(batch[0].shape[0], dtype=torch.bool)
    Engine(model, loss, Flat(0.1), compile=False, dtype=dtype)(batch, mask)
    return kept[-1]
