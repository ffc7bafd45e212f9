"""Trials: a model with slightly moved parameters on three examples, run in float64 where possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.learning.engine.dry_run.checked_values import CheckedValues
from discreet.learning.engine.fallback import Forward, private
from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations.registry import HANDLERS
from discreet.learning.engine.trace.randomness import seeded
from discreet.learning.engine.trace.recorder import ForwardRecorder, Site

#: Three examples are enough to tell which dimension enumerates them; see `layout`.
EXAMPLES = 3
#: How many groups of three examples to try: the losses of a group may depend on nothing, as those of unlabeled texts.
_CHOICES = 4
#: Which of them are exchanged for other examples, one at a time.
EXCHANGED = (0, EXAMPLES - 1)
#: Models with more parameters than this keep their own type in the dry run: float64 would take over 4 GiB.
LARGEST_FLOAT64_MODEL = 1 << 29
#: Relative error allowed in float64 and in the model's own types.
FLOAT64_TOLERANCE, OWN_TYPE_TOLERANCE = 1e-4, 2e-2
#: The same where examples are proved apart and the type is narrow: over many layers, rounding to bfloat16 can move a
#: gradient by a good part of itself. A larger error is a use that was missed, which costs accuracy and no privacy.
PROVED_TOLERANCE = 0.5


@dataclass(frozen=True)
class Trial:
    """A model and three examples to run it on.

    Attributes:
        forward: the forward pass, from tensors by name and a batch to losses.
        trainable: the trainable parameters by name, slightly moved.
        frozen: all other tensors of the model by name.
        batch: the three examples.
        others: the same batch with one example exchanged, for each of `EXCHANGED`.
        tolerance: the relative error allowed in comparisons.
        written: tensors that the forward pass writes to, with their first values; every pass starts from those.
        free: the keys of calls that depend on no example, if the pass is proved.
        shared: those of them whose results all examples share; see `ForwardRecorder`.
        doubted: the parameters whose rules must not be used.
    """

    forward: Forward
    trainable: dict[str, Tensor]
    frozen: dict[str, Tensor]
    batch: Any
    others: tuple[Any, Any]
    tolerance: float
    written: Mapping[str, Tensor] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()

    def reset(self) -> None:
        """Restore the values that the model had before the first pass."""
        for name, value in self.written.items():
            (self.frozen if name in self.frozen else self.trainable)[name].copy_(value)


class DynamicShapes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Notices tensors whose shape depends on values, such as `x[x > 0]`."""

    noticed = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.dynamic_output_shape in func.tags:
            # Indexing by integers has this tag too, but its shape depends on the shape of the index alone.
            indices = args[1] if func is torch.ops.aten.index.Tensor else ()
            kinds = [index.dtype for index in indices if index is not None]
            self.noticed |= not kinds or torch.bool in kinds or torch.uint8 in kinds
        return func(*args, **(kwargs or {}))


def _moved(parameter: Tensor, generator: torch.Generator) -> Tensor:
    """A parameter plus noise of a tenth of its root mean square, or a little where it is zero."""
    scale = 0.1 * parameter.detach().double().square().mean().sqrt() + 0.02
    # Drawn where the parameter is: a billion numbers take seconds on a CPU.
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32, device=parameter.device)
    return (parameter.detach() + noise * scale.to(noise.dtype)).to(parameter.dtype)


def _tame(x: Tensor) -> Tensor:
    """Replace values that an example may hold but that say nothing about the model: NaN, infinities, huge numbers."""
    return x.nan_to_num(0.0, 0.0, 0.0).clamp(-1e4, 1e4) if x.is_floating_point() else x


def _select(x: Tensor, rows: Tensor) -> Tensor:
    return _tame(x.index_select(0, rows.to(x.device)))


def _exchanged(x: Tensor, rows: Tensor, position: int, generator: torch.Generator) -> Tensor:
    """The selected examples with another one at `position`."""
    selected = _select(x, rows)
    if selected.is_floating_point():
        selected[position] += torch.randn(selected.shape[1:], generator=generator).to(selected)
        return selected
    # Integers that the model surely accepts: those of the least similar example or, in a batch of copies, smaller ones.
    # 0 and 1 stay as they are: in a mask, all positions of an example could become 0.
    other = x[(x != selected[position]).reshape(len(x), -1).sum(1).argmax()].clone()
    if selected.dtype != torch.bool:
        smaller = torch.div(other, 2, rounding_mode="floor")
        other = torch.where((other == selected[position]) & (other > 1), smaller, other)
    if torch.equal(other, selected[position]) and (other.numel() > 1 or selected.dtype == torch.bool):
        last = other.view(-1)[-1:]
        last.copy_(last == 0)  # a mask with one more position, or one less; a token that every vocabulary has
    selected[position] = other
    return selected


