"""Replaces a cross entropy over many classes by two passes over the scores, one forward and one backward.

The loss of a row is log Σ exp(s) − s[target], and its gradient is softmax(s), minus 1 at the target. In a trace this is
the logarithm of a softmax, the choice of one class, and the backward passes of both, which read and write all scores
several times. The trace is already proved not to mix examples. Here the pattern is found in it and replaced by
`softmax_kernels`. Values change by rounding only, and for the better: under autocast, CUDA rounds the logarithms of
16-bit scores to 16 bits.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from discreet.learning.engine.graph.effects import in_place_writes
from discreet.learning.engine.graph.recompute import copy_part
from discreet.learning.engine.graph.repeats import look
from discreet.learning.engine.graph.softmax_kernels import class_gradients, row_log_sums

#: With fewer classes, a row fits into the registers of a compiler's own kernel.
FEWEST_CLASSES = 1024

_aten = torch.ops.aten
_FORWARD = {_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default}
_BACKWARD = {_aten.nll_loss_backward.default, _aten.nll_loss2d_backward.default}
#: Views that keep the order of the elements.
_ORDERED = {
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.alias.default,
    _aten.detach.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
}
_CAST = _aten._to_copy.default
_VIEWS = {*_ORDERED, _aten.transpose.int, _aten.permute.default, _aten.t.default}
_TYPES = (torch.float32, torch.bfloat16, torch.float16)


def fuse_cross_entropy(module: GraphModule) -> None:
    """Replace every cross entropy without reduction and class weights whose scores lie class by class in memory."""
    graph = module.graph
    if in_place_writes(list(graph.nodes)):
        return
    changed: set[Node] = set()
    for node in graph.find_nodes(op="call_function", target=_aten._log_softmax_backward_data.default):
        pattern = _matched(node)
        if pattern is not None:
            changed |= _put_kernels(pattern)
    if not changed:
        return
    graph.eliminate_dead_code()
    _look_again(module, changed)
    graph.lint()
    module.recompile()


def _look_again(module: GraphModule, changed: set[Node]) -> None:
    """Note how values look that are computed from changed ones.

    Their strides may be others now, up to where the next operation writes its result in an order of its own.
    """
    mode: Any = next(value for node in changed if isinstance(value := node.meta["val"], FakeTensor)).fake_mode

    def value_of(node: Node) -> Any:
        if "val" in node.meta or node.op != "get_attr":
            return node.meta["val"]
        return mode.from_tensor(operator.attrgetter(str(node.target))(module))

    for node in module.graph.nodes:
        if node.op != "call_function" or not changed.intersection(node.all_input_nodes):
            continue
        target: Any = node.target
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), value_of)
        with mode:
            value = target(*args, **kwargs)
        if tree_map(look, value) != tree_map(look, node.meta["val"]):
            node.meta["val"] = value
            changed.add(node)


@dataclass(frozen=True)
class _Pattern:
    """The nodes of one cross entropy.

    Attributes:
        scores: [B, classes, …], before they are widened.
        losses: the values of the loss, [B, …].
        targets: the classes, as the loss takes them.
        gradient: that of `losses`.
        ignored: the target whose loss is zero.
        result: the last node of the backward pass to be replaced, [B, …, width].
    """

    scores: Node
    losses: Node
    targets: Node
    gradient: Node
    ignored: int
    result: Node


def _matched(node: Node) -> _Pattern | None:
    """The cross entropy that this backward pass of a logarithm of a softmax belongs to; None if it is another one."""
    softmax, choice = _behind(node.args[1]), _behind(node.args[0])
    if softmax.target is not _aten._log_softmax.default or choice.target not in _BACKWARD:
        return None
    given: Any = choice.args
    gradient, chosen_from, targets, weight, reduction, ignored, total = given
    forward = total.args[0] if isinstance(total, Node) and total.target is operator.getitem else None
    if not isinstance(forward, Node) or forward.target not in _FORWARD or weight is not None or reduction != 0:
        return None
    if not (_shows(chosen_from, softmax) and _shows(forward.args[0], softmax)):
        return None
    if (targets, ignored) != (forward.args[1], forward.args[4]):
        return None
    if _readers(softmax) != {forward, choice, node} or set(choice.users) - _between(node.args[0]) - {node}:
        return None
    scores, dim, widens = softmax.args  # CUDA's softmax widens 16-bit scores itself
    copied = not widens and scores.target is _CAST and scores.args[0].meta["val"].dtype in _TYPES
    scores = scores.args[0] if copied else scores
    shape = scores.meta["val"].shape
    if dim % len(shape) != 1 or shape[1] < FEWEST_CLASSES or _rows(scores.meta["val"]) is None:
        return None
    if scores.meta["val"].dtype not in _TYPES or softmax.meta["val"].dtype not in _TYPES:
        return None
    last = node
    if copied:
        if len(node.users) != 1:
            return None
        (last,) = node.users
        if last.target is not _CAST:
            return None
    if last.meta["val"].dtype != scores.meta["val"].dtype:
        return None
    result = _with_classes_last(last)
    values = [user for user in forward.users if user.args[1] == 0]
    if result is None or len(values) != 1:
        return None
    return _Pattern(scores, values[0], targets, gradient, ignored, result)


def _behind(node: Any) -> Any:
    """What a node shows, in the same order of elements and in any type."""
    while isinstance(node, Node) and (node.target in _ORDERED or node.target is _CAST):
        node = node.args[0]
    return node


def _shows(node: Any, whole: Node) -> bool:
    """Whether a node shows another one with the same examples and classes, up to dimensions of size 1 behind them."""

    def layout(value: Node) -> list[int]:
        shape = value.meta["val"].shape
        return [*shape[:2], *(size for size in shape[2:] if size != 1)]

    return _behind(node) is whole and layout(node) == layout(whole)


def _between(node: Any) -> set[Node]:
    """A node, and the nodes that it shows in the same order of elements and in any type."""
    nodes: set[Node] = set()
    while isinstance(node, Node) and (node.target in _ORDERED or node.target is _CAST):
        nodes.add(node)
        node = node.args[0]
    return nodes


def _readers(node: Node) -> set[Node]:
    """Who reads a value, also through views and in another type."""
    readers: set[Node] = set()
    for user in node.users:
        readers |= _readers(user) if user.target in _ORDERED or user.target is _CAST else {user}
    return readers


def _rows(scores: Tensor) -> Tensor | None:
    """Scores [B, classes, …] as a view [N, classes] whose rows lie in memory without gaps; None if there is none."""
    last = scores.movedim(1, -1)
    if last.stride(-1) != 1:
        return None
    try:
        return last.view(-1, last.shape[-1])
    except (RuntimeError, ValueError):  # a tensor without data raises the second one
        return None


def _with_classes_last(gradient: Node) -> Node | None:
    """The view of the scores' gradient [B, classes, …] that is [B, …, classes], or that one with further columns."""
    shape = gradient.meta["val"].shape
    classes = shape[1]
    rows = prod(shape) // classes
    numbered = torch.arange(rows).unsqueeze(1).expand(rows, classes)
    try:
        seen = numbered.view(shape[0], *shape[2:], classes).movedim(-1, 1)
        node = gradient
        while not _in_order(seen):
            (node, *others) = node.users
            if others or node.target not in _VIEWS:
                return None
            seen = node.target(seen, *node.args[1:], **node.kwargs)
        while len(node.users) == 1 and (following := next(iter(node.users))).target in _VIEWS:
            looks = following.target(seen, *following.args[1:], **following.kwargs)
            if not _in_order(looks) or looks.shape[-1] != classes:
                break
            node, seen = following, looks
    except (RuntimeError, ValueError):
        return None
    if len(node.users) == 1:
        (user,) = node.users
        if user.target is _aten.slice_backward.default:
            cut: Any = user.args
            _, sizes, dim, start, end, step = cut
            if dim % len(sizes) == len(sizes) - 1 and start == 0 and end == classes and step == 1:
                return user
    return node


