"""What every operation is made of: a handler that claims parameters, and a rule for each claim.

A handler meets a call of the forward pass, runs it, and claims the parameters that the call uses. A rule turns the
call's inputs and the gradient of its output into per-example gradients of one parameter. It sees one use of that
parameter; its `inputs` and the output's gradient `grad` come with the examples in their first dimension, whatever the
model's own layout was. A rule has three answers about the same per-example gradients: the gradients themselves, their
norms, and their weighted sum. Only the first must be written. The others have exact defaults, which a rule overrides
where a faster closed form exists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations.arithmetic import chunks, in_chunks, power_sums, take, weighted_total

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Function = Callable[..., Any]


class GradientRule(ABC):
    """Per-example gradients of one parameter in one use."""

    #: Whether the per-example gradients are always smaller than an activation.
    small: ClassVar[bool] = False
    #: Whether equal rules compute the same from equal arguments, and hold nothing but plain values.
    shared: ClassVar[bool] = False

    def keeps_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> bool:
        """Whether per-example gradients are computed once, for the norm, and kept for the sum.

        Keeping them saves the second product. It is right where they take no more memory than the input and the output
        gradient, which need not be kept then.
        """
        del inputs, grad
        return self.small

    def kept_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        """The per-example gradients of a rule that keeps them."""

        def gradients_of(chunk: slice) -> Tensor:
            return self.per_example(tuple(take(x, chunk) for x in inputs), take(grad, chunk))

        return in_chunks(grad.shape[0], self.elements_per_example(inputs, grad), gradients_of)

    def examples_first(self, layout: Layout) -> GradientRule:
        """This rule for tensors whose examples were moved to the front from where `layout` says."""
        del layout
        return self

    @abstractmethod
    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        """The gradient of each example: [examples, *parameter.shape]."""

    @abstractmethod
    def elements_per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> int:
        """The number of elements that `per_example` holds for one example; the size of a chunk depends on it."""

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        """Σ|g|^order of each example: the squared norm for order 2, the L1 norm for order 1."""

        def powers_of(chunk: slice) -> Tensor:
            return power_sums(self.per_example(tuple(take(x, chunk) for x in inputs), take(grad, chunk)), order)

        return in_chunks(grad.shape[0], self.elements_per_example(inputs, grad), powers_of)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        """Σ weight_i · gradient_i in the parameter's shape, in float32 or wider.

        By default of the same per-example gradients that the norm is taken of, so that nothing but the product with a
        weight is rounded. A rule that computes the sum in another way adds to the norm what it may differ by.
        """

        def total_of(chunk: slice) -> Tensor:
            gradients = self.per_example(tuple(take(x, chunk) for x in inputs), take(grad, chunk))
            return weighted_total(gradients, take(weights, chunk))

        sums = [total_of(chunk) for chunk in chunks(grad.shape[0], self.elements_per_example(inputs, grad))]
        return sums[0] if len(sums) == 1 else torch.stack(sums).sum(0)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor | None:
        """How far rounding can take `weighted_sum` from `per_example`, for weight 1; None if they use equal numbers."""
        del inputs, grad, order
        return None


@dataclass(frozen=True)
class ParameterUse:
    """One parameter's part in one operation: the rule, and the inputs that the rule needs."""

    parameter: Tensor
    rule: GradientRule
    inputs: tuple[Tensor, ...] = ()


class Recorder(Protocol):
    """What a handler may ask of the recorder that called it.

    Attributes:
        names: the name of each trainable parameter, by its `id`.
        transposed: the parameter behind each known transpose, by the transpose's `id`.
        layouts: where the examples are at each site; None while the dry run is still looking for them.
        traced: whether this pass is traced for the compiler.
    """

    names: dict[int, str]
    transposed: dict[int, Tensor]
    layouts: Sequence[Layout | None] | None
    traced: bool

    def apply(self, func: Function, args: Args, kwargs: Kwargs) -> Any:
        """Run an operation that takes a parameter, by its handler if it has one."""

    def alias(self, source: Tensor, transposed: Tensor) -> Tensor:
        """Note that a tensor is a parameter's transpose."""

    def record(self, operation: str, output: Tensor, claims: Sequence[ParameterUse]) -> Tensor:
        """Record an operation with its claims and return its output, which the handler must use from then on."""


#: Runs a call and records it; returns `NotImplemented` for a call whose parameters it has no rule for.
Handler = Callable[[Recorder, Function, Args, Kwargs], Any]
Handlers = Mapping[Any, Handler]


def arguments(names: str, args: Args, kwargs: Kwargs, **defaults: Any) -> list[Any]:
    """A call's arguments in the order of `names`, whether they were passed by position or by name."""
    words = names.split()
    given = dict(zip(words, args, strict=False)) | kwargs
    return [given.get(word, defaults.get(word)) for word in words]


def autocast_input(x: Tensor) -> Tensor:
    """An input in the type that autocast would give it, so that the rule keeps the copy that the operation uses."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64:
        return x.to(torch.get_autocast_dtype(kind))
    return x
