"""Records every operation that takes a trainable parameter, with what its rule needs.

A `TorchFunctionMode` around the model's forward pass sees functions, not modules, so it covers any model that calls
torch with its parameters, whoever wrote its layers. For each such operation it keeps the input and the edge of the
autograd graph that the output's gradient will pass through. Differentiating the losses with respect to those edges
alone gives all output gradients in one backward pass that forms no parameter gradient. Nothing is left behind on
modules or parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.independence import Misplaced, Watch
from discreet.learning.engine.layout import Layout, repeat_per_example
from discreet.learning.engine.operations.base import Args, GradientRule, Handlers, Kwargs, ParameterUse
from discreet.learning.engine.operations.transformed import TransformedParameter
from discreet.learning.engine.trace.compiling import READS
from discreet.learning.engine.trace.derived_values import Derived, DerivedValues, value_at
from discreet.learning.engine.trace.placement import Location, place_of, placed
from discreet.learning.engine.trace.randomness import DecidedDraws, generator_states, nothing_drawn
from discreet.learning.engine.trace.writes import Writes, count_writes

#: Functions that let Python change gradients in the backward pass.
_HOOKS = {Tensor.register_hook, Tensor.register_post_accumulate_grad_hook}


@dataclass(frozen=True)
class Site:
    """One recorded operation of the forward pass.

    Attributes:
        signature: the operation's name, then the names of the parameters that it uses.
        edge: the edge of the autograd graph that the output's gradient passes through.
        claims: the name, the rule and the rule's inputs of each parameter.
        reads: the tensors that the rules read later, each with how often it had been written by then.
        call: the key of the call that it is part of.
        places: where the examples are in the output and in the inputs, if the pass is watched.
    """

    signature: tuple[str, ...]
    edge: GradientEdge
    claims: tuple[tuple[str, GradientRule, tuple[Tensor, ...]], ...]
    reads: tuple[tuple[Tensor, Writes], ...] = ()
    call: str = ""
    places: tuple[Location, ...] = ()


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
        shared: the keys of calls whose results all examples share, because they are computed from parameters and
            constants alone. These are not recorded, but the operations in which their results meet the data.
        free: the keys of calls that compute from parameters and constants alone, as far as that is known.
        watch: follows which example each tensor depends on. With it, layouts are proved.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        handlers: Handlers,
        examples: int,
        layouts: Sequence[Layout | None] | None = None,
        ignored: frozenset[str] = frozenset(),
        shared: frozenset[str] = frozenset(),
        free: frozenset[str] = frozenset(),
        watch: Watch | None = None,
    ) -> None:
        super().__init__()
        self.names = {id(tensor): name for name, tensor in parameters.items() if name not in ignored}
        self._free, self._shared, self._watch = set(free), shared, watch
        #: By free call, its operands, each with how often it had been written to.
        self._operands: dict[str, list[tuple[Tensor, Writes]]] = {}
        self._derived, self._call = DerivedValues(parameters.items(), watch), ""
        self.handlers = handlers
        self.examples = examples
        self.traced = any(isinstance(tensor, FakeTensor) for tensor in parameters.values())
        self._draws = DecidedDraws() if self.traced else None
        self.layouts = layouts
        self.sites: list[Site] = []
        #: By parameter, the first operation that has no rule for it.
        self.without_rule: dict[str, str] = {}
        #: Whether the code of the model looked at a value.
        self.reads_values = False
        self.transposed: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _HOOKS:
            raise InvalidArgument(
                "the forward pass must not register hooks on tensors, got Tensor.register_hook: a hook may mix the "
                "gradients of several examples; write what it does as part of the forward pass"
            )
        if self._draws is not None:
            answer = self._draws.answer(func, args)
            if answer is not None:
                return answer
        self.reads_values |= func in READS
        tensors = tensors_in((*args, *kwargs.values()))
        if not any(tensor in self._derived for tensor in tensors):
            result = func(*args, **kwargs)
            if self._draws is not None:
                self._draws.note(func, args, result)
            return result
        self._call = key = self._derived.key(func, tensors)
        # Decided before the operation is split or recorded, and taken back if it draws random numbers or writes.
        watch = self._watch
        free = watch is not None and all(map(watch.is_free, tensors))
        if free:
            self._free.add(key)
        operands = [(tensor, count_writes(tensor, watch)) for tensor in tensors]
        if key in self._shared:
            if watch is not None and not free:
                raise DiscreetError("a value that all examples share depends on an example now: make a new engine")
            result = func(*args, **kwargs)
        else:
            used = [t for t in tensors if id(t) in self.names or id(t) in self.transposed]
            result = self.apply(func, args, kwargs, used) if used else func(*args, **kwargs)
        if free and watch is not None:
            self._operands[key] = operands
            if _written(operands, watch) or not all(map(watch.is_free, tensors_in([result]))):
                self._free.discard(key)
                free = False
        if free or key in self._shared or id(result) in self.transposed:
            made = self._derived.results(key, func, args, kwargs, result)
            self._derived.keep(made)
            if key in self._shared:
                trained = [each for each in made if any(id(leaf) in self.names for leaf in each.leaves)]
                self.names |= {id(each.tensor): each.key for each in trained}
        return result

    @property
    def free(self) -> frozenset[str]:
        """The keys of the calls that compute from parameters and constants alone, if these still have their values."""
        return frozenset(self._free - {key for key, each in self._operands.items() if _written(each, self._watch)})

    def apply(self, func: Any, args: Args, kwargs: Kwargs, used: Sequence[Tensor] | None = None) -> Any:
        """Run an operation that takes a parameter, by its handler if it has one; handlers call this too."""
        if used is None:
            used = [t for t in tensors_in((*args, *kwargs.values())) if id(t) in self.names]
        handler = self.handlers.get(func)
        result = NotImplemented if handler is None else handler(self, func, args, kwargs)
        aliases = [t for t in used if id(t) in self.transposed]
        if result is NotImplemented and handler is not None and aliases:
            # Not a product: then a transpose is a value like any other that is computed from the parameter.
            for tensor in aliases:
                del self.transposed[id(tensor)]
                self.names[id(tensor)] = "transpose"
            result = handler(self, func, args, kwargs)
        if result is not NotImplemented:
            return result
        others = [t for t in tensors_in((*args, *kwargs.values())) if not any(t is each for each in used)]
        if others and self._call not in self._free:
            return self._apply_to_copies(func, args, kwargs, used)
        before = generator_states(used[0].device) if self.layouts is None else None
        result = func(*args, **kwargs)
        outputs = self._derived.results(self._call, func, args, kwargs, result)
        # A function that draws random numbers (dropout of a weight) would draw others for the gradient.
        if before is not None and not nothing_drawn(before, used[0].device):
            for tensor in used if outputs else ():
                self.note_without_rule(tensor, _name(func))
            return result
        recorded = {id(each.tensor): self._record_transformed(_name(func), each.tensor, each) for each in outputs}
        return pytree.tree_map_only(Tensor, lambda tensor: recorded.get(id(tensor), tensor), result)

    def _apply_to_copies(self, func: Any, args: Args, kwargs: Kwargs, used: Sequence[Tensor]) -> Any:
        """Run an operation that has no rule for the parameters that meet the data there.

        Each is recorded right before it, so that it can be repeated per example if the operation takes it that way.
        """
        copies: dict[int, Tensor] = {}
        for tensor in used:
            derived = self._derived.get(tensor)
            if derived is None:
                self.note_without_rule(tensor, _name(func))
            elif id(tensor) not in copies:
                copies[id(tensor)] = self._record_transformed(_name(func), tensor.view_as(tensor), derived)
        args, kwargs = pytree.tree_map_only(Tensor, lambda tensor: copies.get(id(tensor), tensor), (args, kwargs))
        return func(*args, **kwargs)

    def _record_transformed(self, operation: str, output: Tensor, derived: Derived) -> Tensor:
        """Record a value that was computed from parameters."""
        claims = [
            ParameterUse(leaf, TransformedParameter(partial(value_at, derived, leaf), leaf, None, self.examples))
            for leaf in derived.leaves
        ]
        return self.record(operation, output, claims, derived.reads)

    def note_without_rule(self, tensor: Tensor, operation: str) -> None:
        """Note that a parameter went through an operation without a rule."""
        source = self.transposed.get(id(tensor), tensor)
        for leaf in self._derived.leaves(source):
            if (name := self.names.get(id(leaf))) is not None:
                self.without_rule.setdefault(name, operation)

    def alias(self, source: Tensor, transposed: Tensor) -> Tensor:
        """Note that a tensor is a parameter's transpose, so that a product with it can be recognized."""
        self.transposed[id(transposed)] = source
        self._alive.append(transposed)  # while it lives, no other tensor has its id
        return transposed

    def record(
        self,
        operation: str,
        output: Tensor,
        claims: Sequence[ParameterUse],
        reads: Sequence[tuple[Tensor, Writes]] = (),
    ) -> Tensor:
        """Record a site and return its output; claims on tensors other than trainable parameters are dropped.

        `reads` are tensors that the rules read beside their inputs, each with how often it had been written to.
        """
        named = list(self._named(operation, claims))
        if not named or not output.requires_grad or not torch.is_grad_enabled():
            return output
        reads = [*reads, *(read for *_, more in named for read in more)]
        claimed = [(name, rule, tuple(x.detach() for x in inputs)) for name, rule, inputs, _ in named]
        inputs = [x for *_, of_claim in claimed for x in of_claim]
        reads += [(x, count_writes(x, self._watch)) for x in inputs]
        signature = (operation, *(name for name, _, _ in claimed))
        places = () if self._watch is None else tuple(place_of(x, self._watch) for x in (output, *inputs))
        if self.layouts is not None and len(self.sites) < len(self.layouts):
            layout = self.layouts[len(self.sites)]
            if layout is not None and layout.kind == "shared":
                output = repeat_per_example(output, self.examples)
                claimed = [(n, rule, tuple(repeat_per_example(x, self.examples) for x in i)) for n, rule, i in claimed]
            if layout is not None and self._watch is not None:
                try:
                    output = placed(output, (x for *_, of_claim in claimed for x in of_claim), layout, self._watch)
                except Misplaced as error:
                    error.names = signature[1:]
                    raise
        self.sites.append(Site(signature, get_gradient_edge(output), tuple(claimed), tuple(reads), self._call, places))
        return output

    def _named(
        self, operation: str, claims: Sequence[ParameterUse]
    ) -> Iterator[tuple[str, GradientRule, tuple[Tensor, ...], tuple[tuple[Tensor, Writes], ...]]]:
        """The claims on trainable parameters, and on what was computed from them, by the parameters' names.

        With each, what its rule reads beside its inputs.
        """
        for claim in claims:
            if id(claim.parameter) not in self.names:
                continue
            derived = self._derived.get(claim.parameter)
            if derived is None:
                self.note_without_rule(claim.parameter, operation)
            elif derived.call is None:
                yield self.names[id(claim.parameter)], claim.rule, claim.inputs, ()
            else:
                for leaf in derived.leaves:
                    if id(leaf) in self.names:
                        function = partial(value_at, derived, leaf)
                        rearranges = derived.rearranges
                        rule = TransformedParameter(function, leaf, claim.rule, self.examples, rearranges=rearranges)
                        yield self.names[id(leaf)], rule, claim.inputs, derived.reads


def _written(tensors: Sequence[tuple[Tensor, Writes]], watch: Watch | None) -> bool:
    """Whether one of these tensors was written to since."""
    return any(count_writes(tensor, watch) != writes for tensor, writes in tensors)


def _name(func: Any) -> str:
    return getattr(func, "__name__", str(func))


def check_inputs_unchanged(sites: Sequence[Site], watch: Watch | None = None) -> None:
    """Refuse a model that overwrote an operation's input after use: its gradient would be that of another value."""
    for site in sites:
        if _written(site.reads, watch):
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
