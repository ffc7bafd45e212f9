"""What a plan costs, and the least noise that fits: the accountants, asked in the order of their tightness.

The tight accountant prices Gaussian and Laplace steps. Laplace noise under an L2 bound on a random sample, and a
Poisson sample under replace-one, have no dominating pair that is known; Rényi DP has a bound for them. Pure DP needs
no δ.
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
class Price:
    """A certified ε at the plan's δ, and the accountant that found it."""

    epsilon: float
    method: str


@lru_cache(maxsize=4096)
def price(event: Event, delta: float, relation: Relation) -> Price:
    """The smallest ε that is certified for `event` at `delta`; pure DP where `delta` is 0."""
    if not is_secure(event):
        return Price(math.inf, "none: the noise can be reproduced")
    if delta <= 0:
        return Price(accounting.pure(event, relation).epsilon, "pure DP")
    try:
        return Price(accounting.epsilon(event, delta, relation).upper, "tight accounting")
    except UnknownEvent:
        found = rdp_epsilon(accounting.rdp(event, relation=relation), delta)
        if math.isinf(found):
            raise
        return Price(found, "Rényi DP, because tight accounting has no theorem for it")


def least_noise(make: Callable[[float], Event], epsilon: float, delta: float, relation: Relation) -> float:
    """The smallest noise multiplier whose event is certified to cost at most ε at δ."""
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
                f"epsilon must be reachable, got {epsilon} at delta {delta}: with this noise no multiplier reaches it; "
                "pure DP (delta=0) needs noise='laplace'"
            )
    low = high / 2
    while fits(low) and low > 1e-9:
        low /= 2
    return bisect(fits, low, high, relative=1e-6).high
