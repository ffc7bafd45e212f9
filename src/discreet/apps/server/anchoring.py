"""Signed heads while the server runs: one at each interval, kept outside of the ledger, and checked at each start."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet.errors import DiscreetError, NotALedger
from discreet.ledger import Ledger
from discreet.ledger.evidence import AnchorFile, PublicKeys, SigningKey

_log = logging.getLogger("discreet.server")


@dataclass(frozen=True)
class AnchorConfig:
    """Where signed heads go.

    Attributes:
        key: the file of the steward's signing key.
        keys: the list of public keys, by which the last head is checked when the server starts.
        to: the file of heads, on storage that whoever can write to the ledger cannot change.
        minutes: how often a head is signed, if anything changed.
        command: a command that also gets each head.
        webhook: an address that each head is also posted to.
    """

    key: Path
    keys: Path
    to: Path
    minutes: float = 15.0
    command: tuple[str, ...] = ()
    webhook: str | None = None


class Anchoring:
    """The signed heads of one server."""

    def __init__(self, ledger: Ledger, config: AnchorConfig) -> None:
        """Refuses a ledger that no longer has what the last head says."""
        self._ledger = ledger
        self._every = 60.0 * config.minutes
        self._lock = threading.Lock()
        self._key = SigningKey.load(config.key)
        self._file = AnchorFile(config.to, command=config.command, webhook=config.webhook)
        gone = self._file.check(ledger, PublicKeys.of_file(config.keys))
        if gone:
            raise NotALedger(f"{gone}; the server does not start on it: ask whoever restored it, and see the backups")

    def sign(self) -> None:
        """Sign where the ledger stands, if anything changed. A failure is logged: the next one is tried later."""
        try:
            with self._lock:  # so that the last line is the newest head
                self._file.append(self._ledger, self._key)
        except DiscreetError as error:
            _log.error("no signed head was kept outside: %s", error)

    async def watch(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        """Sign at each interval until cancelled."""
        while True:
            await in_thread(self.sign)
            await asyncio.sleep(self._every)
