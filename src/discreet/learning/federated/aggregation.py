"""One round on the server, without any framework: draw clients, clip updates, sum, add noise, divide.

What one client contributes is clipped as a whole, in float64, to the norm that the round started with. Whatever a reply
holds, it moves the sum by at most that norm, and nothing in it is fatal:

- an array that is missing, of another shape, or not of floats, a NaN, an infinity: the whole reply counts as zero;
- integer arrays of the model (counters, masks) are not trained, and keep the server's values;
- a second reply, a reply of a client that was not drawn, or a reply to another round: ignored;
- no reply: zero. The divisor is the plan's public number, so an absent client does not make the others heavier.

The rounding of a clip: the squared norm is summed in float64 with an error below `_NORM_ERROR`, which is added, and the
weight is shrunk by 16 units in the last place for the division, the root and the product. What is not covered is the
rounding of the sum over clients and of the noise in float64, about 1e-16 of their size: as everywhere in training, the
event is stated for real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet import _check
from discreet.learning.clipping import LARGEST, SMALLEST, Adaptive
from discreet.learning.federated.correlated_plan import CorrelatedPlan
from discreet.learning.federated.plan import FederatedPlan
from discreet.learning.noise import GaussianNoise, Secret
from discreet.mechanisms.sampling import entropy

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

# Numbers that are subtracted, measured and added at once: two blocks of float64 fit in a core's cache.
_BLOCK = 1 << 15
_UNIT = 2.0**-53
# The relative error of a sum of squares over one block, and of the sum of blocks by fsum (Higham 2002, section 3.1).
_NORM_ERROR = (_BLOCK + 16) * _UNIT
_SHRINK = 1 - 32 * _UNIT
# Squares of larger numbers overflow in a sum; they are measured again, after a division by the largest.
_LARGEST_SQUARE = 1e300


@dataclass
class Counts:
    """What happened to the replies of a round. **Not private**: for the owner of the server, never for a log.

    Attributes:
        drawn: clients that were drawn.
        summed: replies in the sum, zero updates included.
        clipped: replies in the sum that were longer than the clip norm.
        failed: replies that reported an error.
        refused: replies that count as zero: NaN, infinity, missing arrays, foreign shapes or types.
        ignored: replies that were late, repeated, or of clients that were not drawn.
    """

    drawn: int = 0
    summed: int = 0
    clipped: int = 0
    failed: int = 0
    refused: int = 0
    ignored: int = 0

    @property
    def absent(self) -> int:
        """Clients that were drawn and did not reply."""
        return self.drawn - self.summed - self.failed - self.refused


@dataclass(frozen=True, eq=False)
class RoundRelease:
    """What a round releases: everything in it may be published.

    Attributes:
        update: the noisy mean update, in float64, for each trained array.
        clip_norm: the norm that the round was clipped with, and that its noise was scaled by.
        next_clip_norm: the norm of the next round; another one with adaptive clipping.
    """

    update: dict[str, Floats]
    clip_norm: float
    next_clip_norm: float


def draw_clients(plan: FederatedPlan, ids: tuple[int, ...], bits: entropy.Bits) -> frozenset[int]:
    """The clients of a round: each of `ids` joins independently with probability ⌊rate·2⁶⁴⌋/2⁶⁴ ≤ rate.

    Guarantee: this is the Poisson sample of the plan's event, over the registry and not over whoever is connected. The
    result is secret, and so is its size.
    """
    threshold = floor(Fraction(plan.rate) * 2**64)
    words = bits.words(len(ids))
    if threshold >= 2**64:
        return frozenset(ids)
    return frozenset(np.array(ids, dtype=np.uint64)[words < np.uint64(threshold)].tolist())


def trained(current: Arrays) -> tuple[str, ...]:
    """The names of the arrays that updates change: those of floats. Others are checked to be numbers or masks."""
    names = []
    for name, array in current.items():
        kind = np.asarray(array).dtype.kind
        if kind == "f":
            names.append(name)
        elif kind not in "iub":
            remedy = "updates are sums of floats, and integers and masks stay as they are"
            raise _check.fail(f"arrays[{name!r}]", "hold floats, integers or booleans", str(array.dtype), remedy)
    if not names:
        raise _check.fail("arrays", "hold at least one array of floats", sorted(current), "there is nothing to train")
    return tuple(names)


class Round:
    """The sum of one round. `take` each reply, then `release` once.

    Args:
        plan: the plan; with a `CorrelatedPlan`, release with its noise.
        number: the round, from 1 on.
        current: the arrays that clients started from. They are public.
        clip_norm: the norm of this round.
        drawn: the clients that were drawn.

    Guarantee:
        Neighbors: those of the plan. Given `drawn`, one client moves the sum by at most `clip_norm` in L2 and, with
        adaptive clipping, the centered count by at most 1/2, whatever its replies hold. `release` is the Gaussian
        mechanism of `plan.noise_multiplier` on both. `counts` are exact and not private.
    """

    def __init__(
        self,
        plan: FederatedPlan | CorrelatedPlan,
        number: int,
        current: Arrays,
        clip_norm: float,
        drawn: frozenset[int],
    ) -> None:
        self._plan, self._number, self._norm = plan, number, clip_norm
        self._names = trained(current)
        self._current = {name: np.ascontiguousarray(current[name]) for name in self._names}
        self._sum: dict[str, Floats] = {name: np.zeros(self._current[name].size) for name in self._names}
        self._drawn, self._seen = drawn, set[int]()
        self._below = 0.0  # Σ (b − ½) over the replies in the sum, b = 1 for those within the clip norm
        self._released = False
        self.counts = Counts(drawn=len(drawn))

    def take(self, client: int, arrays: Arrays | None, *, number: int | None = None) -> None:
        """Add one reply to the sum.

        Args:
            client: who sent it.
            arrays: the client's new arrays; None if it failed.
            number: the round that it is a reply to; None means this one.
        """
        late = number is not None and number != self._number
        if late or client not in self._drawn or client in self._seen:
            self.counts.ignored += 1
            return
        self._seen.add(client)
        if arrays is None:
            self.counts.failed += 1
            return
        norm = self._norm_of(arrays)
        if norm is None:
            self.counts.refused += 1
            return
        within = norm <= self._norm
        weight = 1.0 if within else self._norm / norm * _SHRINK
        for name in self._names:
            _add(self._sum[name], np.ravel(arrays[name]), self._current[name].ravel(), weight)
        self._below += 0.5 if within else -0.5
        self.counts.summed += 1
        self.counts.clipped += not within

    def _norm_of(self, arrays: Arrays) -> float | None:
        """The L2 norm of the whole update, rounded up; None if the reply cannot be used."""
        if any(not _fits(arrays.get(name), self._current[name]) for name in self._names):
            return None
        squares = [
            square for name in self._names for square in _squares(np.ravel(arrays[name]), self._current[name].ravel())
        ]
        square = math.fsum(squares) if all(map(math.isfinite, squares)) else math.inf
        if square <= _LARGEST_SQUARE:
            return math.sqrt(square * (1 + _NORM_ERROR)) * (1 + 4 * _UNIT)
        return self._large_norm_of(arrays)

    def _large_norm_of(self, arrays: Arrays) -> float | None:
        """The same for numbers whose squares overflow, and None for what is not finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            differences = [
                np.subtract(arrays[name], self._current[name]).astype(np.float64).ravel() for name in self._names
            ]
            largest = max(float(np.max(np.abs(each), initial=0.0)) for each in differences)
        if not math.isfinite(largest) or any(not np.isfinite(each).all() for each in differences):
            return None
        square = math.fsum(float(np.sum(np.square(each / largest))) for each in differences)
        norm = largest * math.sqrt(square * (1 + len(differences) * _NORM_ERROR)) * (1 + 16 * _UNIT)
        return norm if math.isfinite(norm) else None

    def release(self, secret: Secret) -> RoundRelease:
        """Add the noise once, and divide by the plan's expected number of clients.

        Args:
            secret: the run's secret; the noise is derived from it and the round, so a round must be released once.
        """
        own, multiplier = secret.at("round", self._number), self._plan.sum_multiplier
        noise = GaussianNoise(multiplier).flat(self._size, multiplier * self._norm, own.at("sum"), dtype=torch.float64)
        released = self.release_with(noise.numpy())
        return replace(released, next_clip_norm=self._adapted(own))

    def release_with(self, noise: Floats) -> RoundRelease:
        """Add given noise, drawn for this round alone, and divide by the plan's expected number of clients."""
        if self._released:
            raise _check.fail("release", "be called once", "a second call", "a round's noise is drawn once")
        self._released = True
        update, start = {}, 0
        for name in self._names:
            total = self._sum[name]
            total += noise[start : start + total.size]
            start += total.size
            total /= self._plan.expected_clients
            update[name] = total.reshape(self._current[name].shape)
        return RoundRelease(update, self._norm, self._norm)

    @property
    def _size(self) -> int:
        return sum(total.size for total in self._sum.values())

    def _adapted(self, secret: Secret) -> float:
        """The next norm: C·exp(−η(b̃ − γ)) with b̃ the noisy share of updates within C (Andrew et al. 2021, Algorithm 1).

        It shrinks when more than the quantile lie within the norm, and grows when fewer do.
        """
        clipping = self._plan.clipping
        if not isinstance(clipping, Adaptive):
            return self._norm
        noise = GaussianNoise(clipping.count_noise).flat(
            2, clipping.count_noise, secret.at("count"), dtype=torch.float64
        )
        share = (self._below + float(noise[0])) / self._plan.expected_clients + 0.5
        moved = max(-50.0, min(50.0, -clipping.learning_rate * (share - clipping.quantile)))
        return min(LARGEST, max(SMALLEST, self._norm * math.exp(moved)))


