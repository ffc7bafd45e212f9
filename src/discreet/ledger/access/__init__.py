"""Who may ask: users, tokens, policies and approvals, kept beside the ledger, with a record of every change."""

from discreet.errors import AccessDenied, ApprovalNeeded, PolicyRefused
from discreet.ledger.access.access import Access, access_disagreement
from discreet.ledger.access.approvals import Approval
from discreet.ledger.access.book import Change, Refusal
from discreet.ledger.access.identity import Identity, Role, User
from discreet.ledger.access.policy import Policy
from discreet.ledger.access.renewal import promise_over
from discreet.ledger.access.tokens import Token

__all__ = [
    "Access",
    "AccessDenied",
    "Approval",
    "ApprovalNeeded",
    "Change",
    "Identity",
    "Policy",
    "PolicyRefused",
    "Refusal",
    "Role",
    "Token",
    "User",
    "access_disagreement",
    "promise_over",
]
