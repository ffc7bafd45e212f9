"""Noise that is correlated over the steps of a training, so that much of it cancels in the sum of all gradients.

A training releases x + C⁻¹z: x are the clipped sums, z is fresh Gaussian noise, and the lower triangular *encoder* C is
public (DP-FTRL: Kairouz et al. 2021, arXiv 2103.00039; factorizations: Denisov et al. 2022, arXiv 2202.08312). The
price is that of Cx + z, in which one unit takes part in few steps that are far apart. The noise of a step is computed
from fresh noise and from what is kept of the steps before: a few tensors as large as the model. They are secret:
whoever has them could remove noise.

A step that was allowed and is lost in a crash is *skipped*: the noise that followed it is forgotten. Then no row of
Cx + z is released twice, and none uses more of the data than before (docs/proofs/correlated-noise.md, section 5).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from discreet import _check, events
from discreet.accounting import correlation as coefficients_of
from discreet.events import Event
from discreet.mechanisms.continual import series

#: What is kept between two steps: tensors by a number, which says the age of noise, a buffer or a level.
Kept = dict[int, Tensor]


@dataclass(frozen=True)
class NoiseCorrelation(ABC):
    """How the noise of the steps of a training depends on each other. Abstract."""

    @abstractmethod
    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        """The event of `steps` steps, of which one unit is in at most `participations`, at least `separation` apart."""

    @abstractmethod
    def advance(self, kept: Kept, fresh: Tensor, step: int) -> tuple[Tensor, Kept]:
        """The noise of step number `step`, from 0, and what is kept after it. Changes no argument."""

    @abstractmethod
    def skip(self, kept: Kept, step: int) -> Kept:
        """What is kept after a step that was lost, or that released nothing."""

    @abstractmethod
    def in_words(self) -> str:
        """How noise is correlated, as the end of a sentence about it."""


@dataclass(frozen=True)
class BandedCorrelation(NoiseCorrelation):
    """An encoder with few diagonals: the noise of a step is fresh noise minus shares of the noise of the steps before.

    It keeps as many tensors as there are diagonals, less one. Event: `events.ToeplitzNoise`.

    Attributes:
        coefficients: the diagonals of the encoder, from the main one, which is 1.

    >>> BandedCorrelation((1.0, 0.5)).event(2.0, steps=100, participations=4, separation=25)
    ToeplitzNoise(noise_multiplier=2.0, coefficients=(1.0, 0.5), steps=100, participations=4, separation=25)
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        _check.settle_each(self, "coefficients", _check.real, "they are the diagonals of the encoder")
        if not self.coefficients or self.coefficients[0] != 1:
            remedy = "they are the diagonals of the encoder, and the main one is 1"
            raise _check.fail("coefficients", "start with 1", self.coefficients[:1], remedy)

    @property
    def diagonals(self) -> tuple[float, ...]:
        """The diagonals as floats."""
        return tuple(float(value) for value in self.coefficients)

    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        return events.ToeplitzNoise(noise_multiplier, self.coefficients[:steps], steps, participations, separation)

    def advance(self, kept: Kept, fresh: Tensor, step: int) -> tuple[Tensor, Kept]:
        noise = fresh.clone()
        for age, earlier in kept.items():
            noise.add_(earlier, alpha=-self.diagonals[age])
        return noise, {1: noise, **self.skip(kept, step)} if len(self.diagonals) > 1 else {}

    def skip(self, kept: Kept, step: int) -> Kept:
        return {age + 1: earlier for age, earlier in kept.items() if age + 1 < len(self.diagonals)}

    def in_words(self) -> str:
        if len(self.diagonals) == 1:
            return "independent in each step"
        return f"minus shares of the noise of the last {len(self.diagonals) - 1} steps"


