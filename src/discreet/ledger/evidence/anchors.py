"""Signed heads of a ledger, kept outside of it, so that a rollback is noticed without anybody's receipts.

A head names the last entry of every account with its hash, which covers all entries before it. Someone who puts back an
older copy, or rewrites history, would have to change the file of heads as well, and cannot sign a new one.
"""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.codec import canonical, parse
from discreet.errors import LedgerUnavailable, NotALedger
from discreet.ledger.access import book
from discreet.ledger.evidence.keys import PublicKeys, SigningKey, append_line
from discreet.ledger.ledger import Ledger
from discreet.ledger.receipt import Anchor
from discreet.ledger.stores import records
from discreet.ledger.stores.base import Transaction
from discreet.ledger.verify import Verification

_KIND = "head"
# Seconds that a command or a webhook may take.
_PATIENCE = 30


@dataclass(frozen=True)
class SignedHead:
    """Where every account stood at one moment, signed.

    Attributes:
        time: when it was signed, by the ledger's clock.
        anchors: the last entry of each account.
        changes: how many changes of users, tokens and policies there were, and the hash of the last one.
        text: the head as JSON, with its signature.
    """

    time: str
    anchors: tuple[Anchor, ...]
    changes: tuple[int, str] | None
    text: str

    @classmethod
    def of_text(cls, text: str, keys: PublicKeys) -> SignedHead:
        """Read a head; one that none of `keys` signed is refused."""
        keys.check(_KIND, parse(text))
        return cls.unchecked(text)

    @classmethod
    def unchecked(cls, text: str) -> SignedHead:
        """Read a head without its signature, where believing too much can only refuse too much."""
        value: Any = parse(text)
        try:
            anchors = tuple(Anchor(name, *value["accounts"][name]) for name in sorted(value["accounts"]))
            changes = None if value["changes"] is None else (value["changes"][0], value["changes"][1])
            return cls(value["time"], anchors, changes, text)
        except (KeyError, TypeError) as error:
            raise NotALedger("a signed head is not readable") from error


def sign_head(ledger: Ledger, key: SigningKey) -> SignedHead:
    """Sign where every account stands now, read from one consistent snapshot."""

    def work(transaction: Transaction) -> tuple[list[Anchor], tuple[int, str] | None]:
        rows = [records.existing(transaction, name) for name in records.names(transaction)]
        changes = book.head(transaction) if book.exists(transaction) else None
        return [Anchor(row.name, row.sequence, row.head) for row in rows], changes

    backend = ledger.backend
    time = backend.timestamp()
    anchors, changes = backend.read(work)
    value = {
        "accounts": {anchor.account: [anchor.sequence, anchor.hash] for anchor in anchors},
        "changes": None if changes is None else list(changes),
        "time": time,
    }
    return SignedHead(time, tuple(anchors), changes, canonical(key.sign(_KIND, value)))


def missing(ledger: Ledger, head: SignedHead) -> str:
    """What of a signed head the ledger no longer has, or "". It reads one row of each account."""

    def work(transaction: Transaction) -> str:
        for anchor in head.anchors:
            row = records.by_sequence(transaction, anchor.account, anchor.sequence)
            if row is None or row[1] != anchor.hash:
                return (
                    f"row {anchor.sequence} of account {anchor.account!r} is missing or another than the one that was "
                    f"signed at {head.time}: an older copy was restored, or history was rewritten"
                )
        if head.changes is not None:
            stored = book.change_hash(transaction, head.changes[0]) if book.exists(transaction) else None
            if head.changes[0] and stored != head.changes[1]:
                return f"change {head.changes[0]} of users and policies is not the one that was signed at {head.time}"
        return ""

    return ledger.read(work)


class AnchorFile:
    """A file of signed heads, one per line, on storage that whoever can write to the ledger cannot change.

    Args:
        path: the file; it is created if needed.
        command: a command that also gets each head on its standard input, for example to store it elsewhere.
        webhook: a URL that each head is also posted to.
    """

    def __init__(self, path: str | Path, *, command: Sequence[str] = (), webhook: str | None = None) -> None:
        self._path = Path(path)
        self._command = tuple(command)
        self._webhook = webhook
        if webhook is not None and not webhook.startswith(("https://", "http://")):
            raise _check.fail("webhook", "be an http:// or https:// URL", webhook, "heads are posted to it")

    def append(self, ledger: Ledger, key: SigningKey) -> SignedHead:
        """Sign where the ledger stands and keep it outside. Nothing is kept if nothing changed since the last head.

        Raises:
            NotALedger: the ledger no longer has what the last head names. A head of an older copy would hide that from
                everybody who looks at the last one. Whoever accepts the loss starts a new file.
        """
        head = sign_head(ledger, key)
        last = self._last_line()
        if last is not None:
            if gone := missing(ledger, SignedHead.unchecked(last)):
                raise NotALedger(f"the ledger must have what the last head in {str(self._path)!r} names: {gone}")
            before = parse(last)
            now = parse(head.text)
            same = ("accounts", "changes", "key")
            if isinstance(before, dict) and all(before.get(name) == now[name] for name in same):
                return head
        append_line(self._path, head.text)
        self._send(head.text)
        return head

    def heads(self, keys: PublicKeys) -> tuple[SignedHead, ...]:
        """All heads of the file, oldest first; a line that none of `keys` signed is refused."""
        return tuple(SignedHead.of_text(line, keys) for line in self._lines())

    def check(self, ledger: Ledger, keys: PublicKeys) -> str:
        """What the ledger no longer has of the last head, or ""; quick, for a server that starts."""
        last = self._last_line()
        return "" if last is None else missing(ledger, SignedHead.of_text(last, keys))

    def verify(self, ledger: Ledger, keys: PublicKeys) -> Verification:
        """Verify the whole ledger, and that it has every row of every head."""
        heads = self.heads(keys)
        anchors = {anchor for head in heads for anchor in head.anchors}
        result = ledger.verify(anchors)
        if not result:
            return result
        for head in heads:
            gone = missing(ledger, head)
            if gone:
                return Verification(result.accounts, result.entries, problem=gone)
        return result

    def _lines(self) -> list[str]:
        try:
            return [line for line in self._path.read_text("utf-8").splitlines() if line.strip()]
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerUnavailable(f"the heads in {str(self._path)!r} cannot be read") from error

    def _last_line(self) -> str | None:
        lines = self._lines()
        return lines[-1] if lines else None

    def _send(self, text: str) -> None:
        """Pass a head on. A failure is an error: a head that stays here is not anchored outside."""
        try:
            if self._command:
                subprocess.run(self._command, input=text.encode(), check=True, timeout=_PATIENCE, capture_output=True)
            if self._webhook is not None:
                request = urllib.request.Request(
                    self._webhook, text.encode(), {"Content-Type": "application/json"}, method="POST"
                )
                urllib.request.urlopen(request, timeout=_PATIENCE).close()
        except (OSError, subprocess.SubprocessError) as error:
            raise LedgerUnavailable(
                f"a signed head was written to {str(self._path)!r} but could not be passed on ({type(error).__name__})"
            ) from error
