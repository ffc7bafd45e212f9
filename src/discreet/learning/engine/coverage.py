"""The dry run: finds every use of every parameter, and proves on three examples that what was found is all there is.

Three examples of the first batch go through the model, in float64 where it can, with parameters that are slightly moved
(a weight that is exactly zero hides what depends on it). Ordinary gradients of each example's loss are the truth. A
parameter whose rules reproduce its norms and its gradients keeps them; any other goes through the fallback, which has
to reproduce them too. What nothing reproduces is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.capture import Recorder, Site, generators, output_gradients, unchanged, undrawn
from discreet.learning.engine.clipped import Coverage, parts_by_name
from discreet.learning.engine.fallback import Forward, per_example
from discreet.learning.engine.layout import Layout, find, holds
from discreet.learning.engine.operations import HANDLERS
from discreet.learning.engine.rules.base import power_sums
from discreet.learning.engine.tied import Part, norm_power

EXAMPLES = 3
#: Which of them are exchanged for others, one at a time.
_CHANGED = (0, EXAMPLES - 1)
#: So often is a model tried that draws random numbers.
_SEEDS = 4
#: Models with more parameters than this keep their own type in the dry run.
_WIDEST = 1 << 29


@dataclass(frozen=True)
class _Trial:
    """One forward pass of three examples."""

    forward: Forward
    trainable: dict[str, Tensor]
    frozen: dict[str, Tensor]
    batch: Any
    others: tuple[Any, Any]
    tolerance: float
    #: What the forward pass writes over, as it was before: all passes begin with the same.
    written: Mapping[str, Tensor] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the model as it was before the first pass."""
        for name, value in self.written.items():
            (self.frozen if name in self.frozen else self.trainable)[name].copy_(value)


@contextmanager
def _same_randomness(device: torch.device, seed: int = 0) -> Iterator[None]:
    """Every pass of the dry run draws the same dropout, and leaves the user's generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed * 2654435761)  # small seeds begin too much alike
        yield


class _Shapes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Sees whether the shape of anything depends on values, as that of `x[x > 0]` does."""

    found = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.dynamic_output_shape in func.tags:
            indices = args[1] if func is torch.ops.aten.index.Tensor else ()
            kinds = [index.dtype for index in indices if index is not None]
            self.found |= not kinds or torch.bool in kinds or torch.uint8 in kinds
        return func(*args, **(kwargs or {}))


def _moved(parameter: Tensor, generator: torch.Generator) -> Tensor:
    scale = 0.1 * parameter.double().square().mean().sqrt().cpu() + 0.02
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
    return (parameter.detach().double() + noise.to(parameter.device)).to(parameter.dtype)


def _tame(x: Tensor) -> Tensor:
    """Values that an example may have brought but that would tell nothing about the model: NaN, infinities, giants."""
    return x.nan_to_num(0.0, 0.0, 0.0).clamp(-1e4, 1e4) if x.is_floating_point() else x


def _few(x: Tensor, chosen: Tensor) -> Tensor:
    return _tame(x.index_select(0, chosen.to(x.device)))


def _changed(x: Tensor, chosen: Tensor, place: int, generator: torch.Generator) -> Tensor:
    """The same few examples, but the one at `place` is another one."""
    few = _few(x, chosen)
    if few.is_floating_point():
        few[place] += torch.randn(few.shape[1:], generator=generator).to(few)
        return few
    # Numbers that a model surely knows: those of the least similar example, or, in a batch of copies, ones below.
    other = x[(x != few[place]).reshape(len(x), -1).sum(1).argmax()].clone()
    if few.dtype != torch.bool:
        below = torch.div(other, 2, rounding_mode="floor").clamp_min(0)
        other = torch.where(other == few[place], below, other)
    elif torch.equal(other, few[place]):
        other.view(-1)[-1:].logical_not_()  # a mask with one place more, or less
    few[place] = other
    return few


