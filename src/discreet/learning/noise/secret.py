"""The key that a run's noise and batches are derived from: 32 bytes of the operating system."""

from __future__ import annotations

import os

from discreet.errors import DiscreetError
from discreet.learning.noise.keystream import Keystream
from discreet.mechanisms.sampling import entropy


class Secret:
    """The key of one run's noise or sampling. It is never shown or pickled.

    `insecure_seed` is for tests and teaching only: a ledger refuses the event of a plan made with it.
    """

    __slots__ = ("_hidden", "_owner", "secure")

    def __init__(self, insecure_seed: int | None = None, *, key: bytes | None = None) -> None:
        self._hidden = entropy.fresh_key(insecure_seed) if key is None else key
        self._owner = os.getpid()
        self.secure = insecure_seed is None

    @property
    def _key(self) -> bytes:
        if self._owner != os.getpid():
            raise DiscreetError(
                "a training must stay in the process that started it: after a fork both processes would draw the same "
                "noise, and it would cancel in the difference of their releases; make the step and the batches in the "
                "new process"
            )
        return self._hidden

    def at(self, *path: str | int) -> Secret:
        """The secret at a path, such as one step. Without the key nobody can tell it from a fresh one."""
        child = Secret(key=entropy.derived(self._key, "secret", *path, size=entropy.KEY_BYTES))
        child.secure = self.secure
        return child

    def stream(self, *path: str | int) -> entropy.Generator:
        """numpy's random numbers on the CPU, for drawing batches."""
        return entropy.keyed(self._key, *path)

    def keystream(self, *path: str | int) -> Keystream:
        """The bits of a cipher on the CPU, for noise."""
        return Keystream(entropy.derived(self._key, "keystream", *path, size=entropy.KEY_BYTES))

    def cipher_key(self, *path: str | int) -> bytes:
        """A key for ChaCha20 on a device, for one draw of noise."""
        return entropy.derived(self._key, "cipher", *path, size=entropy.KEY_BYTES)

    def reveal(self) -> bytes:
        """The key itself, for the other processes of this run, and for checkpoints of samplers without secrecy."""
        return self._key

    def __repr__(self) -> str:
        return "Secret()"

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be written to a file: whoever reads it could remove the noise")