@dataclass(frozen=True)
class SquareRootCorrelation(BandedCorrelation):
    """The square root of the prefix sums, cut to some diagonals (Kalinin & Lampert 2024, arXiv 2405.13763).

    It is best with about as many diagonals as an epoch has steps, if that much memory is there. Event:
    `events.SquareRootNoise`.

    Attributes:
        bands: the number of diagonals.

    >>> SquareRootCorrelation(bands=3).diagonals
    (1.0, 0.5, 0.375)
    """

    coefficients: tuple[float, ...] = ()
    bands: int = 8

    def __post_init__(self) -> None:
        _check.settle_integers(self, "bands", remedy="it is the number of diagonals that are kept", at_most=1 << 12)
        if self.coefficients:
            raise _check.fail("coefficients", "be left out", self.coefficients, "they follow from bands")

    @property
    def diagonals(self) -> tuple[float, ...]:
        return tuple(float(value) for value in coefficients_of.square_root_coefficients(self.bands))

    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        return events.SquareRootNoise(noise_multiplier, min(self.bands, steps), steps, participations, separation)


@dataclass(frozen=True)
class BufferedCorrelation(NoiseCorrelation):
    """A buffered linear Toeplitz encoder: a few buffers that each forget at their own rate (arXiv 2404.16706).

    It reaches over the whole training with few tensors, one for each buffer. Event: `events.BufferedNoise`.

    Attributes:
        scales: the share of each buffer that is subtracted.
        decays: what each buffer is multiplied by in a step.

    >>> len(BufferedCorrelation.for_steps(1000, buffers=3).scales)
    3
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]

    def __post_init__(self) -> None:
        _check.settle_each(self, "scales", _check.positive, "each buffer adds its scale times its content")
        _check.settle_each(self, "decays", _check.nonnegative, "each step multiplies a buffer by its decay")
        self.event(1.0, 1, 1, 1)  # refuses decays ≥ 1 and lists of different lengths

    @classmethod
    def for_steps(cls, steps: int, *, buffers: int = 4) -> BufferedCorrelation:
        """Buffers that imitate the square root of the prefix sums over the given number of steps."""
        horizon = _check.integer("steps", steps, "it is the number of steps that the noise reaches over")
        count = _check.integer("buffers", buffers, "it is the number of buffers", at_most=32)
        return cls(*series.fitted_buffers(count, horizon))

    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        return events.BufferedNoise(noise_multiplier, self.scales, self.decays, steps, participations, separation)

    def advance(self, kept: Kept, fresh: Tensor, step: int) -> tuple[Tensor, Kept]:
        noise = fresh.clone()
        for buffer, content in kept.items():
            noise.add_(content, alpha=-float(self.scales[buffer]))
        after = self.skip(kept, step)
        return noise, {buffer: noise.clone() if not after else after[buffer].add_(noise) for buffer in self._buffers}

    def skip(self, kept: Kept, step: int) -> Kept:
        return {buffer: content * float(self.decays[buffer]) for buffer, content in kept.items()}

    @property
    def _buffers(self) -> range:
        return range(len(self.scales))

    def in_words(self) -> str:
        return f"minus what {len(self.scales)} buffers remember of the noise before"


@dataclass(frozen=True)
class CancelingCorrelation(NoiseCorrelation):
    """Each step takes back a share λ of the fresh noise of the step before (arXiv 2601.22334). It keeps one tensor.

    The encoder has the coefficients λʲ. Event: `events.BufferedNoise` with one buffer of scale and decay λ.

    Attributes:
        share: λ in (0, 1).
    """

    share: float

    def __post_init__(self) -> None:
        remedy = "it is the share of the last noise that is taken back, such as 0.9"
        _check.settle(self, "share", _check.positive, remedy)
        if not self.share < 1:
            raise _check.fail("share", "be < 1", self.share, remedy)

    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        return events.BufferedNoise(noise_multiplier, (self.share,), (self.share,), steps, participations, separation)

    def advance(self, kept: Kept, fresh: Tensor, step: int) -> tuple[Tensor, Kept]:
        noise = fresh.clone()
        for last in kept.values():
            noise.add_(last, alpha=-float(self.share))
        return noise, {0: fresh}  # what a buffer of decay λ holds: λ·last + noise

    def skip(self, kept: Kept, step: int) -> Kept:
        return {number: last * float(self.share) for number, last in kept.items()}

    def in_words(self) -> str:
        return f"minus {float(self.share):g} of the fresh noise of the step before"


@dataclass(frozen=True)
class TreeCorrelation(NoiseCorrelation):
    """Noise on the nodes of a binary tree over the steps (Dwork et al. 2010; DP-FTRL: arXiv 2103.00039).

    The sum of the first t gradients has the noise of at most log₂ t + 1 nodes. Its error is larger than that of the
    other correlations; it is here for comparison. Event: `events.TreeNoise`. It keeps log₂ of the steps tensors.
    """

    def event(self, noise_multiplier: float, steps: int, participations: int, separation: int) -> Event:
        return events.TreeNoise(noise_multiplier, 2, steps, participations, separation)

    def advance(self, kept: Kept, fresh: Tensor, step: int) -> tuple[Tensor, Kept]:
        """Step t completes one node of the sum's binary expansion, which replaces all nodes below it."""
        level = _trailing_zeros(step + 1)
        noise = fresh.clone()
        for lower in range(level):
            if lower in kept:
                noise.sub_(kept[lower])
        return noise, {**self.skip(kept, step), level: fresh}

    def skip(self, kept: Kept, step: int) -> Kept:
        level = _trailing_zeros(step + 1)
        return {at: node for at, node in kept.items() if at > level}

    def in_words(self) -> str:
        return "that of the nodes of a binary tree over the steps"


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


