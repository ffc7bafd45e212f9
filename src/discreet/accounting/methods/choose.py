"""Which engine prices a composition. The choice costs time or width, never truth: every engine is certified."""

from __future__ import annotations

from typing import Literal

from discreet.accounting.losses.of_events import Losses, closed_form, infinite_mass, nothing_lost

Engine = Literal["nothing", "everything", "moments", "gaussian", "one sample", "fourier", "grid"]


def choose(found: Losses) -> Engine:
    """The engine to try first.

    - "nothing", "everything": the answer is 0, or no δ < 1 has an ε.
    - "moments": some part is known by its moments alone.
    - "gaussian", "one sample": there is a formula.
    - "fourier": something with a smooth density makes the integrand fall, and the rest has moments with a formula.
      It may still decline (few steps, tiny rates): then "grid".
    - "grid": everything else, that is atoms.
    """
    if nothing_lost(found):
        return "nothing"
    if infinite_mass(found)[0] >= 1.0:
        return "everything"
    if found.concentrated > 0:
        return "moments"
    if not found.others and not found.sampled:
        return "gaussian"
    if not found.others and found.mu_squared == 0 and len(found.sampled) == 1 and found.sampled[0][2] == 1:
        return "one sample"
    smooth = found.mu_squared > 0 or bool(found.sampled)
    if smooth and all(closed_form(loss) is not None for loss, _ in found.others):
        return "fourier"
    return "grid"
