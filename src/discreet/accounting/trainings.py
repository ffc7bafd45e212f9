"""Which training to run: the noise that a budget asks for, over batch sizes and numbers of epochs.

All cells of the grid have the same guarantee. They differ in the noise of a step, σ/B in units of the clip norm, and in
the number of steps T that average it. Together they give the noise of the run's mean gradient, σ/(B√T).
The more examples pass through the model, the lower it can be, so the best cell is asked for within a limit of compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from discreet import _check
from discreet.accounting._calibrate import calibrate
from discreet.errors import InvalidArgument
from discreet.events import Event, Gaussian, PoissonSampled, Repeated
from discreet.guarantees import ApproxDP

#: Two cells whose noise differs by less than this share are as good as each other; the cheaper one is better.
_ALIKE = 0.01
#: Relative precision of a cell's noise: far below what matters for the choice. The plan itself is calibrated again.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class AffordableTraining:
    """One training by DP-SGD on Poisson batches that uses up the budget.

    Attributes:
        batch_size: the expected number of examples in a batch, B.
        epochs: how often each example is used on average.
        steps: the number of steps, T.
        gradients: the expected number of per-example gradients: what the training costs to compute.
        noise_multiplier: σ, the noise of a step over the clip norm.
        step_noise: σ/B, the noise on the mean gradient of a step, over the clip norm.
        run_noise: σ/(B√T), the noise on the mean gradient of the whole run, over the clip norm.
    """

    batch_size: int
    epochs: float
    steps: int
    gradients: int
    noise_multiplier: float

    @property
    def step_noise(self) -> float:
        return self.noise_multiplier / self.batch_size

    @property
    def run_noise(self) -> float:
        return self.step_noise / sqrt(self.steps)


@dataclass(frozen=True)
class Trainings:
    """A grid of trainings with the same guarantee, and the best of those within the limit; None if none is.

    Attributes:
        budget: what each of them costs.
        examples: the public number of examples.
        cells: the trainings, by batch size and then by epochs.
        limit: the largest number of per-example gradients, or None.
        best: the one with the least noise over the run within the limit, or a cheaper one within 1% of it.
    """

    budget: ApproxDP
    examples: int
    cells: tuple[AffordableTraining, ...]
    limit: int | None
    best: AffordableTraining | None


def trainings(
    budget: ApproxDP,
    *,
    examples: int,
    batch_sizes: Sequence[int],
    epochs: Sequence[float],
    gradients: int | None = None,
) -> Trainings:
    """The least noise of each batch size and number of epochs that costs at most `budget`, under add/remove.

    Args:
        budget: the (ε, δ) of the whole training.
        examples: the public number of examples.
        batch_sizes: the expected batch sizes to try; those above `examples` are refused.
        epochs: the numbers of passes over the data to try.
        gradients: the limit of compute: how many per-example gradients may be computed.

    >>> found = trainings(ApproxDP(3.0, 1e-5), examples=60_000, batch_sizes=[256, 2048], epochs=[5, 20])
    >>> found.best.batch_size, found.best.epochs
    (2048, 20.0)
    """
    _check.integer("examples", examples, "it is the public number of examples")
    if gradients is not None:
        _check.integer("gradients", gradients, "it limits how many per-example gradients are computed")
    if not batch_sizes or not epochs:
        raise InvalidArgument("give at least one batch size and one number of epochs, got none: they span the grid")
    cells = [
        _cell(budget, examples, size, passes) for size in sorted(set(batch_sizes)) for passes in sorted(set(epochs))
    ]
    within = [cell for cell in cells if gradients is None or cell.gradients <= gradients]
    best = None
    if within:
        least = min(cell.run_noise for cell in within)
        good = [cell for cell in within if cell.run_noise <= (1 + _ALIKE) * least]
        best = min(good, key=lambda cell: (cell.gradients, cell.run_noise))
    return Trainings(budget, examples, tuple(cells), gradients, best)


def _cell(budget: ApproxDP, examples: int, batch_size: int, epochs: float) -> AffordableTraining:
    size = _check.integer("batch_sizes", batch_size, "a batch is a subset of the examples", at_most=examples)
    passes = float(_check.positive("epochs", epochs, "it is how often each example is used on average"))
    steps = max(1, round(passes * examples / size))  # as discreet.learning.Plan counts

    def run(noise: float) -> Event:
        return Repeated(PoissonSampled(size / examples, Gaussian(noise)), steps)

    return AffordableTraining(size, passes, steps, size * steps, calibrate(run, budget, tolerance=_TOLERANCE))
