"""Proof that the loss of an example depends on that example alone.

The forward pass runs once under a mode that sees every aten operation. For each tensor it carries which example each of
its elements may depend on (`dependence`), by one conservative rule per operation (`rules`): an operation without a rule
makes its result depend on all examples. `prove` accepts a model when its vector of losses comes out with one example per
element and nothing that outlives the pass was written from examples. docs/proofs/independence.md has the theorem.
"""

from discreet.learning.engine.independence.proof import Proof, Unproved, Watch, prove

__all__ = ["Proof", "Unproved", "Watch", "prove"]
