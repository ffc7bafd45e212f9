"""Tells the steward when half, four fifths or all of a budget is used: in the log, and to a webhook if there is one."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from discreet.apps.server.curator import Curator

_log = logging.getLogger("discreet.server")
#: Seconds between two looks at the accounts that were charged, and the most that a webhook may take.
_EVERY, _PATIENCE = 2.0, 5.0


class Alerts:
    """Looks at accounts some time after they were charged. No question waits for it."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._charged: set[str] = set()
        self._lock = threading.Lock()

    def charged(self, account: str) -> None:
        """Remember to look at an account, and at those above it."""
        levels = account.split("/")
        with self._lock:
            self._charged |= {"/".join(levels[: depth + 1]) for depth in range(len(levels))}

    async def watch(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        """Look again and again until the server stops."""
        while True:
            await asyncio.sleep(_EVERY)
            await in_thread(self.look)

    def look(self) -> None:
        """Tell what is due now."""
        with self._lock:
            accounts, self._charged = sorted(self._charged), set()
        for account in accounts:
            try:
                for share in self._curator.access.due_alerts(account):
                    self._tell(account, share)
            except Exception as error:  # an alert that fails must not stop the others
                _log.error("no alert for %s: %s", account, type(error).__name__)

    def _tell(self, account: str, share: float) -> None:
        _log.warning("account %s has used %.0f%% of its budget", account, 100 * share)
        address = self._curator.webhook
        if address is None:
            return
        body = json.dumps({"account": account, "share": share}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE):
                pass
        except OSError as error:
            _log.error("the webhook was not reached: %s", type(error).__name__)
