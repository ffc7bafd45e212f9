"""RAPPOR: reports about one value, again and again, without averaging away (Erlingsson, Pihur & Korolova 2014).

A device hashes its value into a Bloom filter and randomizes each bit twice. The *permanent* response is drawn once for
each value and kept, so that all reports together reveal no more than it does. The *instantaneous* response randomizes
the permanent one afresh in every report, so that reports of one device cannot be linked by an unusual pattern.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from discreet import _check, events
from discreet.guarantees import PureDP
from discreet.mechanisms.local.hashing import text
from discreet.mechanisms.local.reports import (
    Payloads,
    Reports,
    bits_to_bytes,
    bytes_to_bits,
    header,
    integers_to_bytes,
    opened,
)
from discreet.mechanisms.sampling import entropy, samplers
from discreet.neighbors import REPLACE_ONE, Neighbors, Rows

# Probabilities are multiples of 1/256, so that each bit needs one random byte, and coins are exact.
_STEPS = 256
# Reports that are encoded at once: it bounds the memory for random bytes.
_ROWS = 1 << 13


@dataclass(frozen=True, eq=False)
class RapporEstimate:
    """Estimated numbers of people for each candidate.

    Attributes:
        candidates: the candidate values that were looked for.
        counts: the estimated number of people who hold each; never negative.
        standard_errors: their standard errors.
        p_values: how likely such a count is for a candidate that nobody holds, corrected for the number of candidates.
        reports: the number of valid reports.
        rejected: the number of reports that were malformed or belong to another protocol.
    """

    candidates: tuple[Any, ...]
    counts: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    p_values: NDArray[np.float64]
    reports: int
    rejected: int

    def found(self, alpha: float = 0.05) -> tuple[Any, ...]:
        """The candidates that some people hold, at a family-wise error of `alpha`, largest first."""
        limit = float(_check.probability("alpha", alpha, "it is the chance of naming a candidate that nobody holds"))
        order = np.argsort(-self.counts)
        return tuple(self.candidates[i] for i in order if self.p_values[i] <= limit)


class RapporClient:
    """One device. It keeps a secret key, from which its permanent responses follow; `key` must be stored and protected.

    The responses are those of a keyed hash (BLAKE2b) instead of stored random bits: the guarantee takes for granted
    that nobody can tell the two apart without the key. Whoever holds the key can undo the permanent response.
    Without it, a device that lost its key answers with a new permanent response and spends its ε again.
    """

    def __init__(self, protocol: Rappor, key: bytes | None = None) -> None:
        if key is not None and len(key) != entropy.KEY_BYTES:
            remedy = "pass the key of an earlier client, or none to draw one"
            raise _check.fail("key", f"have {entropy.KEY_BYTES} bytes", len(key), remedy)
        self._protocol = protocol
        self.key = entropy.fresh_key() if key is None else key
        self.cohort = int.from_bytes(entropy.derived(self.key, "cohort"), "little") % protocol.cohorts

    def __call__(self, value: Any) -> bytes:
        """One report.

        Guarantee: all reports of this device about one value together are `protocol.permanent`-DP for that value under
        replace-one, given that the key stays secret; one report alone is `protocol.instantaneous`-DP. A device whose
        value changes spends the permanent ε for each distinct value.
        """
        protocol = self._protocol
        permanent = protocol._permanent_bits(self, value)[None]
        payloads = protocol._payloads(np.array([self.cohort]), permanent, entropy.SYSTEM)
        return protocol._head + payloads.tobytes()

    def __repr__(self) -> str:
        return f"<RapporClient, key hidden, cohort {self.cohort}>"


@dataclass(frozen=True)
class Rappor:
    """The parameters that devices and server share.

    Attributes:
        bits: the size of the Bloom filter.
        hashes: how many bits a value sets.
        cohorts: groups of devices with different hash functions, so that two candidates do not collide in all of them.
        lie: f: in the permanent response, a bit is replaced by a fair coin with this probability; a multiple of 2/256.
        one_if_zero: p: the probability of reporting 1 for a permanent 0; a multiple of 1/256.
        one_if_one: q: the probability of reporting 1 for a permanent 1; a multiple of 1/256.
    """

    bits: int = 32
    hashes: int = 2
    cohorts: int = 8
    lie: Fraction = Fraction(1, 2)
    one_if_zero: Fraction = Fraction(1, 2)
    one_if_one: Fraction = Fraction(3, 4)

    def __post_init__(self) -> None:
        _check.settle_integers(self, "bits", remedy="it is the size of the filter", at_least=8, at_most=1 << 12)
        _check.settle_integers(self, "hashes", remedy="each value sets this many bits", at_most=self.bits // 2)
        _check.settle_integers(self, "cohorts", remedy="it is the number of hash families", at_most=1 << 12)
        for name, steps in (("lie", _STEPS // 2), ("one_if_zero", _STEPS), ("one_if_one", _STEPS)):
            exact = _check.probability(name, getattr(self, name), "it is a probability")
            if (exact * steps).denominator != 1 or not 0 < exact < 1:
                remedy = "each bit is decided by one random byte"
                raise _check.fail(name, f"be a multiple of 1/{steps} between 0 and 1", exact, remedy)
            object.__setattr__(self, name, exact)
        if self.one_if_one <= self.one_if_zero:
            raise _check.fail("one_if_one", "be above one_if_zero", self.one_if_one, "reports tell nothing otherwise")

    # --- privacy

    @property
    def permanent(self) -> PureDP:
        """The ε of all reports of one device about one value: 2h·ln((1 − f/2)/(f/2)) (Theorem 1 of the paper)."""
        half = self.lie / 2
        ratio = float((1 - half) / half)
        return PureDP(math.nextafter(2 * self.hashes * math.log(ratio), math.inf), protects=self._protects)

    @property
    def instantaneous(self) -> PureDP:
        """The ε of one report: h·ln(q*(1 − p*)/(p*(1 − q*))) for the marginal chances p*, q* of a 1 (Theorem 2).

        The paper states h·log of this ratio for one report; two values differ in up to 2h bits, of which h have the
        ratio q*/p* and h the ratio (1 − p*)/(1 − q*).
        """
        low, high = self._marginals
        ratio = float(high * (1 - low) / (low * (1 - high)))
        return PureDP(math.nextafter(self.hashes * math.log(ratio), math.inf), protects=self._protects)

    @property
    def event(self) -> events.Event:
        """The event of everything that one device ever reports about one value."""
        return events.LocalReport(Fraction(self.permanent.epsilon))

    @property
    def _protects(self) -> Neighbors:
        return Neighbors(REPLACE_ONE, Rows())

    @property
    def _marginals(self) -> tuple[Fraction, Fraction]:
        """P(report 1) for a bit that the value does not set, and for one that it sets."""
        half = self.lie / 2
        unset = half * self.one_if_one + (1 - half) * self.one_if_zero
        return unset, half * self.one_if_zero + (1 - half) * self.one_if_one

    # --- the device

    def client(self, key: bytes | None = None) -> RapporClient:
        """A device with its secret key; pass the key of an earlier session to continue as the same device."""
        return RapporClient(self, key)

    @property
    def size(self) -> int:
        """The number of bytes of a payload: the cohort in two bytes, then the bits."""
        return 2 + math.ceil(self.bits / 8)

    @cached_property
    def _head(self) -> bytes:
        return header(self)

    def _positions(self, cohort: int, name: bytes) -> list[int]:
        """The bits that a value, given as its `text`, sets in a cohort: public, and the same for everybody."""
        positions: list[int] = []
        counter = 0
        while len(positions) < self.hashes:
            digest = hashlib.blake2b(name, salt=cohort.to_bytes(4, "little"), person=counter.to_bytes(4, "little"))
            position = int.from_bytes(digest.digest()[:8], "little") % self.bits
            counter += 1
            if position not in positions:
                positions.append(position)
        return positions

    def _permanent_bits(self, client: RapporClient, value: Any) -> NDArray[np.bool_]:
        """The permanent response: a function of the device's key and the value, so that it need not be stored."""
        truth = np.zeros(self.bits, dtype=np.bool_)
        truth[self._positions(client.cohort, text(value))] = True
        name = f"{type(value).__name__}:{value}"
        stream = b"".join(
            entropy.derived(client.key, "permanent", name, block, size=64) for block in range(math.ceil(self.bits / 64))
        )
        return self._lied(truth, np.frombuffer(stream, dtype=np.uint8)[: self.bits])

    def _lied(self, truth: NDArray[np.bool_], drawn: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Bits, each replaced by a fair coin with probability f, given a random byte for each."""
        half = int(self.lie / 2 * _STEPS)
        return np.where(drawn < half, True, np.where(drawn < 2 * half, False, truth))

    def _payloads(self, cohorts: NDArray[np.int64], permanent: NDArray[np.bool_], bits: entropy.Bits) -> Payloads:
        """The instantaneous response to each permanent one, after its cohort."""
        drawn = _random_bytes(permanent.shape, bits)
        limit = np.where(permanent, int(self.one_if_one * _STEPS), int(self.one_if_zero * _STEPS))
        packed = bits_to_bytes(drawn < limit)
        return np.concatenate((integers_to_bytes(cohorts, 2), packed), axis=1)

    def simulate(self, values: Sequence[Any], *, insecure_seed: int | None = None) -> Reports:
        """One report of each of many fresh devices, in their order: for studies.

        A device that reports once has no use for its key: its permanent response is drawn here and forgotten.

        Guarantee: as `RapporClient`, for each person. With an `insecure_seed` the reports are repeatable and not
        private.
        """
        bits = entropy.bits(insecure_seed)
        names = [text(value) for value in values]
        codes = {name: index for index, name in enumerate(dict.fromkeys(names))}
        distinct, held = list(codes), np.array([codes[name] for name in names], dtype=np.int64)
        cohorts = samplers.uniform(self.cohorts, held.size, bits)
        pairs, which = np.unique(held * self.cohorts + cohorts, return_inverse=True)
        patterns = np.zeros((pairs.size, self.bits), dtype=np.bool_)
        for row, pair in enumerate(pairs.tolist()):
            patterns[row, self._positions(pair % self.cohorts, distinct[pair // self.cohorts])] = True
        payloads = np.empty((held.size, self.size), dtype=np.uint8)
        for start in range(0, held.size, _ROWS):
            rows = slice(start, start + _ROWS)
            truth = patterns[which[rows]]
            permanent = self._lied(truth, _random_bytes(truth.shape, bits))
            payloads[rows] = self._payloads(cohorts[rows], permanent, bits)
        event = self.event if insecure_seed is None else events.Insecure(self.event)
        return Reports(self._head, payloads, event)

    # --- the server

    def estimate(self, reports: Reports | Iterable[bytes], candidates: Sequence[Any]) -> RapporEstimate:
        """How many people hold each of some candidates, by least squares on the bits of all cohorts.

        The counts of bits are made unbiased, (c − p*n)/(q* − p*) for n reports of a cohort, and explained as sums of
        the candidates' patterns with nonnegative coefficients. Standard errors are those of the linear fit on the
        candidates that got a positive coefficient.

        Guarantee: post-processing of reports; it needs no trust and spends nothing.
        """
        names = tuple(candidates)
        if not names or len(set(map(repr, names))) != len(names):
            raise _check.fail("candidates", "be distinct, at least one", len(names), "list the values to look for")
        payloads, rejected = opened(reports, self._head, self.size)
        cohorts = payloads[:, 0].astype(np.int64) + 256 * payloads[:, 1].astype(np.int64)
        ones = bytes_to_bits(payloads[:, 2:])
        accepted = (cohorts < self.cohorts) & ~ones[:, self.bits :].any(axis=1)
        rejected += int(np.count_nonzero(~accepted))
        cohorts, ones = cohorts[accepted], ones[accepted, : self.bits].astype(np.int64)
        if not cohorts.size:
            raise _check.fail("reports", "hold a valid one", f"{rejected} that are not", "check the protocol")
        low, high = (float(chance) for chance in self._marginals)
        apart = high - low
        present = np.bincount(cohorts, minlength=self.cohorts)
        target = np.zeros((self.cohorts, self.bits))
        np.add.at(target, cohorts, ones)
        observed = ((target - low * present[:, None]) / apart).ravel()
        # A cohort with a share of the devices holds that share of each candidate.
        share = present / present.sum()
        design = np.zeros((self.cohorts, self.bits, len(names)))
        for cohort in range(self.cohorts):
            for index, name in enumerate(names):
                design[cohort, self._positions(cohort, text(name)), index] = share[cohort]
        spread = np.repeat(np.sqrt(np.maximum(present, 1) * low * (1 - low)) / apart, self.bits)
        matrix = design.reshape(-1, len(names)) / spread[:, None]
        counts, _ = optimize.nnls(matrix, observed / spread)
        support = counts > 0
        errors = np.full(len(names), np.inf)
        if support.any():
            chosen = matrix[:, support]
            errors[support] = np.sqrt(np.diag(np.linalg.pinv(chosen.T @ chosen)))
        errors[~support] = 1 / np.sqrt((matrix[:, ~support] ** 2).sum(axis=0))
        p_values = np.minimum(1.0, len(names) * special.ndtr(-counts / errors))
        return RapporEstimate(names, counts, errors, p_values, int(cohorts.size), rejected)


def _random_bytes(shape: tuple[int, ...], bits: entropy.Bits) -> NDArray[np.uint8]:
    return np.frombuffer(bits.read(math.prod(shape)), dtype=np.uint8).reshape(shape)
