"""Which noise to add to a vector: every kind at the same guarantee by one accountant, then at the same noise.

A comparison at equal ε means little when each side is priced by a different method. Here all kinds do one task: make
`steps` releases of a vector with `dimension` coordinates, in which one unit changes the L1 norm by at most Δ₁ and the
L2 norm by at most Δ₂, such that all of them together are (ε, δ)-DP by the tight accountant. Formulas that people use
are listed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from scipy import special

from discreet import _check
from discreet import events as ev
from discreet.accounting import tight
from discreet.accounting._calibrate import calibrate
from discreet.accounting.closed_forms import classical_noise_multiplier, l2_laplace_noise_multiplier, least
from discreet.accounting.forms.conversions import zcdp_epsilon
from discreet.accounting.interval import Interval
from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.guarantees import ZCDP, ApproxDP
from discreet.numeric.rounding import up

NoiseName = Literal["laplace", "gaussian"]

# Relative precision of the noise that is found: fine, and coarse where a price takes long.
_TOLERANCE, _COARSE = 1e-5, 1e-3
# If a price uses this share of the budget, a search for less noise is not worth its time.
_NEARLY = 0.998
# The probability with which noise exceeds the tail that is shown.
_TAIL = 0.05
# Relative round-off allowed for norms that people give: in Δ₂ ≤ Δ₁, and in Δ₁ ≤ √d·Δ₂, whose root may be rounded.
_NORM_ERROR, _ROOT_ERROR = 1e-12, 1e-6
# Grid steps within Δ₂, on the grid that is chosen for fractional numbers: rounding to it then costs next to nothing.
_GRID_STEPS = 1024
# Sensitivities on a grid stay below this, so that they and their squares are exact integers.
_MOST_GRID_STEPS = 2**40
# Ratios that the advice takes for 1: of two scales of noise, and of Δ₁ to Δ₂.
_SAME, _ONE_NUMBER = 1.01, 1.001
# Added to a noise multiplier that was found by its ρ, so that its price by another route still fits.
_SAFETY = 1e-6


@dataclass(frozen=True)
class Task:
    """What is to be released, and what it may cost.

    Attributes:
        budget: (ε, δ) for all steps together.
        l1: Δ₁, the most that one unit changes the L1 norm of one release.
        l2: Δ₂, the same in the L2 norm; Δ₂ ≤ Δ₁ ≤ √d Δ₂.
        dimension: d, the number of coordinates.
        steps: how many releases are made.
        grid: the step of the grid that discrete noise lives on.

    >>> Task.of(ApproxDP(1.0, 1e-6), l2=1.0, dimension=100).l1
    10.0
    """

    budget: ApproxDP
    l1: float
    l2: float
    dimension: int = 1
    steps: int = 1
    grid: float = 1.0

    @classmethod
    def of(
        cls,
        budget: ApproxDP,
        *,
        l1: float | None = None,
        l2: float | None = None,
        dimension: int = 1,
        steps: int = 1,
        grid: float | None = None,
    ) -> Task:
        """A task; a bound that is not given is taken at its worst: Δ₁ = √d Δ₂, or Δ₂ = Δ₁."""
        _check.epsilon(budget.epsilon)
        _check.delta(budget.delta)
        _check.integer("dimension", dimension, "it is the number of coordinates")
        _check.integer("steps", steps, "it is the number of releases")
        if l1 is None and l2 is None:
            raise _check.fail("l1", "be given, or l2", None, "it is how much one unit changes a release")
        for name, value in (("l1", l1), ("l2", l2)):
            if value is not None:
                _check.positive(name, value, "it is how much one unit changes a release")
        by_l2 = l2 if l2 is not None else l1
        assert by_l2 is not None
        by_l1 = l1 if l1 is not None else math.sqrt(dimension) * by_l2
        if not by_l2 <= by_l1 * (1 + _NORM_ERROR) <= math.sqrt(dimension) * by_l2 * (1 + _ROOT_ERROR):
            rule = f"lie between l2 and √dimension·l2 = {math.sqrt(dimension) * by_l2:g}"
            raise _check.fail("l1", rule, by_l1, "no vector has other norms")
        if grid is None:
            # Whole numbers have Σ|xᵢ| ≤ Σxᵢ²; other bounds belong to a finer grid.
            integers = float(by_l1).is_integer() and by_l1 <= by_l2**2 * (1 + _ROOT_ERROR)
            grid = 1.0 if integers else 2.0 ** math.floor(math.log2(by_l2 / _GRID_STEPS))
        _check.positive("grid", grid, "it is the step of the grid that discrete noise lives on")
        if by_l1 / grid > _MOST_GRID_STEPS:
            least_grid = by_l1 / _MOST_GRID_STEPS
            raise _check.fail("grid", f"be at least {least_grid:g}", grid, "sensitivities on it must be exact integers")
        return cls(budget, float(by_l1), float(by_l2), dimension, steps, float(grid))

    def repeated(self, event: Event) -> Event:
        """One release's event, as often as the task makes it."""
        return event if self.steps == 1 else ev.Repeated(event, self.steps)


