"""The price of a plan, and the least noise that fits a budget. The tightest accountant that has a theorem is used.

The tight accountant prices Gaussian and Laplace steps. For Laplace noise under an L2 bound on a random sample no
dominating pair is known; Rényi DP has a bound for it. Pure DP needs no δ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from discreet import accounting
from discreet.accounting.forms.conversions import rdp_epsilon
from discreet.errors import InvalidArgument, UnknownEvent
from discreet.events import Event, is_secure
from discreet.guarantees import ApproxDP
from discreet.neighbors import Relation
from discreet.numeric.search import bisect


@dataclass(frozen=True)
class CertifiedEpsilon:
    """A certified ε at the plan's δ, and the name of the accountant."""

    epsilon: float
    method: str


@lru_cache(maxsize=4096)
def price(event: Event, delta: float, relation: Relation) -> CertifiedEpsilon:
    """The smallest certified ε of `event` at `delta`; pure DP if `delta` is 0."""
    if not is_secure(event):
        return CertifiedEpsilon(math.inf, "none: the noise can be reproduced")
    if delta <= 0:
        return CertifiedEpsilon(accounting.pure(event, relation).epsilon, "pure DP")
    try:
        return CertifiedEpsilon(accounting.epsilon(event, delta, relation).upper, "tight accounting")
    except UnknownEvent:
        epsilon = rdp_epsilon(accounting.rdp(event, relation=relation), delta)
        if math.isinf(epsilon):
            raise
        return CertifiedEpsilon(epsilon, "Rényi DP, because tight accounting has no theorem for it")


def least_noise(make: Callable[[float], Event], epsilon: float, delta: float, relation: Relation) -> float:
    """The smallest noise multiplier whose event costs at most ε at δ, by a certified price."""
    if delta > 0:
        try:
            return accounting.calibrate(make, ApproxDP(epsilon, delta), relation=relation)
        except UnknownEvent:
            pass

    def fits(multiplier: float) -> bool:
        return price(make(multiplier), delta, relation).epsilon <= epsilon

    high = 1.0
    while not fits(high):
        high *= 2
        if high > 1e12:
            raise InvalidArgument(
                f"epsilon must be reachable, got {epsilon} at delta {delta}: no amount of this noise reaches it; "
                "pure DP (delta=0) needs noise='laplace'"
            )
    low = high / 2
    while fits(low) and low > 1e-9:
        low /= 2
    return bisect(fits, low, high, relative=1e-6).high
