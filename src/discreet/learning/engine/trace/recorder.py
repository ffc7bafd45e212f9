"""Records every operation that takes a trainable parameter, with what its rule needs.

A `TorchFunctionMode` around the model's forward pass sees functions, not modules, so it covers any model that calls
torch with its parameters, whoever wrote its layers. For each such operation it keeps the input and the edge of the
autograd graph that the output's gradient will pass through. Differentiating the losses with respect to those edges
alone gives all output gradients in one backward pass that forms no parameter gradient. Nothing is left behind on
modules or parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from discreet.errors import InvalidArgument
from discreet.learning.engine.layout import Layout, repeat_per_example
from discreet.learning.engine.operations.base import Args, GradientRule, Handlers, Kwargs, ParameterUse
from discreet.learning.engine.operations.transformed import TransformedParameter
from discreet.learning.engine.trace.randomness import generator_states, nothing_drawn

#: Functions that let Python change gradients in the backward pass.
_HOOKS = {Tensor.register_hook, Tensor.register_post_accumulate_grad_hook}


@dataclass(frozen=True)
class Site:
    """One recorded operation of the forward pass.

    Attributes:
        signature: the operation's name, then the names of the parameters that it uses.
        edge: the edge of the autograd graph that the output's gradient passes through.
        claims: the name, the rule and the rule's inputs of each parameter.
        versions: the version counters of those inputs, which in-place writes increase.
    """

    signature: tuple[str, ...]
    edge: GradientEdge
    claims: tuple[tuple[str, GradientRule, tuple[Tensor, ...]], ...]
    versions: tuple[int, ...] = ()


def tensors_in(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, and in lists and tuples among them."""
    tensors: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            tensors.append(arg)
        elif isinstance(arg, (list, tuple)):
            tensors += tensors_in(arg)
    return tensors


class ForwardRecorder(TorchFunctionMode):
    """Records the sites of one forward pass, in the order of execution.

    Args:
        parameters: the trainable parameters of this pass, by name.
        handlers: the handler of each function that has one.
        examples: the number of examples in the batch.
        layouts: where the examples are at each site, once that is known; a "shared" output is repeated per example.
        ignored: names of parameters to leave unrecorded.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        handlers: Handlers,
        examples: int,
        layouts: Sequence[Layout | None] | None = None,
        ignored: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.names = {id(tensor): name for name, tensor in parameters.items() if name not in ignored}
        self.handlers = handlers
        self.examples = examples
        self.traced = any(isinstance(tensor, FakeTensor) for tensor in parameters.values())
        self.layouts = layouts
        self.sites: list[Site] = []
        #: By parameter, the first operation that has no rule for it.
        self.without_rule: dict[str, str] = {}
        self.transposed: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _HOOKS:
            raise InvalidArgument(
                "the forward pass must not register hooks on tensors, got Tensor.register_hook: a hook may mix the "
                "gradients of several examples; write what it does as part of the forward pass"
            )
        used = [t for t in tensors_in((*args, *kwargs.values())) if id(t) in self.names or id(t) in self.transposed]
        if not used:
            return func(*args, **kwargs)
        return self.apply(func, args, kwargs, used)

    def apply(self, func: Any, args: Args, kwargs: Kwargs, used: Sequence[Tensor] | None = None) -> Any:
        """Run an operation that takes a parameter, by its handler if it has one; handlers call this too."""
        if used is None:
            used = [t for t in tensors_in((*args, *kwargs.values())) if id(t) in self.names]
        handler = self.handlers.get(func)
        result = NotImplemented if handler is None else handler(self, func, args, kwargs)
        if result is not NotImplemented:
            return result
        before = generator_states(used[0].device) if self.layouts is None else None
        result = func(*args, **kwargs)
        if len(used) == 1 and id(used[0]) in self.names and isinstance(result, Tensor) and result.requires_grad:
            others = [t for t in tensors_in((*args, *kwargs.values())) if t is not used[0]]
            # A function that draws random numbers (dropout of a weight) would draw others for the gradient.
            deterministic = before is None or nothing_drawn(before, used[0].device)
            if not others and args and args[0] is used[0] and deterministic:
                rule = TransformedParameter(lambda value: func(value, *args[1:], **kwargs), used[0])
                return self.record(getattr(func, "__name__", "function"), result, [ParameterUse(used[0], rule)])
        if any(t.requires_grad for t in tensors_in([result])):
            for tensor in used:
                self.note_without_rule(tensor, getattr(func, "__name__", str(func)))
        return result

    def note_without_rule(self, tensor: Tensor, operation: str) -> None:
        """Note that a parameter went through an operation without a rule."""
        source = self.transposed.get(id(tensor), tensor)
        if (name := self.names.get(id(source))) is not None:
            self.without_rule.setdefault(name, operation)

    def alias(self, source: Tensor, transposed: Tensor) -> Tensor:
        """Note that a tensor is a parameter's transpose, so that a product with it can be recognized."""
        self.transposed[id(transposed)] = source
        self._alive.append(transposed)  # while it lives, no other tensor has its id
        return transposed

    def record(self, operation: str, output: Tensor, claims: Sequence[ParameterUse]) -> Tensor:
        """Record a site and return its output; claims on tensors other than trainable parameters are dropped."""
        named = [(self.names[id(c.parameter)], c.rule, c.inputs) for c in claims if id(c.parameter) in self.names]
        if not named or not output.requires_grad or not torch.is_grad_enabled():
            return output
        layout = (
            self.layouts[len(self.sites)] if self.layouts is not None and len(self.sites) < len(self.layouts) else None
        )
        if layout is not None and layout.kind == "shared":
            output = repeat_per_example(output, self.examples)
            named = [
                (name, rule, tuple(repeat_per_example(x, self.examples) for x in inputs))
                for name, rule, inputs in named
            ]
        named = [(name, rule, tuple(x.detach() for x in inputs)) for name, rule, inputs in named]
        versions = tuple(x._version for _, _, inputs in named for x in inputs)
        signature = (operation, *(name for name, _, _ in named))
        self.sites.append(Site(signature, get_gradient_edge(output), tuple(named), versions))
        return output


def check_inputs_unchanged(sites: Sequence[Site]) -> None:
    """Refuse a model that overwrote an operation's input after use: its gradient would be that of another value."""
    for site in sites:
        if tuple(x._version for _, _, inputs in site.claims for x in inputs) != site.versions:
            raise InvalidArgument(
                f"the input of {site.signature[0]} ({', '.join(site.signature[1:])}) must not change before the "
                "backward pass, got an in-place change: write x = x + y instead of x += y"
            )


def output_gradients(losses: Tensor, sites: Sequence[Site], retain: bool = False) -> list[Tensor | None]:
    """The gradient of a loss (or of the sum of losses) with respect to every site's output, in one backward pass."""
    if not sites:
        return []
    edges = [site.edge for site in sites]
    return list(torch.autograd.grad(losses.sum(), edges, allow_unused=True, retain_graph=retain))
