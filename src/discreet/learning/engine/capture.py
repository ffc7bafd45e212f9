"""Sees every operation that takes a trainable parameter, and keeps what its rule needs.

A `TorchFunctionMode` around the model's forward pass meets functions, not modules, so any model that calls torch with
its parameters is covered, whoever wrote its layers. For each such operation it keeps the input and the place in the
autograd graph where the output's gradient will pass. Differentiating the losses with respect to those places alone
gives all output gradients in one backward pass that forms no parameter gradient. Nothing stays behind on modules or
parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from discreet.errors import InvalidArgument
from discreet.learning.engine.layout import Layout, spread
from discreet.learning.engine.rules.base import Rule
from discreet.learning.engine.rules.derived import Derived


@dataclass(frozen=True)
class Claim:
    """One parameter's part in one operation: the rule, and the inputs that the rule needs."""

    parameter: Tensor
    rule: Rule
    inputs: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Site:
    """One operation of the forward pass, in the order of execution."""

    signature: tuple[str, ...]
    edge: GradientEdge
    claims: tuple[tuple[str, Rule, tuple[Tensor, ...]], ...]
    versions: tuple[int, ...] = ()


Handler = Callable[["Recorder", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def tensors_in(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, and in lists and tuples among them."""
    found: list[Tensor] = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif isinstance(arg, (list, tuple)):
            found += tensors_in(arg)
    return found


def generators(device: torch.device) -> list[Tensor]:
    """The states of torch's generators, which change whenever a random number is drawn."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def undrawn(before: Sequence[Tensor], device: torch.device) -> bool:
    """Whether no random number was drawn since then."""
    return all(map(torch.equal, before, generators(device)))


class Recorder(TorchFunctionMode):
    """Records the sites of one forward pass.

    Args:
        names: the trainable parameters of this pass, by identity.
        handlers: what to do with each function.
        examples: the number of examples in the batch.
        layouts: where the examples are at each site, once that is known; a "shared" one is spread over the examples.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        handlers: Mapping[Any, Handler],
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
        self.unknown: dict[str, str] = {}
        self.transposed: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        known = [t for t in tensors_in((*args, *kwargs.values())) if id(t) in self.names or id(t) in self.transposed]
        if not known:
            return func(*args, **kwargs)
        return self.apply(func, args, kwargs, known)

    def apply(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], known: Sequence[Tensor] | None = None
    ) -> Any:
        """Run an operation that takes a parameter, by its handler if there is one; handlers call this too."""
        if known is None:
            known = [t for t in tensors_in((*args, *kwargs.values())) if id(t) in self.names]
        handler = self.handlers.get(func)
        result = NotImplemented if handler is None else handler(self, func, args, kwargs)
        if result is not NotImplemented:
            return result
        before = generators(known[0].device) if self.layouts is None else None
        result = func(*args, **kwargs)
        if len(known) == 1 and id(known[0]) in self.names and isinstance(result, Tensor) and result.requires_grad:
            others = [t for t in tensors_in((*args, *kwargs.values())) if t is not known[0]]
            # What is drawn (dropout of a weight) would be drawn anew for the gradient.
            fixed = before is None or undrawn(before, known[0].device)
            if not others and args and args[0] is known[0] and fixed:
                rule = Derived(lambda value: func(value, *args[1:], **kwargs), known[0])
                return self.record(getattr(func, "__name__", "function"), result, [Claim(known[0], rule)])
        if any(t.requires_grad for t in tensors_in([result])):
            for tensor in known:
                self.doubt(tensor, getattr(func, "__name__", str(func)))
        return result

    def doubt(self, tensor: Tensor, operation: str) -> None:
        """Note that a parameter went through an operation that has no rule."""
        source = self.transposed.get(id(tensor), tensor)
        if (name := self.names.get(id(source))) is not None:
            self.unknown.setdefault(name, operation)

    def alias(self, source: Tensor, transposed: Tensor) -> Tensor:
        """Note that a tensor is a parameter's transpose, so that a product with it can be recognized."""
        self.transposed[id(transposed)] = source
        self._alive.append(transposed)
        return transposed

    def record(self, operation: str, output: Tensor, claims: Sequence[Claim]) -> Tensor:
        """Keep a site and return its output; claims on what is not a trainable parameter fall away."""
        mine = [(self.names[id(c.parameter)], c.rule, c.inputs) for c in claims if id(c.parameter) in self.names]
        if not mine or not output.requires_grad or not torch.is_grad_enabled():
            return output
        layout = (
            self.layouts[len(self.sites)] if self.layouts is not None and len(self.sites) < len(self.layouts) else None
        )
        if layout is not None and layout.kind == "shared":
            output = spread(output, self.examples)
            mine = [(name, rule, tuple(spread(x, self.examples) for x in inputs)) for name, rule, inputs in mine]
        mine = [(name, rule, tuple(x.detach() for x in inputs)) for name, rule, inputs in mine]
        versions = tuple(x._version for _, _, inputs in mine for x in inputs)
        signature = (operation, *(name for name, _, _ in mine))
        self.sites.append(Site(signature, get_gradient_edge(output), tuple(mine), versions))
        return output


def unchanged(sites: Sequence[Site]) -> None:
    """Refuse a model that overwrote an operation's input after it was used: its gradient would be of another value."""
    for site in sites:
        if tuple(x._version for _, _, inputs in site.claims for x in inputs) != site.versions:
            raise InvalidArgument(
                f"the input of {site.signature[0]} ({', '.join(site.signature[1:])}) must stay as it is until the "
                "backward pass, got an in-place change: write x = x + y instead of x += y"
            )


def output_gradients(losses: Tensor, sites: Sequence[Site], retain: bool = False) -> list[Tensor | None]:
    """The gradient of a loss (or of the sum of losses) with respect to every site's output, in one backward pass."""
    if not sites:
        return []
    found = torch.autograd.grad(losses.sum(), [site.edge for site in sites], allow_unused=True, retain_graph=retain)
    return list(found)
