"""A certificate: what one release or model was charged, what that guarantees, and on which data, signed by the steward.

It is JSON that a program can read without this library. A reader trusts it as far as the steward: the signature shows
who says so and that nothing was changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.forms.pure import pure
from discreet.accounting.tight import epsilon
from discreet.codec import canonical, decode_tree, encode_budget, encode_neighbors, encode_tree, parse
from discreet.errors import NotALedger, UnknownEvent
from discreet.events import Event
from discreet.guarantees import ApproxDP, Guarantee, PureDP
from discreet.ledger.evidence.anchors import sign_head
from discreet.ledger.evidence.keys import PublicKeys, SigningKey
from discreet.ledger.ledger import Ledger
from discreet.ledger.receipt import Anchor
from discreet.ledger.stores import records
from discreet.ledger.terms import Terms

_KIND = "certificate"
_FIELDS = {
    "account",
    "artifact",
    "dataset",
    "event",
    "format",
    "guarantee",
    "head",
    "issued",
    "key",
    "purpose",
    "row",
    "signature",
}
_FORMAT = "discreet certificate 1"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Certificate:
    """A certificate whose signature was checked.

    Attributes:
        text: the certificate as JSON.
        event: what ran.
        guarantee: what that alone guarantees, in words.
        budget: what everything charged to the account together guarantees, in words.
        dataset: the dataset's registered name and version.
        purpose: what it was for.
        anchor: the charge's row in the ledger, with its hash.
        key: the name of the key that signed it.
        issued: when it was issued.
    """

    text: str
    event: Event
    guarantee: str
    budget: str
    dataset: tuple[str, str]
    purpose: str
    anchor: Anchor
    key: str
    issued: str

    @classmethod
    def of_text(cls, text: str, keys: PublicKeys) -> Certificate:
        """Read a certificate; one that none of `keys` signed, or that contradicts itself, is refused."""
        value: Any = parse(text)
        key = keys.check(_KIND, value)
        if not isinstance(value, dict) or value.keys() != _FIELDS or value["format"] != _FORMAT:
            raise NotALedger("this is not a certificate of this version")
        event, row, dataset = decode_tree(value["event"]), value["row"], value["dataset"]
        return cls(
            text=text,
            event=event,
            guarantee=value["guarantee"]["alone"],
            budget=value["guarantee"]["account"],
            dataset=(dataset["name"], dataset["version"]),
            purpose=value["purpose"],
            anchor=Anchor(value["account"], row["sequence"], row["hash"]),
            key=key,
            issued=value["issued"],
        )

    def disagreement(self, *, artifact: str | Path | None = None, ledger: Ledger | None = None) -> str:
        """Why the certificate is not about this file, or not what this ledger says; "" if it is."""
        value: Any = parse(self.text)
        if artifact is not None and value["artifact"] != _digest(artifact):
            return "the certificate is about another file than this one"
        if ledger is None:
            return ""
        anchor = self.anchor
        row = ledger.read(lambda transaction: records.by_sequence(transaction, anchor.account, anchor.sequence))
        if row is None or row[1] != anchor.hash or row[0].event != self.event:
            return f"row {anchor.sequence} of account {anchor.account!r} is not the charge that was certified"
        terms = ledger.account(anchor.account).path[-1]
        if _guarantee(terms, self.event) != value["guarantee"]:
            return "the guarantee is not the one that this version computes for the event"
        return ""

    def has_tag(self, key: SigningKey, content: Iterable[bytes]) -> bool:
        """Whether the certified dataset has these bytes; only the holder of the key that tagged it can tell."""
        value: Any = parse(self.text)
        return bool(value["dataset"]["tag"] == key.tag(*self.dataset, content))


def certify(
    ledger: Ledger,
    account: str,
    sequence: int,
    key: SigningKey,
    *,
    dataset: str,
    version: str,
    content: Iterable[bytes] = (),
    artifact: str | Path | None = None,
) -> str:
    """A signed certificate of one charge, as JSON.

    Args:
        ledger: the ledger that has the charge.
        account: the account that was charged.
        sequence: the charge's row.
        key: the steward's signing key.
        dataset: the name under which the dataset is registered.
        version: which version of it was used.
        content: the dataset's bytes, for a tag that only the key's holder can compute. Nothing else of them is kept.
        artifact: the file that was released (a model, a table), whose SHA-256 binds the certificate to it.

    Guarantee:
        The certificate states the event that the ledger recorded and the guarantee of that event, computed now. It
        reveals the dataset's name, version and a keyed tag, and no digest of private data that others could try.
    """
    for name, text in (("dataset", dataset), ("version", version)):
        if not isinstance(text, str) or not text.strip():
            raise _check.fail(name, "be a text", text, "it names what the release was computed from")
    number = _check.integer("sequence", sequence, "it is the row of the charge", at_least=0)
    terms = ledger.account(account).path[-1]
    row = ledger.read(lambda transaction: records.by_sequence(transaction, terms.name, number))
    if row is None or row[0].event is None or row[0].kind not in {"spend", "reserve", "close"}:
        raise _check.fail(
            "sequence", f"be the row of a charge of account {terms.name!r}", sequence, "see its statement"
        )
    entry, stored = row
    if entry.event is None:
        raise NotALedger("a charge without an event")
    head = parse(sign_head(ledger, key).text)
    value = {
        "account": terms.name,
        "artifact": None if artifact is None else _digest(artifact),
        "dataset": {"name": dataset, "tag": key.tag(dataset, version, content), "version": version},
        "event": encode_tree(entry.event),
        "format": _FORMAT,
        "guarantee": _guarantee(terms, entry.event),
        "head": {"changes": head["changes"], "row": head["accounts"][terms.name], "time": head["time"]},
        "issued": ledger.backend.timestamp(),
        "purpose": entry.purpose,
        "row": {"hash": stored, "sequence": entry.sequence},
    }
    return canonical(key.sign(_KIND, value))


def file_blocks(path: str | Path) -> Iterable[bytes]:
    """The bytes of a file, in blocks."""
    try:
        with open(path, "rb") as file:
            while block := file.read(_BLOCK):
                yield block
    except OSError as error:
        raise _check.fail("FILE", "be a file that can be read", str(path), str(error.strerror)) from None


def _digest(path: str | Path) -> str:
    digest = sha256()
    for block in file_blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _guarantee(terms: Terms, event: Event) -> dict[str, Any]:
    """What an event guarantees alone, and what the account does altogether, in words and for machines."""
    alone = alone_guarantee(terms, event)
    return {
        "account": str(terms.promise),
        "alone": "no finite guarantee alone" if alone is None else str(alone.protecting(terms.neighbors)),
        "budget": encode_budget(terms.budget),
        "neighbors": encode_neighbors(terms.neighbors),
    }


def alone_guarantee(terms: Terms, event: Event) -> Guarantee | None:
    """The guarantee of one event: pure where it has one, else (ε, δ) at the account's δ; None if no theorem has one."""
    relation = terms.neighbors.relation
    try:
        loss = pure(event, relation)
        if loss.epsilon < float("inf"):
            return PureDP(loss.epsilon)
    except UnknownEvent:
        pass
    delta = form_of(terms.budget).reading_delta
    try:
        upper = float(epsilon(event, delta, relation).upper)
    except UnknownEvent:
        return None
    return ApproxDP(upper, delta) if upper < float("inf") else None
