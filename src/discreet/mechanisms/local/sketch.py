"""Counts over a domain too large to list: the count-mean sketch, and a search for heavy hitters in it.

A device draws one of some public hash functions, hashes its value into m buckets, and reports a column of a Hadamard
matrix for its bucket (`HadamardResponse`). The server can then estimate the count of any value it can name: the mean
over reports, corrected for collisions (Apple's Differential Privacy Team 2017, "Learning with privacy at scale", with
the one-bit Hadamard report of its Algorithm 4 replaced by a response of log₂m bits).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check, events
from discreet.guarantees import PureDP
from discreet.mechanisms.local.frequencies import Estimate, Influence
from discreet.mechanisms.local.hadamard import HadamardResponse
from discreet.mechanisms.local.hashing import fingerprints, hashes, mix
from discreet.mechanisms.local.reports import Payloads, Reports, header, opened
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import REPLACE_ONE, Neighbors, Rows
from discreet.numeric.rounding import float_up, rounded_down


@dataclass(frozen=True)
class CountMeanSketch:
    """How many people hold each value that the server can name.

    Attributes:
        epsilon: the privacy loss ε of one report.
        buckets: m, a power of two minus one at best: the width of the sketch. Two values collide with chance 1/m.
        functions: k: the number of public hash functions; more of them even out collisions.
    """

    epsilon: Fraction
    buckets: int = 1023
    functions: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))
        _check.settle_integers(
            self, "buckets", remedy="it is the width of the sketch", at_least=2, at_most=(1 << 20) - 1
        )
        _check.settle_integers(self, "functions", remedy="each report names one of them", at_most=1 << 16)

    @property
    def event(self) -> events.Event:
        """The event of one person's report."""
        return events.Claimed(float_up(self.epsilon))

    @property
    def guarantee(self) -> PureDP:
        """ε-DP for one person's value under replace-one, whoever reads the report."""
        return PureDP(float_up(self.epsilon), protects=Neighbors(REPLACE_ONE, Rows()))

    @cached_property
    def _response(self) -> HadamardResponse:
        return HadamardResponse(self.epsilon, tuple(range(self.buckets)))

    @cached_property
    def _head(self) -> bytes:
        return header(self)

    @property
    def size(self) -> int:
        """The number of bytes of a payload: the hash function in two bytes, then the response."""
        return 2 + self._response.size

    @property
    def bits(self) -> float:
        """The information in one report, in bits."""
        return math.log2(self.functions) + self._response.bits

    def client(self) -> Callable[[Any], bytes]:
        """What a device runs: a function from a value to a report.

        Guarantee: ε-DP for the value, under replace-one, against everybody who reads the report. The hash function is
        drawn independently of the value; given it, the report is ε-DP. Each call spends ε again.
        """
        return lambda value: next(iter(self.simulate([value])))

    def simulate(self, values: Sequence[Any], *, insecure_seed: int | None = None) -> Reports:
        """The reports of many people at once, in their order.

        Guarantee: as `client`, for each person. With an `insecure_seed` the reports are repeatable and not private.
        """
        bits = entropy.bits(insecure_seed)
        event = self.event if insecure_seed is None else events.Insecure(self.event)
        distinct = {value: place for place, value in enumerate(dict.fromkeys(values))}
        marks = fingerprints(distinct)[[distinct[value] for value in values]]
        chosen = samplers.uniform(self.functions, len(values), bits)
        held = hashes(_function(chosen), marks, self.buckets)
        payloads = np.empty((len(values), self.size), dtype=np.uint8)
        payloads[:, 0], payloads[:, 1] = chosen % 256, chosen // 256
        payloads[:, 2:] = self._response.encode(held, bits)
        return Reports(self._head, payloads, event)

    def estimate(self, reports: Reports | Iterable[bytes], candidates: Sequence[Any]) -> Estimate:
        """The shares of some candidates. Malformed and foreign reports are rejected and counted.

        The standard errors cover the randomness of the reports, given what collides. Collisions add an error of about
        √(Σ f²/(km)) over the shares f of all values, which is small if k·m is large.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        return self._table(reports).estimate(candidates)

    def influence(self) -> Influence:
        """The most that one dishonest device can change: a report counts for or against every candidate."""
        apart = (self._response.truth - 0.5) * (1 - 1 / self.buckets)
        return Influence(0.5 / apart, math.inf)

    def _table(self, reports: Reports | Iterable[bytes]) -> _Table:
        payloads, rejected = opened(reports, self._head, self.size)
        chosen = payloads[:, 0].astype(np.int64) + 256 * payloads[:, 1].astype(np.int64)
        accepted = (chosen < self.functions) & self._response.valid(payloads[:, 2:])
        rejected += int(np.count_nonzero(~accepted))
        if not accepted.any():
            raise _check.fail("reports", "hold a valid one", f"{rejected} that are not", "check the protocol")
        supporting = np.zeros((self.functions, self.buckets), dtype=np.int64)
        for function in np.unique(chosen[accepted]):
            rows: Payloads = payloads[accepted & (chosen == function)][:, 2:]
            supporting[function] = self._response.support(rows)
        return _Table(self, supporting, int(np.count_nonzero(accepted)), rejected)


@dataclass(frozen=True, eq=False)
class _Table:
    """How many reports support each bucket of each hash function."""

    sketch: CountMeanSketch
    supporting: NDArray[np.int64]
    reports: int
    rejected: int

    def estimate(self, candidates: Sequence[Any]) -> Estimate:
        """The shares of some values, by summing their buckets over all hash functions."""
        marks = fingerprints(candidates)
        buckets = hashes(_function(np.arange(self.sketch.functions))[:, None], marks, self.sketch.buckets)
        total = np.take_along_axis(self.supporting, buckets, axis=1).sum(axis=0)
        truth = self.sketch._response.truth
        # Another value supports a candidate with chance 1/2, or with that of the truth if it collides (1/m).
        noise = 0.5 + (truth - 0.5) / self.sketch.buckets
        shares = (total / self.reports - noise) / (truth - noise)
        clipped = np.clip(shares, 0, 1)
        variance = clipped * truth * (1 - truth) + (1 - clipped) * noise * (1 - noise)
        errors = np.sqrt(variance / self.reports) / (truth - noise)
        return Estimate(tuple(candidates), shares, errors, self.reports, self.rejected)


def _function(number: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The seed of a public hash function."""
    return mix(number.astype(np.uint64) + np.uint64(0x5851F42D4C957F2D))


