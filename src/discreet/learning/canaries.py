"""Canaries for audits of a training: examples that a coin puts into the data, and what the training shows of them.

`gradient_scores` looks into the training. Each canary is an example with a loss of its own, linear in one number of a
table that is added to the model, so its clipped gradient is known and meets no other. The noisy sums at this number
tell how likely it is that the canary was drawn. `example_scores` sees the final model only: how much lower the loss of
each canary became. Both run the plan's own batches, clipping and noise. `noisy_sums` repeats one step.

They charge nobody, and their scores are exact: they are for public or generated data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from discreet import _check
from discreet.learning import losses
from discreet.learning.clipping import PerLayer
from discreet.learning.data.records import Records, without_column
from discreet.learning.data.sampling import PoissonSampler
from discreet.learning.noise import GaussianNoise
from discreet.learning.plan import Plan
from discreet.learning.step import Step
from discreet.neighbors import REPLACE_ONE, Person

Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]

# A canary's gradient before clipping, in clip norms: long enough to be clipped, whatever an adaptive norm does.
_LONG = 1e4
# The noise multiplier of a step that shows the clipped sum as good as exactly.
_NO_NOISE = 1e-6
# Coordinates of a step's noisy sum that are kept by themselves.
_COORDINATES = 64


class _WithTable(nn.Module):
    """A model beside a table with one number for each canary. The model does not use the table."""

    def __init__(self, model: nn.Module, canaries: int) -> None:
        super().__init__()
        self.model = model
        device = next(model.parameters()).device
        self.table = nn.Embedding(canaries, 1, _weight=torch.zeros(canaries, 1, device=device))

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.model(*inputs, **named)


def _table_loss(loss: Any) -> Callable[[Any, Any], Tensor]:
    """The loss of a batch that mixes rows of the data with rows of canaries.

    A batch is (rows, held, numbers, lengths). Where `held`, a row belongs to the canary `numbers`, and its loss is
    `lengths` times the canary's number in the table: its gradient is `lengths` there and zero elsewhere.
    """
    of_rows = losses.per_example(loss)

    def values(model: Any, batch: Any) -> Tensor:
        rows, held, numbers, lengths = batch
        own = of_rows(model.model, rows)
        linear = functional.embedding(numbers, model.table.weight)[:, 0] * lengths
        return torch.where(held, linear.to(own.dtype), own)

    return values


class _Data:
    """The user's data as whole tensors, with the persons that the rows belong to."""

    def __init__(self, plan: Plan, data: Any, persons: Any, collate: Callable[[list[Any]], Any] | None) -> None:
        self.rows_of_unit = 1
        if isinstance(plan.unit, Person):
            if persons is None:
                data, persons = without_column(data, plan.unit)
            self.rows_of_unit = plan.unit.max_rows
        self.records = Records(data, collate)
        self.size = self.records.size
        if self.size == 0:
            raise _check.fail("data", "hold an example", 0, "canaries are put beside examples")
        # Ids are compared as Python values, as a training compares them.
        self.persons = None if persons is None else persons.tolist() if hasattr(persons, "tolist") else [*persons]

    def with_copies(self, rows: int) -> Any:
        """`rows` copies of the first example, and then the data."""
        return self.records.fetch(np.concatenate([np.zeros(rows, dtype=np.int64), np.arange(self.size)]))

    def owners(self, units: int) -> list[Any] | None:
        """A person for the rows of each of `units` canaries, and then the persons of the data."""
        if self.persons is None:
            return None
        strangers = [object() for _ in range(units)]  # equal to no id
        return [person for person in strangers for _ in range(self.rows_of_unit)] + self.persons


