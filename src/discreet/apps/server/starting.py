"""The first start and every other one: open the ledger, its accounts and users, and register the datasets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from discreet.apps.server.anchoring import Anchoring
from discreet.apps.server.config import AccountConfig, CuratorConfig
from discreet.apps.server.curator import Curator
from discreet.apps.server.oidc import SignIn
from discreet.errors import InvalidArgument, TermsDiffer
from discreet.ledger import Account, Ledger
from discreet.ledger.access import Role


@dataclass(frozen=True)
class Started:
    """A curator that is ready, and the tokens that were issued now: user, role, and the token's text."""

    curator: Curator
    tokens: tuple[tuple[str, Role, str], ...]


def start(config: CuratorConfig) -> Started:
    """Open what the configuration names; what exists already is left as it is.

    Accounts keep their terms forever, so a configuration that says otherwise is refused. Policies are set where
    an account has none, and changed by the steward's calls from then on. A user gets a token when they are added.
    """
    ledger = Ledger(config.ledger)
    curator = Curator(ledger, config.limits, config.folder, config.webhook)
    if config.anchors is not None:
        curator.anchoring = Anchoring(ledger, config.anchors)
    curator.sign_in = SignIn(curator.access, config.provider)
    for account in config.accounts:
        _open(curator, account)
    tokens = []
    registered = {user.name for user in curator.access.users()}
    for user in config.users:
        if user.name not in registered:
            curator.access.add_user(user.name, user.role)
            tokens.append((user.name, user.role, curator.access.issue(user.name, user.lifetime)))
    for dataset in config.datasets:
        curator.register(dataset)
    for model in config.models:
        curator.jobs.register(model)
    curator.state.forget_answers((curator.access.now() - timedelta(days=config.limits.keep_days)).isoformat())
    return Started(curator, tuple(tokens))


def _open(curator: Curator, wanted: AccountConfig) -> Account:
    terms = wanted.neighbors
    account = curator.ledger.account(wanted.name, wanted.budget, terms.unit, terms.relation, aside=wanted.aside)
    if not curator.access.has_policy(account.name):  # also after a first start that was killed at this point
        curator.access.set_policy(account.name, wanted.policy)
    current = curator.ledger.account(curator.access.current(wanted.name))
    for user, budget in wanted.shares.items():
        try:
            current.allot(user, budget)
        except TermsDiffer as error:
            raise InvalidArgument(f"the share of {user!r} must keep its budget: {error}") from None
    return account