@dataclass(frozen=True)
class Option:
    """One kind of noise at one scale.

    Attributes:
        name: what it is called.
        found: how its scale was found: by the tight "accountant", or by a "formula".
        shape: whether the tail falls like exp(−t/b) or like exp(−t²/2σ²).
        scale: b, λ or σ in the value's own units; None where the kind does not apply.
        epsilon: what it costs at the task's δ by the tight accountant, from both sides.
        note: a remark for the reader.
    """

    name: str
    found: Literal["accountant", "formula"]
    shape: NoiseName
    scale: float | None
    epsilon: Interval | None = None
    note: str = ""

    @property
    def variance(self) -> float | None:
        """The variance of one coordinate's noise: 2b² or σ²."""
        return None if self.scale is None else (2.0 if self.shape == "laplace" else 1.0) * self.scale**2

    @property
    def standard_deviation(self) -> float | None:
        """The standard deviation of one coordinate's noise."""
        return None if self.variance is None else math.sqrt(self.variance)

    @property
    def expected_error(self) -> float | None:
        """The mean of |noise| on one coordinate: b, or σ√(2/π)."""
        return None if self.scale is None else self.scale * (1.0 if self.shape == "laplace" else math.sqrt(2 / math.pi))

    def tail(self, probability: float = _TAIL) -> float | None:
        """What one coordinate's noise exceeds with this probability: b ln(1/p), or σ times the normal quantile."""
        if self.scale is None:
            return None
        if self.shape == "laplace":
            return -self.scale * math.log(probability)
        return -self.scale * float(special.ndtri(probability / 2))

    def worst(self, dimension: int) -> float | None:
        """What the largest of `dimension` coordinates' noise stays within with probability 95% (union bound)."""
        return self.tail(_TAIL / dimension)


@dataclass(frozen=True)
class Noises:
    """All kinds of noise for one task: at the same guarantee, at the same noise, and which one to take."""

    task: Task
    same_guarantee: tuple[Option, ...]
    same_noise: tuple[Option, ...]

    @property
    def best(self) -> Option:
        """The least noise at the same guarantee by the accountant, among the kinds that are run as they are priced."""
        options = [option for option in self.same_guarantee if option.found == "accountant"]
        return min(options, key=lambda option: option.standard_deviation or math.inf)

    @property
    def advice(self) -> tuple[str, ...]:
        """Which noise to use when, and why, with the numbers of this task."""
        return _advice(self)


def noises(task: Task) -> Noises:
    """Compare Laplace, L2-Laplace and Gaussian noise, and their discrete forms, for one task.

    >>> best = noises(Task.of(ApproxDP(1.0, 1e-6), l1=1.0)).best
    >>> round(best.scale, 2), best.name
    (1.0, 'Laplace')
    """
    calibrated = [_calibrated(task, kind) for kind in _kinds(task)]
    gaussian = next(option for option in calibrated if option.name == "Gaussian, analytic")
    assert gaussian.standard_deviation is not None
    same = tuple(_priced(task, kind, gaussian.standard_deviation) for kind in _kinds(task))
    return Noises(task, (*calibrated, *_formulas(task)), same)


@dataclass(frozen=True)
class _Kind:
    """A kind of noise: from its scale to the event of one release."""

    name: str
    shape: NoiseName
    event: Callable[[float], Event]
    unit: float
    note: str = ""
    tolerance: float = _TOLERANCE


def _kinds(task: Task) -> tuple[_Kind, ...]:
    l1, l2, grid = task.l1, task.l2, Fraction(task.grid)
    grid_l1 = math.ceil(Fraction(l1) / grid)
    grid_l2_squared = math.ceil((Fraction(l2) / grid) ** 2)
    moved = 1 if grid_l1 == 1 else task.dimension
    on_grid = f"on a grid of step {task.grid:g}"
    return (
        _Kind("Laplace", "laplace", lambda b: ev.Laplace(b / l1), l1),
        _Kind(
            "L2-Laplace",
            "laplace",
            lambda b: ev.L2Laplace(b / l2, b / l1),
            l2,
            "" if moved == 1 else "priced for the worst shift; no exact price is known",
            _TOLERANCE if task.steps == 1 else _COARSE,
        ),
        _Kind("Gaussian, analytic", "gaussian", lambda s: ev.Gaussian(s / l2), l2),
        _Kind(
            "discrete Laplace",
            "laplace",
            lambda b: ev.DiscreteLaplace(grid_l1, Fraction(b) / grid),
            l1,
            on_grid,
        ),
        _Kind(
            "discrete Gaussian",
            "gaussian",
            lambda s: ev.DiscreteGaussian(grid_l2_squared, (Fraction(s) / grid) ** 2, coordinates=moved),
            l2,
            on_grid + ("" if moved == 1 else ", priced by zCDP; rounded Gaussian noise has the price above"),
        ),
    )


