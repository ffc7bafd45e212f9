"""The clipped sum of one batch, as a pure function of parameters, buffers, batch, mask and clip norm.

A forward pass, one backward pass to the outputs of the operations that use parameters, norms, weights, weighted sums.
It keeps no state, so `make_fx` can trace all of it and a compiler gets one graph.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.clipping import Clipping
from discreet.learning.engine.fallback import Forward, one_example, per_example, private, row
from discreet.learning.engine.graph.marks import mark
from discreet.learning.engine.graph.repeats import repeated
from discreet.learning.engine.independence import Apart, Misplaced, Watch, own_backward, verdict
from discreet.learning.engine.isolation import common_state
from discreet.learning.engine.layout import Layout
from discreet.learning.engine.operations.arithmetic import power_sums, precision_settings, weighted_total
from discreet.learning.engine.operations.base import GradientRule
from discreet.learning.engine.operations.memory_format import in_format_of
from discreet.learning.engine.operations.registry import HANDLERS
from discreet.learning.engine.shared_parameters import Use, norm_power
from discreet.learning.engine.trace.placement import lies
from discreet.learning.engine.trace.recorder import ForwardRecorder, Site, check_inputs_unchanged, output_gradients


@dataclass(frozen=True)
class ClippedSum:
    """The result for one batch: the sums to be noised, and facts about each example that must not leave without noise.

    Attributes:
        sums: by parameter name, Σ mask_i · weight_i · gradient_i in float32 (float64 for float64 models).
        norms: [groups, examples], the norm of each example's gradient in each group. Sensitive.
        losses: [examples]. Sensitive.
        finite: [examples], whether the loss and the gradient of the example are finite; if not, its weight is zero.
            Sensitive.
        lent: whether the engine wants these tensors back: its next call is slower while someone refers to them.
    """

    sums: dict[str, Tensor]
    norms: Tensor
    losses: Tensor
    finite: Tensor
    lent: bool = False


@dataclass(frozen=True)
class Coverage:
    """What the dry run found.

    Attributes:
        signatures: the recorded operations in order, each with the names of its parameters.
        layouts: where the examples are in the output of each.
        fallback: the parameters that need the fallback.
        unused: the parameters that no loss depends on.
        alone: why each example has to run alone; empty if examples are proved not to mix.
        in_turn: whether examples that run alone run one after the other, because `vmap` of the model fails.
        shared: the keys of calls whose results all examples share (see `ForwardRecorder`).
        as_compiled: whether the model's code has to take the way that it takes when it is compiled.
    """

    signatures: tuple[tuple[str, ...], ...]
    layouts: tuple[Layout | None, ...]
    fallback: tuple[str, ...]
    unused: tuple[str, ...]
    alone: str = ""
    in_turn: bool = False
    shared: frozenset[str] = frozenset()
    as_compiled: bool = False

    @property
    def changes_the_pass(self) -> bool:
        """Whether a forward pass with this coverage is another one than without."""
        return bool(
            self.fallback
            or self.alone
            or self.shared
            or any(each is not None and each.kind == "shared" for each in self.layouts)
        )


_NOTHING = Coverage((), (), (), ())


class AnotherPass(Exception):
    """A forward pass that was recorded without the coverage has to run again with it."""


def uses_by_name(
    sites: Sequence[Site], gradients: Sequence[Tensor | None], layouts: Sequence[Layout | None], examples: int
) -> dict[str, list[Use]]:
    """All uses of each parameter, with the examples in the first dimension."""
    by_name: dict[str, list[Use]] = {}
    for site, grad, layout in zip(sites, gradients, layouts, strict=True):
        if grad is None or layout is None:
            continue
        if not layout.fits(grad.shape, examples):
            raise InvalidArgument(
                f"the output of {site.signature[0]} ({site.signature[1]}) must hold the batch's {examples} examples in "
                f"the same way as for the first batch, got shape {tuple(grad.shape)}: give all batches the same shapes"
            )
        output_gradient = layout.examples_first(grad, examples)
        for name, rule, inputs in site.claims:
            moved = tuple(layout.examples_first(x, examples) for x in inputs)
            by_name.setdefault(name, []).append(Use(rule.examples_first(layout), moved, output_gradient))
    return by_name


def clip_uses(
    uses: Mapping[str, Sequence[Use]],
    gradients: Mapping[str, Tensor],
    parameters: Mapping[str, Tensor],
    losses: Tensor,
    mask: Tensor,
    clip_norm: Tensor,
    clipping: Clipping,
) -> ClippedSum:
    """Norms, weights and weighted sums, from the uses of each parameter and the fallback's per-example gradients."""
    order, groups = clipping.order, clipping.groups(tuple(parameters))
    kept: dict[str, Tensor] = dict(gradients)
    powers: dict[str, Tensor] = {}
    for name, of_parameter in uses.items():
        if all(use.rule.keeps_gradients(use.inputs, use.grad) for use in of_parameter):
            kept[name] = _for_uses(_kept, of_parameter)
        else:
            powers[name] = _for_uses(norm_power, of_parameter, order)
    for name, value in kept.items():
        narrow = [use.grad for use in uses.get(name, ())]
        powers[name] = repeated(_PowerSums(order, _unrounded([value, *narrow]) ** order), value)
    wide = torch.float64 if any(p.dtype == torch.float64 for p in parameters.values()) else torch.float32
    totals = [torch.zeros(losses.shape[0], dtype=wide, device=losses.device) for _ in range(max(groups) + 1)]
    for name, group in zip(parameters, groups, strict=True):
        if name in powers:
            totals[group] = totals[group] + powers[name].to(wide)
    norms = torch.stack(totals)
    norms = norms.sqrt() if order == 2 else norms
    finite = torch.isfinite(losses.detach()) & torch.isfinite(norms).all(0)
    weights = torch.where(finite & mask, clipping.weights(norms, clip_norm.to(wide)), 0.0).unbind()
    sums = {}
    for (name, parameter), group in zip(parameters.items(), groups, strict=True):
        if name in kept:
            sums[name] = repeated(weighted_total, kept[name], weights[group])
        elif name in uses:
            sums[name] = _for_uses(_weighted_sum, uses[name], weights[group])
        else:
            sums[name] = torch.zeros_like(parameter, dtype=wide)
    # In the parameters' memory format, so that noise and optimizer can process all sums in one launch.
    formatted = {name: in_format_of(value.to(wide), parameters[name]) for name, value in sums.items()}
    return ClippedSum(formatted, norms, losses.detach(), finite)


