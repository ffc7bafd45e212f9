"""The result of a training: its guarantee, its history, and how to save or resume it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet._files import replace_file
from discreet.errors import MissingExtra
from discreet.guarantees import Guarantee
from discreet.learning.plan import Plan
from discreet.learning.sharded import whole
from discreet.ledger.receipt import Receipt

if TYPE_CHECKING:
    from discreet.learning.loop import TrainingLoop


@dataclass
class History:
    """What was observed, step by step: **not private**, except for ε and the clip norm.

    The loss and the share of clipped examples are exact, so they can reveal who is in the data. They are for people who
    may see the data, are stored apart from the model, and do not belong in a report or a paper.

    Attributes:
        step: the number of the step in the plan.
        loss: the mean loss of that step's batch; NaN if the batch was empty.
        clipped: the share of clipped examples in the batch.
        clip_norm: the clip norm.
        epsilon: pairs (steps, ε of that many steps), for some of the steps.
        evaluations: pairs (steps, numbers by name) of `train(…, evaluate=…)`.
    """

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    clip_norm: list[float] = field(default_factory=list)
    epsilon: list[tuple[int, float]] = field(default_factory=list)
    evaluations: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"History({len(self)} steps, not private)"

    def write(self, path: Path | str) -> None:
        """Save the history as JSON, readable only by its owner. A crash leaves the old file or the new one."""
        content = json.dumps({"private": False, **asdict(self)}).encode()
        replace_file(Path(path), lambda file: file.write(content))

    @classmethod
    def read(cls, path: Path | str) -> History:
        """Read a history that `write` saved."""
        content = json.loads(Path(path).read_text())
        content.pop("private")
        content["epsilon"] = [(int(steps), float(epsilon)) for steps, epsilon in content["epsilon"]]
        evaluations = content.get("evaluations", [])  # files of earlier versions have none
        content["evaluations"] = [(int(steps), dict(numbers)) for steps, numbers in evaluations]
        return cls(**content)


class Run:
    """A training that has finished, or that was stopped and can be resumed. Made by `train`.

    Attributes:
        plan: the plan.
        model: the trained model; it is private, and so is everything computed from it alone.
        history: exact observations: **not private**.
        mechanism: the training as a function of the data, for an audit.
    """

    def __init__(self, loop: TrainingLoop, mechanism: Mechanism) -> None:
        self._loop = loop
        self.plan: Plan = loop.plan
        self.model: nn.Module = loop.model
        self.history: History = loop.history
        self.mechanism = mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the steps that count as taken."""
        if self._loop.allowed >= self.plan.steps:
            return self.plan.guarantee
        return self.plan.guarantee_after(self._loop.allowed)

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None if no account was charged."""
        return self._loop.receipt

    @property
    def steps(self) -> int:
        """The number of updates that the model received."""
        return self._loop.step.updates

    @property
    def finished(self) -> bool:
        """Whether all steps of the plan are taken."""
        return self._loop.allowed >= self.plan.steps and self._loop.step.position >= self.plan.steps

    def resume(self) -> Run:
        """Continue a stopped training. In a new process, call `train` with resume=True instead."""
        self._loop.run()
        return self

    def close(self) -> Guarantee:
        """End a stopped training: return the steps that never started to the account."""
        self._loop.close()
        return self.guarantee

    def save(self, path: Path | str, *, history: bool = False) -> None:
        """Save the model's state with its guarantee as text. `torch.load(path)["model"]` is the state.

        Args:
            path: the file to write.
            history: also save the history, as `<path>.history.json`. It is not private.

        Guarantee:
            The file holds only outputs of the private steps and public facts, so it may be shared.
        """
        receipt = self.receipt
        content = {
            "model": whole(self.model.state_dict()),
            "guarantee": str(self.guarantee),
            "plan": self.plan.explain(),
            "event": repr(self.plan.event),
            "steps": self.steps,
            "receipt": None if receipt is None else receipt.to_json(),
        }
        torch.save(content, path)
        if history:
            self.history.write(f"{path}.history.json")

    def plot(self) -> Any:
        """Loss, share of clipped examples and ε over the steps, as a matplotlib figure. **Not private.**"""
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError as error:
            raise MissingExtra("plots need matplotlib: pip install matplotlib") from error
        figure = Figure(figsize=(9, 2.8), layout="constrained")
        axes = figure.subplots(1, 3)
        history = self.history
        axes[0].plot(history.step, history.loss, lw=0.8)
        axes[1].plot(history.step, [100 * share for share in history.clipped], lw=0.8)
        axes[2].plot([steps for steps, _ in history.epsilon], [epsilon for _, epsilon in history.epsilon])
        for axis, title in zip(axes, ("loss of the batch", "clipped examples, %", "ε so far"), strict=True):
            axis.set(title=title, xlabel="step")
            axis.grid(alpha=0.3)
        figure.suptitle("Exact losses and shares: not for release", fontsize=8)
        return figure

    def __repr__(self) -> str:
        return f"Run({self.steps} of {self.plan.steps} steps, {self.guarantee})"


class Mechanism:
    """A training as a function of its data, for an audit to run many times on its own data.

    Each call starts from the same initial model with fresh noise, keeps the initial learning rate, charges nothing, and
    returns the trained parameters by name. Call it only on data that may be released: calls on protected data are
    releases that no ledger records.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Callable[..., Any],
        optimizer: Optimizer,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        self.plan = plan
        self._collate = collate
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._initial = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        self._settings = copy.deepcopy(optimizer.state_dict())

    def __call__(self, data: Any, *, persons: Any = None, compile: bool = False) -> dict[str, Tensor]:
        """Train on `data` from the start, and return the parameters by name."""
        model, optimizer = copy.deepcopy((self._model, self._optimizer))  # in one call, so that they stay linked
        model.load_state_dict(self._initial)
        optimizer.load_state_dict(copy.deepcopy(self._settings))
        for parameter in model.parameters():
            parameter.grad = None
        step = self.plan.step(model, self._loss, optimizer, compile=compile)
        for batch in self.plan.batches(data, persons=persons, collate=self._collate):
            step(batch)
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
