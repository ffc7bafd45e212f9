"""A lower bound on δ(ε) from the mean and the variance of the losses alone: the last resort at very many steps.

δ(ε) ≥ P(S > ε + c)·(1 − e^{−c}) for every c > 0, and P(S > M − t) ≥ t²/(V + t²) for a sum S of mean M and variance V
(Cantelli). With c = ln 2 the second factor is ½. At T steps M grows like T and √V like √T, so the more steps, the
narrower. The masses of a lower bound need not add up to one: then all is multiplied by their total to the power T.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from discreet.accounting.losses.loss import PrivacyLoss
from discreet.accounting.methods.grid import discretize
from discreet.accounting.methods.target import Target

# Points of the grid on which mean and variance are summed, and the tail that it leaves out: both only cost width.
_POINTS, _TAIL, _LEAST_STEP = 4000, 1e-18, 1e-12
# Relative margin for the round-off of the sums: thousands of roundings.
_ERROR = 1e-12


def lower(repeated: Sequence[tuple[PrivacyLoss, int]], target: Target) -> float:
    """A lower bound on the δ or the ε asked for; 0 where the mean does not decide."""
    mean = variance = log_total = 0.0
    for loss, count in repeated:
        low, high = loss.support(_TAIL)
        atoms = discretize.lattice(loss)
        step = max((high - low) / _POINTS, _LEAST_STEP)
        step = discretize.common_step([] if atoms is None else [atoms], step, continuous=discretize.has_density(loss))
        grid = discretize.optimistic(loss, step, _TAIL)
        losses, mass = grid.losses(step), grid.mass
        total = float(np.sum(mass))
        if not total > 0:
            return 0.0
        center = float(mass @ losses) / total
        mean += count * (center - _ERROR * float(mass @ np.abs(losses)) / total)
        variance += count * float(mass @ (losses - center) ** 2) / total * (1 + _ERROR)
        log_total += count * (math.log(total) - _ERROR)
    share = math.exp(log_total) * (1 - _ERROR) / 2
    if target.epsilon is not None:
        room = mean - target.epsilon - math.log(2)
        return share * room * room / (variance + room * room) if room > 0 else 0.0
    assert target.delta is not None
    needed = target.delta / share if share > 0 else math.inf
    if needed >= 1:
        return 0.0
    return max(0.0, mean - math.sqrt(variance * needed / (1 - needed)) * (1 + _ERROR) - math.log(2))
