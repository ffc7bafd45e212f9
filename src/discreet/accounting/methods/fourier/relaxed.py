"""A contour off the saddle, where rare large losses would rule at it.

Tilted by the saddle's τ, a loss that happens once in 10¹⁰ steps may outweigh all others, and the characteristic
function of so few jumps does not fall. At a smaller τ the many small losses rule, and their sum is smooth if there are
enough of them. Then the integrand is larger than δ, by a factor that double precision can spare. Nothing here needs to
be certified: `inversion` certifies what it samples, on any contour.
"""

from __future__ import annotations

import math

from discreet.accounting.methods.fourier.inversion import Smooth
from discreet.accounting.methods.fourier.saddle import Saddle

# The rare large losses may raise the variance by this share. τ is lowered by a factor until they do not, at most so
# often, and then once more.
_RAISED, _LOWER, _ROUNDS, _BELOW = 0.05, 0.85, 60, 0.7


def below(smooth: Smooth, near: Saddle, epsilon: float, delta: float) -> Saddle | None:
    """A point below `near`, the saddle without large losses, at which those do not matter; None if there is none."""
    tilt = near.tilt
    for _ in range(_ROUNDS):
        k, _, curvature = smooth.cumulants(tilt)
        # A variance far above that of the smaller losses shows the others.
        if math.isfinite(k) and 0 < curvature <= (1 + _RAISED) * near.curvature:
            # Chernoff's bound on what aliases from above needs orders above τ at which they do not matter either.
            return near if tilt == near.tilt else Saddle(_BELOW * tilt, epsilon, curvature, math.log(delta))
        tilt *= _LOWER
    return None