def _trials(
    forward: Forward, trainable: Mapping[str, Tensor], frozen: Mapping[str, Tensor], batch: Any
) -> Iterator[_Trial]:
    """Three examples and moved parameters: in float64 first, then in the model's own types."""
    generator = torch.Generator().manual_seed(20)
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    size = leaves[0].shape[0]
    chosen = torch.arange(EXAMPLES, device=leaves[0].device) % size
    few = pytree.tree_map_only(Tensor, partial(_few, chosen=chosen), batch)
    others = [
        pytree.tree_map_only(Tensor, partial(_changed, chosen=chosen, place=place, generator=generator), batch)
        for place in _CHANGED
    ]
    moved = {name: _moved(p, generator) for name, p in trainable.items()}
    still = {name: tensor.detach().clone() for name, tensor in frozen.items()}
    everything = [*moved.values(), *still.values()]
    if all(t.device.type != "mps" for t in everything) and sum(t.numel() for t in everything) <= _WIDEST:

        def wide(x: Tensor) -> Tensor:
            return x.double() if x.is_floating_point() else x

        yield _Trial(
            forward,
            {name: wide(t) for name, t in moved.items()},
            {name: wide(t) for name, t in still.items()},
            pytree.tree_map_only(Tensor, wide, few),
            (pytree.tree_map_only(Tensor, wide, others[0]), pytree.tree_map_only(Tensor, wide, others[1])),
            1e-4,
        )
    yield _Trial(forward, moved, still, few, (others[0], others[1]), 2e-2)


def _run(
    trial: _Trial, layouts: Sequence[Layout | None] | None, ignored: frozenset[str], seed: int = 0
) -> tuple[Recorder, Tensor, dict[str, Tensor]]:
    trial.begin()
    live = {name: t.detach().requires_grad_() for name, t in trial.trainable.items()}
    recorder = Recorder(live, HANDLERS, EXAMPLES, layouts, ignored)
    device = next(iter(live.values())).device
    with torch.enable_grad(), _same_randomness(device, seed), recorder:
        losses = trial.forward({**trial.frozen, **live}, trial.batch)
    return recorder, losses, live


def _truth(
    losses: Tensor, live: Mapping[str, Tensor], sites: Sequence[Site] = ()
) -> tuple[dict[str, list[Tensor | None]], list[tuple[Tensor | None, ...]]]:
    """Ordinary gradients of each example's loss, by parameter, and those of each site's output."""
    wanted: Any = [*live.values(), *(site.edge for site in sites)]
    each = [torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True) for loss in losses]
    found = list(zip(*each, strict=True))
    return {name: list(found[place]) for place, name in enumerate(live)}, found[len(live) :]


def _filled(gradients: Sequence[Tensor | None], parameter: Tensor) -> list[Tensor]:
    return [torch.zeros_like(parameter) if gradient is None else gradient.to_dense() for gradient in gradients]


def _close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((found - expected).norm() <= tolerance * expected.norm() + 1e-12)


def _agrees(parts: Sequence[Part], truth: Sequence[Tensor], tolerance: float) -> bool:
    """Whether a parameter's rules give each example's gradient and both of its norms."""
    whole = torch.stack(list(truth))
    for example in range(EXAMPLES):
        weights = torch.zeros(EXAMPLES, dtype=whole.dtype, device=whole.device)
        weights[example] = 1.0
        try:
            found = torch.stack([p.rule.weighted(p.inputs, p.grad, weights) for p in parts]).sum(0)
        except RuntimeError:  # the rule does not fit the shapes that it meets here
            return False
        if found.shape != whole[example].shape or not _close(found, whole[example], tolerance):
            return False
    squares, sums = power_sums(whole, 2), power_sums(whole, 1)
    return _close(norm_power(parts, 2), squares, tolerance) and _close(norm_power(parts, 1), sums, tolerance)


def _layout(gradients: Sequence[Tensor | None]) -> Layout | None:
    """Where the examples are in a site's output; None where no loss depends on it."""
    if all(gradient is None for gradient in gradients):
        return None
    layout = find(gradients)
    return Layout(0, "shared") if layout is None else layout


