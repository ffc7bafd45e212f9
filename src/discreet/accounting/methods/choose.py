"""Which method prices a composition. A poor choice costs time or width, never truth: every method is certified."""

from __future__ import annotations

import math
from typing import Literal

from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.continuous import ContinuousLoss, LaplaceShift
from discreet.accounting.losses.families import has_closed_form
from discreet.accounting.methods import single

PricingMethod = Literal["nothing", "everything", "moments", "formula", "fourier", "smoothed", "grid"]

# From this many different losses on, smoothing them takes less time than a grid that must be fine for the smallest one.
MANY = 4


def formula(losses: Losses, *, adding: bool) -> single.BoundsAt | None:
    """The profile of the whole composition, where there is a formula for it."""
    match losses.mu_squared, losses.sampled, losses.others:
        case _ if losses.concentrated > 0:
            return None
        case mu_squared, (), () if mu_squared > 0:
            mu = math.sqrt(mu_squared)
            return lambda epsilon: single.gaussian(epsilon, mu)
        case 0.0, ((rate, mu, 1),), ():
            return lambda epsilon: single.sampled(lambda e: single.gaussian(e, mu), epsilon, rate, adding=adding)
        case 0.0, (), ((ContinuousLoss(LaplaceShift(loss), rate), 1),):
            return lambda epsilon: single.sampled(lambda e: single.laplace(e, loss), epsilon, rate, adding=adding)
        case _:
            return None


def choose(losses: Losses) -> PricingMethod:
    """The method to try first.

    - "nothing", "everything": the answer is 0, or no δ < 1 has an ε.
    - "moments": some part is known by its moments alone.
    - "formula": Gaussian noise, or one release of Gaussian or Laplace noise on one sample (`formula`).
    - "fourier": a part with a smooth density makes the integrand fall, and the other parts have moments with a formula.
      It may still decline (few steps, tiny rates): then "smoothed", "grid", or `jumps` for sampled Gaussians alone.
    - "smoothed": many different losses with formulas and no smooth density among them.
    - "grid": everything else, that is atoms. From 10⁷ steps on they are smoothed first.
    """
    if losses.nothing_lost:
        return "nothing"
    if losses.infinite_mass()[0] >= 1.0:
        return "everything"
    if losses.concentrated > 0:
        return "moments"
    if formula(losses, adding=False) is not None:
        return "formula"
    smooth = losses.mu_squared > 0 or bool(losses.sampled)
    if (smooth or len(losses.others) >= MANY) and all(has_closed_form(loss) for loss, _ in losses.others):
        return "fourier" if smooth else "smoothed"
    return "grid"
