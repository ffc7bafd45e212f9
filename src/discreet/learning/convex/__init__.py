"""Private linear models without clipping gradients: output perturbation and approximate minima perturbation.

- `losses` are convex losses of a linear score, `rows` scales features to a bounded norm;
- `minimize` reaches a point with a certified gradient;
- `perturbation` charges, minimizes, adds noise and gives a `LinearModel`.
"""

from discreet.learning.convex.losses import Huber, Logistic, Loss, SmoothHinge
from discreet.learning.convex.minimize import NotReached
from discreet.learning.convex.model import LinearModel
from discreet.learning.convex.perturbation import minima_perturbation, output_perturbation

__all__ = [
    "Huber",
    "LinearModel",
    "Logistic",
    "Loss",
    "NotReached",
    "SmoothHinge",
    "minima_perturbation",
    "output_perturbation",
]
