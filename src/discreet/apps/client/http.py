"""HTTP for the client, with the standard library alone: one connection that stays open, JSON both ways.

Redirects are not followed, because they would carry the token elsewhere. A plain `http://` address is refused unless it
is this machine's own.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from discreet import _check, errors

#: The most bytes of an answer that are read: a server that sends more is not one of ours.
_LONGEST_ANSWER = 1 << 30


class RequestRefused(errors.DiscreetError):
    """The server refused a request for a reason that has no error of its own here.

    Attributes:
        status: the HTTP status.
        code: the server's word for it.
        charged: whether the ledger was charged all the same.
        approval: the number of the approval that the question waits for, or None.
    """

    def __init__(
        self, status: int, code: str, message: str, charged: bool = False, approval: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.charged = charged
        self.approval = approval


class Unreachable(RequestRefused):
    """The server was not reached, or broke off: it is not known whether the request was carried out."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "unreachable", message)


#: What the server calls an error, and what raises it in Python.
_ERRORS: dict[str, type[errors.DiscreetError]] = {
    "invalid": errors.InvalidArgument,
    "budget_exceeded": errors.BudgetExceeded,
    "policy_refused": errors.PolicyRefused,
    "key_reused": errors.KeyReused,
    "answer_lost": errors.Exhausted,
    "ledger_busy": errors.LedgerBusy,
    "ledger_unavailable": errors.LedgerUnavailable,
    "terms_differ": errors.TermsDiffer,
}


class Http:
    """One server and one token. Threads share the connection and take turns."""

    def __init__(self, url: str, token: str, timeout: float) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname or address.query or address.fragment:
            raise _check.fail("url", "be the address of a server", url, "such as https://curator.example.org")
        if address.username is not None or address.password is not None:
            raise _check.fail("url", "hold no password", "one with a user", "the token is a separate argument")
        if address.scheme == "http" and not _is_local(address.hostname):
            remedy = "a token sent over plain HTTP can be read on the way"
            raise _check.fail("url", "start with https:// unless the server runs on this machine", url, remedy)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
            raise _check.fail("token", "be a token's text", type(token).__name__, "the steward issues it")
        self._secure = address.scheme == "https"
        self._host, self._port, self._prefix = address.hostname, address.port, address.path.rstrip("/")
        self._token = token.strip()
        self._timeout = float(_check.positive("timeout", timeout, "it is how many seconds to wait for an answer"))
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None, repeatable: bool = False
    ) -> Any:
        """The JSON answer to a request. One that is `repeatable` is sent once more if an idle connection had closed."""
        text = self._text(method, path, body, key, repeatable)
        try:
            return json.loads(text)
        except ValueError:
            raise Unreachable("the server did not answer in JSON: check the address") from None

    def lines(self, path: str) -> Iterator[str]:
        """The lines of an answer."""
        yield from self._text("GET", path, None, None, True).decode().splitlines()

    def content(self, path: str) -> bytes:
        """The bytes of an answer."""
        return self._text("GET", path, None, None, True)

    def close(self) -> None:
        """Close the connection; it is opened again when needed."""
        with self._lock:
            self._drop()

    def _text(self, method: str, path: str, body: Any, key: str | None, repeatable: bool) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        content = None
        if method == "POST":
            content = json.dumps({} if body is None else body, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        if key is not None:
            headers["Idempotency-Key"] = key
        with self._lock:
            reused = self._connection is not None
            try:
                status, answer = self._exchange(method, path, content, headers)
            except (http.client.HTTPException, OSError):
                self._drop()
                if not (repeatable and reused):
                    raise Unreachable(
                        "the server cannot be reached: it may or may not have received the request"
                    ) from None
                try:
                    status, answer = self._exchange(method, path, content, headers)
                except (http.client.HTTPException, OSError):
                    self._drop()
                    raise Unreachable("the server cannot be reached: try again later") from None
        if status < 300:
            return answer
        raise error_of(status, answer)

    def _exchange(self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            if self._secure:
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        self._connection.request(method, self._prefix + path, content, dict(headers))
        response = self._connection.getresponse()
        answer = response.read(_LONGEST_ANSWER + 1)
        if len(answer) > _LONGEST_ANSWER:
            self._drop()
            raise Unreachable(f"an answer must have at most {_LONGEST_ANSWER} bytes, and this one has more")
        return response.status, answer

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def error_of(status: int, answer: bytes) -> errors.DiscreetError:
    """The exception for a server's refusal: the same that the work would have raised here, where there is one."""
    try:
        error = json.loads(answer)["error"]
        code, message, charged = str(error["code"]), str(error["message"]), bool(error["charged"])
    except (ValueError, KeyError, TypeError):
        return Unreachable(f"the server answered {status} in a form that is not its own: is this the right address?")
    if code == "approval_needed":
        return RequestRefused(status, code, message, charged, error.get("approval"))
    if status in (401, 403) and code in ("not_authenticated", "access_denied"):
        return errors.AccessDenied(message)
    kind = _ERRORS.get(code)
    return RequestRefused(status, code, message, charged) if kind is None else kind(message)


def segment(name: str) -> str:
    """A name as one part of an address."""
    return quote(name, safe="")


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
