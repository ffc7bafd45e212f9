"""The budget that numbers describe, wherever a person gives them: on the command line, in a config file, on a page."""

from __future__ import annotations

from discreet.errors import InvalidArgument
from discreet.guarantees import GDP, ZCDP, ApproxDP, Guarantee, PureDP


def budget_of(
    epsilon: float | None, delta: float | None, rho: float | None, mu: float | None, *, prefix: str = ""
) -> Guarantee:
    """A budget of ε, of ε and δ, of ρ for zCDP, or of μ for Gaussian DP.

    Args:
        epsilon: ε.
        delta: δ, with ε only.
        rho: ρ.
        mu: μ.
        prefix: what stands before the names in errors: "--" on the command line.
    """
    numbers = {"epsilon": epsilon, "rho": rho, "mu": mu}
    given = [f"{prefix}{name}" for name, value in numbers.items() if value is not None]
    if len(given) != 1:
        raise InvalidArgument(
            f"Give exactly one of {prefix}epsilon (with {prefix}delta for an (ε, δ) budget), {prefix}rho and "
            f"{prefix}mu; got {' and '.join(given) or 'none'}"
        )
    if delta is not None and epsilon is None:
        raise InvalidArgument(f"{prefix}delta must be used with {prefix}epsilon, got {given[0]}: omit {prefix}delta")
    if rho is not None:
        return ZCDP(rho)
    if mu is not None:
        return GDP(mu)
    assert epsilon is not None
    return PureDP(epsilon) if delta is None else ApproxDP(epsilon, delta)
