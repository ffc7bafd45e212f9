"""The dry run: finds every use of every parameter, and proves on three examples that what was found is all there is.

Three examples of the first batch go through the model, in float64 where it can, with parameters that are slightly moved
(a weight that is exactly zero hides what depends on it). Ordinary gradients of each example's loss are the truth. A
parameter whose rules reproduce its norms and its gradients keeps them; any other goes through the fallback, which has
to reproduce them too. What nothing reproduces is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.capture import Recorder, output_gradients, unchanged
from discreet.learning.engine.clipped import Coverage, parts_by_name
from discreet.learning.engine.fallback import Forward, per_example
from discreet.learning.engine.layout import Layout, find
from discreet.learning.engine.operations import HANDLERS
from discreet.learning.engine.rules.base import power_sums
from discreet.learning.engine.tied import Part, norm_power

EXAMPLES = 3
#: Which of them are exchanged for others, one at a time.
_CHANGED = (0, EXAMPLES - 1)
#: Models with more parameters than this keep their own type in the dry run.
_WIDEST = 1 << 29


@dataclass(frozen=True)
class _Trial:
    """One forward pass of three examples."""

    forward: Forward
    trainable: dict[str, Tensor]
    frozen: dict[str, Tensor]
    given: Mapping[str, Tensor]
    batch: Any
    others: tuple[Any, Any]
    tolerance: float


@contextmanager
def _same_randomness(device: torch.device) -> Iterator[None]:
    """Every pass of the dry run draws the same dropout, and leaves the user's generators as they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield


def _moved(parameter: Tensor, generator: torch.Generator) -> Tensor:
    scale = 0.1 * parameter.double().square().mean().sqrt().cpu() + 0.02
    noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
    return (parameter.detach().double() + noise.to(parameter.device)).to(parameter.dtype)


def _tame(x: Tensor) -> Tensor:
    """Values that an example may have brought but that would tell nothing about the model: NaN, infinities, giants."""
    return x.nan_to_num(0.0, 0.0, 0.0).clamp(-1e4, 1e4) if x.is_floating_point() else x


def _changed(x: Tensor, place: int, generator: torch.Generator) -> Tensor:
    """The same examples, but the one at `place` is another one."""
    x = x.clone()
    if x.is_floating_point():
        x[place] += torch.randn(x.shape[1:], generator=generator).to(x)
    elif x.dtype != torch.bool:
        # Numbers that a model surely knows: those of another example, or, in a batch of copies, ones below its own.
        other = x[0 if place else -1].clone()
        x[place] = torch.where(other == x[place], torch.div(other, 2, rounding_mode="floor").clamp_min(0), other)
    return x


def _trials(
    forward: Forward, trainable: Mapping[str, Tensor], frozen: Mapping[str, Tensor], batch: Any
) -> Iterator[_Trial]:
    """Three examples and moved parameters: in float64 first, then in the model's own types."""
    generator = torch.Generator().manual_seed(20)
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    size = leaves[0].shape[0]
    chosen = torch.arange(EXAMPLES, device=leaves[0].device) % size
    few = pytree.tree_map_only(Tensor, lambda x: _tame(x.index_select(0, chosen.to(x.device))), batch)
    others = [pytree.tree_map_only(Tensor, partial(_changed, place=p, generator=generator), few) for p in _CHANGED]
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
            frozen,
            pytree.tree_map_only(Tensor, wide, few),
            (pytree.tree_map_only(Tensor, wide, others[0]), pytree.tree_map_only(Tensor, wide, others[1])),
            1e-4,
        )
    yield _Trial(forward, moved, still, frozen, few, (others[0], others[1]), 2e-2)


def _run(
    trial: _Trial, layouts: Sequence[Layout | None] | None, ignored: frozenset[str]
) -> tuple[Recorder, Tensor, dict[str, Tensor]]:
    live = {name: t.detach().requires_grad_() for name, t in trial.trainable.items()}
    recorder = Recorder(live, HANDLERS, EXAMPLES, layouts, ignored)
    device = next(iter(live.values())).device
    with torch.enable_grad(), _same_randomness(device), recorder:
        losses = trial.forward({**trial.frozen, **live}, trial.batch)
    return recorder, losses, live


def _truth(losses: Tensor, live: Mapping[str, Tensor]) -> list[dict[str, Tensor | None]]:
    """Ordinary gradients of each example's loss."""
    names = list(live)
    return [
        dict(
            zip(
                names, torch.autograd.grad(loss, list(live.values()), retain_graph=True, allow_unused=True), strict=True
            )
        )
        for loss in losses
    ]


def _close(found: Tensor, expected: Tensor, tolerance: float) -> bool:
    return bool((found - expected).norm() <= tolerance * expected.norm() + 1e-12)


def _agrees(parts: Sequence[Part], truth: Sequence[Tensor], tolerance: float) -> bool:
    """Whether a parameter's rules give each example's gradient and both of its norms."""
    whole = torch.stack(list(truth))
    for example in range(EXAMPLES):
        weights = torch.zeros(EXAMPLES, dtype=whole.dtype, device=whole.device)
        weights[example] = 1.0
        found = torch.stack([p.rule.weighted(p.inputs, p.grad, weights) for p in parts]).sum(0)
        if found.shape != whole[example].shape or not _close(found, whole[example], tolerance):
            return False
    squares, sums = power_sums(whole, 2), power_sums(whole, 1)
    return _close(norm_power(parts, 2), squares, tolerance) and _close(norm_power(parts, 1), sums, tolerance)


