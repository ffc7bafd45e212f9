"""Finds the uses of every parameter, and keeps the rules that reproduce its ordinary gradients."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.clipped import Coverage, uses_by_name
from discreet.learning.engine.dry_run.mixing import (
    check_fallback,
    check_mixing,
    check_writes,
    draws_random_numbers,
)
from discreet.learning.engine.dry_run.trials import (
    EXAMPLES,
    FLOAT64_TOLERANCE,
    PROVED_TOLERANCE,
    DynamicShapes,
    Trial,
    choices,
    filled,
    is_close,
    make_trials,
    ordinary_gradients,
    run,
)
from discreet.learning.engine.fallback import Forward
from discreet.learning.engine.layout import Layout, find_layout
from discreet.learning.engine.operations.arithmetic import power_sums
from discreet.learning.engine.shared_parameters import Use, norm_power
from discreet.learning.engine.trace.compiling import compiled
from discreet.learning.engine.trace.recorder import Site, check_inputs_unchanged, output_gradients

_log = logging.getLogger("discreet.learning")

#: How many seeds to try for a model that draws random numbers.
_SEEDS = 4


def _agrees(uses: Sequence[Use], exact: Sequence[Tensor], tolerance: float, loosely: float) -> bool:
    """Whether a parameter's rules give each example's gradient, and both norms of what they give.

    Norms are compared with the gradients of the rules themselves, which are what is clipped and summed.
    """
    expected, own = torch.stack(list(exact)), []
    for example in range(EXAMPLES):
        weights = torch.zeros(EXAMPLES, dtype=expected.dtype, device=expected.device)
        weights[example] = 1.0
        try:
            gradient = torch.stack([use.rule.weighted_sum(use.inputs, use.grad, weights) for use in uses]).sum(0)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # the rule does not fit these shapes
            return False
        if gradient.shape != expected[example].shape or not is_close(gradient, expected[example], loosely):
            return False
        own.append(gradient)
    gradients = torch.stack(own)
    return all(_is_norm(norm_power(uses, order), power_sums(gradients, order), tolerance) for order in (1, 2))


def _is_norm(computed: Tensor, true: Tensor, tolerance: float) -> bool:
    """Whether powers of norms are right. In narrow types they include a margin for rounding, and may be larger."""
    if tolerance > FLOAT64_TOLERANCE:
        computed = torch.minimum(computed, true)
    return is_close(computed, true, tolerance)


def _layout(gradients: Sequence[Tensor | None]) -> Layout | None:
    """Where the examples are in a site's output; None where no loss depends on it."""
    if all(gradient is None for gradient in gradients):
        return None
    layout = find_layout(gradients)
    return Layout(0, "shared") if layout is None else layout


def _shared_calls(sites: Sequence[Site], layouts: Sequence[Layout | None]) -> frozenset[str]:
    """The keys of the calls whose results all examples share, or no loss depends on."""
    apart = {s.call for s, layout in zip(sites, layouts, strict=True) if layout is not None and layout.kind != "shared"}
    return frozenset(site.call for site in sites) - apart


class _NothingToSee(Exception):
    """The losses of a trial depend on no parameter, so nothing shows which dimensions enumerate the examples."""


