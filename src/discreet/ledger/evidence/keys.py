"""The steward's signing key, in a file outside of the database, and the public keys that others trust.

Signatures are Ed25519 (RFC 8032). A list of public keys is a file of JSON lines: the first key is trusted because
whoever verifies got the file from the steward, and each later one is signed by a key before it. So a key can be
replaced without asking everybody to trust a new file.
"""

from __future__ import annotations

import base64
import contextlib
import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import _check
from discreet.codec import canonical, parse
from discreet.errors import InvalidArgument, LedgerUnavailable, MissingExtra, NotALedger

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_ID_DIGITS = 16
# What everyone but the owner may not do with a signing key.
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_SUCCESSION = "succession"


class SigningKey:
    """A private key of the steward. Made by `create` and `load`."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = _raw(private.public_key())

    @classmethod
    def create(cls, path: str | Path) -> SigningKey:
        """Make a key and write it to a new file with mode 0600; an existing file is never overwritten."""
        ed25519, serialization = _cryptography()
        private = ed25519.Ed25519PrivateKey.generate()
        text = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise _check.fail("path", "be a new file", str(path), "a signing key is never overwritten") from None
        except OSError as error:
            raise _check.fail("path", "be a file that can be written", str(path), str(error.strerror)) from None
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        return cls(private)

    @classmethod
    def load(cls, path: str | Path) -> SigningKey:
        """Read a key. A file that others may read is refused: they could sign in the steward's name."""
        ed25519, serialization = _cryptography()
        try:
            with open(path, "rb") as file:
                shared = os.name == "posix" and os.fstat(file.fileno()).st_mode & _OTHERS
                text = file.read()
        except OSError as error:
            raise _check.fail("path", "be a file that can be read", str(path), str(error.strerror)) from None
        if shared:
            raise _check.fail("path", "be readable by its owner alone", str(path), "run chmod 600 on it")
        try:
            private = serialization.load_pem_private_key(text, None)
        except (ValueError, TypeError):
            raise _check.fail("path", "be a signing key", str(path), "discreet certificate key makes one") from None
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise _check.fail("path", "be an Ed25519 key", str(path), "discreet certificate key makes one")
        return cls(private)

    @property
    def id(self) -> str:
        """A short name of the key: the start of its public key's SHA-256."""
        return key_id(self.public)

    def sign(self, kind: str, value: dict[str, Any]) -> dict[str, Any]:
        """`value` with the key's name and a signature. `kind` keeps signatures of different things apart."""
        named = {**value, "key": self.id}
        return {**named, "signature": _text(self._private.sign(_message(kind, named)))}

    def tag(self, name: str, version: str, content: Iterable[bytes]) -> str:
        """An HMAC-SHA256 over a dataset's name, version and bytes, under a secret that only this key's owner has.

        A plain digest would confirm a guess: whoever knows all records but one could try the last one. The secret is
        derived from the signing key for this use alone, so tags reveal nothing that helps to sign.
        """
        _, serialization = _cryptography()
        seed = self._private.private_bytes(
            serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
        )
        secret = hmac.new(seed, b"discreet dataset tag", sha256).digest()
        inner = sha256()
        for block in content:
            inner.update(block)
        # Canonical JSON of two texts and a digest of fixed length: no two inputs have the same message.
        message = canonical([name, version, inner.hexdigest()])
        return hmac.new(secret, message.encode(), sha256).hexdigest()

    def succeed(self, successor: SigningKey, time: datetime | None = None) -> str:
        """One line for the list of public keys, by which this key hands over to `successor`."""
        value = {"public": _text(successor.public), "since": _time(time)}
        return canonical(self.sign(_SUCCESSION, value))

    def first_line(self, time: datetime | None = None) -> str:
        """The first line of a list of public keys that begins with this key."""
        return canonical({"public": _text(self.public), "since": _time(time)})


@dataclass(frozen=True)
class PublicKeys:
    """The steward's public keys, oldest first.

    Attributes:
        keys: the raw public keys by their short name.
        since: since when each was used.
    """

    keys: dict[str, bytes]
    since: dict[str, str]

    @classmethod
    def of_file(cls, path: str | Path) -> PublicKeys:
        """Read a list of public keys; every key after the first must be signed by one before it."""
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise _check.fail("keys", "be a readable list of public keys", str(path), "ask the steward") from error
        return cls.of_lines([line for line in lines if line.strip()], str(path))

    @classmethod
    def of_lines(cls, lines: Iterable[str], source: str = "the list") -> PublicKeys:
        """The keys of a list's lines."""
        public_keys = cls({}, {})
        for number, line in enumerate(lines, 1):
            try:
                value = parse(line)
                public = _bytes(value["public"])
                if number > 1:
                    public_keys.check(_SUCCESSION, value)
                public_keys.keys[key_id(public)] = public
                public_keys.since[key_id(public)] = str(value["since"])
            except (NotALedger, InvalidArgument, KeyError, TypeError, ValueError) as error:
                rule = "have a first key, and then keys that are each signed by one before"
                raise _check.fail(source, rule, f"line {number}", "ask the steward for the list again") from error
        if not public_keys.keys:
            raise _check.fail(source, "name a public key", "nothing", "discreet certificate key writes one")
        return public_keys

    def check(self, kind: str, value: object) -> str:
        """The name of the key that signed `value`; raises `NotALedger` if none of these keys did."""
        signed = dict(value) if isinstance(value, dict) else {}
        signature, name = signed.pop("signature", None), signed.get("key")
        public = self.keys.get(name) if isinstance(name, str) else None
        if public is None:
            raise NotALedger(f"it is signed by key {name!r}, which is not among the steward's public keys")
        ed25519, _ = _cryptography()
        from cryptography.exceptions import InvalidSignature

        with contextlib.suppress(InvalidSignature, ValueError, TypeError):
            ed25519.Ed25519PublicKey.from_public_bytes(public).verify(_bytes(signature), _message(kind, signed))
            return str(name)
        raise NotALedger("the signature does not match: it was changed after it was signed, or not signed by this key")


def key_id(public: bytes) -> str:
    """The short name of a public key."""
    return sha256(public).hexdigest()[:_ID_DIGITS]


def rotate(old: SigningKey, new_path: str | Path, list_path: str | Path) -> SigningKey:
    """Make a new key and append it, signed by the old one, to the list of public keys; return the new key.

    Delete the old key's file afterwards. What it signed stays valid, and so do the tags of datasets in certificates,
    which only the old key can compute again: keep it offline if you may have to.
    """
    PublicKeys.of_file(list_path)  # refuses a list that others could not follow
    new = SigningKey.create(new_path)
    append_line(list_path, old.succeed(new))
    return new


def append_line(path: str | Path, line: str) -> None:
    """Append one line to a file, on disk when this returns."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LedgerUnavailable(f"nothing can be written to {str(path)!r}: {error.strerror}") from error


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingExtra("signatures need cryptography: pip install 'discreet[ledger]'") from error
    return ed25519, serialization


def _raw(public: Ed25519PublicKey) -> bytes:
    _, serialization = _cryptography()
    raw: bytes = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return raw


def _message(kind: str, value: dict[str, Any]) -> bytes:
    return f"discreet {kind} 1\n{canonical(value)}".encode()


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError(text)
    return base64.b64decode(text, validate=True)


def _time(time: datetime | None) -> str:
    return (time or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds")
