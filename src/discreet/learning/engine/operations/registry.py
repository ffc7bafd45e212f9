"""All handlers in one table, which the recorder looks functions up in."""

from __future__ import annotations

from discreet.learning.engine.operations import (
    attention,
    convolution,
    division,
    einsum,
    elementwise,
    embedding,
    linear,
    normalization,
    recurrent,
    recurrent_cells,
)
from discreet.learning.engine.operations.base import Handlers

OPERATIONS = (
    attention,
    convolution,
    division,
    einsum,
    elementwise,
    embedding,
    linear,
    normalization,
    recurrent,
    recurrent_cells,
)

HANDLERS: Handlers = {function: handler for operation in OPERATIONS for function, handler in operation.HANDLERS.items()}
