"""Sessions of the pages: a cookie with the token's id and an HMAC, and a check that a form came from our own page.

The cookie is HttpOnly and SameSite=Strict: no script reads it, and no other site's form or link sends it. Each form
also holds a value that is derived from the session, and the request's origin must be this server, so that a browser
which ignores SameSite changes nothing.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from discreet.apps.server.oidc import SignIn
from discreet.errors import AccessDenied, LedgerUnavailable
from discreet.ledger.access import Access, Identity
from discreet.ledger.access.guard import OIDC

#: Seconds that a session lasts; for a sign-in through a provider it is short, because the provider cannot end it.
_LASTS, _LASTS_OIDC = 8 * 3600, 3600
_SECRET_BYTES = 32


@dataclass(frozen=True)
class Session:
    """A session: who it is, and the value that its forms must have."""

    identity: Identity
    form_value: str


class Sessions:
    """Makes and checks the cookies of one server. All workers that share the secret accept each other's."""

    def __init__(self, secret: bytes, access: Access, sign_in: SignIn) -> None:
        self._secret = secret
        self._access = access
        self._sign_in = sign_in

    def start(self, token: str) -> tuple[str, int]:
        """The cookie of a new session for a token, and how many seconds it lasts; raises `AccessDenied`."""
        identity = self._sign_in(token)
        lasts = _LASTS_OIDC if identity.token_id.startswith(OIDC) else _LASTS
        named = base64.urlsafe_b64encode(identity.token_id.encode()).decode()
        facts = f"{named}.{int(time.time()) + lasts}"
        return f"{facts}.{self._mac('session', facts)}", lasts

    def open(self, cookie: str | None) -> Session:
        """The session of a cookie; raises `AccessDenied` unless it is ours, not over, and its token still valid."""
        fields = (cookie or "").split(".")
        if len(fields) != 3:
            raise AccessDenied("no session")
        named, ends, mac = fields
        ours = hmac.compare_digest(mac.encode(), self._mac("session", f"{named}.{ends}").encode())
        if not ours or not ends.isdigit() or int(ends) < time.time():
            raise AccessDenied("the session is over, or belongs to another server")
        token_id = base64.urlsafe_b64decode(named.encode()).decode()
        if token_id.startswith(OIDC):
            identity = self._access.identity_of(token_id.removeprefix(OIDC))
        else:
            identity = self._access.still_valid(token_id)
        return Session(identity, self._mac("form", mac))

    def form_matches(self, session: Session, value: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(session.form_value.encode(), value.encode())

    def _mac(self, use: str, text: str) -> str:
        return hmac.new(self._secret, f"{use}\n{text}".encode(), sha256).hexdigest()


def shared_secret(folder: Path) -> bytes:
    """The secret of all workers that use this folder: a file of mode 0600, made by the first of them."""
    path = folder / "session.key"
    try:
        if not path.exists():
            temporary = folder / f".session.key.{secrets.token_hex(8)}"
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(_SECRET_BYTES))
            try:
                os.link(temporary, path)  # the first one wins, and nobody reads half a secret
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        secret = path.read_bytes()
    except OSError as error:
        raise LedgerUnavailable(f"the secret of sessions in {str(path)!r} cannot be used: {error.strerror}") from error
    if len(secret) < _SECRET_BYTES:
        raise LedgerUnavailable(f"the secret of sessions in {str(path)!r} is too short: delete it")
    return secret