def _calibrated(task: Task, kind: _Kind) -> Option:
    """The least noise of one kind for the task's budget."""

    def all_steps(multiplier: float) -> Event:
        return task.repeated(kind.event(multiplier * kind.unit))

    if kind.name == "L2-Laplace" and task.steps > 1:
        # Its price comes from ρ = Δ₂²/2λ² unless its L1 branch is better. One price tells which, to save a long search.
        epsilon, delta = task.budget.epsilon, task.budget.delta
        by_rho = least(lambda z: zcdp_epsilon(ZCDP(up(task.steps / (2 * z * z))), delta) <= epsilon)
        option = _option(task, kind, kind.unit * by_rho * (1 + _SAFETY))
        if option.epsilon is not None and _NEARLY * task.budget.epsilon <= option.epsilon.upper <= task.budget.epsilon:
            return option
    scale = kind.unit * calibrate(all_steps, task.budget, tolerance=kind.tolerance)
    return _option(task, kind, scale)


def _priced(task: Task, kind: _Kind, standard_deviation: float) -> Option:
    """One kind of noise at a given standard deviation."""
    return _option(task, kind, standard_deviation / (math.sqrt(2) if kind.shape == "laplace" else 1.0))


def _option(task: Task, kind: _Kind, scale: float) -> Option:
    price = tight.epsilon(task.repeated(kind.event(scale)), task.budget.delta)
    return Option(kind.name, "accountant", kind.shape, scale, price, kind.note)


def _formulas(task: Task) -> tuple[Option, ...]:
    """The closed forms that people use; several steps get equal parts of ε and δ (basic composition)."""
    epsilon, delta = task.budget.epsilon / task.steps, task.budget.delta / task.steps
    split = "" if task.steps == 1 else f"; each step at ε = {epsilon:.3g}, δ = {delta:.3g}"
    pure = Option("Laplace, b = Δ₁/ε", "formula", "laplace", task.l1 / epsilon, None, "pure: holds with δ = 0" + split)
    theorem = Option(
        "L2-Laplace, Theorem 3",
        "formula",
        "laplace",
        min(task.l2 * l2_laplace_noise_multiplier(epsilon, delta), task.l1 / epsilon),
        None,
        "arXiv 2408.07021" + split,
    )
    try:
        scale: float | None = task.l2 * classical_noise_multiplier(epsilon, delta)
        note = "Δ₂√(2 ln(1.25/δ))/ε" + split
    except InvalidArgument:
        scale, note = None, "stated for ε < 1 only"
    classical = Option("Gaussian, classical", "formula", "gaussian", scale, None, note)
    kinds = {kind.name: kind for kind in _kinds(task)}
    priced = [
        option if option.scale is None else replace(option, epsilon=_option(task, kinds[kind], option.scale).epsilon)
        for option, kind in ((pure, "Laplace"), (theorem, "L2-Laplace"), (classical, "Gaussian, analytic"))
    ]
    return tuple(priced)


def _advice(compared: Noises) -> tuple[str, ...]:
    task = compared.task
    by_name = {option.name: option for option in compared.same_guarantee}
    laplace, gaussian = by_name["Laplace"], by_name["Gaussian, analytic"]
    pure = by_name["Laplace, b = Δ₁/ε"]
    lap, gauss = laplace.standard_deviation, gaussian.standard_deviation
    assert lap is not None
    assert gauss is not None
    assert pure.standard_deviation is not None
    spread, times = task.l1 / task.l2, pure.standard_deviation / min(lap, gauss)
    if lap <= gauss:
        moves = "one unit moves one number only" if spread < _ONE_NUMBER else f"Δ₁ is only {spread:.3g} times Δ₂"
        few = "and it is released once" if task.steps == 1 else f"and {task.steps:,} releases are few"
        first = (
            f"Use Laplace noise: standard deviation {lap:.4g} against {gauss:.4g} of Gaussian noise; {moves}, {few}."
        )
    else:
        why = (
            f"Δ₁ is {spread:.3g} times Δ₂, and Laplace noise pays for Δ₁"
            if spread > 2
            else f"over {task.steps:,} releases both privacy losses become the same bell curve, for which Laplace "
            "noise has twice the variance"
        )
        first = f"Use Gaussian noise: standard deviation {gauss:.4g} against {lap:.4g} of Laplace noise; {why}."
    same = "no more than the least" if times < _SAME else f"{times:.3g} times the least"
    pure_words = (
        f"Use Laplace noise with b = Δ₁/ε where no δ is acceptable: its standard deviation is "
        f"{pure.standard_deviation:.4g}, {same}."
    )
    l2_words = (
        "Use L2-Laplace noise where a pure ε must hold as well as an (ε, δ): it needs more variance than Gaussian "
        "noise at the same (ε, δ), unless its L1 branch is the better one."
    )
    grid_words = "Release on a grid: discrete or rounded noise costs the same and has no floating-point holes."
    return first, pure_words, l2_words, grid_words