def _one_trial(trial: _Trial) -> tuple[Coverage, dict[str, str]]:
    before = {name: tensor.clone() for name, tensor in (trial.frozen | trial.trainable).items()}
    with _Shapes() as shapes:  # type: ignore[no-untyped-call]  # torch's own
        recorder, losses, live = _run(trial, None, frozenset())
    unchanged(recorder.sites)
    truth, outputs = _truth(losses, live, recorder.sites)
    trial = _check_kept(trial, before)
    del before
    unused = tuple(name for name in live if all(gradient is None for gradient in truth[name]))
    exact = {name: _filled(truth[name], live[name]) for name in live if name not in unused}
    if not all(torch.isfinite(g).all() for gradients in exact.values() for g in gradients):
        raise DiscreetError("the loss and its gradients must be finite on ordinary examples: check the model's start")
    layouts = [_layout(gradients) for gradients in outputs]
    signatures = tuple(site.signature for site in recorder.sites)
    draws = _draws(trial)
    _check_mixing(trial, exact, _SEEDS if draws else 1)
    moving = _moving(trial, signatures, layouts)
    doubtful = dict(recorder.unknown) | dict.fromkeys(moving, "places of the examples that depend on their values")
    if shapes.found:
        doubtful |= dict.fromkeys(live, "a shape that depends on values")
    del recorder, losses, outputs
    while True:
        ignored = frozenset(doubtful)
        keep = [i for i, s in enumerate(signatures) if any(name not in ignored for name in s[1:])]
        if len(keep) < len(signatures):
            layouts, signatures = [layouts[i] for i in keep], tuple(signatures[i] for i in keep)
        signatures = tuple((s[0], *(n for n in s[1:] if n not in ignored)) for s in signatures)
        try:
            recorder, losses, live = _run(trial, layouts, ignored)
            gradients = output_gradients(losses, recorder.sites)
            parts = parts_by_name(recorder.sites, gradients, layouts, EXAMPLES)
        except (RuntimeError, ValueError, IndexError) as error:
            shared = [
                n
                for s, layout in zip(signatures, layouts, strict=True)
                if layout and layout.kind == "shared"
                for n in s[1:]
            ]
            if not shared:
                raise
            del error
            doubtful |= dict.fromkeys(shared, "an operation that all examples share")
            continue
        wrong = {
            name: "rules that do not add up to its gradient"
            for name, expected in exact.items()
            if name not in doubtful and not (name in parts and _agrees(parts[name], expected, trial.tolerance))
        }
        if not wrong:
            break
        doubtful |= wrong
    fallback = tuple(name for name in exact if name in doubtful)
    if fallback:
        _check_fallback(trial, fallback, exact, live, draws)
    return Coverage(signatures, tuple(layouts), fallback, unused), doubtful


def _check_kept(trial: _Trial, before: Mapping[str, Tensor]) -> _Trial:
    """What the forward pass writes into the model (running means) has no noise: it must not depend on the examples.

    Returns the trial with what has to be set back before each pass.
    """
    now = trial.frozen | trial.trainable
    trial = replace(trial, written={name: before[name] for name in now if not _same(now[name], before[name])})
    found = []
    for batch in (trial.batch, *trial.others) if trial.written else ():
        _run(replace(trial, batch=batch), None, frozenset(trial.trainable))
        found.append({name: now[name].clone() for name in trial.written})
    for name in trial.written:
        if any(not _same(found[0][name], other[name]) for other in found[1:]):
            raise InvalidArgument(
                f"the forward pass must not write what it sees into the model, but {name} changes with the examples: "
                "it would hold the data without noise; compute it from public data beforehand and leave it as it is"
            )
    return trial


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.nan_to_num(), other.nan_to_num())


