"""Which method prices a composition. A poor choice costs time or width, never truth: every method is certified."""

from __future__ import annotations

from typing import Literal

from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.families import has_closed_form

Method = Literal["nothing", "everything", "moments", "gaussian", "one sample", "fourier", "smoothed", "grid"]

# From this many different losses on, smoothing them takes less time than a grid that must be fine for the smallest one.
MANY = 4


def choose(losses: Losses) -> Method:
    """The method to try first.

    - "nothing", "everything": the answer is 0, or no δ < 1 has an ε.
    - "moments": some part is known by its moments alone.
    - "gaussian", "one sample": there is a formula.
    - "fourier": a part with a smooth density makes the integrand fall, and the other parts have moments with a formula.
      It may still decline (few steps, tiny rates): then "smoothed", "grid", or `jumps` for sampled Gaussians alone.
    - "smoothed": many different losses with formulas and no smooth density among them.
    - "grid": everything else, that is atoms.
    """
    if losses.nothing_lost:
        return "nothing"
    if losses.infinite_mass()[0] >= 1.0:
        return "everything"
    if losses.concentrated > 0:
        return "moments"
    if not losses.others and not losses.sampled:
        return "gaussian"
    if not losses.others and losses.mu_squared == 0 and len(losses.sampled) == 1 and losses.sampled[0][2] == 1:
        return "one sample"
    smooth = losses.mu_squared > 0 or bool(losses.sampled)
    if (smooth or len(losses.others) >= MANY) and all(has_closed_form(loss) for loss, _ in losses.others):
        return "fourier" if smooth else "smoothed"
    return "grid"