def _cover(trial: Trial, alone: str, last: bool) -> tuple[Coverage, dict[str, str]]:
    """The coverage of one trial, and why each parameter in doubt was doubted.

    Raises `_NothingToSee` if no loss depends on a parameter, unless these are the last examples to try.
    """
    before = {name: tensor.clone() for name, tensor in (trial.frozen | trial.trainable).items()}
    with DynamicShapes() as shapes:  # type: ignore[no-untyped-call]  # torch's own
        recorder, losses, live = run(trial, None, frozenset())
    as_compiled = recorder.reads_values and not alone
    if as_compiled:  # it read none when it was traced and proved, so it ran otherwise
        trial = replace(trial, forward=compiled(trial.forward))
        recorder, losses, live = run(trial, None, frozenset())
    check_inputs_unchanged(recorder.sites)
    gradients, outputs = ordinary_gradients(losses, live, recorder.sites)
    trial = check_writes(trial, before)
    del before
    unused = tuple(name for name in live if all(gradient is None for gradient in gradients[name]))
    exact = {name: filled(gradients[name], live[name]) for name in live if name not in unused}
    if not last and not any(g.any() for of_parameter in exact.values() for g in of_parameter):
        raise _NothingToSee
    if not all(torch.isfinite(g).all() for of_parameter in exact.values() for g in of_parameter):
        raise DiscreetError(
            "the loss and its gradients must be finite on ordinary examples: check how the model is initialized"
        )
    layouts = [_layout(of_site) for of_site in outputs]
    while new := _shared_calls(recorder.sites, layouts) & trial.free - trial.shared:
        trial = replace(trial, shared=trial.shared | new)
        recorder, losses, live = run(trial, None, frozenset())
        layouts = []
        if recorder.sites:
            layouts = [_layout(of_site) for of_site in ordinary_gradients(losses, {}, recorder.sites)[1]]
    signatures = tuple(site.signature for site in recorder.sites)
    draws = cache(partial(draws_random_numbers, trial))
    # The proof needs no numbers. In float64, where rounding is small, they are a second line of defense.
    narrow = trial.tolerance > FLOAT64_TOLERANCE
    loosely = PROVED_TOLERANCE if narrow and not alone else trial.tolerance
    if alone or not narrow:
        check_mixing(trial, exact, _SEEDS if draws() else 1, proved=not alone)
    doubtful = dict(recorder.without_rule) | dict.fromkeys(
        trial.doubted, "examples that lie otherwise in a larger batch"
    )
    if alone:
        doubtful = dict.fromkeys(live, f"examples that are not proved apart: {alone}")
    elif shapes.noticed:
        doubtful |= dict.fromkeys(live, "a shape that depends on values")
    del recorder, losses, outputs
    # Each round runs without the parameters in doubt and doubts those whose rules fail, until all others agree.
    while True:
        ignored = frozenset(doubtful)
        keep = [i for i, s in enumerate(signatures) if any(name not in ignored for name in s[1:])]
        if len(keep) < len(signatures):
            layouts, signatures = [layouts[i] for i in keep], tuple(signatures[i] for i in keep)
        signatures = tuple((s[0], *(n for n in s[1:] if n not in ignored)) for s in signatures)
        try:
            recorder, losses, live = run(trial, layouts, ignored)
            uses = uses_by_name(recorder.sites, output_gradients(losses, recorder.sites), layouts, EXAMPLES)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            # Repeating a shared output per example changes its shape, which the model may not support.
            repeated = {
                name: signature[0]
                for signature, layout in zip(signatures, layouts, strict=True)
                if layout and layout.kind == "shared"
                for name in signature[1:]
            }
            if not repeated:
                raise
            del error
            doubtful |= repeated
            continue
        wrong = {
            name: "rules that do not add up to its gradient"
            for name, expected in exact.items()
            if name not in doubtful and not (name in uses and _agrees(uses[name], expected, trial.tolerance, loosely))
        }
        if not wrong:
            break
        doubtful |= wrong
    fallback = tuple(name for name in exact if name in doubtful)
    why_in_turn = check_fallback(trial, fallback, exact, live, draws(), loosely) if fallback else ""
    if why_in_turn and not alone:
        alone = f"{', '.join(fallback)} has no rule, and {why_in_turn}"
    if alone and draws():
        unused = ()  # another draw may use them
    found = Coverage(signatures, tuple(layouts), fallback, unused, alone, bool(why_in_turn), trial.shared, as_compiled)
    return found, doubtful


def find_coverage(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
    alone: str = "",
    free: frozenset[str] = frozenset(),
    doubted: frozenset[str] = frozenset(),
) -> tuple[Coverage, dict[str, str]]:
    """Every use of every parameter, and why the fallback's parameters need it.

    With `alone`, the reason why examples could not be proved apart, every parameter goes through the fallback, and
    those in `doubted` do in any case. `free` are the keys of calls that were proved to depend on no example.

    Guarantee:
        Looks at three examples of the batch, and at up to nine others if the losses of those depend on no parameter,
        as those of unlabeled texts. Its answer is which rule each parameter has; errors name parameters and operations,
        never values.
    """
    *rows, last = choices(batch)
    for some in rows:
        with contextlib.suppress(_NothingToSee):
            return _find(forward, trainable, frozen, batch, alone, free, doubted, some)
    return _find(forward, trainable, frozen, batch, alone, free, doubted, last, last=True)


def _find(
    forward: Forward,
    trainable: Mapping[str, Tensor],
    frozen: Mapping[str, Tensor],
    batch: Any,
    alone: str,
    free: frozenset[str],
    doubted: frozenset[str],
    rows: Tensor,
    last: bool = False,
) -> tuple[Coverage, dict[str, str]]:
    trials = (
        replace(trial, free=free, doubted=doubted) for trial in make_trials(forward, trainable, frozen, batch, rows)
    )
    first = next(trials)
    try:
        return _cover(first, alone, last)
    except InvalidArgument:
        raise
    except torch.OutOfMemoryError:
        pass  # what failed is freed when this block is left
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError, DiscreetError) as error:
        second = next(trials, None)  # a model that insists on float32 cannot run in float64
        if second is None:
            raise
        del error
        return _cover(second, alone, last)
    _log.warning("the dry run needs more memory than the device has: the host keeps its values, which is slower")
    torch.cuda.empty_cache()
    with torch.autograd.graph.save_on_cpu():
        return _cover(first, alone, last)
