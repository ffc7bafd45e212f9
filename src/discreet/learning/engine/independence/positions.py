"""Which free tensors are the same at every position in the batch.

A free tensor depends on no example, but it may differ from row to row. What is computed with it then depends on where
in the batch an example is. A storage *repeats* along stripes if the stripes of two examples hold the same values, or
random numbers that were drawn in the same way. Each operation's own rule says whether its result does: it is asked what
the result would depend on if the inputs that repeat held an example in each stripe.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from discreet.learning.engine.independence.dependence import (
    FREE,
    Along,
    Dependence,
    Stripes,
    in_memory,
    in_view,
    settled,
)
from discreet.learning.engine.independence.origin import storage_of

#: Combinations of readings to try for one operation; what is left out counts as not repeating.
_COMBINATIONS = 64

#: What a rule answers if the inputs depend on examples as supposed.
Ask = Callable[[Sequence[Dependence]], Sequence[Dependence]]


class Repeats:
    """What is known of the free storages of one pass, each as the stripes along which it repeats."""

    def __init__(self, examples: int) -> None:
        self._examples = examples
        self._stripes: dict[StorageWeakRef, set[Stripes]] = {}
        #: Storages with one value everywhere, and storages that nothing was written to yet.
        self._filled: set[StorageWeakRef] = set()
        self._unset: set[StorageWeakRef] = set()
        #: Where the examples are in a tensor that a storage was made to look like.
        self._models: dict[StorageWeakRef, Along] = {}

    def fill(self, tensor: Tensor) -> None:
        """Note that a storage has the same value everywhere."""
        self._filled.add(storage_of(tensor))

    def allocate(self, tensor: Tensor) -> None:
        """Note a storage that nothing was written to yet."""
        self._unset.add(storage_of(tensor))

    def resemble(self, tensor: Tensor, own: Dependence) -> None:
        """Note that a storage was made to look like a tensor of the same shape that depends on examples like this."""
        if isinstance(own, Along):
            self._models[storage_of(tensor)] = own

    def draw(self, tensor: Tensor) -> None:
        """Note a storage of random numbers that are all drawn in the same way, independently of each other.

        One reading is chosen for each draw. With two, a matrix plus its transpose would seem to repeat along both
        dimensions, though its diagonal differs.
        """
        model = self._models.get(storage_of(tensor))
        readings = self._every(tensor) if model is None else [model]
        exact = [own for own in readings if isinstance(own, Along) and tensor.shape[own.dim] == self._examples]
        self.note(tensor, (exact or readings[::-1])[:1])

    def note(self, tensor: Tensor, readings: Sequence[Dependence]) -> None:
        """Note that the storage of a tensor, its only contents, repeats along dimensions."""
        if self._examples == 1:
            return
        layouts = {in_memory(tensor, own, self._examples) for own in readings if isinstance(own, Along)}
        stripes = {memory for memory in layouts if isinstance(memory, Stripes)}
        if stripes:
            self._stripes[storage_of(tensor)] = stripes

    def forget(self, tensor: Tensor) -> None:
        """Note that something was written to a storage."""
        key = storage_of(tensor)
        self._stripes.pop(key, None)
        self._filled.discard(key)
        self._unset.discard(key)

    def along(self, tensor: Tensor, own: Along) -> bool:
        """Whether a free tensor repeats along a dimension in the way that examples follow each other there."""
        if storage_of(tensor) in self._filled:
            return True
        whole = Along(own.dim, own.inner, own.offset if own.offset % own.inner else 0)
        wanted = settled(whole, tuple(tensor.shape), self._examples)
        return any(reading == wanted for reading in self._readings(tensor))

    def beside(self, tensor: Tensor, stripes: Stripes) -> bool:
        """Whether what a storage held before repeats along these stripes."""
        key = storage_of(tensor)
        return key in self._filled or key in self._unset or stripes in self._stripes.get(key, ())

    def of_results(self, inputs: Sequence[Tensor], ask: Ask, count: int) -> list[list[Dependence]]:
        """How each of the results of an operation on free tensors repeats."""
        answers: list[list[Dependence]] = [[] for _ in range(count)]
        if self._examples == 1:
            return answers
        options = [[*dict.fromkeys(self._readings(tensor)), FREE] for tensor in inputs]
        if all(len(option) == 1 for option in options):
            return answers
        for supposed in itertools.islice(itertools.product(*options), _COMBINATIONS):
            if any(isinstance(own, Along) for own in supposed):
                for index, own in enumerate(ask(supposed)):
                    if isinstance(own, Along):
                        answers[index].append(own)
        return answers

    def _readings(self, tensor: Tensor) -> list[Dependence]:
        if storage_of(tensor) in self._filled:
            return self._every(tensor)
        lengths, strides = tuple(tensor.shape), tensor.stride()
        same = [Along(dim) for dim, n in enumerate(lengths) if n == self._examples and strides[dim] == 0]
        stored = self._stripes.get(storage_of(tensor), ())
        views = [in_view(tensor, stripes, self._examples) for stripes in stored]
        return [*(settled(own, lengths, self._examples) for own in same), *(v for v in views if isinstance(v, Along))]

    def _every(self, tensor: Tensor) -> list[Dependence]:
        """Each dimension along which examples could follow each other."""
        lengths = tuple(tensor.shape)
        readings = [
            settled(Along(dim, inner), lengths, self._examples)
            for dim, length in enumerate(lengths)
            if length and length % self._examples == 0
            for inner in sorted({1, length // self._examples})
        ]
        return list(readings)


def copied(source: Tensor, repeats: Sequence[int], examples: int) -> list[Dependence]:
    """How the copies of `source.repeat(*repeats)` follow each other, if there are as many for each example."""
    lengths = [*(1 for _ in range(len(repeats) - source.dim())), *source.shape]
    counts = enumerate(zip(lengths, repeats, strict=True))
    each = [(dim, length * count // examples) for dim, (length, count) in counts if count and count % examples == 0]
    return [Along(dim, inner) for dim, inner in each if inner]


def covers(tensor: Tensor) -> bool:
    """Whether a tensor has each byte of its storage as one element, so that a write to it leaves nothing of before."""
    if tensor.numel() * tensor.itemsize != tensor.untyped_storage().nbytes():
        return False
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def every_example(tensor: Tensor, stripes: Stripes, examples: int) -> bool:
    """Whether a view has the same part of every example, so that a write to it treats all alike."""
    own = in_view(tensor, stripes, examples)
    return (
        isinstance(own, Along) and own.offset % own.inner == 0 and tensor.shape[own.dim] % (own.inner * examples) == 0
    )


def repeat_values(flat: Tensor, stripes: Stripes) -> bool:
    """Whether a storage, as a flat tensor, holds the same values in every stripe."""
    step, rest = divmod(stripes.step, flat.itemsize)
    length = flat.numel() - step
    return rest == 0 and (length <= 0 or bool((flat[step:] == flat[:length]).all()))
