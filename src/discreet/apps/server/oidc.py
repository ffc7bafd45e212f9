"""Sign-in through an identity provider: signed JSON Web Tokens that are checked against the provider's public keys.

The provider says who somebody is. What they may do is still the steward's word: only a user whom the steward has added
is let in, with that user's role.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt

from discreet import _check
from discreet.errors import AccessDenied, LedgerUnavailable
from discreet.ledger.access import Access, Identity

#: Signatures with a public key only. With HS256 whoever knows the public key could sign; "none" is no signature.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED = ["exp", "iat", "iss", "aud"]
#: Seconds by which clocks may differ.
_LEEWAY = 30
#: Seconds after which keys are fetched again; and at the earliest, for a token that names an unknown key.
_FRESH, _AT_THE_EARLIEST = 3600.0, 60.0
#: Seconds and bytes that the provider's keys may take.
_PATIENCE, _LARGEST = 10.0, 1 << 20


@dataclass(frozen=True)
class Provider:
    """An identity provider.

    Attributes:
        issuer: the `iss` that tokens must have.
        audience: the `aud` that tokens must have: this server's own name at the provider.
        keys: the https:// address of its public keys (JWKS), or the path of a file with them.
        claim: the claim that is a user's name here.
    """

    issuer: str
    audience: str
    keys: str
    claim: str = "sub"

    def __post_init__(self) -> None:
        for name in ("issuer", "audience", "keys", "claim"):
            if not getattr(self, name):
                raise _check.fail(name, "be given", getattr(self, name), "the identity provider's pages say it")
        if "://" in self.keys and not self.keys.startswith("https://"):
            remedy = "whoever can change them on the way can sign in as anybody"
            raise _check.fail("keys", "be an https:// address or a file", self.keys, remedy)


class SignIn:
    """Who a bearer token belongs to: one of the ledger's own tokens, or a signed token of the provider."""

    def __init__(self, access: Access, provider: Provider | None = None) -> None:
        self._access = access
        self._provider = provider
        self._lock = threading.Lock()
        self._keys: dict[str, Any] = {}
        self._fetched = float("-inf")

    def __call__(self, token: str) -> Identity:
        """The identity of a token.

        Raises:
            AccessDenied: it is not valid, for whatever reason.
        """
        if self._provider is None or token.count(".") != 2:
            return self._access.authenticate(token)
        return self._access.identity_of(self._user(self._provider, token))

    def _user(self, provider: Provider, token: str) -> str:
        try:
            name = jwt.get_unverified_header(token).get("kid")
            claims = jwt.decode(
                token,
                self._key(provider, name),
                algorithms=list(_ALGORITHMS),
                issuer=provider.issuer,
                audience=provider.audience,
                leeway=_LEEWAY,
                options={"require": _REQUIRED},
            )
        except (
            jwt.PyJWTError,
            TypeError,
            ValueError,
        ) as error:  # TypeError: a key of another kind
            raise AccessDenied(f"a token of the identity provider is not valid ({type(error).__name__})") from None
        user = claims.get(provider.claim)
        # An address that the provider has not checked is whatever its user typed.
        checked = provider.claim != "email" or claims.get("email_verified") is True
        if not isinstance(user, str) or not user or not checked:
            raise AccessDenied(f"a token of the identity provider has no claim {provider.claim!r} that can be used")
        return user

    def _key(self, provider: Provider, name: object) -> Any:
        """The provider's public key of this name. A stranger's names cannot make the server fetch again and again."""
        with self._lock:
            age = time.monotonic() - self._fetched
            if age > _FRESH or (name not in self._keys and age > _AT_THE_EARLIEST):
                self._fetched = time.monotonic()
                self._keys = _fetched(provider.keys)
            if not isinstance(name, str) or name not in self._keys:
                raise AccessDenied("a token of the identity provider names an unknown key")
            return self._keys[name]


def _fetched(address: str) -> dict[str, Any]:
    """The provider's public keys by name; keys of other uses and kinds, and broken ones, are left out."""
    try:
        if "://" in address:
            with urllib.request.urlopen(address, timeout=_PATIENCE) as answer:
                text = answer.read(_LARGEST)
        else:
            text = Path(address).read_bytes()[:_LARGEST]
        listed = json.loads(text)["keys"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LedgerUnavailable("the keys of the identity provider cannot be read: try again") from error
    keys = {}
    for entry in listed:
        if isinstance(entry, dict) and entry.get("use", "sig") == "sig" and entry.get("kty") in ("RSA", "EC", "OKP"):
            with contextlib.suppress(jwt.PyJWTError, TypeError, ValueError):  # of a kind that is not known here
                key = jwt.PyJWK(entry)
                if isinstance(key.key_id, str):
                    keys[key.key_id] = key.key
    return keys
