"""Calls a function of the model during a training, and records the numbers that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.learning.run import History


class PeriodicEvaluation:
    """Runs `evaluate(model)` every `every` steps, in evaluation mode and without gradients.

    Guarantee:
        The model is restored to the modes it had, and a function that writes to a parameter is refused: what it wrote
        would be trained further without having been clipped or noised. The numbers are as private as the data that the
        function uses.
    """

    def __init__(self, evaluate: Any, model: nn.Module, steps: int, every: int | None) -> None:
        if not callable(evaluate):
            remedy = "give a function from the model to a number, or to numbers by name"
            raise _check.fail("evaluate", "be callable", type(evaluate).__name__, remedy)
        if every is not None:
            _check.integer("evaluate_every", every, "it is the number of steps between two evaluations")
        self._evaluate, self._model, self._steps = evaluate, model, steps
        self._every = every or max(1, steps // 10)

    def due(self, position: int) -> bool:
        """Whether to evaluate after this many steps."""
        return position % self._every == 0 or position == self._steps

    def run(self, position: int, history: History) -> None:
        """Evaluate the model as it is after `position` steps."""
        modules = [(module, module.training) for module in self._model.modules()]
        held = [*self._model.parameters(), *self._model.buffers()]
        versions = [tensor._version for tensor in held]
        self._model.eval()
        try:
            with torch.no_grad():
                result = self._evaluate(self._model)
        finally:
            for module, mode in modules:
                module.training = mode
        if [tensor._version for tensor in held] != versions:
            raise InvalidArgument(
                "evaluate must not change the model, but it wrote to a parameter or a buffer: evaluate a copy"
            )
        history.evaluations.append((position, _numbers(result)))


def _numbers(result: Any) -> dict[str, float]:
    named = result if isinstance(result, Mapping) else {"value": result}
    try:
        return {str(name): float(value) for name, value in named.items()}
    except (TypeError, ValueError):
        remedy = "for example accuracy(model), or {'loss': …, 'accuracy': …}"
        raise _check.fail("evaluate", "return a number or numbers by name", type(result).__name__, remedy) from None
