"""One charge pays for one draw, and it belongs to the folder where the draw is kept.

A call with a key writes a random token into its folder first, then charges under the key and the token, and then draws.
After a crash, the same folder finds its own charge again. Another folder has another token: it can't draw for a charge
that was made elsewhere, however often it is tried.
"""

from __future__ import annotations

from discreet.errors import InvalidArgument
from discreet.ledger.account import Account
from discreet.mechanisms.sampling import entropy

#: Bytes of a token: no two folders get the same one.
_TOKEN_BYTES = 8


def fresh_token() -> str:
    """A token for a folder that holds nothing yet."""
    return entropy.fresh_key()[:_TOKEN_BYTES].hex()


def charge_key(key: str, stage: str, token: str) -> str:
    """The key of a charge in the ledger."""
    return f"{key}/{stage}/{token}"


def require_unused(account: Account | None, key: str, stages: tuple[str, ...], lost: str) -> None:
    """Refuse a key that was charged before, for a folder that holds nothing of it."""
    if account is None:
        return
    prefixes = tuple(f"{key}/{stage}/" for stage in stages)
    if any(entry.key is not None and entry.key.startswith(prefixes) for entry in account.history()):
        raise InvalidArgument(f"key must be new, got {key!r}: it was charged, and {lost}; use another key")
