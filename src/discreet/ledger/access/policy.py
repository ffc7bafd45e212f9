"""What an account allows beyond its budget: how large a question may be, what needs approval, until when.

A policy can only refuse. It never makes room that the budget does not have.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.accounting.forms.pure import pure
from discreet.accounting.tight import epsilon
from discreet.errors import ApprovalNeeded, NotALedger, PolicyRefused, UnknownEvent
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.ledger.terms import Terms
from discreet.neighbors import Relation


@dataclass(frozen=True)
class Policy:
    """The rules of one account, for all users of it and of its parts.

    Attributes:
        max_epsilon_per_question: the largest ε of one charge; None for no limit beyond the budget.
        min_group_size: groups whose released count is below this are withheld; None releases all. It is applied to
            noisy counts, after the charge: it costs nothing, and whether a group is shown tells no more than the count.
        approval_above: a charge with a larger ε needs a steward's approval; None needs none.
        expires: no charge from then on.
        frozen: no charge at all, until a steward unfreezes it.
        period: how often a steward may renew the budget by opening the next account; None for never.
        alerts: shares of the budget at which the steward is told, such as half and four fifths.
    """

    max_epsilon_per_question: float | None = None
    min_group_size: int | None = None
    approval_above: float | None = None
    expires: datetime | None = None
    frozen: bool = False
    period: timedelta | None = None
    alerts: tuple[float, ...] = (0.5, 0.8, 1.0)

    def __post_init__(self) -> None:
        if self.max_epsilon_per_question is not None:
            _check.positive("max_epsilon_per_question", self.max_epsilon_per_question, "it bounds one question")
        if self.approval_above is not None:
            _check.nonnegative("approval_above", self.approval_above, "larger questions need a steward's approval")
        if self.min_group_size is not None:
            _check.integer("min_group_size", self.min_group_size, "smaller noisy groups are withheld")
        if not isinstance(self.frozen, bool):
            raise _check.fail("frozen", "be True or False", self.frozen, "a frozen account takes no charges")
        if self.expires is not None and (not isinstance(self.expires, datetime) or self.expires.tzinfo is None):
            raise _check.fail("expires", "be a time with a time zone", self.expires, "use datetime.now(UTC) + …")
        if self.period is not None and (not isinstance(self.period, timedelta) or self.period <= timedelta(0)):
            raise _check.fail("period", "be a timedelta above 0", self.period, "a budget is renewed once a period")
        object.__setattr__(self, "alerts", tuple(sorted({_share(share) for share in self.alerts})))

    def tree(self) -> dict[str, Any]:
        """The policy as plain JSON values. Floats are written exactly, in hexadecimal."""
        return {
            "alerts": [share.hex() for share in self.alerts],
            "approval_above": _hex(self.approval_above),
            "expires": None if self.expires is None else self.expires.astimezone(UTC).isoformat(),
            "frozen": self.frozen,
            "max_epsilon_per_question": _hex(self.max_epsilon_per_question),
            "min_group_size": self.min_group_size,
            "period": None if self.period is None else self.period // timedelta(microseconds=1),
        }

    @classmethod
    def of_tree(cls, value: dict[str, Any]) -> Policy:
        """The policy of plain JSON values."""
        if value.keys() != {each.name for each in fields(cls)}:
            raise NotALedger("a policy is not readable: the ledger was edited")
        try:
            return cls(
                max_epsilon_per_question=_unhex(value["max_epsilon_per_question"]),
                min_group_size=value["min_group_size"],
                approval_above=_unhex(value["approval_above"]),
                expires=None if value["expires"] is None else datetime.fromisoformat(value["expires"]),
                frozen=value["frozen"],
                period=None if value["period"] is None else timedelta(microseconds=value["period"]),
                alerts=tuple(float.fromhex(share) for share in value["alerts"]),
            )
        except (TypeError, ValueError) as error:
            raise NotALedger("a policy is not readable: the ledger was edited") from error

    def check_open(self, account: str, time: datetime) -> None:
        """Refuse every charge to a frozen or expired account."""
        if self.frozen:
            raise PolicyRefused(f"account {account!r} is frozen: nothing can be asked until a steward unfreezes it")
        if self.expires is not None and time >= self.expires:
            raise PolicyRefused(
                f"account {account!r} expired on {self.expires.astimezone(UTC):%Y-%m-%d %H:%M} UTC: a steward may set "
                "a later day"
            )

    @property
    def limits_cost(self) -> bool:
        """Whether the ε of a charge matters."""
        return self.max_epsilon_per_question is not None or self.approval_above is not None

    def needs_approval(self, cost: float) -> bool:
        """Whether a charge of this ε needs a steward's approval."""
        return self.approval_above is not None and cost > self.approval_above

    def check_cost(self, account: str, cost: float, *, approved: bool) -> None:
        """Refuse a charge whose ε is above what one question may cost, or above what needs no approval."""
        most = self.max_epsilon_per_question
        if most is not None and cost > most:
            raise PolicyRefused(
                f"epsilon must be at most {most:g} for one question to account {account!r}, got {cost:.6g}: ask with "
                "less, or in parts"
            )
        if self.needs_approval(cost) and not approved:
            raise ApprovalNeeded(
                f"a question to account {account!r} that costs more than ε = {self.approval_above:g} needs a steward's "
                f"approval; this one costs {cost:.6g}"
            )


def cost_of(terms: Terms, event: Event) -> float:
    """The ε of one charge, as policies compare it and as `BudgetExceeded` states it.

    It is the pure ε where that is finite and, for an (ε, δ) budget, within the budget's ε; otherwise the upper end of
    the certified ε at the account's own δ. It is infinite where no theorem gives one, so a policy with a limit refuses.
    """
    return _cost(event, terms.budget, terms.neighbors.relation)


# Analysts ask the same few kinds of questions, and pricing one may take milliseconds.
@lru_cache(maxsize=2048)
def _cost(event: Event, budget: Guarantee, relation: Relation) -> float:
    form = form_of(budget)
    with contextlib.suppress(UnknownEvent):
        loss = pure(event, relation).epsilon
        if math.isfinite(loss) and loss <= form.most_pure:
            return loss
    if not form.has_delta:
        return math.inf
    with contextlib.suppress(UnknownEvent):
        return float(epsilon(event, form.reading_delta, relation).upper)
    return math.inf


def _share(share: object) -> float:
    exact = _check.positive("alerts", share, "each is a share of the budget, such as 0.8")
    if exact > 1:
        raise _check.fail("alerts", "be at most 1", share, "each is a share of the budget, such as 0.8")
    return float(exact)


def _hex(value: float | None) -> str | None:
    return None if value is None else float(value).hex()


def _unhex(value: str | None) -> float | None:
    return None if value is None else float.fromhex(value)