def _kept(uses: Sequence[Use]) -> Tensor:
    """The per-example gradients of a parameter whose rules keep them."""
    return _total([use.rule.kept_gradients(use.inputs, use.grad) for use in uses])


def _weighted_sum(uses: Sequence[Use], weights: Tensor) -> Tensor:
    return _total([use.rule.weighted_sum(use.inputs, use.grad, weights) for use in uses])


def _total(values: Sequence[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(list(values)).sum(0)


@dataclass(frozen=True)
class _PowerSums:
    """Σ|g|^order of kept gradients, enlarged."""

    order: int
    factor: float

    def __call__(self, kept: Tensor) -> Tensor:
        return power_sums(kept, self.order) * self.factor


@dataclass(frozen=True)
class _ForUses:
    """A function of uses as a function of their tensors alone, which is equal for parameters with equal rules."""

    function: Callable[..., Tensor]
    rules: tuple[GradientRule, ...]
    inputs: tuple[int, ...]
    options: tuple[int, ...]
    precision: Hashable

    def __call__(self, *tensors: Tensor) -> Tensor:
        self._check_settings()
        rest = iter(tensors)
        uses = [
            Use(rule, tuple(itertools.islice(rest, count)), next(rest))
            for rule, count in zip(self.rules, self.inputs, strict=True)
        ]
        result = self.function(uses, *rest, *self.options)
        self._check_settings()
        return result

    def _check_settings(self) -> None:
        """A graph may be expanded later, in another thread."""
        if precision_settings() != self.precision:
            raise RuntimeError("torch's settings for float32 products must not change during a call")


def _for_uses(function: Callable[..., Tensor], uses: Sequence[Use], *others: Tensor | int) -> Tensor:
    """`function(uses, *others)`, traced once for parameters that are alike."""
    if not all(use.rule.shared for use in uses):
        return function(uses, *others)
    part = _ForUses(
        function,
        tuple(use.rule for use in uses),
        tuple(len(use.inputs) for use in uses),
        tuple(other for other in others if not isinstance(other, Tensor)),
        precision_settings(),
    )
    tensors = [tensor for use in uses for tensor in (*use.inputs, use.grad)]
    return repeated(part, *tensors, *(other for other in others if isinstance(other, Tensor)))


def _unrounded(tensors: Sequence[Tensor]) -> float:
    """1, or a little more where a gradient comes from 16-bit numbers.

    A compiler may compute the norm from numbers that it has not rounded to 16 bits yet, and the sum from rounded ones.
    """
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return 1.0 + max((torch.finfo(kind).eps for kind in kinds if torch.finfo(kind).bits < 32), default=0.0)


def _unmarked(value: Tensor) -> Tensor:
    return value


def clip(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
    mask: Tensor,
    clip_norm: Tensor,
    clipping: Clipping,
    coverage: Coverage | Callable[[frozenset[str]], Coverage],
    watch: Watch | None = None,
) -> ClippedSum:
    """The clipped sum of a batch.

    Args:
        forward: the losses of a batch, as a function of parameters and batch.
        trainable: the parameters that get gradients.
        frozen: everything else that the model reads.
        batch: one example per row.
        mask: which rows are examples.
        clip_norm: the largest norm of one example's gradient.
        clipping: how gradients are bounded.
        coverage: what the dry run found, or the dry run itself, to be run when the pass is proved, with the keys of the
            calls that depend on no example. Raises `AnotherPass` if what it finds would have changed the pass.
        watch: while tracing, proves that the losses depend on one example each; raises `Unproved` if it can't.

    Guarantee:
        Neighbors: add/remove or zero-out one example. If each loss depends on its own example alone (which `watch`
        proves), one example moves `sums` by at most `clipping.sensitivity` in the clipping's norm, up to rounding.
        `norms`, `losses` and `finite` are not protected.
    """
    examples = mask.shape[0]
    with torch.enable_grad():
        live = {name: tensor.detach().requires_grad_() for name, tensor in trainable.items()}
        known = coverage if isinstance(coverage, Coverage) else _NOTHING
        rows = private(batch) if known.fallback else None  # before the pass, which may write to its batch
        recorder = ForwardRecorder(
            live,
            HANDLERS,
            examples,
            known.layouts,
            frozenset(known.fallback),
            known.shared,
            watch=watch,
        )
        with recorder, contextlib.ExitStack() as proving:
            if watch is not None:
                proving.enter_context(own_backward(watch))
                proving.enter_context(watch)
            losses = forward({**frozen, **live}, batch)
        if watch is not None:
            verdict(watch, losses)
        marked = mark if recorder.traced else _unmarked
        try:
            # Before the dry run, which runs the model's code: that could still put hooks into this graph.
            gradients = output_gradients(marked(losses), recorder.sites)
            gradients = [None if g is None else marked(g) for g in gradients]
            check_inputs_unchanged(recorder.sites, watch)
        except Exception:
            if not isinstance(coverage, Coverage):
                coverage(recorder.free)  # the pass is proved, though it cannot be traced
            raise
        if not isinstance(coverage, Coverage):
            coverage = coverage(recorder.free)
            if coverage.changes_the_pass or not _lie_as(recorder.sites, coverage.layouts, examples):
                raise AnotherPass
        unexpected = recorder.without_rule.keys() - set(coverage.unused)
        if tuple(site.signature for site in recorder.sites) != coverage.signatures or unexpected:
            raise DiscreetError(
                "the model must run the same operations on every batch, got others than on the first one: its forward "
                "pass depends on the data, or a mode was changed; make a new engine after such a change"
            )
        for site, grad, layout in zip(recorder.sites, gradients, coverage.layouts, strict=True):
            if grad is None and layout is not None:
                raise Misplaced("no loss depends on what an operation returned", site.signature[1:])
    with torch.no_grad():
        uses = uses_by_name(recorder.sites, gradients, coverage.layouts, examples)
        by_fallback: dict[str, Tensor] = {}
        if coverage.fallback:
            with contextlib.nullcontext() if watch is None else Apart(watch):
                by_fallback = per_example(forward, {**frozen, **live}, coverage.fallback, rows)[0]
        return clip_uses(uses, by_fallback, trainable, losses, mask, clip_norm, clipping)


def _lie_as(sites: Sequence[Site], layouts: Sequence[Layout | None], examples: int) -> bool:
    """Whether the examples of all sites lie as the layouts say."""
    pairs = zip(sites, layouts, strict=True)
    return len(sites) == len(layouts) and all(
        layout is None or lies(site.places, layout, examples) for site, layout in pairs
    )


#: Runs a function of a batch and refuses a model that keeps something of that batch; see `isolation`.
Isolated = Callable[[Any, Callable[[Any], ClippedSum]], ClippedSum]


def clip_alone(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
    mask: Tensor,
    clip_norm: Tensor,
    clipping: Clipping,
    coverage: Coverage,
    isolated: Isolated,
) -> ClippedSum:
    """The clipped sum of a batch whose examples run one by one, so that nothing can mix them. Slower than `clip`.

    Guarantee: as `clip`, by construction: the loss and the gradient of an example come from a batch of that example,
    and `isolated` sees to it that one pass leaves nothing for the next. The model gets copies that nothing else holds,
    so that it shows if it keeps one; and what can be reached from `forward`, such as a loss that is an object, is what
    `isolated` puts back after each pass.
    """
    tensors = {**frozen, **trainable}

    def lifted(rows: Any) -> ClippedSum:
        gradients, losses = per_example(forward, tensors, coverage.fallback, private(rows))
        with torch.no_grad():
            return clip_uses({}, gradients, trainable, losses, mask, clip_norm, clipping)

    if not coverage.in_turn:
        with common_state(forward):
            return isolated(batch, lifted)
    names = tuple(trainable)
    wide = torch.float64 if any(p.dtype == torch.float64 for p in trainable.values()) else torch.float32
    sums = {name: torch.zeros_like(parameter, dtype=wide) for name, parameter in trainable.items()}
    count, groups = mask.shape[0], max(clipping.groups(names)) + 1
    norms = torch.zeros(groups, count, dtype=wide, device=mask.device)
    losses = torch.zeros(count, dtype=wide, device=mask.device)
    finite = torch.ones(count, dtype=torch.bool, device=mask.device)

    def of_one(rows: Any) -> ClippedSum:
        gradients, loss = one_example(forward, tensors, names, private(rows))
        with torch.no_grad():
            return clip_uses({}, gradients, trainable, loss, mask.new_ones(1), clip_norm, clipping)

    # One draw from the caller's generators, whatever the examples draw: their state would tell how many examples there
    # were.
    seed = int(torch.randint(1 << 62, ()))
    devices = [mask.device] if mask.is_cuda else []
    with torch.random.fork_rng(devices=devices), common_state(forward):
        torch.manual_seed(seed)
        for position in torch.nonzero(mask)[:, 0].tolist():  # rows that only fill up the batch need no pass
            alone = isolated(row(batch, position), of_one)
            norms[:, position], losses[position], finite[position] = alone.norms[:, 0], alone.losses[0], alone.finite[0]
            if bool(alone.finite):
                torch._foreach_add_(list(sums.values()), list(alone.sums.values()))
    return ClippedSum(sums, norms, losses, finite)
