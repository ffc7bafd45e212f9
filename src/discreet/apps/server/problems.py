"""What goes wrong, as HTTP says it: a status, a code for programs, a message and a remedy for people.

No message quotes data. Those of this package never do; of any other error only the type's name is told, to the log.
"""

from __future__ import annotations

from typing import Any

from discreet import errors


class Problem(Exception):
    """An answer that is no answer: it becomes a JSON error.

    Attributes:
        status: the HTTP status.
        code: one word for programs.
        message: the rule, the value and the remedy, for people.
        charged: whether the ledger was charged although there is no answer.
        more: further public facts, such as the number of an approval.
        retry_after: seconds after which to try again, if that can help.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        charged: bool = False,
        retry_after: int | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.charged = charged
        self.more = more
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        rule, colon, remedy = self.message.partition(": ")
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "remedy": remedy if colon else rule,
                "charged": self.charged,
                **self.more,
            }
        }


def not_found(kind: str, name: str) -> Problem:
    """There is nothing of this name."""
    return Problem(404, "not_found", f"there is no {kind} of this name: ask for the list of all", name=name[:100])


def problem_of(error: Exception) -> Problem:
    """How an error of the package, or any other, is told to a client."""
    for kind, status, code in _KINDS:
        if isinstance(error, kind):
            retry = 1 if status == 503 else None
            charged = isinstance(error, errors.EngineFailed)
            return Problem(status, code, str(error), charged=charged, retry_after=retry)
    # The text of a foreign error may quote rows.
    return Problem(
        500, "internal", "the server failed: the steward finds the kind of failure in its log; what was charged stays"
    )


#: Errors from the special to the general.
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.AccessDenied, 403, "access_denied"),
    (errors.ApprovalNeeded, 403, "approval_needed"),
    (errors.PolicyRefused, 403, "policy_refused"),
    (errors.BudgetExceeded, 402, "budget_exceeded"),
    (errors.EngineFailed, 500, "engine_failed"),
    (errors.KeyReused, 409, "key_reused"),
    (errors.Exhausted, 409, "answer_lost"),
    (errors.LedgerBusy, 503, "ledger_busy"),
    (errors.LedgerUnavailable, 503, "ledger_unavailable"),
    (errors.NotALedger, 500, "ledger_untrusted"),
    (errors.TermsDiffer, 409, "terms_differ"),
    (errors.UnknownEvent, 400, "invalid"),
    (errors.InvalidArgument, 400, "invalid"),
)
