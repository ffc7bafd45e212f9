"""Refuses models whose examples affect each other, or that write what they see into themselves.

A numerical test: examples are exchanged, and the gradients of the others must not change within a tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning.engine.dry_run.trials import (
    EXAMPLES,
    EXCHANGED,
    Trial,
    filled,
    is_close,
    ordinary_gradients,
    run,
)
from discreet.learning.engine.fallback import one_example, per_example, private, row
from discreet.learning.engine.isolation import Isolation
from discreet.learning.engine.trace.randomness import generator_states, nothing_drawn, seeded

#: The fallback runs other kernels than the batched pass, so it may differ by at least this relative error.
FALLBACK_TOLERANCE = 1e-3


def check_writes(trial: Trial, before: Mapping[str, Tensor]) -> Trial:
    """Refuse a forward pass that writes into the model (running means) something that depends on the examples.

    Nothing adds noise to such values. Returns the trial with the tensors that have to be reset before each pass.
    """
    now = trial.frozen | trial.trainable
    trial = replace(trial, written={name: before[name] for name in now if not _same(now[name], before[name])})
    after_each = []
    for batch in (trial.batch, *trial.others) if trial.written else ():
        run(replace(trial, batch=batch), None, frozenset(trial.trainable))
        after_each.append({name: now[name].clone() for name in trial.written})
    for name in trial.written:
        if any(not _same(after_each[0][name], other[name]) for other in after_each[1:]):
            raise InvalidArgument(
                f"the forward pass must not write what it sees into the model, but {name} changes with the examples: "
                "it would hold the data without noise; compute it from public data beforehand and leave it unchanged"
            )
    return trial


def _same(left: Tensor, right: Tensor) -> bool:
    return torch.equal(left.nan_to_num(), right.nan_to_num())


def check_mixing(trial: Trial, exact: Mapping[str, Sequence[Tensor]], seeds: int, *, proved: bool = False) -> None:
    """Exchange the first example, then the last: the gradients of the others must not change.

    Both, because an operation along the batch (a cumulative mean) may reach later examples only. With several seeds,
    because a random order of three examples may happen to be their own order. No operation is split here, so this also
    compares our operations with torch's. If examples are proved apart, a gradient that is not finite says nothing: the
    exchanged example may be one that the model was not made for, such as an empty mask.
    """
    everything = frozenset(trial.trainable)
    for seed in range(seeds):
        for position, batch in (*([(None, trial.batch)] if seed else []), *zip(EXCHANGED, trial.others, strict=True)):
            try:
                _, losses, live = run(replace(trial, batch=batch), None, everything, seed)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, IndexError):
                if position is None:
                    raise
                continue  # the model refuses the example that was made up for it, such as a sequence of length 0
            gradients, _ = ordinary_gradients(losses, live)
            now = {name: filled(gradients[name], live[name]) for name in exact}
            if position is None:
                exact = now
            else:
                _compare(exact, now, position, trial.tolerance, proved)


def _compare(
    exact: Mapping[str, Sequence[Tensor]],
    now: Mapping[str, Sequence[Tensor]],
    position: int,
    tolerance: float,
    proved: bool,
) -> None:
    """Refuse a model in which an example other than the one at `position` has a different gradient now."""
    for name, expected in exact.items():
        for example, (before, after) in enumerate(zip(expected, now[name], strict=True)):
            if example == position or (proved and not bool(torch.isfinite(after).all())):
                continue
            if not is_close(after, before, tolerance):
                raise _mixes(name)


def _mixes(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"the gradient of {name} must depend on one example at a time, but it changes with the other examples of the "
        "batch: something mixes them (batch normalization, a mean over the batch in the model or the loss), or draws "
        "random numbers outside torch's generators; normalize within each example instead"
    )


def draws_random_numbers(trial: Trial) -> bool:
    """Whether the model draws random numbers (dropout). The fallback draws others, so it cannot be compared then."""
    device = next(iter(trial.trainable.values())).device
    with torch.no_grad(), seeded(device):
        before = generator_states(device)
        trial.reset()
        trial.forward({**trial.frozen, **trial.trainable}, private(trial.batch))
        return not nothing_drawn(before, device)


def check_fallback(
    trial: Trial,
    names: tuple[str, ...],
    exact: Mapping[str, Sequence[Tensor]],
    live: Mapping[str, Tensor],
    draws: bool,
    tolerance: float,
) -> str:
    """Refuse a model for which the fallback fails or does not reproduce the ordinary gradients.

    Returns why `vmap` of the model failed, so that its examples have to run in turn; empty if it did not.
    """
    trial.reset()
    tensors, why = {**trial.frozen, **live}, ""
    try:
        gradients, _ = per_example(trial.forward, tensors, names, private(trial.batch))
    except InvalidArgument:
        raise
    except Exception as error:  # vmap may fail in any way on code that was not written for it
        why = f"vmap of the model failed ({type(error).__name__})"
    if why:
        gradients = _in_turn(trial, tensors, names)
    if draws:
        return why  # each example runs alone there: norm and sum come from the same gradient, whatever was drawn
    for name in names:
        expected = torch.stack(list(exact[name]))
        if not is_close(gradients[name], expected, max(tolerance, FALLBACK_TOLERANCE)):
            raise _mixes(name)
    return why


def _in_turn(trial: Trial, tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> dict[str, Tensor]:
    """The gradients of the trial's examples, each in a batch of its own."""
    each = []
    for position in range(EXAMPLES):
        trial.reset()
        try:
            example = row(trial.batch, position)
            with Isolation(example, writes=False):
                each.append(one_example(trial.forward, tensors, names, example)[0])
        except InvalidArgument:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise DiscreetError(
                f"no path covers the parameters {', '.join(names)}: no rule fits, and the model fails on a batch of "
                f"one example with {type(error).__name__}. Freeze them (requires_grad_(False)), or let the model "
                "take a single example"
            ) from error
    return {name: torch.cat([gradients[name] for gradients in each]) for name in names}
