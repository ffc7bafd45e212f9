"""Clipped sums of per-example gradients at the cost of ordinary training."""

from discreet.learning.engine.clipped import ClippedSum
from discreet.learning.engine.engine import Engine, clipped_sum

__all__ = ["ClippedSum", "Engine", "clipped_sum"]