#: What a plan has that draws its batches in a fixed order, and nothing else was asked for.
INDEPENDENT = BandedCorrelation((1.0,))
# A banded encoder keeps this many tensors at most, unless it is given.
_USUAL_BANDS = 16

#: By the names that a plan accepts: correlations for a number of steps and a least separation of one unit's steps.
CORRELATIONS: dict[str, Callable[[int, int], NoiseCorrelation]] = {
    "independent": lambda steps, separation: INDEPENDENT,
    "banded": lambda steps, separation: SquareRootCorrelation(bands=min(steps, separation, _USUAL_BANDS)),
    "buffered": lambda steps, separation: BufferedCorrelation.for_steps(steps),
    "canceling": lambda steps, separation: CancelingCorrelation(0.5),
    "tree": lambda steps, separation: TreeCorrelation(),
}


class Pending:
    """Noise that is still to be taken back, as one training goes on. Secret.

    Attributes:
        at: the number of steps that it is about.
    """

    def __init__(self, correlation: NoiseCorrelation, kept: Kept | None = None, at: int = 0) -> None:
        self._correlation, self._kept, self.at = correlation, dict(kept or {}), at

    def noise(self, step: int, fresh: Tensor) -> Tensor:
        """The noise of a step, of which fresh noise is given. Steps before it that drew no noise are skipped."""
        assert step >= self.at, "noise is drawn once for each step"
        while self.at < step:
            self._kept = self._correlation.skip(self._kept, self.at)
            self.at += 1
        noise, self._kept = self._correlation.advance(self._kept, fresh, step)
        self.at = step + 1
        return noise

    def state(self) -> Kept:
        """A copy of what is kept, on the CPU. It is as secret as the data."""
        return {number: tensor.detach().cpu().clone() for number, tensor in self._kept.items()}

    def restore(self, kept: Kept, at: int, device: torch.device) -> None:
        """Continue with what was kept after step number `at`."""
        self._kept = {number: tensor.to(device) for number, tensor in kept.items()}
        self.at = at

    def __reduce__(self) -> str:
        raise TypeError("pending noise cannot be copied or pickled: it is written to its own secret file only")