def _in_order(seen: Tensor) -> bool:
    """Whether a view of row numbers shows them in order, each for a whole row."""
    expected = torch.arange(seen.numel() // seen.shape[-1]).view(seen.shape[:-1]).unsqueeze(-1)
    return torch.equal(seen[..., :1], expected) and seen.stride(-1) == 0


def _put_kernels(pattern: _Pattern) -> set[Node]:
    """Put the kernels in place of a cross entropy; returns what later nodes read instead."""
    scores, losses, result = pattern.scores, pattern.losses, pattern.result
    value: Tensor = scores.meta["val"]
    classes, order = value.shape[1], [0, *range(2, value.dim()), 1]
    rows = value.numel() // classes
    forward = _Inserted(losses.args[0])
    by_row = forward(_aten.view.default, forward(_aten.permute.default, scores, order), [rows, classes])
    targets = forward(_aten.reshape.default, pattern.targets, [rows])
    log_sums = forward(row_log_sums._opoverload, by_row)
    used = forward(_aten.ne.Scalar, targets, pattern.ignored)
    safe = forward(_aten.mul.Tensor, targets, used)
    chosen = forward(_aten.gather.default, by_row, 1, forward(_aten.unsqueeze.default, safe, 1))
    chosen = forward(_aten._to_copy.default, forward(_aten.squeeze.dim, chosen, 1), dtype=torch.float32)
    zero = forward(_aten.zeros_like.default, chosen)
    each = forward(_aten.where.self, used, forward(_aten.sub.Tensor, log_sums, chosen), zero)
    each = forward(_aten._to_copy.default, each, dtype=losses.meta["val"].dtype)
    each = forward(_aten.view.default, each, list(losses.meta["val"].shape))
    backward = _Inserted(result)
    weights = backward(_aten.reshape.default, pattern.gradient, [rows])
    weights = backward(_aten._to_copy.default, weights, dtype=torch.float32)
    weights = backward(_aten.where.self, used, weights, backward(_aten.zeros_like.default, weights))
    shape = list(result.meta["val"].shape)
    gradients = backward(class_gradients._opoverload, by_row, log_sums, targets, weights, shape[-1])
    gradients = backward(_aten.view.default, gradients, shape)
    losses.replace_all_uses_with(each)
    result.replace_all_uses_with(gradients)
    return {each, gradients}


class _Inserted:
    """Puts calls before a node, in its part of the trace."""

    def __init__(self, before: Any) -> None:
        self._before: Node = before

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        with self._before.graph.inserting_before(self._before):
            node = self._before.graph.call_function(target, args, kwargs)
        values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
        with next(value for value in values if isinstance(value, Tensor)).fake_mode:  # type: ignore[attr-defined]
            node.meta["val"] = target(*values, **kwargs)
        copy_part(self._before, node)
        return node
