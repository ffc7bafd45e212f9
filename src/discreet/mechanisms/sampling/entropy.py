"""The source of random bits: the operating system or, for tests and teaching only, a seed.

Every sampler asks a `Bits` for words and for integers of any length; nothing else in Discreet draws randomness for a
release. `SystemBits` has a buffer, which makes small requests cheap. No buffered byte may be used twice, so the buffer
is emptied in a forked child and never copied or pickled.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check

_BUFFER = 1 << 13  # bytes per call to the operating system


class Bits(ABC):
    """A source of independent fair bits."""

    #: Whether the bits are unpredictable. A release made with predictable bits is marked `events.Insecure`.
    secure: bool = False

    @abstractmethod
    def read(self, count: int) -> bytes:
        """`count` fresh random bytes."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` independent uniform 64-bit words."""
        return np.frombuffer(self.read(8 * count), dtype=np.uint64)

    def half_words(self, count: int) -> NDArray[np.uint32]:
        """`count` independent uniform 32-bit words."""
        return np.frombuffer(self.read(4 * count), dtype=np.uint32)

    def integer(self, width: int) -> int:
        """A uniform integer in [0, 2^width)."""
        return int.from_bytes(self.read((width + 7) // 8), "little") >> (-width % 8)


class SystemBits(Bits):
    """The operating system's generator, buffered. Safe to use from threads and after a fork."""

    secure = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buffer = b""
        self._owner = os.getpid()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def read(self, count: int) -> bytes:
        if count >= _BUFFER // 4:
            return os.urandom(count)
        with self._lock:
            # Compare the process id as well: a fork outside Python runs no hooks.
            if self._owner != os.getpid():
                self._buffer, self._owner = b"", os.getpid()
            if len(self._buffer) < count:
                self._buffer = os.urandom(_BUFFER)
            taken, self._buffer = self._buffer[:count], self._buffer[count:]
            return taken

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._buffer, self._owner = b"", os.getpid()

    def __reduce__(self) -> str:
        return "SYSTEM"  # copies and pickles refer to the one source instead of duplicating its buffer


#: The one source that secure releases use.
SYSTEM = SystemBits()


class SeededBits(Bits):
    """Bits determined by a seed, from numpy's Philox, for tests and teaching.

    Whoever knows the seed can remove the noise.
    """

    secure = False

    def __init__(self, insecure_seed: int) -> None:
        seed = _check.integer(
            "insecure_seed", insecure_seed, "it makes the noise repeatable, and so not private", at_least=0
        )
        self._generator = np.random.Generator(np.random.Philox(seed))

    def read(self, count: int) -> bytes:
        return self._generator.bytes(count)


def bits(insecure_seed: int | None = None) -> Bits:
    """The system's bits, or those of `insecure_seed` if one is given."""
    return SYSTEM if insecure_seed is None else SeededBits(insecure_seed)


# --- long streams from one key ------------------------------------------------------------------------------------

#: numpy's generator, under a name of this module: other files do not use numpy's random numbers directly.
Generator = np.random.Generator
_PYTHON: Any = importlib.import_module("random")  # looked at and seeded for others, and never drawn from here
#: Python's own generator, for code that must recognize one.
PythonGenerator: Any = _PYTHON.Random

KEY_BYTES = 32


def fresh_key(insecure_seed: int | None = None) -> bytes:
    """A key for `derived` and `keyed`: from the operating system, or determined by `insecure_seed`."""
    return bits(insecure_seed).read(KEY_BYTES)


def derived(key: bytes, *path: str | int, size: int = 16) -> bytes:
    """`size` bytes that look random without `key`, and differ for each `path` (BLAKE2b, RFC 7693)."""
    return hashlib.blake2b(repr(path).encode(), key=key, digest_size=size).digest()


def keyed(key: bytes, *path: str | int) -> Generator:
    """numpy's Philox4x64-10, a counter-based generator, under the 128-bit key derived from `key` at `path`.

    It draws and shuffles the batches of a training. The stream can be recreated from its key and path, two paths
    never share a stream, and a search for the key would take 2¹²⁷ tries. Philox passes the standard statistical tests
    (Salmon et al. 2011) but is not proved to be a cipher, so it is not used for noise.
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(derived(key, *path), "little")))


@contextmanager
def own_global_generators(seed: int) -> Iterator[None]:
    """Give foreign code its own numbers from Python's and numpy's global generators, and put the old states back.

    Code that draws from them leaves them where its data led it; whoever draws next would depend on that data.
    """
    states = _PYTHON.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        _PYTHON.seed(seed)
        np.random.seed(seed % (1 << 32))  # noqa: NPY002
        yield
    finally:
        _PYTHON.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
