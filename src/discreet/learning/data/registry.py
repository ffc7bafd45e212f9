"""All samplers in one table, by the names that a plan accepts, and how a plan makes one of them."""

from __future__ import annotations

import math

from discreet import _check
from discreet.learning.data.patterns import CyclicGroups, OrderedEpochs
from discreet.learning.data.sampling import (
    AllocatedEpochs,
    FixedSizeSampler,
    PoissonSampler,
    Sampler,
    ShuffledEpochs,
    TruncatedPoissonSampler,
)

SAMPLERS: dict[str, type[Sampler]] = {
    kind.name: kind
    for kind in (PoissonSampler, AllocatedEpochs, FixedSizeSampler, ShuffledEpochs, OrderedEpochs, CyclicGroups)
}


def make_sampler(
    sampling: str, batch_size: int, examples: int, largest_batch: int | None = None, groups: int | None = None
) -> Sampler:
    """The sampler that a plan names.

    Args:
        sampling: its name.
        batch_size: the expected number of units in a batch.
        examples: the public number of units.
        largest_batch: cut Poisson batches to this size; None does not.
        groups: the number of groups of cyclic batches; None takes as many as an epoch has batches.
    """
    kind = SAMPLERS[_check.one_of("sampling", sampling, SAMPLERS, "each has its own price")]
    if largest_batch is not None:
        if kind is not PoissonSampler:
            remedy = "others have no price"
            raise _check.fail("largest_batch", "be None unless sampling is 'poisson'", largest_batch, remedy)
        return TruncatedPoissonSampler(batch_size, examples, largest_batch)
    if kind is CyclicGroups:
        size = _check.integer("batch_size", batch_size, "it is the expected number of units in a batch")
        return CyclicGroups(batch_size, examples, max(1, examples // size) if groups is None else groups)
    if groups is not None:
        raise _check.fail("groups", "be None unless sampling is 'cyclic'", groups, "other batches have no groups")
    return kind(batch_size, examples)


def usual_size(sampler: Sampler) -> int:
    """Enough rows for nearly every draw: with 2.5 standard deviations, 1 draw in 160 needs a second physical batch."""
    if not isinstance(sampler, PoissonSampler | AllocatedEpochs | CyclicGroups):
        return sampler.batch_size
    spread = math.sqrt(sampler.batch_size * (1 - sampler.batch_size / sampler.examples))
    usual = 8 * math.ceil((sampler.batch_size + 2.5 * spread) / 8)
    return min(usual, sampler.largest_batch) if isinstance(sampler, TruncatedPoissonSampler) else usual
