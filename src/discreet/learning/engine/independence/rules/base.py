"""What a rule is asked and what it answers, and what most rules share.

A rule is asked only when the inputs belong to examples along dimensions (`Along`) or to none. `proof` settles the other
cases before: inputs that are all free, all of one example, or mixed. Where a rule cannot say, it answers `Mixed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.learning.engine.independence.dependence import (
    FREE,
    Along,
    Dependence,
    Free,
    Mixed,
    settled,
)


@dataclass(frozen=True)
class Call:
    """One call of an operation: its arguments by name, its results, and what each tensor argument depends on."""

    name: str
    given: dict[str, Any]
    results: tuple[Tensor, ...]
    examples: int
    of: Callable[[Any], Dependence]
    #: The value of a free tensor, or None where it is not known while tracing.
    value: Callable[[Tensor], Tensor | None]
    #: Whether a free tensor is known to repeat along a dimension from example to example, by how it was made.
    repeats: Callable[[Tensor, Along], bool]

    @property
    def out(self) -> Tensor:
        """The first result."""
        return self.results[0]

    def mixed(self, why: str) -> Mixed:
        """The answer of a rule that cannot keep examples apart."""
        return Mixed(f"{self.name}: {why}")

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor among the arguments."""
        for value in self.given.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (item for item in value if isinstance(item, Tensor))


Dependences = Dependence | Sequence[Dependence]
Rule = Callable[[Call], Dependences]


def aligned(call: Call, tensors: Sequence[Tensor], shape: Sequence[int]) -> Dependence:
    """The dependence of a result of `shape` whose elements come from the elements that broadcasting pairs up."""
    answer: Dependence = FREE
    for tensor in tensors:
        own = call.of(tensor)
        if isinstance(own, Free):
            continue
        if not isinstance(own, Along):
            return own if isinstance(own, Mixed) else call.mixed("one example meets several")
        dim = own.dim + len(shape) - tensor.dim()
        if dim < 0 or tensor.shape[own.dim] != shape[dim]:
            return call.mixed("the dimension of the examples is broadcast")
        placed = settled(Along(dim, own.inner, own.offset), tuple(shape), call.examples)
        if isinstance(answer, Free):
            answer = placed
        elif answer != placed:
            return call.mixed("examples of one input meet other examples of another")
    if isinstance(answer, Along):
        for tensor in tensors:
            if isinstance(call.of(tensor), Free) and not alike(call, tensor, answer, len(shape)):
                return call.mixed("a constant differs from position to position in the batch")
    return answer


def alike(call: Call, constant: Tensor, along: Along, dims: int) -> bool:
    """Whether a free tensor has the same values for every example, or random ones that were drawn alike.

    Neighboring datasets put the same example at another position in the batch, so a value must not depend on that.
    """
    dim = along.dim - dims + constant.dim()
    if dim < 0 or constant.shape[dim] == 1 or constant.stride(dim) == 0:
        return True
    if call.repeats(constant, Along(dim, along.inner, along.offset)):
        return True
    value = call.value(constant)
    if value is None:
        return False
    length = value.shape[dim] - along.inner
    if length <= 0:
        return True
    return bool(torch.equal(value.narrow(dim, along.inner, length), value.narrow(dim, 0, length)))


def only(call: Call, name: str, others: Sequence[str]) -> Along | Mixed:
    """The dependence of one argument, if the others are free."""
    own = call.of(call.given[name])
    if any(not isinstance(call.of(call.given.get(other)), Free) for other in others):
        return call.mixed(f"{' or '.join(others)} depends on examples")
    return own if isinstance(own, Along) else call.mixed(f"{name} does not hold the examples")


def dim_of(own: Dependence) -> int | None:
    return own.dim if isinstance(own, Along) else None
