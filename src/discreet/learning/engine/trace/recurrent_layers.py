"""Keeps recurrent layers as they are while their weights are replaced for a pass."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def recurrent_layers_unchanged(model: nn.Module) -> Iterator[None]:
    """Restore recurrent layers afterwards, and do not let them pack their weights in between.

    They keep a second list of their weights, which must not hold the replaced ones later.
    """
    layers = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    if not layers:
        yield
        return
    saved = [dict(vars(layer)) for layer in layers]
    for layer in layers:
        vars(layer)["flatten_parameters"] = lambda: None
    try:
        with warnings.catch_warnings():
            # torch advises to pack the weights, which must not happen here. Only the dry run calls torch's own layers.
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            yield
    finally:
        for layer, attributes in zip(layers, saved, strict=True):
            vars(layer).clear()
            vars(layer).update(attributes)