def gradient_scores(
    plan: Plan,
    model: nn.Module,
    loss: Any,
    data: Any,
    included: Booleans,
    *,
    optimizer: Optimizer,
    persons: Any = None,
    collate: Callable[[list[Any]], Any] | None = None,
    opposed: bool = False,
    compile: bool | None = False,
) -> Floats:
    """Train a copy of `model`, and say of each canary how much likelier the noisy sums are if it was included.

    Args:
        plan: the plan; its `examples` should count the canaries.
        model: the model; a copy of it is trained.
        loss: as for `train`.
        data: as for `train`; public or generated.
        included: for each canary whether it is in the data. Under replace-one, a canary that is not is replaced by one
            with the opposite gradient.
        optimizer: the optimizer of `model`; a copy of it is used.
        persons: as for `train`.
        collate: as for `train`.
        opposed: put an example with the opposite gradient beside each canary, and a row without a gradient in the place
            of one that is not included. Code that clips sums of rows that lie side by side moves twice as far there.
        compile: as for `train`.
    """
    _check_layers(plan)
    if opposed and isinstance(plan.unit, Person):
        raise _check.fail("opposed", "be False where persons are protected", opposed, "it is about single rows")
    source = _Data(plan, data, persons, collate)
    canaries, replaced = len(included), plan.relation is REPLACE_ONE
    lengths = np.where(included, _LONG, -_LONG if replaced else 0.0) * plan.clipping.norm
    numbers = np.arange(canaries)
    if opposed:
        lengths = np.stack([np.full(canaries, -plan.clipping.norm), lengths], axis=1).ravel()
        numbers = np.repeat(numbers, 2)
    elif not replaced:
        numbers, lengths = numbers[included], lengths[included]
    units = len(numbers)
    numbers, lengths = np.repeat(numbers, source.rows_of_unit), np.repeat(lengths, source.rows_of_unit)
    rows = source.with_copies(len(numbers))
    held = torch.arange(len(numbers) + source.size) < len(numbers)
    mixed = (
        rows,
        held,
        torch.from_numpy(np.append(numbers, np.zeros(source.size, dtype=np.int64))),
        torch.from_numpy(np.append(lengths, np.zeros(source.size))).float(),
    )
    own, stepped = copy.deepcopy((model, optimizer))  # in one call, so that they stay linked
    watched = _WithTable(own, canaries)
    step = plan.step(watched, _table_loss(loss), compile=compile)
    evidence = _Evidence(plan, watched, base=-1.0 if opposed else 0.0)
    scores = np.zeros(canaries)
    for batch in plan.batches(mixed, persons=source.owners(units)):
        norm = step.clip_norm
        step.fill(batch)
        scores += evidence.of(_numbers(watched.table.weight.grad)[:, 0], norm)
        stepped.step()
    return scores


class _Evidence:
    """ln of how much likelier a step's noisy number is if a canary was included: the best score of Poisson batches."""

    def __init__(self, plan: Plan, watched: _WithTable, base: float) -> None:
        self._plan = plan
        self._rate = plan.sampler.batch_size / plan.sampler.examples
        self._base = base * self._rate  # what is there without the canary, in clip norms
        names = [name for name, _ in watched.named_parameters()]
        groups = plan.clipping.groups(names)
        self._groups = max(groups) + 1
        group = groups[names.index("table.weight")]
        self._share = plan.clipping.shares(self._groups)[group] if isinstance(plan.clipping, PerLayer) else 1.0

    def of(self, means: Floats, norm: float) -> Floats:
        """From the noisy means of a step with this clip norm."""
        scale, shift = self._plan.noise_scale(norm, self._groups), norm * self._share
        sums = means * self._plan.sampler.batch_size - self._base * shift
        gain = self._drawn(sums, shift, scale)
        return gain - self._drawn(sums, -shift, scale) if self._plan.relation is REPLACE_ONE else gain

    def _drawn(self, sums: Floats, shift: float, scale: float) -> Floats:
        """ln of the likelihood ratio of being drawn with the plan's rate and moving the sum by `shift`."""
        if isinstance(self._plan.noise, GaussianNoise):
            ratio = (sums * shift - shift**2 / 2) / scale**2
        else:
            ratio = (np.abs(sums) - np.abs(sums - shift)) / scale
        with np.errstate(divide="ignore"):  # at rate 1
            return np.asarray(np.logaddexp(np.log1p(-self._rate), np.log(self._rate) + ratio))


def _check_layers(plan: Plan) -> None:
    if isinstance(plan.clipping, PerLayer) and plan.clipping.layers is not None:
        remedy = "canary gradients add a layer of their own; leave out its shares, or use canary examples"
        raise _check.fail("clipping.layers", "be None", dict(plan.clipping.layers), remedy)