def applied(current: Arrays, update: Mapping[str, Floats]) -> dict[str, NDArray[Any]]:
    """The arrays after an update, each in its own type; arrays that are not trained stay as they are."""
    after = {}
    for name, given in current.items():
        array = np.asarray(given)
        moved = update.get(name)
        after[name] = array.copy() if moved is None else (array.astype(np.float64) + moved).astype(array.dtype)
    return after


def _fits(array: NDArray[Any] | None, expected: NDArray[Any]) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == expected.shape


def _squares(reply: NDArray[Any], base: NDArray[Any]) -> list[float]:
    """The sum of (reply − base)² over each block; inf and NaN where it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return [float(np.dot(each, each)) for _, each in _differences(reply, base)]


def _add(total: Floats, reply: NDArray[Any], base: NDArray[Any], weight: float) -> None:
    """Add weight·(reply − base) to `total`; a weight of 1 changes nothing."""
    for block, difference in _differences(reply, base):
        total[block] += np.multiply(difference, weight, out=difference)


def _differences(reply: NDArray[Any], base: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """The update in float64, block by block, in a buffer that is used again.

    The update is what the subtraction in the wider of both types gives; measuring, clipping and summing it is done in
    float64.
    """
    size = min(_BLOCK, reply.size)
    wide, own = np.empty(size), np.empty(size, np.result_type(reply, base))
    for start in range(0, reply.size, _BLOCK):
        block = slice(start, min(start + _BLOCK, reply.size))
        update, difference = wide[: block.stop - start], own[: block.stop - start]
        np.subtract(reply[block], base[block], out=difference)
        update[...] = difference
        yield block, update
