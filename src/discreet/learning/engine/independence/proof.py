"""The proof itself: a trace of the forward pass on tensors without data, under the mode that follows examples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from discreet.errors import InvalidArgument
from discreet.learning.engine.independence.dependence import Along, Free, Mixed, settled
from discreet.learning.engine.independence.gradients import check_graph, own_backward
from discreet.learning.engine.independence.origin import Outside, Unproved
from discreet.learning.engine.independence.watch import REMEMBERED, Watch
from discreet.learning.engine.tracing import tracing

Forward = Callable[[Mapping[str, Tensor], Any], Tensor]


@dataclass(frozen=True)
class Proof:
    """What was proved for one shape of a batch: the loss of each example depends on that example alone."""

    examples: int
    operations: int


def general_position(trainable: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values for trainable parameters that do not agree by chance, as the zeros do that some of them start with."""
    generator = torch.Generator().manual_seed(20)
    return {
        name: tensor.detach()
        if tensor.numel() > REMEMBERED or not tensor.is_floating_point()
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
    positions = [position for position, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    examples = leaves[positions[0]].shape[0]
    fixed = {**trainable, **rest}
    seen: list[Watch] = []

    def flat(*tensors: Tensor) -> Tensor:
        rows = tensors[len(fixed) :]
        filled = list(leaves)
        for position, row in zip(positions, rows, strict=True):
            filled[position] = row
        watch = Watch(rows, examples, list(zip(tensors, fixed.values(), strict=False)), outside)
        seen.append(watch)
        named = dict(zip(fixed, tensors, strict=False))
        with torch.enable_grad():
            live = {name: named[name].detach().requires_grad_() for name in trainable}
            with record(live) if record is not None else contextlib.nullcontext(), own_backward(watch), watch:
                losses = forward({**named, **live}, pytree.tree_unflatten(filled, structure))
            verdict(watch, losses)
        return losses.detach()

    tensors = [tensor.detach() for tensor in (*fixed.values(), *(leaves[position] for position in positions))]
    trace: Any = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)
    try:
        with tracing():
            trace(*tensors)
    except (Unproved, InvalidArgument):
        raise
    except Exception as error:  # a model may fail in any way on tensors without data
        raise Unproved(f"the pass could not be traced without data ({type(error).__name__})") from error
    return Proof(examples, seen[-1].operations)


def verdict(watch: Watch, losses: Tensor) -> None:
    """Raise `Unproved` unless each loss belongs to the example of its row, and torch itself differentiates it."""
    watch.check()
    own = watch.of(losses)
    if isinstance(own, Free) and not watch.repeats(losses):
        raise Unproved("the losses depend on positions in the batch, and not on examples")
    if not isinstance(own, Free) and own != settled(Along(0), tuple(losses.shape), watch.examples):
        why = own.reason if isinstance(own, Mixed) else "the losses are not in the order of the examples"
        raise Unproved(why)
    check_graph(losses)
