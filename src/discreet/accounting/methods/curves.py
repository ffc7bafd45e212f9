"""δ at every ε from one computation: a formula, or the few inversions or grids that are tight near what is asked for.

Each inversion and each grid is certified at every ε, so a list of ε costs little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.families import has_closed_form
from discreet.accounting.methods import answer, smoothing
from discreet.accounting.methods.choose import choose, formula
from discreet.accounting.methods.fourier import inversion as fourier
from discreet.accounting.methods.grid import refine as grid
from discreet.accounting.methods.single import BoundsAt
from discreet.accounting.methods.target import Target

# The relative width of δ that a curve needs: far below what a chart shows, and quick to reach.
_WIDE = 1e-3


def near(losses: Losses, target: Target, adding: bool, wide: float = _WIDE) -> BoundsAt | None:
    """Lower and upper bounds on δ at every ε ≥ 0, tight near `target`; None where no method gives any.

    A δ in the target leaves infinite losses out.
    """
    least, most = losses.infinite_mass()
    if (only := losses.only_loss()) is not None:
        return only.profile
    match choose(losses):
        case "nothing" | "everything":
            return lambda _: (least, most)
        case "moments":
            return lambda epsilon: (0.0, answer.by_moments(losses, Target(epsilon=epsilon), adding))
        case "formula":
            return formula(losses, adding=adding)
    inner = _inverted(losses, target, adding, wide) or _gridded(losses, target, adding, wide)
    if inner is None:
        return None
    below_largest, largest = inner, losses.largest_loss(adding=adding)
    return lambda epsilon: (least, most) if epsilon >= largest else below_largest(epsilon)


def anchored(losses: Losses, deltas: Sequence[float], adding: bool) -> Iterator[BoundsAt]:
    """Curves that are tight near each of `deltas`, infinite losses left out: one, where there is a formula."""
    most = losses.infinite_mass()[1]
    wanted = [delta for delta in deltas if delta + most < 1]
    for delta in wanted[: 1 if has_formula(losses) else None]:
        curve = near(losses, Target(delta=delta), adding)
        if curve is not None:
            yield curve


def has_formula(losses: Losses) -> bool:
    """Whether one curve is tight at every ε."""
    return losses.only_loss() is not None or choose(losses) in {"nothing", "everything", "moments", "formula"}


def _inverted(losses: Losses, target: Target, adding: bool, wide: float) -> BoundsAt | None:
    """A Fourier inversion, of smoothed losses if need be; None where it declines or not all parts have formulas."""
    if losses.concentrated > 0 or not all(has_closed_form(loss) for loss, _ in losses.others):
        return None
    composition = answer.smooth(losses, adding)
    point = fourier.locate(composition, epsilon=target.epsilon, delta=target.delta)
    samples: fourier.Inversion | None = None
    if composition.mu_squared > 0 or len(composition.sampled.rate):
        samples = fourier.invert(composition, point)
    if samples is None:
        samples = smoothing.invert(composition, point, Target(epsilon=max(point.epsilon, 0.0)), width=wide)
    if samples is None:
        return None
    inverted, (least, most) = samples, losses.infinite_mass()

    def bounds(epsilon: float) -> tuple[float, float]:
        low, high = inverted.at(epsilon)
        return low + least, min(1.0, high + most)

    return bounds


def _gridded(losses: Losses, target: Target, adding: bool, wide: float) -> BoundsAt | None:
    if target.delta is not None:
        target = Target(delta=target.delta + losses.infinite_mass()[1])
    return grid.curve(losses.for_grid(adding=adding), target, wide)


def reach(losses: Losses, delta: float, adding: bool) -> float:
    """About the ε at which all but `delta` of δ comes from infinite losses; not certified, for choosing points."""
    if losses.nothing_lost or losses.infinite_mass()[0] + delta >= 1:
        return 0.0
    # A ρ costs about as much as the Gaussian noise of that ρ.
    about = replace(losses, mu_squared=losses.mu_squared + 2 * losses.concentrated)
    if all(has_closed_form(loss) for loss, _ in losses.others):
        estimate = fourier.locate(answer.smooth(about, adding), delta=delta).epsilon
    else:
        estimate = grid.estimate(about.for_grid(adding=adding), delta)
    return min(losses.largest_loss(adding=adding), max(0.0, estimate))
