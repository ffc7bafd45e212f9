"""How large one more answer may be, given what an (ε, δ) budget has left at its Rényi orders."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from discreet.accounting.forms.conversions import gdp_epsilon, pure_to_rdp
from discreet.guarantees import GDP, RDP, ApproxDP, PureDP

# The room is shown with this many digits, so it is searched somewhat closer than that.
_DIGITS_SHOWN = 4
_CLOSE = 1e-6


@dataclass(frozen=True)
class Room:
    """One more answer that an (ε, δ) budget has room for: any that is ε-DP, or Gaussian noise that is (ε, δ)-DP."""

    epsilon: float
    gaussian: ApproxDP

    @classmethod
    def of(cls, left: RDP, delta: float) -> Room:
        """The room where `left` remains at each order, of which one has to suffice. Rounded down to four digits.

        >>> print(Room.of(RDP((4.0, 4000.0), (0.5, 1.9)), 1e-6))
        one more answer of up to ε = 1.9, or (2.254, 1e-06)-DP with Gaussian noise
        """
        most = max(left.epsilons)
        low, high = 0.0, most + 2 * math.sqrt(most)  # above the ε of any answer that fits
        while high - low > _CLOSE * high:
            middle = (low + high) / 2
            price = pure_to_rdp(PureDP(middle), left.orders)
            low, high = (middle, high) if _has(left, price) else (low, middle)
        # αμ²/2 is what Gaussian noise costs at the order α.
        mu = math.sqrt(max(2 * rest / order for order, rest in zip(left.orders, left.epsilons, strict=True)))
        return cls(round_down(low), ApproxDP(round_down(gdp_epsilon(GDP(mu), delta)), delta))

    def __str__(self) -> str:
        if not (self.epsilon or self.gaussian.epsilon):
            return "nothing"
        normal = f", or {self.gaussian} with Gaussian noise" if self.gaussian.epsilon else ""
        return f"one more answer of up to ε = {self.epsilon:g}{normal}"


def _has(left: RDP, price: RDP) -> bool:
    return any(cost <= rest for cost, rest in zip(price.epsilons, left.epsilons, strict=True))


def round_down(value: float) -> float:
    """`value` with four significant digits, rounded down.

    >>> round_down(0.123456)
    0.1234
    """
    return float(significant(Fraction(value), _DIGITS_SHOWN, up=False))


def significant(value: Fraction, digits: int, *, up: bool) -> Fraction:
    """`value` with this many significant digits, rounded up or down, but never down to 0."""
    if value == 0:
        return value
    unit = Fraction(10) ** (math.floor(math.log10(value)) - digits + 1)
    return (math.ceil(value / unit) if up else max(1, math.floor(value / unit))) * unit
