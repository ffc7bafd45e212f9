"""Evidence for others: signed heads of the chain kept outside, signed certificates, and an export for auditors."""

from discreet.ledger.evidence._export import export
from discreet.ledger.evidence.anchors import AnchorFile, SignedHead, sign_head
from discreet.ledger.evidence.certificate import Certificate, certify
from discreet.ledger.evidence.keys import PublicKeys, SigningKey

__all__ = [
    "AnchorFile",
    "Certificate",
    "PublicKeys",
    "SignedHead",
    "SigningKey",
    "certify",
    "export",
    "sign_head",
]