@dataclass(frozen=True)
class PrefixTree:
    """Finds common texts in a domain too large to list, by growing their prefixes (Wang, Li & Jha 2018; Apple 2017).

    Each device draws one depth and reports its text's prefix of that depth, and nothing else: one report, ε-DP. The
    server starts with all prefixes of the first depth, keeps those that are clearly common, and extends them.

    Attributes:
        epsilon: the privacy loss ε of one report.
        alphabet: the public characters that texts are made of. Others end a text.
        depths: the lengths of the prefixes, the last of which is the longest text that is found.
        buckets: the width of the sketch of each depth.
    """

    epsilon: Fraction
    alphabet: str
    depths: tuple[int, ...]
    buckets: int = 1023

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", rounded_down(_check.epsilon(self.epsilon)))
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise _check.fail("alphabet", "be distinct characters", self.alphabet, "texts are made of them")
        if not self.depths or any(type(d) is not int or d < 1 for d in self.depths):
            raise _check.fail("depths", "be integers > 0", self.depths, "they are the lengths of the prefixes")
        if list(self.depths) != sorted(set(self.depths)):
            raise _check.fail("depths", "increase", self.depths, "each depth extends the one before")

    @property
    def event(self) -> events.Event:
        """The event of one person's report."""
        return events.Claimed(float_up(self.epsilon))

    @cached_property
    def _sketches(self) -> tuple[CountMeanSketch, ...]:
        return tuple(CountMeanSketch(self.epsilon, self.buckets, 64 + depth) for depth in range(len(self.depths)))

    def client(self) -> Callable[[str], bytes]:
        """What a device runs: a function from a text to a report.

        Guarantee: ε-DP for the text, under replace-one. The depth is drawn independently of the text.
        """

        def report(text: str) -> bytes:
            depth = int(samplers.uniform(len(self.depths), 1)[0])
            return self._sketches[depth].client()(self._prefix(text, depth))

        return report

    def _prefix(self, text: str, depth: int) -> str:
        """The prefix of a text at a depth; a text that ends earlier is padded with NUL, which is in no alphabet."""
        ended = "".join(c if c in self.alphabet else "\0" for c in text).partition("\0")[0]
        return ended[: self.depths[depth]].ljust(self.depths[depth], "\0")

    def estimate(self, reports: Iterable[bytes], *, limit: int = 64, alpha: float = 0.05) -> Estimate:
        """The texts that are clearly common, with their shares, most common first.

        Args:
            reports: the reports of all devices.
            limit: how many prefixes are kept at each depth, at most.
            alpha: the chance of keeping a prefix that nobody holds, at each depth.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        given = list(reports)
        prefixes = [""]
        found: Estimate | None = None
        for depth, sketch in enumerate(self._sketches):
            length = self.depths[depth] - (self.depths[depth - 1] if depth else 0)
            candidates = [longer for prefix in prefixes for longer in self._extended(prefix, length)]
            if len(candidates) > 1 << 16:
                remedy = "choose depths closer together, a smaller alphabet, or a smaller limit"
                raise _check.fail("depths", "give at most 65536 candidates", len(candidates), remedy)
            found = sketch.estimate(given, candidates)
            threshold = -special.ndtri(float(_check.probability("alpha", alpha, "such as 0.05")) / len(candidates))
            order = np.argsort(-found.shares)
            kept = [i for i in order if found.shares[i] > threshold * found.standard_errors[i]][:limit]
            found = Estimate(
                tuple(candidates[i].rstrip("\0") for i in kept),
                found.shares[kept],
                found.standard_errors[kept],
                found.reports,
                len(given) - found.reports,
            )
            prefixes = [candidates[i] for i in kept]
            if not prefixes:
                break
        assert found is not None
        return found

    def _extended(self, prefix: str, length: int) -> list[str]:
        """All ways in which a prefix can go on; one that has ended does not."""
        if prefix.endswith("\0"):
            return [prefix + "\0" * length]
        longer = [prefix]
        for _ in range(length):
            longer = [text + c for text in longer for c in ("\0" if text.endswith("\0") else self.alphabet + "\0")]
        return longer
