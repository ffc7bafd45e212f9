"""Watches passes that are not proved: what an example leaves behind must not reach another one.

An example that runs alone cannot meet the others of its batch. It could still meet them through what the model keeps
from one pass to the next: a tensor in an attribute, a write into a buffer, a Python number. So nothing that was
computed from an example may be alive after its pass except the results, nothing may be written into what was there
before, and the Python state that can be reached from the model is put back, however deep it lies.
"""

from __future__ import annotations

import array
import contextlib
import functools
import gc
import logging
import pickle
import types
import warnings
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.origin import storage_of, where
from discreet.learning.engine.independence.signatures import undeclared
from discreet.learning.engine.independence.table import name_of
from discreet.mechanisms.sampling.entropy import PythonGenerator


class Isolation(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Follows which tensors of a pass were computed from its batch, and refuses a model that keeps one of them.

    Args:
        batch: what the pass reads.
        writes: whether the pass may write values that depend on no example into what outlives it, such as a count of
            calls. Where every example is a pass, it may not: the count would be the number of examples.

    Guarantee:
        After `finish`, no storage that torch's operations made from the batch is alive, except those of the results. A
        copy of the batch that was made under this mode counts as such a storage, so a model that is given the copy may
        keep neither its input nor a view or a numpy array of it. Not seen are values that Python code takes out of
        tensors (`item`, `tolist`, a copied numpy array): `ReachableState` puts back those that it can reach. The others
        would be carried on in a global variable, in a variable of a closure or a default argument (of the loss or a
        hook, too), in an attribute of a class or module of Python that no reachable object is an instance of, in a
        logger, in an object of a C extension that cannot be pickled, in a suspended generator, in the state of a
        global random number generator, or outside the process.
    """

    def __init__(self, batch: Any, *, writes: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._writes = writes
        self._rows = {storage_of(leaf) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)}
        #: Storages that hold something of the batch, and storages that were made in this pass.
        self._bound = set(self._rows)
        self._own: set[StorageWeakRef] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        inputs = _tensors((args, kwargs))
        keys = [storage_of(tensor) for tensor in inputs if tensor.layout == torch.strided]
        # A sparse tensor has no storage to follow, so it counts as part of the batch.
        bound = len(keys) < len(inputs) or any(key in self._bound for key in keys)
        for tensor in _written(func, args, kwargs) if bound or not self._writes else ():
            key = storage_of(tensor)
            if key not in self._own and key not in self._rows:
                raise InvalidArgument(
                    "the forward pass must not write what it sees into the model, but "
                    f"{func._schema.name} writes into a tensor that outlives it {where()}: it would hold the data, or "
                    "the number of examples, without noise; compute it from public data beforehand"
                )
            if bound:
                self._bound.add(key)
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            if tensor.layout != torch.strided or (key := storage_of(tensor)) in keys:
                continue
            self._own.add(key)
            if bound:
                self._bound.add(key)
        return result

    def finish(self, results: Sequence[Tensor] = ()) -> None:
        """Refuse a model that kept something of the batch; call it when only the results may be left."""
        kept = {storage_of(tensor) for tensor in results}
        candidates = (self._bound & self._own) - kept
        if not _alive(candidates):
            return
        gc.collect()  # what is only held by a cycle of references is not kept
        if _alive(candidates):
            raise InvalidArgument(
                "a model whose examples run alone must not keep tensors from one pass to the next, but one that was "
                "computed from examples is alive after its pass: the next example could see it; keep nothing in "
                "attributes, lists or caches"
            )


def _alive(keys: set[StorageWeakRef]) -> bool:
    return any(not key.expired() for key in keys)  # type: ignore[no-untyped-call]  # torch's own


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments that an operation writes to."""
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    if not func._schema.is_mutable:
        return undeclared(name_of(func), given)
    names = [a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [t for t in _tensors([given.get(name) for name in names]) if t.layout == torch.strided]


#: What cannot change, and what is not followed: code, classes (see `ReachableState._of_class`), modules, loggers.
_FIXED: tuple[type, ...] = (
    type, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, property,
    types.CodeType, types.ModuleType, types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, torch.dtype, torch.device, torch.layout, torch.memory_format, logging.Logger,
    weakref.ReferenceType,
)  # fmt: skip
_FIXED_TYPES = frozenset(_FIXED) | {bool}
_MISSING = object()


class ReachableState:
    """The state of all Python objects that can be reached from `root`, to be restored after a pass.

    Followed are attributes and slots of objects, the attributes of their classes, dicts, lists, sets, deques, tuples
    and what derives from them, numpy arrays, bytearrays, `array`s, bound methods, partial functions, attributes of
    functions and of tensors. The values of tensors are not: `Isolation` refuses writes. Not followed is what the
    docstring of `Isolation` names.

    Guarantee:
        After `restore`, all of that is as it was when the `ReachableState` was made, or `restore` raised. Caches of
        `functools` that changed are empty instead.
    """

    def __init__(self, root: Any) -> None:
        #: For each object its restoring function; they and `_visited` keep all objects alive, so that ids are unique.
        self._restoring: list[Callable[[], None]] = []
        self._visited: list[Any] = []
        self._seen: set[int] = set()
        self._waiting: list[Any] = [root]
        while self._waiting:
            value = self._waiting.pop()
            if type(value) in _FIXED_TYPES or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._visited.append(value)
            if not isinstance(value, _FIXED):
                self._visit(value)

    def covers(self, value: Any) -> bool:
        """Whether an object can be reached from the root."""
        return id(value) in self._seen

    def restore(self) -> None:
        """Put everything back; refuse a model that changed something that cannot be."""
        refused = None
        for restoring in self._restoring:
            try:
                restoring()
            except InvalidArgument as error:  # the rest is put back nevertheless
                refused = refused or error
        if refused is not None:
            raise refused

    def _visit(self, value: Any) -> None:
        attributes = _attributes(value)
        if attributes is not None:
            self._of_dict(attributes)
        if isinstance(value, (Tensor, types.FunctionType)):
            return
        if isinstance(value, (staticmethod, classmethod)):
            self._waiting.append(value.__func__)
        elif isinstance(value, types.MethodType):
            self._waiting += [value.__func__, value.__self__]
        elif isinstance(value, functools._lru_cache_wrapper):
            self._restoring.append(functools.partial(_restore_cache, value, value.cache_info()))
        else:
            slots = self._of_classes(value)
            if not self._of_content(value) and attributes is None and not slots:
                self._of_opaque(value)

    def _of_dict(self, value: dict[Any, Any]) -> None:
        content = list(dict.items(value))
        for key, held in content:
            self._waiting += (key, held)
        self._restoring.append(functools.partial(_restore_dict, value, content))

    def _of_classes(self, value: Any) -> bool:
        """Note the slots of an object and the attributes of its classes; say whether it has slots."""
        has_slots = False
        for kind in type(value).__mro__:
            if kind.__module__ == "builtins":
                continue
            # `__vectorcalloffset__` and the like are addresses of C types, which change with the first call.
            slots = [v for v in vars(kind).values() if isinstance(v, types.MemberDescriptorType)]
            for slot in [v for v in slots if not v.__name__.endswith("offset__")]:
                held = _slot(slot, value)
                self._waiting.append(held)
                self._restoring.append(functools.partial(_restore_slot, slot, value, held))
                has_slots = True
            if id(kind) not in self._seen:
                self._seen.add(id(kind))
                self._of_class(kind)
        return has_slots

    def _of_class(self, kind: type) -> None:
        content = dict(vars(kind))
        self._waiting += content.values()
        self._restoring.append(functools.partial(_restore_class, kind, content))

    def _of_content(self, value: Any) -> bool:
        """Note what a container holds; say whether it is one."""
        if isinstance(value, dict):
            self._of_dict(value)
        elif isinstance(value, (list, set, deque)):
            content = list(_base(value).__iter__(value))
            self._waiting += content
            self._restoring.append(functools.partial(_restore_items, value, content))
        elif isinstance(value, (tuple, frozenset)):
            self._waiting += list(_base(value).__iter__(value))
        elif isinstance(value, np.ndarray):
            saved = np.array(value, copy=True, subok=False)
            if value.dtype.hasobject:
                self._waiting += list(saved.flat)
            self._restoring.append(functools.partial(_restore_array, value, saved))
        elif isinstance(value, (bytearray, array.array)):
            self._restoring.append(functools.partial(_restore_bytes, value, value[:]))
        elif isinstance(value, (PythonGenerator, torch.Generator)):
            self._restoring.append(functools.partial(_check_opaque, value, _opaque(value)))
        else:
            return False
        return True

    def _of_opaque(self, value: Any) -> None:
        """Note an object of a C extension: what it refers to, and its pickled form."""
        self._waiting += gc.get_referents(value)
        self._restoring.append(functools.partial(_check_opaque, value, _opaque(value)))


def _changed(value: Any) -> InvalidArgument:
    kind = type(value) if not isinstance(value, type) else value
    return InvalidArgument(
        "a model whose examples run alone must not keep anything from one pass to the next, but it changed an object "
        f"of type {kind.__module__}.{kind.__qualname__} that cannot be put back: the next example could see it; keep "
        "nothing in attributes, lists or caches"
    )


def _attributes(value: Any) -> dict[Any, Any] | None:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None
    return attributes if isinstance(attributes, dict) else None


def _base(value: Any) -> Any:
    """The builtin type of a container, whose methods no class of a model has overridden."""
    kinds = (OrderedDict, dict, list, set, deque, tuple, frozenset)
    return next(kind for kind in kinds if isinstance(value, kind))


def _slot(slot: Any, value: Any) -> Any:
    try:
        return slot.__get__(value)
    except (AttributeError, TypeError):
        return _MISSING


def _restore_dict(value: dict[Any, Any], content: list[tuple[Any, Any]]) -> None:
    if not content and not dict.__len__(value):
        return
    now = list(dict.items(value))
    if len(now) == len(content) and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(now, content, strict=True)):
        return
    base = _base(value)
    base.clear(value)
    for key, held in content:
        base.__setitem__(value, key, held)


def _restore_items(value: Any, content: list[Any]) -> None:
    base = _base(value)
    now = list(base.__iter__(value))
    if len(now) == len(content) and all(a is b for a, b in zip(now, content, strict=True)):
        return
    base.clear(value)
    (base.update if base is set else base.extend)(value, content)


def _restore_slot(slot: Any, value: Any, held: Any) -> None:
    now = _slot(slot, value)
    # A slot of a C type may make a new number each time that it is read.
    if now is held or (type(now) is type(held) and isinstance(held, (int, float, str)) and repr(now) == repr(held)):
        return
    try:
        if held is _MISSING:
            slot.__delete__(value)
        else:
            slot.__set__(value, held)
    except (AttributeError, TypeError):
        raise _changed(value) from None


def _restore_class(kind: type, content: dict[str, Any]) -> None:
    now = dict(vars(kind))
    try:
        for name in now.keys() - content.keys():
            type.__delattr__(kind, name)
        for name, held in content.items():
            if now.get(name, _MISSING) is not held:
                type.__setattr__(kind, name, held)
    except (AttributeError, TypeError):
        raise _changed(kind) from None


def _restore_array(value: Any, saved: Any) -> None:
    if value.shape != saved.shape or value.dtype != saved.dtype:
        raise _changed(value)
    if value.tobytes() == saved.tobytes():  # of objects, these are their addresses
        return
    try:
        np.ndarray.__setitem__(value, ..., saved)
    except ValueError:
        raise _changed(value) from None
    if value.tobytes() != saved.tobytes():
        raise _changed(value)


def _restore_bytes(value: Any, saved: Any) -> None:
    if bytes(value) == bytes(saved):
        return
    try:
        value[:] = saved
    except BufferError:
        raise _changed(value) from None


def _restore_cache(value: Any, info: Any) -> None:
    if value.cache_info() != info:
        value.cache_clear()


def _opaque(value: Any) -> Any:
    """Something that is equal as long as an object has not changed; None where that cannot be told."""
    if isinstance(value, torch.Generator):
        return bytes(value.get_state().numpy())
    if isinstance(value, PythonGenerator):
        return PythonGenerator.getstate(value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return pickle.dumps(value)
    except Exception:  # an object may refuse in any way
        return None


def _check_opaque(value: Any, before: Any) -> None:
    if before is not None and _opaque(value) != before:
        raise _changed(value)


#: The state that is restored after every pass of one batch. It is recorded once, not again for each example.
_common: ContextVar[ReachableState | None] = ContextVar("_common", default=None)


@contextlib.contextmanager
def common_state(root: Any) -> Iterator[None]:
    """Let `attributes_restored` put back what can be reached from `root`, as it is now."""
    token = _common.set(ReachableState(root))
    try:
        yield
    finally:
        _common.reset(token)


@contextlib.contextmanager
def attributes_restored(model: nn.Module) -> Iterator[None]:
    """Put back the Python state that can be reached from a model (`ReachableState`), or refuse where that fails."""
    common = _common.get()
    state = common if common is not None and common.covers(model) else ReachableState(model)
    try:
        yield
    finally:
        state.restore()
