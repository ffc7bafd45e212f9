"""Parameters that are divided by something, as DoRA's magnitudes are by the norms of a layer's rows.

p/x is a product of the parameter and 1/x, so it has the rule of a product. In x/p the parameter is expanded first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.operations.base import Args, Function, Handlers, Kwargs, ParameterUse, Recorder
from discreet.learning.engine.operations.elementwise import Broadcast, expanded


def divide(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """Claim a parameter in the numerator of a quotient of two tensors."""
    if len(args) != 2 or kwargs or not all(isinstance(a, Tensor) for a in args):
        return NotImplemented
    parameter, divisor = args
    is_parameter = [id(a) in recorder.names or id(a) in recorder.transposed for a in args]
    if id(parameter) not in recorder.names or is_parameter[1] or not parameter.is_floating_point():
        return expanded(recorder, func, args, kwargs)
    output = func(parameter, divisor)
    padded = (1,) * (output.dim() - parameter.dim()) + tuple(parameter.shape)
    factor = divisor.to(output.dtype).reciprocal().expand(output.shape)
    return recorder.record(
        "div", output, [ParameterUse(parameter, Broadcast(tuple(parameter.shape), padded), (factor,))]
    )


HANDLERS: Handlers = dict.fromkeys(
    (torch.div, torch.true_divide, Tensor.div, Tensor.true_divide, Tensor.__truediv__), divide
)
