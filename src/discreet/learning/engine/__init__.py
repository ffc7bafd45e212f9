"""Clipped sums of per-example gradients at the cost of ordinary training.

On the first batch, `independence` proves that no example affects another's loss, and `dry_run` finds every use of every
parameter. For each batch, `trace` records the operations that use parameters, the rules in `operations` give norms and
weighted sums, `fallback` covers parameters without a rule, and `clipped` puts them together. `graph` traces that
computation as a whole and compiles it. `engine` is the door.
"""

from discreet.learning.engine.clipped import ClippedSum
from discreet.learning.engine.engine import Engine, clipped_sum

__all__ = ["ClippedSum", "Engine", "clipped_sum"]