def _moving(trial: _Trial, signatures: Sequence[tuple[str, ...]], layouts: Sequence[Layout | None]) -> Iterator[str]:
    """The parameters at sites where the examples lie elsewhere once one of them is another, and they are turned.

    So it is where a model sorts the examples of a batch, or puts those of different lengths one behind the other.
    """
    turned = pytree.tree_map_only(Tensor, lambda x: x.roll(1, 0), trial.others[0])
    recorder, losses, _ = _run(replace(trial, batch=turned), None, frozenset())
    same = tuple(site.signature for site in recorder.sites) == signatures
    each = [output_gradients(loss, recorder.sites, retain=True) for loss in losses]
    for place, (layout, names) in enumerate(zip(layouts, signatures, strict=True)):
        if layout is None or layout.kind == "shared":
            continue
        if not same or not holds(layout, [gradients[place] for gradients in each]):
            yield from names[1:]


def _check_mixing(trial: _Trial, exact: Mapping[str, Sequence[Tensor]], seeds: int) -> None:
    """Exchange the first example, then the last: the gradients of the others must not move.

    Both, because what runs along the batch (a cumulative mean) may reach the later examples only. With several seeds,
    because a random order of three examples may be the one that they had. No operation is taken apart here, so this
    also compares ours with torch's own.
    """
    everything = frozenset(trial.trainable)
    for seed in range(seeds):
        for place, batch in (*([(None, trial.batch)] if seed else []), *zip(_CHANGED, trial.others, strict=True)):
            _, losses, live = _run(replace(trial, batch=batch), None, everything, seed)
            truth, _ = _truth(losses, live)
            now = {name: _filled(truth[name], live[name]) for name in exact}
            if place is None:
                exact = now
            else:
                _compare(exact, now, place, trial.tolerance)


def _compare(
    exact: Mapping[str, Sequence[Tensor]], now: Mapping[str, Sequence[Tensor]], place: int, tolerance: float
) -> None:
    """Refuse a model in which another example than the one at `place` has another gradient now."""
    for name, expected in exact.items():
        for example, (before, after) in enumerate(zip(expected, now[name], strict=True)):
            if example != place and not _close(after, before, tolerance):
                raise _mixes(name)


def _mixes(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"the gradient of {name} must depend on one example at a time, but it changes with the other examples of the "
        "batch: something mixes them (batch normalization, a mean over the batch in the model or the loss), or draws "
        "random numbers outside of torch's generators; normalize within each example instead"
    )


def _draws(trial: _Trial) -> bool:
    """Whether the model draws random numbers (dropout): then the fallback, which draws others, cannot be compared."""
    device = next(iter(trial.trainable.values())).device
    with torch.no_grad(), _same_randomness(device):
        before = generators(device)
        trial.begin()
        trial.forward({**trial.frozen, **trial.trainable}, trial.batch)
        return not undrawn(before, device)


def _check_fallback(
    trial: _Trial,
    names: tuple[str, ...],
    exact: Mapping[str, Sequence[Tensor]],
    live: Mapping[str, Tensor],
    draws: bool,
) -> None:
    trial.begin()
    try:
        found = per_example(trial.forward, {**trial.frozen, **live}, names, trial.batch)
    except RuntimeError as error:
        raise DiscreetError(
            f"no path covers the parameters {', '.join(names)}: no rule fits, and vmap of the model failed with "
            f"{type(error).__name__}: {error}. Freeze them (requires_grad_(False)) or write that layer with "
            "operations of torch that vmap knows"
        ) from error
    if draws:
        return  # each example runs alone there: norm and sum are of one gradient, whatever was drawn
    for name in names:
        whole = torch.stack(list(exact[name]))
        if not _close(found[name], whole, max(trial.tolerance, 1e-3)):
            raise _mixes(name)


def find_coverage(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
) -> tuple[Coverage, dict[str, str]]:
    """Every use of every parameter, and why the fallback's parameters need it.

    Guarantee:
        Looks at three examples of the batch. Its answer is which rule each parameter has; errors name parameters and
        operations, never values.
    """
    trials = _trials(forward, trainable, frozen, batch)
    first = next(trials)
    try:
        return _one_trial(first)
    except InvalidArgument:
        raise
    except (RuntimeError, ValueError, TypeError, NotImplementedError, DiscreetError) as error:
        second = next(trials, None)  # a model that insists on float32 cannot run in float64
        if second is None:
            raise
        del error
        return _one_trial(second)
