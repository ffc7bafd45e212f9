"""What a training returns: what it promises, what it saw, and how to keep it or go on."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet.errors import MissingExtra
from discreet.guarantees import Guarantee
from discreet.learning.plan import Plan
from discreet.ledger.receipt import Receipt

if TYPE_CHECKING:
    from discreet.learning.loop import TrainingLoop


@dataclass
class History:
    """What the screen showed, step by step: **not private**, except for ε and the clip norm.

    The loss and the share of clipped examples are exact, so they can give away who was in the data. They are for people
    who may see the data, are kept apart from the model, and belong in no report or paper.

    Attributes:
        step: the number of the plan's step.
        loss: the mean loss of that step's batch; NaN where it was empty.
        clipped: the share of the batch that was clipped.
        clip_norm: the clip norm.
        epsilon: pairs (steps, ε of that many steps), at some of the steps.
    """

    step: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    clipped: list[float] = field(default_factory=list)
    clip_norm: list[float] = field(default_factory=list)
    epsilon: list[tuple[int, float]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.step)

    def __repr__(self) -> str:
        return f"History({len(self)} steps, not private)"

    def write(self, path: Path | str) -> None:
        """Save it as JSON, readable by its owner alone."""
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(target, "w") as file:
            json.dump({"private": False, **asdict(self)}, file)

    @classmethod
    def read(cls, path: Path | str) -> History:
        """What `write` saved."""
        content = json.loads(Path(path).read_text())
        content.pop("private")
        content["epsilon"] = [(int(steps), float(epsilon)) for steps, epsilon in content["epsilon"]]
        return cls(**content)


class Run:
    """A training that was run, or that was stopped and can go on. Made by `train`.

    Attributes:
        plan: what was to be run.
        model: the trained model; it and all that is computed from it alone is private.
        history: what was seen on the way: **not private**.
        mechanism: the training as a function of the data, for an audit.
    """

    def __init__(self, training: TrainingLoop, mechanism: Mechanism) -> None:
        self._training = training
        self.plan: Plan = training.plan
        self.model: nn.Module = training.model
        self.history: History = training.history
        self.mechanism = mechanism

    @property
    def guarantee(self) -> Guarantee:
        """What the training promises, for the steps that count as taken."""
        if self._training.allowed >= self.plan.steps:
            return self.plan.guarantee
        return self.plan.guarantee_after(self._training.allowed)

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None where no account was charged."""
        return self._training.receipt

    @property
    def steps(self) -> int:
        """How many updates the model got."""
        return self._training.step.updates

    @property
    def finished(self) -> bool:
        """Whether no step of the plan is left."""
        return self._training.allowed >= self.plan.steps and self._training.step.position >= self.plan.steps

    def resume(self) -> Run:
        """Go on with a training that was stopped; after the end of its process, call `train` with resume=True."""
        self._training.go_on()
        return self

    def close(self) -> Guarantee:
        """End a training that was stopped: hand the steps that never started back to the ledger."""
        self._training.close()
        return self.guarantee

    def save(self, path: Path | str, *, history: bool = False) -> None:
        """Save the model's state and, as text, what was promised. `torch.load(path)["model"]` is the state.

        Args:
            path: where to.
            history: also save what was seen on the way, beside it as `<path>.history.json`. It is not private.

        Guarantee:
            The file holds outputs of the private steps and public facts only, so it may be given away.
        """
        receipt = self.receipt
        content = {
            "model": self.model.state_dict(),
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
        seen = self.history
        axes[0].plot(seen.step, seen.loss, lw=0.8)
        axes[1].plot(seen.step, [100 * share for share in seen.clipped], lw=0.8)
        axes[2].plot([steps for steps, _ in seen.epsilon], [epsilon for _, epsilon in seen.epsilon])
        for axis, title in zip(axes, ("loss of the batch", "clipped examples, %", "ε so far"), strict=True):
            axis.set(title=title, xlabel="step")
            axis.grid(alpha=0.3)
        figure.suptitle("Exact losses and shares: not for release", fontsize=8)
        return figure

    def __repr__(self) -> str:
        return f"Run({self.steps} of {self.plan.steps} steps, {self.guarantee})"


class Mechanism:
    """A training as a function of its data: what an audit runs again and again on data of its own.

    Each call begins with the same initial model and fresh noise, keeps the learning rate as it was at the beginning,
    charges nothing, and returns the trained parameters by name. Call it on data that may be released: calls on
    protected data are releases that no ledger knows of.
    """

    def __init__(self, plan: Plan, model: nn.Module, loss: Callable[..., Any], optimizer: Optimizer) -> None:
        self.plan = plan
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._initial = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
        self._settings = copy.deepcopy(optimizer.state_dict())

    def __call__(self, data: Any, *, persons: Any = None, compile: bool = False) -> dict[str, Tensor]:
        """Train on `data` from the beginning; the parameters by name."""
        model, optimizer = copy.deepcopy((self._model, self._optimizer))  # together, so that they stay linked
        model.load_state_dict(self._initial)
        optimizer.load_state_dict(copy.deepcopy(self._settings))
        for parameter in model.parameters():
            parameter.grad = None
        step = self.plan.step(model, self._loss, optimizer, compile=compile)
        for batch in self.plan.batches(data, persons=persons):
            step(batch)
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
