"""The mode that follows what each tensor of a forward pass depends on."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
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
    Stripes,
    free_of,
    in_memory,
    in_view,
    joined,
    settled,
)
from discreet.learning.engine.independence.origin import Misplaced, Outside, Unproved, storage_of, where
from discreet.learning.engine.independence.positions import Repeats, copied, covers, every_example, repeat_values
from discreet.learning.engine.independence.rules.base import Call, Dependences, Rule, alike
from discreet.learning.engine.independence.signatures import drawn_from_nothing, named_arguments, signature, undeclared
from discreet.learning.engine.independence.table import DRAWS, FILLS, REFILLS, RESHAPES, RULES, UNSET, name_of

#: Free values of up to this many elements are known while tracing: index vectors, masks of positions.
REMEMBERED = 1 << 20

#: Asks where a tensor is, more often than anything is computed.
_DEVICE = torch.ops.prim.device.default
#: Operations that take a constant written in Python code, `torch.tensor(2.0)`, into the trace.
LIFTS = {"aten.lift_fresh", "aten.lift_fresh_copy", "aten.lift"}


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
        self.outside = outside
        #: Why the proof ended. A model may catch the exception that said so.
        self.failure: Exception | None = None
        #: An error of an operation itself, which then has had no effect.
        self._refused: Exception | None = None
        self._memory: dict[StorageWeakRef, Memory] = {}
        self._own: set[StorageWeakRef] = set()
        self._values: dict[StorageWeakRef, list[tuple[Tensor, Tensor]]] = {}
        self._repeats = Repeats(examples)
        #: How often each storage was written, and the tensors of this pass that were, with their versions before that.
        self._writes: Counter[StorageWeakRef] = Counter()
        self._written: dict[StorageWeakRef, tuple[Tensor, int]] = {}
        for tensor in batch:
            key = storage_of(tensor)
            memory = in_memory(tensor, Along(0), examples)
            self._memory[key] = memory if self._memory.get(key, memory) == memory else Mixed("rows that overlap")
            self._own.add(key)
        for fake, value in values:
            self._remember(fake, value)
        #: Tensors without data that this pass may read: what it was given, and what was made under this mode.
        self._given = self._own | {storage_of(fake) for fake, _ in values}

    def of(self, value: Any) -> Dependence:
        """What a tensor depends on; anything else is free."""
        if not isinstance(value, Tensor):
            return FREE
        key = storage_of(value)
        if isinstance(value, FakeTensor) and key not in self._given and key not in self._own:
            raise Unproved(f"the model reads a tensor that was made elsewhere, such as in another thread {where()}")
        return in_view(value, self._memory.get(key, FREE), self.examples)

    def is_free(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on no example and on no random number."""
        return self.of(tensor) == FREE

    def writes(self, tensor: Tensor) -> int:
        """How often the storage of a tensor was written in this pass, also where torch does not count it."""
        return self._writes[storage_of(tensor)]

    def check(self) -> None:
        """Raise why the proof ended, if it did; or `Unproved` if torch did not notice a write.

        After such a write gradients would be computed from other values.
        """
        if isinstance(self.failure, Unproved | InvalidArgument):
            raise self.failure
        if self.failure is not None:
            raise Unproved(f"the pass could not be followed ({type(self.failure).__name__})") from self.failure
        for tensor, version in self._written.values():
            if not tensor.is_inference() and tensor._version <= version:
                raise Unproved("the model writes to a tensor in a way that torch does not notice")

    def holds_examples(self) -> frozenset[StorageWeakRef]:
        """The storages that hold something of an example."""
        return frozenset(key for key, memory in self._memory.items() if not isinstance(memory, Free))

    def placed(self, tensor: Tensor, along: Along) -> Tensor:
        """A tensor whose examples are known to follow each other along a dimension, `tensor` itself if it has them.

        A free tensor that is the same for each of them becomes a copy which holds one part for each. From then on a
        part belongs to its example, so that the proof fails if it reaches another one. Raises `Misplaced`.
        """
        shape = tuple(tensor.shape)
        own, wanted = self.of(tensor), settled(along, shape, self.examples)
        if self.examples == 1 or own == wanted:
            return tensor
        call = Call("a parameter", {}, (tensor,), self.examples, self.of, self._value, self._repeats.along)
        with _outside():
            same = isinstance(own, Free) and isinstance(wanted, Along) and alike(call, tensor, wanted, tensor.dim())
        if isinstance(own, Mixed):
            raise Misplaced(own.reason)
        if not same:
            raise Misplaced(f"the examples do not lie where they did in the first three {where()}")
        copy = tensor.clone(memory_format=torch.contiguous_format)
        self._memory[storage_of(copy)] = in_memory(copy, wanted, self.examples)
        self._repeats.forget(copy)
        return copy

    def repeats(self, losses: Tensor) -> bool:
        """Whether losses that depend on no example are the same for each."""
        call = Call("the loss", {}, (losses,), self.examples, self.of, self._value, self._repeats.along)
        with _outside():
            return alike(call, losses, Along(0), 1)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return self._follow(func, args, kwargs or {})
        except Exception as error:
            if error is not self._refused:
                self.failure = self.failure or error
            raise

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return func(*args, **kwargs)
        except Exception as error:
            self._refused = error
            raise

    def _follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is _DEVICE or (name_of(func) in RESHAPES and func._schema.is_mutable):
            return func(*args, **kwargs)
        given = named_arguments(func, args, kwargs)
        inputs = [leaf for leaf in pytree.tree_leaves(list(given.values())) if isinstance(leaf, Tensor)]
        if self.outside is not None and name_of(func) not in LIFTS:
            for tensor in inputs:
                if not isinstance(tensor, FakeTensor):
                    self.outside.meet(tensor)
        before = [self.of(tensor) for tensor in inputs]
        input_storages = {storage_of(tensor) for tensor in inputs}
        schema = func._schema
        writes = [given[name] for name in signature(func)[2]]
        written = [leaf for leaf in pytree.tree_leaves(writes) if isinstance(leaf, Tensor)]
        if torch.Tag.dynamic_output_shape in func.tags and not all(isinstance(own, Free) for own in before):
            masks = [i for i in given.get("indices") or () if i is not None and i.dtype in (torch.bool, torch.uint8)]
            if masks or "indices" not in given:
                raise Unproved(f"{name_of(func)} makes a shape that depends on values of examples {where()}")
        in_place = bool(written) and all(r.alias_info is not None and r.alias_info.is_write for r in schema.returns)
        # An operation in place changes values that its rule looks at, so the rule is asked first.
        answers = self._answers(func, self._call(func, given, inputs, before, written), before) if in_place else []
        repeats = self._repeating(func, given, inputs, written, answers) if in_place else []
        if undeclared(name_of(func), given):
            raise Unproved(f"{name_of(func)} writes running statistics {where()}")
        forms = [_form(tensor) for tensor in written]
        result = self._run(func, args, kwargs)
        if forms != [_form(tensor) for tensor in written]:
            raise Unproved(f"{name_of(func)} changes the shape or the memory of a tensor that it writes to {where()}")
        self.operations += 1
        results = tuple(leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
        if not results and not written:
            if any(not isinstance(own, Free) for own in before) and not name_of(func).startswith("prim."):
                raise Unproved(f"{name_of(func)} reads values of examples {where()}")
            return result
        fresh = [] if in_place else [tensor for tensor in results if storage_of(tensor) not in input_storages]
        if not in_place and (fresh or written):
            answers = self._answers(func, self._call(func, given, inputs, before, results), before)
            for tensor, answer in zip(results, answers, strict=True):
                if any(tensor is made for made in fresh):
                    self._own.add(storage_of(tensor))
                    self._memory[storage_of(tensor)] = in_memory(tensor, answer, self.examples)
            if isinstance(answers[0], Free) and not written:
                if not answers[0].random:
                    self._compute(func, args, kwargs, fresh)
                for tensor, readings in zip(
                    results, self._repeating(func, given, inputs, results, answers), strict=True
                ):
                    if any(tensor is made for made in fresh):
                        self._note(func, given, tensor, readings)
        for position, tensor in enumerate(written):
            self._write(tensor, answers[position] if in_place else _worst(answers), name_of(func))
            if in_place and covers(tensor):
                self._note(func, given, tensor, repeats[position])
        if written:
            self._recompute(func, args, kwargs, written, answers)
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

        return Call(name_of(func), given, tuple(results), self.examples, of, self._value, self._repeats.along)

    def _repeating(
        self,
        func: Any,
        given: dict[str, Any],
        inputs: Sequence[Tensor],
        results: Sequence[Tensor],
        answers: Sequence[Dependence],
    ) -> list[list[Dependence]]:
        """How each result of an operation on free tensors repeats from example to example."""
        rule = RULES.get(name_of(func))
        if rule is None or not all(isinstance(answer, Free) for answer in answers):
            return [[] for _ in results]

        def ask(supposed: Sequence[Dependence]) -> Sequence[Dependence]:
            with _outside():
                answer = _asked(rule, self._call(func, given, inputs, supposed, results))
            each: list[Any] = list(answer) if isinstance(answer, (list, tuple)) else [answer] * len(results)
            return [own if _fits(own, tuple(t.shape)) else FREE for own, t in zip(each, results, strict=True)]

        return self._repeats.of_results(inputs, ask, len(results))

    def _note(self, func: Any, given: dict[str, Any], tensor: Tensor, readings: Sequence[Dependence]) -> None:
        """Note how a free tensor repeats that an operation has just made, or has written as a whole."""
        name, rule = name_of(func), RULES.get(name_of(func))
        like = given.get("self")
        reads_shapes = rule in (RULES["aten.zeros_like"], RULES["aten.rand_like"])
        if reads_shapes and isinstance(like, Tensor) and like.shape == tensor.shape:
            self._repeats.resemble(tensor, self.of(like))
        if name in FILLS or (name in REFILLS and not isinstance(given.get("value"), Tensor)):
            self._repeats.fill(tensor)
        elif name in UNSET:
            self._repeats.allocate(tensor)
        elif rule is RULES["aten.rand_like"] or (
            name in DRAWS | {"aten.bernoulli"} and drawn_from_nothing(func, given)
        ):
            self._repeats.draw(tensor)
        else:
            copies = copied(given["self"], given["repeats"], self.examples) if name == "aten.repeat" else []
            self._repeats.note(tensor, [*readings, *copies])

    def _answers(self, func: Any, call: Call, before: Sequence[Dependence]) -> list[Dependence]:
        count = len(call.results)
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        bound = [own for own in before if not isinstance(own, Free)]
        if (call.name in DRAWS and drawn_from_nothing(func, call.given)) or (seeded and not bound):
            return [RANDOM] * count
        if not bound:
            return [free_of(before)] * count
        mixed = next((own for own in bound if isinstance(own, Mixed)), None)
        rule = RULES.get(call.name)
        if mixed is not None:
            answer: Any = FREE if rule is RULES["aten.zeros_like"] else mixed
        elif rule is not None and rule in (RULES["aten.zeros_like"], RULES["aten.rand_like"]):
            answer = rule(call)
        elif self.examples == 1 and (rule is not None or not seeded):
            answer = bound[0]  # there is no other
        elif any(isinstance(own, Single) for own in bound):
            answer = call.mixed("computes with some examples apart from the others")
        elif rule is None:
            answer = call.mixed("no rule says that it keeps examples apart")
        else:
            with _outside():
                answer = _asked(rule, call)
        each = list(answer) if isinstance(answer, (list, tuple)) else [answer] * count
        shapes = [tuple(out.shape) for out in call.results]
        checked = [settled(own, shape, self.examples) if _fits(own, shape) else call.mixed("no rule for this shape")
                   for own, shape in zip(each, shapes, strict=True)]  # fmt: skip
        location = where() if any(isinstance(own, Mixed) for own in checked) and mixed is None else ""
        return [Mixed(f"{own.reason} {location}".strip()) if isinstance(own, Mixed) else own for own in checked]

    def _write(self, tensor: Tensor, answer: Dependence, name: str) -> None:
        key = storage_of(tensor)
        if key not in self._own and not isinstance(answer, Free):
            raise Unproved(f"{name} writes what depends on examples into something that outlives the pass {where()}")
        before = self._memory.get(key, FREE)
        after = joined(tensor, before, answer, self.examples)
        if isinstance(after, Stripes) and self.examples > 1:
            if not every_example(tensor, after, self.examples):
                after = Mixed(f"{name} writes to some examples and not to others {where()}")
            elif isinstance(before, Free) and not covers(tensor) and not self._repeats_beside(tensor, after):
                after = Mixed(f"{name} writes next to values that differ from position to position {where()}")
        self._memory[key] = after
        self._repeats.forget(tensor)
        self._writes[key] += 1
        if key in self._own and not tensor.is_inference():
            self._written[key] = tensor, tensor._version

    def _repeats_beside(self, tensor: Tensor, stripes: Stripes) -> bool:
        """Whether the free values that a storage held before a write are the same for each example."""
        if self._repeats.beside(tensor, stripes):
            return True
        for base, value in self._values.get(storage_of(tensor), ()):
            if covers(base):
                with _outside():
                    return repeat_values(value.reshape(-1), stripes)
        return False

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
        if value.numel() <= REMEMBERED and fake.is_contiguous():
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
        if len(fresh) != 1 or not isinstance(fresh[0], FakeTensor) or fresh[0].numel() > REMEMBERED:
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


def _asked(rule: Rule, call: Call) -> Dependences:
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


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), storage_of(tensor)


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
