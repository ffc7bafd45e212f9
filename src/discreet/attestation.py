"""What an audit tested, how hard, and what it found: a small record that a ledger can keep beside its charges."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from discreet import _check
from discreet.codec import canonical, parse
from discreet.errors import InvalidArgument, NotALedger
from discreet.numeric.texts import real_text, real_value

# Characters of each text: an attestation is a summary, not a log.
_LONGEST = 2000
_TEXTS = ("subject", "claim", "verdict", "method")
_NUMBERS = ("epsilon_lower", "delta", "alpha", "missing_noise", "probability")


@dataclass(frozen=True)
class Attestation:
    """The result of an audit, for a ledger. It states what was looked for; it is no proof, and changes no price.

    Attributes:
        subject: what was tested, in the auditor's words.
        claim: what was claimed.
        verdict: what was found, in words.
        violated: whether the claim was refuted.
        method: how it was tested, and what that assumes.
        epsilon_lower: the ε below which the subject is not (ε, δ)-DP.
        delta: the δ of that ε.
        alpha: the probability of a violation where there is none.
        missing_noise: the least share of missing noise that would have been seen; None if none would.
        probability: the probability of seeing it.
        samples: how many runs were made.
        pairs: how many pairs of datasets were looked at.
    """

    subject: str
    claim: str
    verdict: str
    violated: bool
    method: str
    epsilon_lower: float
    delta: float
    alpha: float
    missing_noise: float | None
    probability: float
    samples: int
    pairs: int

    def __post_init__(self) -> None:
        for name in _TEXTS:
            text = getattr(self, name)
            plain = isinstance(text, str) and 0 < len(text) <= _LONGEST and "\0" not in text
            if not plain or any("\ud800" <= letter <= "\udfff" for letter in text):
                remedy = f"it is stored with the entry: 1 to {_LONGEST} characters of valid Unicode without NUL"
                raise _check.fail(name, "be a text", text, remedy)
        if not isinstance(self.violated, bool):
            raise _check.fail("violated", "be True or False", self.violated, "it says whether the claim was refuted")
        for name in _NUMBERS:
            if name != "missing_noise" or self.missing_noise is not None:
                _check.settle(self, name, _check.nonnegative, "it is a number of the audit", infinite=True)
        _check.settle_integers(self, "samples", "pairs", remedy="it is a number of the audit", at_least=0)

    def text(self) -> str:
        """The canonical text that a ledger stores."""
        value: dict[str, Any] = asdict(self)
        for name in _NUMBERS:
            value[name] = None if value[name] is None else real_text(value[name])
        return canonical(value)

    @classmethod
    def of_text(cls, text: str) -> Attestation:
        """The attestation of its canonical text; any other text is refused."""
        value = parse(text)
        if not isinstance(value, dict) or set(value) != {field.name for field in fields(cls)}:
            raise NotALedger("an attestation is not readable: the ledger was edited")
        try:
            for name in _NUMBERS:
                value[name] = None if value[name] is None else _real(value[name])
            attestation = cls(**value)
        except (InvalidArgument, TypeError) as error:
            raise NotALedger("an attestation is not readable: the ledger was edited") from error
        if attestation.text() != text:
            raise NotALedger("an attestation is not in its canonical form: the ledger was edited")
        return attestation


def _real(text: object) -> Any:
    return float("inf") if text == "inf" else real_value(text)