def example_scores(
    plan: Plan,
    model: nn.Module,
    loss: Any,
    data: Any,
    canaries: Any,
    included: Booleans,
    *,
    optimizer: Optimizer,
    persons: Any = None,
    collate: Callable[[list[Any]], Any] | None = None,
    compile: bool | None = False,
) -> Floats:
    """Train a copy of `model`, and say of each canary by how much its loss fell.

    The arguments are those of `gradient_scores`; `canaries` holds examples of the same kind as `data`. Under
    replace-one, a canary that is not included is replaced by a copy of the first example.
    """
    source, extra = _Data(plan, data, persons, collate), Records(canaries, collate)
    if extra.size != len(included):
        raise _check.fail("included", f"be {extra.size} bools", len(included), "one for each canary")
    chosen = np.arange(extra.size)[included]
    missing = int(np.count_nonzero(~included)) if plan.relation is REPLACE_ONE else 0
    strangers = extra.fetch(np.repeat(chosen, source.rows_of_unit)) if len(chosen) else None
    rows = source.with_copies(missing * source.rows_of_unit)
    if strangers is not None:
        rows = pytree.tree_map(lambda new, old: torch.cat([new.to(old.dtype), old]), strangers, rows)
    own, stepped = copy.deepcopy((model, optimizer))
    everyone = extra.fetch(np.arange(extra.size), next(own.parameters()).device)
    of_rows = losses.per_example(loss)

    def values() -> Floats:
        modes = [(module, module.training) for module in own.modules()]
        own.eval()
        with torch.no_grad():
            measured = _numbers(of_rows(own, everyone))
        for module, mode in modes:
            module.training = mode
        return measured

    before = values()
    step = plan.step(own, loss, stepped, compile=compile)
    for batch in plan.batches(rows, persons=source.owners(len(chosen) + missing)):
        step(batch)
    return before - values()


def noisy_sums(
    plan: Plan,
    model: nn.Module,
    loss: Any,
    pair: tuple[Any, Any],
    *,
    persons: tuple[Any, Any] = (None, None),
    collate: Callable[[list[Any]], Any] | None = None,
    compile: bool | None = False,
    autocast: torch.dtype | None = None,
) -> Callable[[int, int], Floats]:
    """The noisy sums of one step of a plan, repeated at the same parameters, with everybody in the batch.

    Gives a function of a side of `pair` (0 or 1) and a number of runs. Its result has a row for each run: the
    coordinates in which the two sides differ most, and the sum of all others along their difference.
    """
    rows = max(_Data(plan, data, ids, collate).size for data, ids in zip(pair, persons, strict=True))
    sampler = PoissonSampler(rows, rows)  # everybody: the rate is 1
    own = copy.deepcopy(model)
    trained = [parameter for parameter in own.parameters() if parameter.requires_grad]

    def steps(side: int, runs: int, *, exact: bool = False) -> tuple[Step, Any]:
        changes: dict[str, Any] = {"sampler": sampler, "steps": runs}
        if exact:
            changes["noise"] = type(plan.noise)(_NO_NOISE)
        whole = replace(plan, **changes)
        step = whole.step(own, loss, compile=compile if not exact else False, autocast=autocast)
        return step, whole.batches(pair[side], persons=persons[side], collate=collate)

    def filled(step: Step, batch: Any) -> Floats:
        step.fill(batch)
        # An adaptive norm would move from run to run.
        step.restore({**step.state(), "clip_norm": float(plan.clipping.norm)}, step.position)
        return np.concatenate([_numbers(parameter.grad).ravel() for parameter in trained]) * sampler.batch_size

    def exact(side: int) -> Floats:
        step, batches = steps(side, 1, exact=True)
        return filled(step, next(iter(batches)))

    difference = exact(1) - exact(0)
    largest = np.argsort(-np.abs(difference), kind="stable")[:_COORDINATES]
    rest = difference.copy()
    rest[largest] = 0.0

    def draw(side: int, runs: int) -> Floats:
        step, batches = steps(side, runs)
        results = []
        for batch in batches:
            total = filled(step, batch)
            results.append(np.append(total[largest], total @ rest) if np.any(rest) else total[largest])
        return np.array(results)

    return draw


def _numbers(tensor: Tensor | None) -> Floats:
    assert tensor is not None
    return tensor.detach().double().cpu().numpy()
