"""Counts over a domain too large to list: the count-mean sketch, and a search for heavy hitters in it.

A device draws one of some public hash functions, hashes its value into m buckets, and reports a column of a Hadamard
matrix for its bucket (`HadamardResponse`). The server can then estimate the count of any value it can name: the mean
over reports, corrected for collisions (Apple's Differential Privacy Team 2017, "Learning with privacy at scale", with
the one-bit Hadamard report of its Algorithm 4 replaced by a response of log₂m bits).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from discreet import _check
from discreet.mechanisms.local.frequencies import FrequencyEstimate, Influence
from discreet.mechanisms.local.hadamard import HadamardResponse
from discreet.mechanisms.local.hashing import fingerprints, hashes, mix, text, text_fingerprints
from discreet.mechanisms.local.protocol import Protocol
from discreet.mechanisms.local.reports import Payloads, Reports, bytes_to_integers
from discreet.mechanisms.sampling import entropy, samplers

# A report names its depth in one byte.
_MOST_DEPTHS = 256


@dataclass(frozen=True)
class CountMeanSketch(Protocol):
    """How many people hold each value that the server can name.

    Attributes:
        epsilon: the privacy loss ε of one report.
        buckets: m, a power of two minus one at best: the width of the sketch. Two values collide with chance 1/m.
        functions: k: the number of public hash functions; more of them even out collisions.
    """

    buckets: int = 1023
    functions: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.settle_integers(
            self, "buckets", remedy="it is the width of the sketch", at_least=2, at_most=(1 << 20) - 1
        )
        _check.settle_integers(self, "functions", remedy="each report names one of them", at_most=1 << 16)

    @cached_property
    def _response(self) -> HadamardResponse:
        return HadamardResponse(self.epsilon, tuple(range(self.buckets)))

    @property
    def size(self) -> int:
        return 2 + self._response.size  # the hash function in two bytes, then the response

    @property
    def bits(self) -> float:
        return math.log2(self.functions) + self._response.bits

    @property
    def informative(self) -> float:
        return self._response.informative

    def _randomized(self, values: Sequence[Any], bits: entropy.Bits) -> Payloads:
        """The hash function is drawn independently of the value; given it, the report is ε-DP."""
        texts = [text(value) for value in values]
        distinct = {name: index for index, name in enumerate(dict.fromkeys(texts))}
        marks = text_fingerprints(distinct)[[distinct[name] for name in texts]]
        chosen = samplers.uniform(self.functions, len(values), bits)
        held = hashes(_function(chosen), marks, self.buckets)
        payloads = np.empty((len(values), self.size), dtype=np.uint8)
        payloads[:, 0], payloads[:, 1] = chosen % 256, chosen // 256
        payloads[:, 2:] = self._response.encode(held, bits)
        return payloads

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return np.asarray((_number(payloads) < self.functions) & self._response.valid(payloads[:, 2:]))

    def estimate(self, reports: Reports | Iterable[bytes], candidates: Sequence[Any]) -> FrequencyEstimate:
        """The shares of some candidates. Malformed and foreign reports are rejected and counted.

        The standard errors cover the randomness of the reports, given what collides. Collisions add an error of about
        √(Σ f²/(km)) over the shares f of all values, which is small if k·m is large.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports)
        return self._table(payloads, rejected).estimate(candidates)

    def influence(self) -> Influence:
        """The most that one dishonest device can change: a report counts for or against every candidate."""
        apart = (self._response.truth - 0.5) * (1 - 1 / self.buckets)
        return Influence(0.5 / apart, math.inf)

    def _table(self, payloads: Payloads, rejected: int) -> _Table:
        chosen = _number(payloads)
        supporting = np.zeros((self.functions, self.buckets), dtype=np.int64)
        order = np.argsort(chosen, kind="stable")
        ends = np.searchsorted(chosen[order], np.arange(self.functions + 1))
        for function in np.flatnonzero(np.diff(ends)):
            rows = payloads[order[ends[function] : ends[function + 1]]]
            supporting[function] = self._response.support(rows[:, 2:])
        return _Table(self, supporting, len(payloads), rejected)


@dataclass(frozen=True, eq=False)
class _Table:
    """How many reports support each bucket of each hash function."""

    sketch: CountMeanSketch
    supporting: NDArray[np.int64]
    reports: int
    rejected: int

    def estimate(self, candidates: Sequence[Any]) -> FrequencyEstimate:
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
        influence = self.sketch.influence().category
        return FrequencyEstimate(tuple(candidates), shares, errors, self.reports, self.rejected, influence)


def _number(payloads: Payloads) -> NDArray[np.int64]:
    """The number of the hash function that each payload names."""
    return bytes_to_integers(payloads[:, :2])


