"""The stand-in for a data loader: a framework counts its batches, and sees no data."""

from __future__ import annotations

from collections.abc import Iterator

from discreet.learning.plan import Plan


class EmptyEpoch:
    """One epoch of a plan as empty batches. Its length is public: the expected number of batches in a pass.

    Attributes:
        dataset: what a framework measures to print the number of examples: the plan's public number.
    """

    def __init__(self, plan: Plan) -> None:
        self._batches = min(plan.steps, plan.sampler.steps(1.0))
        self.dataset = range(plan.sampler.examples)

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[dict[str, object]]:
        for _ in range(self._batches):
            yield {}
