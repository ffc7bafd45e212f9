"""Reports on the wire: a version, a fingerprint of the protocol, and a payload of a fixed number of bytes.

A server can tell a foreign or a malformed report from a valid one, and counts those that it rejects. It cannot tell a
lie from the truth: whoever controls a device can send any valid report (`Influence` says how much that can change).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.events import Event

#: The version of the wire format: the first byte of every report. A protocol whose payloads changed has a later one.
VERSION = 1
_FINGERPRINT = 4

Payloads = NDArray[np.uint8]


def header(protocol: object, version: int = VERSION) -> bytes:
    """The version and the fingerprint of a protocol: equal for protocols that agree in every parameter."""
    return bytes([version]) + hashlib.blake2b(repr(protocol).encode(), digest_size=_FINGERPRINT).digest()


@dataclass(frozen=True, eq=False)
class Reports:
    """Many reports of one protocol. Iterating gives what each device sends, as bytes.

    Attributes:
        head: the version and the fingerprint of the protocol.
        payloads: one row of bytes for each report.
        event: the event of each person's report; marked as insecure if the reports are repeatable.
    """

    head: bytes
    payloads: Payloads
    event: Event

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[bytes]:
        return (self.head + row.tobytes() for row in self.payloads)

    def __repr__(self) -> str:
        return f"<{len(self)} local reports of {len(self.head) + self.payloads.shape[1]} bytes>"


def opened(reports: Reports | Iterable[bytes], head: bytes, size: int) -> tuple[Payloads, int]:
    """The payloads of the reports that belong to a protocol, and how many do not."""
    if isinstance(reports, Reports):
        if reports.head != head or reports.payloads.shape[1] != size:
            return np.zeros((0, size), dtype=np.uint8), len(reports)
        return reports.payloads, 0
    kept, rejected = [], 0
    for report in reports:
        if isinstance(report, bytes) and len(report) == len(head) + size and report.startswith(head):
            kept.append(report[len(head) :])
        else:
            rejected += 1
    payloads = np.frombuffer(b"".join(kept), dtype=np.uint8).reshape(len(kept), size)
    return payloads, rejected


def integers_to_bytes(values: NDArray[np.int64], size: int) -> Payloads:
    """Integers as `size` bytes each, least significant first."""
    return np.ascontiguousarray(values.astype("<i8")).view(np.uint8).reshape(len(values), 8)[:, :size]


def bytes_to_integers(payloads: Payloads) -> NDArray[np.int64]:
    """The inverse of `integers_to_bytes`, for at most 7 bytes."""
    padded = np.zeros((len(payloads), 8), dtype=np.uint8)
    padded[:, : payloads.shape[1]] = payloads
    return padded.view("<i8").reshape(len(payloads)).astype(np.int64)


def bits_to_bytes(bits: NDArray[np.bool_]) -> Payloads:
    """Rows of bits as bytes, the first bit lowest, with zeros at the end.

    All rows are packed as one: numpy packs along an axis of many short rows at a small fraction of that speed.
    """
    rows, width = bits.shape
    size = -(-width // 8)
    if width % 8:
        padded = np.zeros((rows, 8 * size), dtype=np.bool_)
        padded[:, :width] = bits
        bits = padded
    return np.packbits(bits.reshape(-1), bitorder="little").reshape(rows, size)


def bytes_to_bits(payloads: Payloads) -> NDArray[np.uint8]:
    """The inverse of `bits_to_bytes`, with the zeros at the end."""
    rows, size = payloads.shape
    return np.unpackbits(payloads.reshape(-1), bitorder="little").reshape(rows, 8 * size)