def _layouts(recorder: Recorder, losses: Tensor) -> list[Layout | None]:
    each = [output_gradients(loss, recorder.sites, retain=True) for loss in losses]
    found: list[Layout | None] = []
    for gradients in zip(*each, strict=True):
        if all(g is None for g in gradients):
            found.append(None)
            continue
        layout = find(gradients)
        found.append(Layout(0, "shared") if layout is None else layout)
    return found


def _one_trial(trial: _Trial) -> tuple[Coverage, dict[str, str]]:
    versions = {name: tensor._version for name, tensor in trial.frozen.items()}
    recorder, losses, live = _run(trial, None, frozenset())
    unchanged(recorder.sites)
    _check_kept(trial, [name for name, tensor in trial.frozen.items() if tensor._version != versions[name]])
    truth = _truth(losses, live)
    unused = tuple(n for n in live if all(t[n] is None for t in truth))
    exact = {
        name: [torch.zeros_like(live[name]) if t[name] is None else t[name] for t in truth]
        for name in live
        if name not in unused
    }
    if not all(torch.isfinite(g).all() for gradients in exact.values() for g in gradients):  # type: ignore[arg-type]  # as above
        raise DiscreetError("the loss and its gradients must be finite on ordinary examples: check the model's start")
    _check_mixing(trial, exact)  # type: ignore[arg-type]  # None is replaced above
    doubtful = dict(recorder.unknown)
    layouts = _layouts(recorder, losses)
    signatures = tuple(site.signature for site in recorder.sites)
    del recorder, losses
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
            if name not in doubtful and not (name in parts and _agrees(parts[name], expected, trial.tolerance))  # type: ignore[arg-type]  # None is replaced above
        }
        if not wrong:
            break
        doubtful |= wrong
    fallback = tuple(name for name in exact if name in doubtful)
    if fallback:
        _check_fallback(trial, fallback, exact, live)  # type: ignore[arg-type]  # None is replaced above
    return Coverage(signatures, tuple(layouts), fallback, unused), doubtful


def _check_kept(trial: _Trial, written: Sequence[str]) -> None:
    """What the forward pass writes into the model (running means) has no noise: it must not depend on the examples."""
    if not written:
        return
    found = []
    for batch in (trial.batch, *trial.others):
        frozen = {name: trial.given[name].detach().clone().to(tensor.dtype) for name, tensor in trial.frozen.items()}
        _run(replace(trial, batch=batch, frozen=frozen), None, frozenset(trial.trainable))
        found.append(frozen)
    for name in written:
        if any(not torch.equal(found[0][name], other[name]) for other in found[1:]):
            raise InvalidArgument(
                f"the forward pass must not write what it sees into the model, but {name} changes with the examples: "
                "it would hold the data without noise; compute it from public data beforehand and leave it as it is"
            )


def _check_mixing(trial: _Trial, exact: Mapping[str, Sequence[Tensor]]) -> None:
    """Exchange the first example, then the last: the gradients of the others must not move.

    Both, because what runs along the batch (a cumulative mean) may reach the later examples only.
    """
    for place, other in zip(_CHANGED, trial.others, strict=True):
        _, losses, live = _run(replace(trial, batch=other), None, frozenset(trial.trainable))
        truth = _truth(losses, live)
        for name, expected in exact.items():
            for example, (before, after) in enumerate(zip(expected, truth, strict=True)):
                now = torch.zeros_like(before) if after[name] is None else after[name]
                if example != place and not _close(now, before, trial.tolerance):  # type: ignore[arg-type]  # as above
                    raise _mixes(name)


def _mixes(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"the gradient of {name} must depend on one example at a time, but it changes with the other examples of the "
        "batch: something mixes them (batch normalisation, a mean over the batch in the model or the loss), or draws "
        "random numbers outside of torch's generators; normalise within each example instead"
    )


def _draws(trial: _Trial) -> bool:
    """Whether the model draws random numbers (dropout): then the fallback, which draws others, cannot be compared."""
    found = []
    for seed in (0, 1):
        with torch.no_grad(), _same_randomness(next(iter(trial.trainable.values())).device):
            torch.manual_seed(seed)
            found.append(trial.forward({**trial.frozen, **trial.trainable}, trial.batch))
    return not torch.equal(*found)


def _check_fallback(
    trial: _Trial, names: tuple[str, ...], exact: Mapping[str, Sequence[Tensor]], live: Mapping[str, Tensor]
) -> None:
    try:
        found = per_example(trial.forward, {**trial.frozen, **live}, names, trial.batch)
    except RuntimeError as error:
        raise DiscreetError(
            f"no path covers the parameters {', '.join(names)}: no rule fits, and vmap of the model failed with "
            f"{type(error).__name__}: {error}. Freeze them (requires_grad_(False)) or write that layer with "
            "operations of torch that vmap knows"
        ) from error
    if _draws(trial):
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
