"""Proof that the loss of an example depends on that example alone.

The forward pass is traced under a mode that sees every aten operation. For each tensor it tracks which example each
element may depend on (`dependence`), by one conservative rule per operation (`rules`). An operation without a rule
makes its result depend on all examples. `prove` accepts a model if each loss depends on its own example alone, and if
nothing that outlives the pass was written from examples. docs/proofs/independence.md has the theorem.
"""

from discreet.learning.engine.independence.apart import Apart
from discreet.learning.engine.independence.dependence import Along, Dependence, Free, Mixed, settled
from discreet.learning.engine.independence.gradients import own_backward
from discreet.learning.engine.independence.origin import Misplaced, Outside, Unproved
from discreet.learning.engine.independence.proof import Proof, general_position, prove, verdict
from discreet.learning.engine.independence.watch import Watch

__all__ = [
    "Along",
    "Apart",
    "Dependence",
    "Free",
    "Misplaced",
    "Mixed",
    "Outside",
    "Proof",
    "Unproved",
    "Watch",
    "general_position",
    "own_backward",
    "prove",
    "settled",
    "verdict",
]