def _function(number: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The seed of a public hash function."""
    return mix(number.astype(np.uint64) + np.uint64(0x5851F42D4C957F2D))


@dataclass(frozen=True)
class PrefixTree(Protocol):
    """Finds common texts in a domain too large to list, by growing their prefixes (Wang, Li & Jha 2018; Apple 2017).

    Each device draws one depth and reports its text's prefix of that depth, and nothing else: one report, ε-DP. The
    server starts with all prefixes of the first depth, keeps those that are clearly common, and extends them.

    Attributes:
        epsilon: the privacy loss ε of one report.
        alphabet: the public characters that texts are made of. Others end a text; an answer that is no text is empty.
        depths: the lengths of the prefixes, the last of which is the longest text that is found.
        buckets: the width of the sketch of each depth.
    """

    alphabet: str
    depths: tuple[int, ...]
    buckets: int = 1023

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alphabet or len(set(self.alphabet)) != len(self.alphabet):
            raise _check.fail("alphabet", "be distinct characters", self.alphabet, "texts are made of them")
        if not self.depths or any(type(d) is not int or d < 1 for d in self.depths):
            raise _check.fail("depths", "be integers > 0", self.depths, "they are the lengths of the prefixes")
        if len(self.depths) > _MOST_DEPTHS:
            raise _check.fail("depths", f"be at most {_MOST_DEPTHS}", len(self.depths), "a report names one in a byte")
        if list(self.depths) != sorted(set(self.depths)):
            raise _check.fail("depths", "increase", self.depths, "each depth extends the one before")

    @cached_property
    def _sketch(self) -> CountMeanSketch:
        return CountMeanSketch(self.epsilon, self.buckets)

    @property
    def size(self) -> int:
        return 1 + self._sketch.size  # the depth in one byte, then its sketch's report

    @property
    def bits(self) -> float:
        return math.log2(len(self.depths)) + self._sketch.bits

    @property
    def informative(self) -> float:
        return self._sketch.informative

    def influence(self) -> Influence:
        """The most that one dishonest device can change at its depth, where it counts for all depths' devices."""
        of_sketch = self._sketch.influence()
        return Influence(of_sketch.category * len(self.depths), of_sketch.total)

    def _randomized(self, values: Sequence[str], bits: entropy.Bits) -> Payloads:
        """The depth is drawn independently of the text; given it, the report is ε-DP."""
        depth = samplers.uniform(len(self.depths), len(values), bits)
        texts = [value if isinstance(value, str) else "" for value in values]
        pairs = list(zip(texts, depth.tolist(), strict=True))
        prefix = {pair: self._prefix(*pair) for pair in dict.fromkeys(pairs)}
        prefixes = [prefix[pair] for pair in pairs]
        payloads = np.empty((len(values), self.size), dtype=np.uint8)
        payloads[:, 0] = depth
        payloads[:, 1:] = self._sketch._randomized(prefixes, bits)
        return payloads

    def valid(self, payloads: Payloads) -> NDArray[np.bool_]:
        return np.asarray((payloads[:, 0] < len(self.depths)) & self._sketch.valid(payloads[:, 1:]))

    def _prefix(self, text: str, depth: int) -> str:
        """The prefix of a text at a depth; a text that ends earlier is padded with NUL, which is in no alphabet."""
        ended = "".join(c if c in self.alphabet else "\0" for c in text).partition("\0")[0]
        return ended[: self.depths[depth]].ljust(self.depths[depth], "\0")

    def estimate(
        self, reports: Reports | Iterable[bytes], *, limit: int = 64, alpha: float = 0.05
    ) -> FrequencyEstimate:
        """The texts that are clearly common, with their shares, most common first.

        Args:
            reports: the reports of all devices.
            limit: how many prefixes are kept at each depth, at most.
            alpha: the chance of keeping a prefix that nobody holds, at each depth.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        payloads, rejected = self._accepted(reports)
        prefixes = [""]
        estimated: FrequencyEstimate | None = None
        for depth in range(len(self.depths)):
            length = self.depths[depth] - (self.depths[depth - 1] if depth else 0)
            candidates = [longer for prefix in prefixes for longer in self._extended(prefix, length)]
            if len(candidates) > 1 << 16:
                remedy = "choose depths closer together, a smaller alphabet, or a smaller limit"
                raise _check.fail("depths", "give at most 65536 candidates", len(candidates), remedy)
            rows = payloads[payloads[:, 0] == depth]
            if not len(rows):
                raise _check.fail("reports", "cover all depths", f"none at depth {depth}", "collect more of them")
            estimated = self._sketch._table(rows[:, 1:], rejected).estimate(candidates)
            threshold = -special.ndtri(float(_check.probability("alpha", alpha, "such as 0.05")) / len(candidates))
            order = np.argsort(-estimated.shares)
            kept = [i for i in order if estimated.shares[i] > threshold * estimated.standard_errors[i]][:limit]
            estimated = FrequencyEstimate(
                tuple(candidates[i].rstrip("\0") for i in kept),
                estimated.shares[kept],
                estimated.standard_errors[kept],
                estimated.reports,
                rejected,
                estimated.influence,
            )
            prefixes = [candidates[i] for i in kept]
            if not prefixes:
                break
        assert estimated is not None
        return estimated

    def _extended(self, prefix: str, length: int) -> list[str]:
        """All ways in which a prefix can go on; one that has ended does not."""
        if prefix.endswith("\0"):
            return [prefix + "\0" * length]
        longer = [prefix]
        for _ in range(length):
            longer = [text + c for text in longer for c in ("\0" if text.endswith("\0") else self.alphabet + "\0")]
        return longer
