"""`einsum` of the data and a parameter, as a product of two matrices."""

from __future__ import annotations

import string
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations.base import (
    Args,
    Function,
    Handlers,
    Kwargs,
    ParameterUse,
    Recorder,
    autocast_input,
)
from discreet.learning.engine.operations.linear import LinearWeight
from discreet.learning.engine.operations.transformed import TransformedParameter


def _letters(equation: str, first: Tensor, second: Tensor) -> tuple[str, str, str] | None:
    """The indices of both factors and of the result, with letters of their own in place of an ellipsis."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if not arrow or len(names) != 2:
        return None
    unused = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = (
        max(x.dim() - len(name) + 3 for x, name in zip((first, second), names, strict=True) if "..." in name)
        if "..." in left
        else 0
    )
    filled = [
        name.replace("...", "".join(unused[hidden - (x.dim() - len(name) + 3) : hidden]))
        for x, name in zip((first, second), names, strict=True)
    ]
    return filled[0], filled[1], result.replace("...", "".join(unused[:hidden]))


def einsum(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """A product over at least one index, where each index of both factors is summed over and none is in all three."""
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    if kwargs or not isinstance(args[0], str) or len(operands) != 2:
        return NotImplemented
    is_parameter = [id(x) in recorder.names for x in operands]
    letters = _letters(args[0], *operands)
    if letters is None or sum(is_parameter) != 1:
        return NotImplemented
    position = is_parameter.index(True)
    weight, x, result = operands[position], operands[1 - position], letters[2]
    of_weight, of_x = letters[position], letters[1 - position]
    rows = [letter for letter in of_x if letter in result]
    shared = [letter for letter in of_x if letter not in result]
    new = [letter for letter in of_weight if letter in result]
    if (
        any(len(set(each)) < len(each) for each in letters)
        or set(rows) & set(of_weight)
        or not shared
        or set(shared) | set(new) != set(of_weight)
        or set(rows) | set(new) != set(result)
    ):
        return NotImplemented
    sizes = dict(zip(of_x, x.shape, strict=True))
    if any(sizes.setdefault(letter, size) != size for letter, size in zip(of_weight, weight.shape, strict=True)):
        return NotImplemented  # a size of 1 is expanded
    depth, order = prod(sizes[letter] for letter in shared), [of_weight.index(letter) for letter in new + shared]

    def as_matrix(value: Tensor) -> Tensor:
        return value.permute(order).reshape(-1, depth)

    a = x.permute([of_x.index(letter) for letter in rows + shared]).reshape(*(sizes[row] for row in rows), depth)
    a = autocast_input(a)
    rule = TransformedParameter(as_matrix, weight, LinearWeight(), rearranges=True)
    output = recorder.record("einsum", F.linear(a, as_matrix(weight)), [ParameterUse(weight, rule, (a,))])
    output = output.reshape(*(sizes[letter] for letter in rows + new))
    return output.permute([(rows + new).index(letter) for letter in result])


HANDLERS: Handlers = {torch.einsum: einsum, torch.functional.einsum: einsum}
