"""What private convex training gives: a linear model with its event and its guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.learning.convex.losses import Floats, Loss
from discreet.learning.convex.rows import bounded_rows, table
from discreet.ledger.receipt import Receipt


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear model that was released privately; it may be used freely.

    Attributes:
        weights: θ, for features scaled as in training; the last one is the constant's, with an intercept.
        loss: what was minimized.
        feature_norm: the norm that rows are scaled down to.
        intercept: whether a constant is added to each row.
        regularization: Λ.
        tolerance: the bound on the gradient that was certified before the release.
        event: what ran.
        guarantee: what that promises.
        receipt: of the account that was charged, if any.
    """

    weights: Floats
    loss: Loss
    feature_norm: float
    intercept: bool
    regularization: float
    tolerance: float
    event: Event
    guarantee: Guarantee
    receipt: Receipt | None = field(default=None)

    def scores(self, features: Any) -> Floats:
        """θ·x of each row, scaled as in training.

        Guarantee: post-processing of the released weights. What it says about `features` themselves is not protected.
        """
        scores: Floats = bounded_rows(table(features), self.feature_norm, self.intercept) @ self.weights
        return scores

    def predict(self, features: Any) -> Any:
        """The class (0 or 1) or the number that each row is predicted to have.

        Guarantee: post-processing of the released weights. What it says about `features` themselves is not protected.
        """
        return self.loss.predictions(self.scores(features))
