"""Bearer tokens: 256 random bits that are shown once, and of which only the SHA-256 is stored.

A plain hash is enough here, unlike for passwords: nobody can guess 256 random bits, however fast the hash is.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

_PREFIX = "dsc"  # so that scanners for leaked secrets can recognize a token
_ID_BYTES = 9
_SECRET_BYTES = 32
_TEXT = re.compile(r"dsc_([0-9a-f]{18})_([A-Za-z0-9_-]{43})")
# Compared where there is no such token, so that unknown and known ids take the same path.
_NO_TOKEN = sha256(secrets.token_bytes(_SECRET_BYTES)).hexdigest()


@dataclass(frozen=True)
class Token:
    """A token as it is stored: everything but its secret.

    Attributes:
        id: the public part, which names the token in lists and in the record.
        user: whose token it is.
        scopes: what it may do.
        share: the account that it may spend from, or None for the user's own part of each account.
        issued: when it was issued.
        expires: when it stops being valid.
        revoked: whether it was revoked.
    """

    id: str
    user: str
    scopes: frozenset[str]
    share: str | None
    issued: datetime
    expires: datetime
    revoked: bool = False

    def body(self, digest: str) -> dict[str, Any]:
        """What is stored of a token, beside its id."""
        return {
            "digest": digest,
            "expires": self.expires.isoformat(),
            "issued": self.issued.isoformat(),
            "revoked": self.revoked,
            "scopes": sorted(self.scopes),
            "share": self.share,
            "user": self.user,
        }

    @classmethod
    def of_body(cls, name: str, body: dict[str, Any]) -> Token:
        """The token of what is stored."""
        return cls(
            id=name,
            user=body["user"],
            scopes=frozenset(body["scopes"]),
            share=body["share"],
            issued=datetime.fromisoformat(body["issued"]),
            expires=datetime.fromisoformat(body["expires"]),
            revoked=body["revoked"],
        )


def fresh() -> tuple[str, str, str]:
    """A new token: its text, its public id, and the digest to store."""
    token_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
    return f"{_PREFIX}_{token_id}_{secret}", token_id, digest(secret)


def parts(text: object) -> tuple[str, str] | None:
    """The id and the secret of a token's text; None for any other text."""
    match = _TEXT.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (match[1], match[2])


def digest(secret: str) -> str:
    """What is stored of a secret."""
    return sha256(secret.encode()).hexdigest()


def matches(secret: str, stored: str | None) -> bool:
    """Whether a secret is the stored one; takes the same time for every secret, and where nothing is stored."""
    same = hmac.compare_digest(digest(secret), _NO_TOKEN if stored is None else stored)
    return same and stored is not None
