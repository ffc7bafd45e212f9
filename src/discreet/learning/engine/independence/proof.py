"""The proof itself: a mode that follows what each tensor of a forward pass depends on."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.dependence import (
    FREE,
    RANDOM,
    Along,
    Dependence,
    Free,
    Memory,
    Mixed,
    Single,
    free_of,
    in_memory,
    in_view,
    joined,
    settled,
)
from discreet.learning.engine.independence.origin import Outside, storage_of, where
from discreet.learning.engine.independence.rules.base import Answer, Call, Rule
from discreet.learning.engine.independence.table import DRAWS, FILLS, RESHAPES, RULES, name_of

#: Free values of up to this many elements are known while tracing: index vectors, masks of positions.
_REMEMBERED = 1 << 20

#: Operations that take a constant written in Python code, `torch.tensor(2.0)`, into the trace.
_LIFTS = {"aten.lift_fresh", "aten.lift_fresh_copy", "aten.lift"}
#: Our own operations have backward passes in Python too; their gradients are tested against torch's.
_OUR_OPERATIONS, _OUR_FUNCTIONS = "GeneratedBackwardFor_discreet_", "discreet.learning.engine."

Forward = Callable[[Mapping[str, Tensor], Any], Tensor]


class Unproved(Exception):
    """Why the examples of a batch could not be proved independent, in words."""


@dataclass(frozen=True)
class Proof:
    """What was proved for one shape of a batch: the loss of each example depends on that example alone."""

    examples: int
    operations: int


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Follows what each tensor depends on, operation by operation.

    Args:
        batch: the tensors that hold one example in each row.
        examples: how many rows they have.
        values: tensors without data that stand for parameters and constants while tracing, each with its value.
        outside: what the model may read beside its parameters, its buffers and the batch.

    What was there before the pass (parameters, buffers, attributes) outlives it: examples must not be written there.
    """

    def __init__(
        self,
        batch: Sequence[Tensor],
        examples: int,
        values: Sequence[tuple[Tensor, Tensor]] = (),
        outside: Outside | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.examples = examples
        self.operations = 0
        self._outside = outside
        self._memory: dict[StorageWeakRef, Memory] = {}
        self._own: set[StorageWeakRef] = set()
        self._values: dict[StorageWeakRef, list[tuple[Tensor, Tensor]]] = {}
        #: Free storages that hold the same values for each example, as stripes; and those of one value everywhere.
        self._repeats: dict[StorageWeakRef, Memory] = {}
        self._filled: set[StorageWeakRef] = set()
        for tensor in batch:
            key = storage_of(tensor)
            memory = in_memory(tensor, Along(0), examples)
            self._memory[key] = memory if self._memory.get(key, memory) == memory else Mixed("rows that overlap")
            self._own.add(key)
        for fake, value in values:
            self._remember(fake, value)

    def of(self, value: Any) -> Dependence:
        """What a tensor depends on; anything else is free."""
        if not isinstance(value, Tensor):
            return FREE
        return in_view(value, self._memory.get(storage_of(value), FREE), self.examples)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if name_of(func) in RESHAPES and func._schema.is_mutable:
            return func(*args, **kwargs)
        given = _given(func, args, kwargs)
        inputs = [leaf for leaf in pytree.tree_leaves(list(given.values())) if isinstance(leaf, Tensor)]
        if self._outside is not None and name_of(func) not in _LIFTS:
            for tensor in inputs:
                if not isinstance(tensor, FakeTensor):
                    self._outside.meet(tensor)
        before = [self.of(tensor) for tensor in inputs]
        known = {storage_of(tensor) for tensor in inputs}
        schema = func._schema
        writes = [given[a.name] for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        written = [leaf for leaf in pytree.tree_leaves(writes) if isinstance(leaf, Tensor)]
        if torch.Tag.dynamic_output_shape in func.tags and not all(isinstance(own, Free) for own in before):
            masks = [i for i in given.get("indices") or () if i is not None and i.dtype in (torch.bool, torch.uint8)]
            if masks or "indices" not in given:
                raise Unproved(f"{name_of(func)} makes a shape that depends on values of examples {where()}")
        in_place = bool(written) and all(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        # An operation in place changes values that its rule looks at, so the rule is asked first.
        answers = self._answers(func, self._call(func, given, inputs, before, written), before) if in_place else []
        result = func(*args, **kwargs)
        self.operations += 1
        results = tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        if not results and not written:
            if any(not isinstance(own, Free) for own in before) and not name_of(func).startswith("prim."):
                raise Unproved(f"{name_of(func)} reads values of examples {where()}")
            return result
        fresh = [] if in_place else [tensor for tensor in results if storage_of(tensor) not in known]
        if not in_place and (fresh or written):
            answers = self._answers(func, self._call(func, given, inputs, before, results), before)
            for tensor, answer in zip(results, answers, strict=True):
                if any(tensor is one for one in fresh):
                    self._own.add(storage_of(tensor))
                    self._memory[storage_of(tensor)] = in_memory(tensor, answer, self.examples)
            if isinstance(answers[0], Free) and not answers[0].random and not written:
                self._compute(func, args, kwargs, fresh)
                self._repeat(func, given, inputs, fresh)
        if written:
            self._recompute(func, args, kwargs, written, answers)
        for place, tensor in enumerate(written):
            self._write(tensor, answers[place] if in_place else _worst(answers), name_of(func))
        return result

    def _call(
        self,
        func: Any,
        given: dict[str, Any],
        inputs: Sequence[Tensor],
        before: Sequence[Dependence],
        results: Sequence[Tensor],
    ) -> Call:
        by_id = {id(tensor): own for tensor, own in zip(inputs, before, strict=True)}

        def of(value: Any) -> Dependence:
            return by_id.get(id(value), FREE)

        return Call(name_of(func), given, tuple(results), self.examples, of, self._value, self._repeated)

    def _repeated(self, tensor: Tensor) -> Dependence:
        """Along which dimension a free tensor repeats the same values for each example; `FREE` if that is not known."""
        lengths = list(tensor.shape)
        if storage_of(tensor) in self._filled and self.examples in lengths:
            return settled(Along(lengths.index(self.examples)), tuple(lengths), self.examples)
        broadcast = [d for d, n in enumerate(lengths) if n == self.examples and tensor.stride(d) == 0]
        if broadcast:
            return settled(Along(broadcast[0]), tuple(lengths), self.examples)
        return in_view(tensor, self._repeats.get(storage_of(tensor), FREE), self.examples)

    def _repeat(self, func: Any, given: dict[str, Any], inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        """Note that a free result repeats, because its inputs do.

        The rule is asked what the result would depend on if the inputs that repeat depended on an example each: along
        that dimension the result is the same function of the same values.
        """
        name = name_of(func)
        if name in FILLS:
            self._filled |= {storage_of(tensor) for tensor in results}
        repeated = [self._repeated(tensor) for tensor in inputs]
        rule = RULES.get(name)
        if rule is None or self.examples == 1 or not any(isinstance(own, Along) for own in repeated):
            return
        supposed = [own if isinstance(own, Along) else FREE for own in repeated]
        with _outside():
            answer = _asked(rule, self._call(func, given, inputs, supposed, results))
        each = list(answer) if isinstance(answer, (list, tuple)) else [answer] * len(results)
        for tensor, own in zip(results, each, strict=True):
            if isinstance(own, Along) and _fits(own, tuple(tensor.shape)):
                self._repeats[storage_of(tensor)] = in_memory(tensor, own, self.examples)

    def _answers(self, func: Any, call: Call, before: Sequence[Dependence]) -> list[Dependence]:
        count = len(call.results)
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        bound = [own for own in before if not isinstance(own, Free)]
        if call.name in DRAWS or (seeded and not bound):
            return [RANDOM] * count
        if not bound:
            return [free_of(before)] * count
        mixed = next((own for own in bound if isinstance(own, Mixed)), None)
        rule = RULES.get(call.name)
        if mixed is not None:
            answer: Any = FREE if rule is RULES["aten.zeros_like"] else mixed
        elif rule is not None and rule in (RULES["aten.zeros_like"], RULES["aten.rand_like"]):
            answer = rule(call)
        elif len(set(bound)) == 1 and isinstance(bound[0], Single) and (rule is not None or not seeded):
            answer = bound[0]  # nothing but this example took part
        elif rule is None:
            answer = call.mixed("no rule says that it keeps examples apart")
        else:
            with _outside():
                answer = _asked(rule, call)
        each = list(answer) if isinstance(answer, (list, tuple)) else [answer] * count
        shapes = [tuple(out.shape) for out in call.results]
        checked = [settled(own, shape, self.examples) if _fits(own, shape) else call.mixed("no rule for this shape")
                   for own, shape in zip(each, shapes, strict=True)]  # fmt: skip
        place = where() if any(isinstance(own, Mixed) for own in checked) and mixed is None else ""
        return [Mixed(f"{own.reason} {place}".strip()) if isinstance(own, Mixed) else own for own in checked]

    def _write(self, tensor: Tensor, answer: Dependence, name: str) -> None:
        key = storage_of(tensor)
        self._repeats.pop(key, None)
        self._filled.discard(key)
        if key not in self._own and not isinstance(answer, Free):
            raise Unproved(f"{name} writes what depends on examples into something that outlives the pass {where()}")
        self._memory[key] = joined(tensor, self._memory.get(key, FREE), answer, self.examples)

    def _value(self, tensor: Tensor) -> Tensor | None:
        """The value of a free tensor, where it is known."""
        if not isinstance(tensor, FakeTensor):
            with _outside():  # inside, it would become a tensor without data
                return tensor.detach()
        # Several parameters may lie in one storage, as cuDNN's do.
        first, last = _range(tensor)
        for base, value in self._values.get(storage_of(tensor), ()):
            start, end = _range(base)
            if tensor.dtype == base.dtype and start <= first and last <= end:
                with _outside():
                    offset = value.storage_offset() + first - start
                    return value.as_strided(tensor.shape, tensor.stride(), offset)
        return None

    def _remember(self, fake: Tensor, value: Tensor) -> None:
        if value.numel() <= _REMEMBERED and fake.is_contiguous():
            with _outside():
                self._values.setdefault(storage_of(fake), []).append((fake, value.detach().contiguous()))

    def _recompute(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        written: Sequence[Tensor],
        answers: Sequence[Dependence],
    ) -> None:
        """While tracing, keep up with small free values that are changed in place; forget any other."""
        entries = [self._values.pop(storage_of(tensor), []) for tensor in written]
        fixed = all(isinstance(answer, Free) and not answer.random for answer in answers)
        if len(entries) != 1 or len(entries[0]) != 1 or not fixed:
            return
        ((base, value),) = entries[0]
        with _outside():
            self._values[storage_of(base)] = [(base, value.clone())]
        leaves, structure = pytree.tree_flatten((args, kwargs))
        real = [self._value(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if any(value is None and isinstance(leaf, Tensor) for value, leaf in zip(real, leaves, strict=True)):
            del self._values[storage_of(base)]
            return
        with _outside():
            given, named = pytree.tree_unflatten(real, structure)
            try:
                func(*given, **named)  # writes through a view of the copy
            except (RuntimeError, TypeError):
                del self._values[storage_of(base)]

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], fresh: Sequence[Tensor]) -> None:
        """While tracing, compute small free values alongside, so that a vector of indices is known."""
        if len(fresh) != 1 or not isinstance(fresh[0], FakeTensor) or fresh[0].numel() > _REMEMBERED:
            return
        leaves, structure = pytree.tree_flatten((args, {**kwargs, **({"device": "cpu"} if "device" in kwargs else {})}))
        real = [self._value(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if RULES.get(name_of(func)) is RULES["aten.zeros_like"]:  # it reads shapes alone, so any values will do
            real = [_blank(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        if any(value is None and isinstance(leaf, Tensor) for value, leaf in zip(real, leaves, strict=True)):
            return
        with _outside():
            given, named = pytree.tree_unflatten(real, structure)
            try:
                self._remember(fresh[0], func(*given, **named))
            except (RuntimeError, TypeError):
                return


def _asked(rule: Rule, call: Call) -> Answer:
    """The answer of a rule; `Mixed` where it was written for other combinations of inputs than this one."""
    try:
        return rule(call)
    except (LookupError, StopIteration, TypeError, RuntimeError):
        return call.mixed("no rule for this combination of inputs")


def _range(tensor: Tensor) -> tuple[int, int]:
    """The first element of a tensor in its storage, and the one after its last."""
    first = int(tensor.storage_offset())
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return first, first + sum((length - 1) * stride for length, stride in pairs) + 1


def _worst(answers: Sequence[Dependence]) -> Dependence:
    """What is written beside the results, such as running statistics: free only if all results are."""
    bound = [answer for answer in answers if not isinstance(answer, Free)]
    return Mixed("written from examples") if bound else FREE


def _blank(tensor: Tensor) -> Tensor:
    """Zeros that look like a tensor without data."""
    with _outside():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)


@contextlib.contextmanager
def _outside() -> Iterator[None]:
    """Values that rules look at are computed outside of the trace."""
    with _disable_current_modes(), torch.no_grad():
        yield


def _fits(own: Dependence, shape: tuple[int, ...]) -> bool:
    return not isinstance(own, Along) or own.dim < len(shape)


def _given(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """An operation's arguments by name, with the defaults of those that were left out."""
    schema = func._schema.arguments
    named = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return named | {argument.name: value for argument, value in zip(schema, args, strict=False)} | dict(kwargs)


def general_position(trainable: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values for trainable parameters that do not agree by chance, as the zeros do that some of them start with."""
    generator = torch.Generator().manual_seed(20)
    return {
        name: tensor.detach()
        if tensor.numel() > _REMEMBERED or not tensor.is_floating_point()
        else (tensor.detach() + torch.randn(tensor.shape, generator=generator).to(tensor)).detach()
        for name, tensor in trainable.items()
    }


def prove(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    rest: Mapping[str, Tensor],
    batch: Any,
    outside: Outside | None = None,
    record: Callable[[Mapping[str, Tensor]], contextlib.AbstractContextManager[Any]] | None = None,
) -> Proof:
    """Trace `forward(tensors, batch)` and prove that the losses that it returns belong to one example each.

    The pass runs on tensors without data, so it can read no example. Values of parameters are looked at only to see
    that a constant is the same for every position in the batch; give trainable ones values in general position, not the
    zeros that some start with. `record` is a mode to run the pass under, as it will run later. Raises `Unproved` with
    the operation and the line that could not be followed.
    """
    leaves, structure = pytree.tree_flatten(batch)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    examples = leaves[places[0]].shape[0]
    fixed = {**trainable, **rest}
    seen: list[Watch] = []

    def flat(*tensors: Tensor) -> Tensor:
        rows = tensors[len(fixed) :]
        filled = list(leaves)
        for place, row in zip(places, rows, strict=True):
            filled[place] = row
        watch = Watch(rows, examples, list(zip(tensors, fixed.values(), strict=False)), outside)
        seen.append(watch)
        named = dict(zip(fixed, tensors, strict=False))
        with torch.enable_grad():
            live = {name: named[name].detach().requires_grad_() for name in trainable}
            with record(live) if record is not None else contextlib.nullcontext(), watch:
                losses = forward({**named, **live}, pytree.tree_unflatten(filled, structure))
            verdict(watch, losses)
        return losses.detach()

    tensors = [tensor.detach() for tensor in (*fixed.values(), *(leaves[place] for place in places))]
    trace: Any = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parts of the tracer warn about each other, never about the model
            trace(*tensors)
    except (Unproved, InvalidArgument):
        raise
    except Exception as error:  # a model may fail in any way on tensors without data
        raise Unproved(f"the pass could not be traced without data ({type(error).__name__})") from error
    return Proof(examples, seen[-1].operations)


def verdict(watch: Watch, losses: Tensor) -> None:
    """Raise `Unproved` unless each loss belongs to the example of its row, and torch itself differentiates it."""
    own = watch.of(losses)
    right = isinstance(own, Free) or own == settled(Along(0), tuple(losses.shape), watch.examples)
    if not right:
        why = own.reason if isinstance(own, Mixed) else "the losses are not in the order of the examples"
        raise Unproved(why)
    pending: list[Any] = [losses.grad_fn]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name()
        module = getattr(getattr(node, "_forward_cls", None), "__module__", "")
        ours = name.startswith(_OUR_OPERATIONS) or module.startswith(_OUR_FUNCTIONS)
        if isinstance(node, torch.autograd.function.BackwardCFunction) and not ours:
            raise Unproved(f"{name} is a backward pass in Python, which may do anything")
        pending += [following for following, _ in node.next_functions]