def choices(batch: Any) -> list[Tensor]:
    """The rows of the groups of three examples to try, in order."""
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    size, device = leaves[0].shape[0], leaves[0].device
    starts = range(0, max(1, min(size, _CHOICES * EXAMPLES)), EXAMPLES)
    return [torch.arange(start, start + EXAMPLES, device=device) % size for start in starts]


def make_trials(
    forward: Forward, trainable: Mapping[str, Tensor], frozen: Mapping[str, Tensor], batch: Any, rows: Tensor
) -> Iterator[Trial]:
    """The examples in `rows` and moved parameters: in float64 first, then in the model's own types."""
    generator = torch.Generator().manual_seed(20)
    selected = pytree.tree_map_only(Tensor, partial(_select, rows=rows), batch)
    others = [
        pytree.tree_map_only(Tensor, partial(_exchanged, rows=rows, position=position, generator=generator), batch)
        for position in EXCHANGED
    ]
    device = next(iter(trainable.values())).device
    beside = generator if device.type == "cpu" else torch.Generator(device).manual_seed(20)
    moved = {name: _moved(p, beside) for name, p in trainable.items()}
    unmoved = {name: tensor.detach().clone() for name, tensor in frozen.items()}
    tensors = [*moved.values(), *unmoved.values()]
    if all(t.device.type != "mps" for t in tensors) and sum(t.numel() for t in tensors) <= LARGEST_FLOAT64_MODEL:

        def wide(x: Tensor) -> Tensor:
            return x.double() if x.is_floating_point() else x

        yield Trial(
            forward,
            {name: wide(t) for name, t in moved.items()},
            {name: wide(t) for name, t in unmoved.items()},
            pytree.tree_map_only(Tensor, wide, selected),
            (pytree.tree_map_only(Tensor, wide, others[0]), pytree.tree_map_only(Tensor, wide, others[1])),
            FLOAT64_TOLERANCE,
        )
    yield Trial(forward, moved, unmoved, selected, (others[0], others[1]), OWN_TYPE_TOLERANCE)


def run(
    trial: Trial, layouts: Sequence[Layout | None] | None, ignored: frozenset[str], seed: int = 0
) -> tuple[ForwardRecorder, Tensor, dict[str, Tensor]]:
    """One forward pass: its record, the losses, and the parameters that the losses can be differentiated by."""
    trial.reset()
    live = {name: t.detach().requires_grad_() for name, t in trial.trainable.items()}
    recorder = ForwardRecorder(live, HANDLERS, EXAMPLES, layouts, ignored, trial.shared, trial.free)
    device = next(iter(live.values())).device
    checked = CheckedValues()  # type: ignore[no-untyped-call]  # torch's own
    with torch.enable_grad(), seeded(device, seed), checked, recorder:
        losses = trial.forward({**trial.frozen, **live}, private(trial.batch))
    return recorder, losses, live


def ordinary_gradients(
    losses: Tensor, live: Mapping[str, Tensor], sites: Sequence[Site] = ()
) -> tuple[dict[str, list[Tensor | None]], list[tuple[Tensor | None, ...]]]:
    """Ordinary gradients of each example's loss, by parameter, and where those of each site's output are not zero."""
    wanted: Any = [*live.values(), *(site.edge for site in sites)]
    by_example = []
    for loss in losses:
        gradients = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        of_sites = [None if gradient is None else gradient != 0 for gradient in gradients[len(live) :]]
        by_example.append((*gradients[: len(live)], *of_sites))
    by_tensor = list(zip(*by_example, strict=True))
    return {name: list(by_tensor[position]) for position, name in enumerate(live)}, by_tensor[len(live) :]


def filled(gradients: Sequence[Tensor | None], parameter: Tensor) -> list[Tensor]:
    """Gradients of one parameter as dense tensors, with zeros where there is none."""
    return [torch.zeros_like(parameter) if gradient is None else gradient.to_dense() for gradient in gradients]


def is_close(value: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Whether the error is small beside the expected value's norm."""
    # The absolute term lets a gradient of zero differ by rounding.
    return bool((value - expected).norm() <= tolerance * expected.norm() + 1e-12)
