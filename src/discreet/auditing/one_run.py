"""One run is enough: many canaries, each included by its own fair coin, and guesses about the coins afterwards.

Two bounds on how many guesses can be right, whatever the guesser does:

- Steinke, Nasr & Jagielski 2023 (arXiv 2305.08846, Theorem 5.2) for (ε, δ)-DP;
- Mahloujifar, Melis & Chaudhuri 2024 (arXiv 2410.22235, Algorithm 3) for a whole trade-off curve, here the claim's own.

Both assume only that the coins are fair and independent, and that the guesses depend on them through the output alone.
They need no independence between the canaries' scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check
from discreet.accounting import closed_forms
from discreet.auditing.claims import Curve, claimed
from discreet.auditing.refuted import largest
from discreet.guarantees import GDP
from discreet.mechanisms.sampling import samplers

Floats = NDArray[np.float64]

# Shares of the canaries that are guessed whatever the claim is; each costs a part of α.
_SHARES = (0.01, 0.03, 0.1, 0.2, 0.4, 0.7)
# The part of α that goes to the share that should show most if the claim is true. The others divide the rest.
_BEST_PART = 0.9
# That share is looked for at this many places between the neighbors of the best one above.
_PLACES = 6
_LARGEST_EPSILON = 64.0


@dataclass(frozen=True)
class Guesses:
    """How a guesser did: `right` of `made` guesses about `canaries` coins."""

    canaries: int
    made: int
    right: int

    def p_value(self, epsilon: float, delta: float) -> float:
        """A bound on the probability of this many right guesses under (ε, δ)-DP.

        β + 2mδ·max over i of (P[Bin(r, q) ≥ v − i] − β)/i with q = 1/(1 + e^{−ε}) and β = P[Bin(r, q) ≥ v].
        """
        chance = float(special.expit(epsilon))
        least = _at_least(np.array([self.right]), self.made, chance)[0]
        if delta <= 0 or self.right == 0:
            return float(min(1.0, least))
        steps = np.arange(1, self.right + 1)
        slack = float(np.max((_at_least(self.right - steps, self.made, chance) - least) / steps))
        return float(min(1.0, least + 2 * self.canaries * delta * slack))

    def refutes(self, curve: Curve, alpha: float) -> bool:
        """Whether this many right guesses have a probability of at most `alpha` under a claim's curve.

        Algorithm 3 of arXiv 2410.22235: if they had more, the shares of right and wrong guesses would add up to more
        than there are.
        """
        right = alpha * self.right / self.canaries
        wrong = alpha * (self.made - self.right) / self.canaries
        for i in range(self.right - 1, -1, -1):
            least = curve.inverse(min(1.0, right))
            if least <= wrong:
                break  # from here on nothing changes
            right = min(1.0, right + i / (self.made - i) * (least - wrong))
            wrong = least
        return right + wrong > self.made / self.canaries

    def epsilon_lower(self, delta: float, alpha: float) -> float:
        """The largest ε that the first bound refutes at this δ."""
        return _largest(lambda epsilon: self.p_value(epsilon, delta) <= alpha)

    def mu_lower(self, alpha: float) -> float:
        """The largest μ for which the second bound refutes μ-GDP."""
        return _largest(lambda mu: self.refutes(claimed(GDP(max(mu, 1e-6))).forward[0], alpha))


def _at_least(successes: NDArray[np.int64], trials: int, chance: float) -> Floats:
    """P[Bin(trials, chance) ≥ successes]."""
    inside = np.clip(successes, 1, trials)
    tails = special.betainc(inside, trials - inside + 1.0, chance)
    return np.where(successes <= 0, 1.0, tails)


def _largest(refuted: Callable[[float], bool]) -> float:
    return largest(refuted, at_most=_LARGEST_EPSILON, rounds=12)


def ranked(scores: Floats) -> NDArray[np.int64]:
    """The canaries from the lowest score to the highest. Equal scores are put in random order.

    By their order in the array, scores that tell nothing would guess right wherever coins were not drawn but laid out,
    such as all that are included first.
    """
    return np.lexsort((samplers.uniform(1 << 62, len(scores)), scores))


def guessed(order: NDArray[np.int64], included: NDArray[np.bool_], share: float) -> Guesses:
    """Guess "in" for the last of `order` and "out" for the first; `share` of the canaries in all, half of each."""
    half = max(1, round(share * len(order) / 2))
    right = int(np.count_nonzero(included[order[-half:]])) + int(np.count_nonzero(~included[order[:half]]))
    return Guesses(len(order), 2 * half, right)


def checked(scores: object, included: object) -> tuple[Floats, NDArray[np.bool_]]:
    """The scores of canaries, a missing one as the lowest, and their coins."""
    numbers, coins = np.asarray(scores, dtype=np.float64), np.asarray(included)
    if numbers.ndim != 1 or len(numbers) < 10:
        remedy = "give one number for each canary, high for those that seem to be included"
        raise _check.fail("scores", "be at least 10 numbers in one dimension", numbers.shape, remedy)
    if coins.dtype != np.bool_ or coins.shape != numbers.shape:
        remedy = "say of each canary whether its coin included it"
        raise _check.fail("neighbors", "be one bool for each score", coins.dtype, remedy)
    return np.where(np.isnan(numbers), -math.inf, numbers), coins


def attempts(scores: Floats, included: NDArray[np.bool_], shares: Sequence[float] = _SHARES) -> list[Guesses]:
    """The guesses that an audit makes about these shares of the canaries, the surest first."""
    order = ranked(scores)
    return [guessed(order, included, share) for share in shares]


def expected_attempts(canaries: int, mu: float, probability: float, shares: Sequence[float] = _SHARES) -> list[Guesses]:
    """How many guesses ideal canaries get right at least, with this probability, if noise is Gaussian with this μ.

    Ideal means that a canary's score is N(μ, 1) if it is included and N(0, 1) otherwise, independently of the others.
    """
    results = []
    for share in shares:
        half = max(1, round(share * canaries / 2))
        tail = half / canaries
        low, high = -40.0, 40.0 + mu
        for _ in range(60):  # the score that this share of all canaries exceeds
            middle = (low + high) / 2
            above = (special.ndtr(-middle) + special.ndtr(mu - middle)) / 2
            low, high = (middle, high) if above > tail else (low, middle)
        # By symmetry, guesses "in" at the top and "out" at the bottom are right equally often.
        chance = float(special.ndtr(mu - low) / 2 / tail)
        least = 2 * half * chance + special.ndtri(1 - probability) * math.sqrt(2 * half * chance * max(0.0, 1 - chance))
        results.append(Guesses(canaries, 2 * half, max(0, min(2 * half, math.floor(least)))))
    return results


def levels(
    canaries: int, mu: float, alpha: float, shown: Callable[[Guesses, float], float]
) -> tuple[list[float], list[float]]:
    """The shares of canaries that are guessed, and the part of α of each. They depend on the claim, never on scores.

    Args:
        canaries: how many canaries there are.
        mu: the μ of the claim; where it has none (0 or infinite), all parts are equal.
        alpha: what the parts add up to.
        shown: what guesses show at a level, such as a lower bound on ε.
    """
    many = len(_SHARES)
    if not 0 < mu < math.inf:
        return list(_SHARES), [alpha / many] * many

    def best(shares: Sequence[float]) -> int:
        expected = expected_attempts(canaries, mu, 0.5, shares)
        return int(np.argmax([shown(guesses, _BEST_PART * alpha) for guesses in expected]))

    near = best(_SHARES)
    ends = (*_SHARES, 0.95)[max(0, near - 1)], (*_SHARES, 0.95)[near + 1]
    finer = [_SHARES[near], *np.geomspace(*ends, _PLACES + 2)[1:-1].tolist()]
    shares = [*_SHARES, finer[best(finer)]]
    return shares, [alpha * (1 - _BEST_PART) / many] * many + [alpha * _BEST_PART]


def epsilon_of(mu: float, delta: float) -> float:
    """The ε of μ-GDP at this δ, rounded down: a lower bound stays one."""
    if mu <= 0:
        return 0.0
    return largest(lambda epsilon: closed_forms.gaussian_delta(epsilon, mu) > delta, at_most=1e6, rounds=60)
