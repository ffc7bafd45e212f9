"""Users, tokens, policies and approvals beside a ledger, in SQLite and in PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest

import discreet as dp
from discreet.errors import AccessDenied, ApprovalNeeded, BudgetExceeded, InvalidArgument, KeyReused, PolicyRefused
from discreet.ledger.access import Access, Identity, Policy, Role, promise_over

MONTH = timedelta(days=30)
EIGHTH = dp.events.Laplace(8.0)


class Clock:
    """A clock that tests move by hand."""

    def __init__(self) -> None:
        self.time = datetime(2026, 11, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock():
    return Clock()


@contextlib.contextmanager
def shared_ledger(place, clock):
    with dp.Ledger(place.location, clock=clock) as ledger:
        census = ledger.account("census", budget=dp.PureDP(1.0))
        census.allot("ada", dp.PureDP(0.5))
        census.allot("bob", dp.PureDP(0.25))
        access = Access(ledger)
        access.add_user("sam", Role.STEWARD)
        access.add_user("ada", Role.ANALYST)
        access.add_user("bob", "analyst")
        access.add_user("una", Role.AUDITOR)
        yield access


@pytest.fixture
def access(place, clock):
    with shared_ledger(place, clock) as opened:
        yield opened


def signed_in(access: Access, user: str, **options) -> Identity:
    return access.authenticate(access.issue(user, MONTH, **options))


# --- tokens


def test_a_token_proves_who_sent_it_and_only_its_hash_is_stored(access, place):
    text = access.issue("ada", MONTH, scopes=["preview", "ask"])
    identity = access.authenticate(text)
    assert (identity.user, identity.role, identity.scopes) == ("ada", Role.ANALYST, {"preview", "ask"})
    secret = text.rpartition("_")[2] if text.count("_") == 2 else text.split("_", 2)[2]
    tables = ("discreet_access_state", "discreet_access_change", "discreet_access_refusal")
    assert not any(secret in str(place.query(f"SELECT * FROM {table}")) for table in tables)
    assert len(secret) == 43  # 256 bits in base64


def broken(access: Access, clock: Clock) -> dict[str, object]:
    """Texts that must not authenticate, by why."""
    good, revoked, expired = (access.issue("ada", MONTH) for _ in range(3))
    access.revoke(access.authenticate(revoked).token_id)
    short = access.issue("ada", timedelta(seconds=1))
    of_bob = access.issue("bob", MONTH)
    access.disable_user("bob")
    clock.time += timedelta(seconds=1)
    flipped = good[:-2] + ("A" if good[-2] != "A" else "B") + good[-1]
    other_id = "dsc_" + "0" * 18 + good[22:]
    return {
        "revoked": revoked,
        "expired": short,
        "disabled": of_bob,
        "another secret": flipped,
        "another id": other_id,
        "secret of another": good[:22] + expired[22:],
        "empty": "",
        "no token": "Bearer x",
        "not ASCII": good[:-1] + "é",
        "with a line break": good + "\n",
        "NUL": good + "\0",
        "none": None,
        "SQL": "' OR 1=1 --",
    }


def test_every_bad_token_gets_the_same_answer(access, clock):
    messages = set()
    for why, text in broken(access, clock).items():
        with pytest.raises(AccessDenied) as denied:
            access.authenticate(text)
        assert denied.value.reason, why
        messages.add(str(denied.value))
    assert len(messages) == 1


def test_a_token_never_has_more_than_its_users_role(access):
    with pytest.raises(InvalidArgument, match="among those of the role"):
        access.issue("ada", MONTH, scopes=["manage"])
    assert not Role.AUDITOR.scopes & {"preview", "ask", "train", "manage", "approve"}
    assert not Role.ANALYST.scopes & {"manage", "approve", "audit"}
    assert not Role.STEWARD.scopes & {"ask", "train"}


@pytest.mark.parametrize("who", ["ada", "una"])
def test_only_a_steward_manages(access, who):
    identity = signed_in(access, who)
    other = access.tokens()[0].id if access.tokens()[0].user != who else signed_in(access, "bob").token_id
    attempts = [
        lambda: access.add_user("eve", Role.STEWARD, by=identity),
        lambda: access.disable_user("sam", by=identity),
        lambda: access.issue(who, MONTH, by=identity),
        lambda: access.revoke(other, by=identity),
        lambda: access.set_policy("census", Policy(), by=identity),
        lambda: access.renew("census", by=identity),
        lambda: access.approve("x", by=identity),
        lambda: access.reject("x", by=identity),
    ]
    before = access.changes()
    for attempt in attempts:
        with pytest.raises(AccessDenied):
            attempt()
    assert access.changes() == before
    access.revoke(identity.token_id, by=identity)  # one's own token


def test_names_of_users_are_never_reused_or_confused(access):
    access.disable_user("bob")
    for name in ("bob", "Bob", "bоb", "b ob", "a/b", "", "x\n"):
        with pytest.raises(InvalidArgument):
            access.add_user(name, Role.STEWARD)


# --- spending


def test_a_charge_comes_from_ones_own_part_and_names_the_user(access):
    ada = signed_in(access, "ada")
    account = access.account(ada, "census")
    receipt = account.spend(EIGHTH, purpose="ages")
    assert (receipt.account, receipt.entry.user) == ("census/ada", "ada")
    above = access.ledger.account("census").history()[-1]
    assert (above.by, above.user) == ("census/ada", "ada")
    assert access.ledger.account("census").statement().lines[-1].user == "ada"
    assert access.ledger.verify()


def test_nobody_spends_from_anothers_part(access):
    bob = signed_in(access, "bob")
    account = access.account(bob, "census")
    account.spend(dp.events.Laplace(4.0))
    with pytest.raises(BudgetExceeded):  # the account above and ada's part still have room
        account.spend(EIGHTH)
    for name in ("census/ada", "census/bob", "sales", "census/"):
        with pytest.raises(AccessDenied):
            access.account(bob, name)
    with pytest.raises(AccessDenied):
        access.account(signed_in(access, "sam"), "census")  # a steward asks nothing
    access.add_user("eve", Role.ANALYST)
    with pytest.raises(AccessDenied):
        access.account(signed_in(access, "eve"), "census")  # she was allotted nothing


def test_a_tokens_share_is_all_that_it_can_spend(access):
    access.ledger.account("census/ada").allot("agent", dp.PureDP(0.125))
    access.ledger.account("sales", budget=dp.PureDP(1.0)).allot("ada", dp.PureDP(1.0))
    agent = signed_in(access, "ada", share="census/ada/agent", scopes=["ask"])
    account = access.account(agent, "census")
    account.spend(EIGHTH)
    with pytest.raises(BudgetExceeded):
        account.spend(EIGHTH)
    with pytest.raises(AccessDenied):
        access.account(agent, "sales")
    with pytest.raises(dp.errors.TermsDiffer):
        access.issue("ada", MONTH, share="census/nobody")


def test_a_share_is_compared_by_whole_names(access):
    access.ledger.account("census2", budget=dp.PureDP(1.0)).allot("ada", dp.PureDP(1.0))
    agent = signed_in(access, "ada", share="census2/ada")
    with pytest.raises(AccessDenied):
        access.account(agent, "census")


@pytest.mark.parametrize("change", ["revoke", "disable", "expire", "freeze", "freeze the part"])
def test_what_a_steward_takes_away_ends_accounts_that_are_open(access, clock, change):
    ada = signed_in(access, "ada")
    account = access.account(ada, "census")
    account.spend(EIGHTH)
    {
        "revoke": lambda: access.revoke(ada.token_id),
        "disable": lambda: access.disable_user("ada"),
        "expire": lambda: setattr(clock, "time", clock.time + MONTH),
        "freeze": lambda: access.set_policy("census", Policy(frozen=True)),
        "freeze the part": lambda: access.set_policy("census/ada", Policy(frozen=True)),
    }[change]()
    spent = access.ledger.account("census").remaining()
    with pytest.raises((AccessDenied, PolicyRefused)):
        account.spend(EIGHTH)
    with pytest.raises((AccessDenied, PolicyRefused)):
        account.reserve(dp.events.Repeated(dp.events.Laplace(100.0), 3), key="plan")
    assert access.ledger.account("census").remaining() == spent


def test_a_key_of_another_user_is_not_a_retry(access):
    ada = access.ledger.account("census").acting_for("ada")
    first = ada.spend(EIGHTH, key="k")
    assert ada.spend(EIGHTH, key="k").hash == first.hash
    with pytest.raises(KeyReused):
        access.ledger.account("census").acting_for("bob").spend(EIGHTH, key="k")


def test_no_charge_is_committed_after_a_freeze_returned(access):
    """Eight clients spend while a steward freezes: nothing is recorded after the freeze, and no total is over."""
    ada = signed_in(access, "ada")
    account = access.account(ada, "census")
    small, frozen = dp.events.Laplace(2.0**20), threading.Event()
    late = []

    def client() -> None:
        while True:
            began_after = frozen.is_set()
            try:
                account.spend(small)
            except PolicyRefused:
                return
            late.append(began_after)

    threads = [threading.Thread(target=client) for _ in range(8)]
    for thread in threads:
        thread.start()
    access.set_policy("census", Policy(frozen=True))
    recorded = len(access.ledger.account("census/ada").history())
    frozen.set()
    for thread in threads:
        thread.join()
    assert len(access.ledger.account("census/ada").history()) == recorded
    assert not any(late)
    assert access.ledger.verify()


# --- policies


def test_a_question_may_cost_at_most_what_the_policy_says(access):
    access.set_policy("census", Policy(max_epsilon_per_question=0.2))
    account = access.account(signed_in(access, "ada"), "census")
    account.spend(EIGHTH)
    with pytest.raises(PolicyRefused, match=r"at most 0\.2"):
        account.spend(dp.events.Laplace(4.0))
    with pytest.raises(PolicyRefused):
        account.spend(dp.events.Composed((EIGHTH, EIGHTH)))
    account.spend(dp.events.Laplace(5.0))  # exactly the limit: 0.2


def test_a_policy_compares_gaussian_noise_at_the_accounts_delta(new_sqlite):
    with dp.Ledger(new_sqlite().location) as ledger:
        health = ledger.account("health", budget=dp.ApproxDP(4.0, 1e-6))
        health.allot("ada", dp.ApproxDP(4.0, 1e-6))
        access = Access(ledger)
        access.add_user("ada", Role.ANALYST)
        access.set_policy("health", Policy(max_epsilon_per_question=1.0))
        account = access.account(signed_in(access, "ada"), "health")
        account.spend(dp.events.Gaussian(4.3))  # ε = 0.98 at δ = 1e-6
        with pytest.raises(PolicyRefused):
            account.spend(dp.events.Gaussian(4.2))  # ε = 1.006


def test_nothing_is_charged_after_an_account_expired(access, clock):
    access.set_policy("census", Policy(expires=clock.time + MONTH))
    account = access.account(signed_in(access, "ada", scopes=None), "census")
    account.spend(EIGHTH)
    clock.time += timedelta(days=29, hours=24)
    later = access.account(access.authenticate(access.issue("ada", MONTH)), "census")
    with pytest.raises(PolicyRefused, match="expired"):
        later.spend(EIGHTH)


def test_a_policy_is_stored_exactly(access):
    policy = Policy(
        max_epsilon_per_question=0.1,
        min_group_size=10,
        approval_above=0.05,
        expires=datetime(2027, 1, 1, tzinfo=UTC),
        period=timedelta(days=90),
        alerts=(0.9, 0.1),
    )
    access.set_policy("census", policy)
    assert access.policy("census") == policy
    assert policy.alerts == (0.1, 0.9)
    assert access.policy("census/ada") == Policy()


BAD_POLICIES = [
    {"max_epsilon_per_question": 0},
    {"max_epsilon_per_question": float("nan")},
    {"approval_above": -1.0},
    {"approval_above": float("inf")},
    {"min_group_size": 2.5},
    {"expires": datetime(2027, 1, 1)},
    {"period": timedelta(0)},
    {"frozen": 1},
    {"alerts": (1.5,)},
    {"alerts": (0.0,)},
]


@pytest.mark.parametrize("bad", BAD_POLICIES, ids=str)
def test_a_policy_refuses_what_is_no_rule(bad):
    with pytest.raises(InvalidArgument):
        Policy(**bad)


def test_alerts_are_told_once(access):
    account = access.account(signed_in(access, "ada"), "census")
    access.set_policy("census", Policy(alerts=(0.1, 0.3)))
    assert access.due_alerts("census") == ()
    account.spend(EIGHTH)
    assert access.due_alerts("census") == (0.1,)
    assert access.due_alerts("census") == ()
    account.spend(dp.events.Laplace(4.0))
    assert access.due_alerts("census") == (0.3,)


# --- approvals


def test_a_large_question_needs_an_approval_that_is_used_once(access):
    access.set_policy("census", Policy(approval_above=0.2))
    ada, sam = signed_in(access, "ada"), signed_in(access, "sam")
    quarter = dp.events.Laplace(4.0)
    with pytest.raises(ApprovalNeeded):
        access.account(ada, "census").spend(quarter, purpose="ages")
    request = access.request_approval(ada, "census/ada", "ages", 0.25)
    account = access.account(ada, "census", approval=request)
    with pytest.raises(ApprovalNeeded):
        account.spend(quarter, purpose="ages")
    access.approve(request, sam)
    for purpose, event in (("wages", quarter), ("ages", dp.events.Laplace(3.9))):
        with pytest.raises(PolicyRefused):
            account.spend(event, purpose=purpose)
    receipt = account.spend(quarter, purpose="ages", key="once")
    assert account.spend(quarter, purpose="ages", key="once").hash == receipt.hash  # a retry, not a second charge
    with pytest.raises(PolicyRefused, match="used"):
        account.spend(quarter, purpose="ages")
    assert [(a.state, a.decided_by) for a in access.approvals()] == [("used", "sam")]
    assert access.ledger.account("census").remaining().epsilon == 0.75


def test_an_approval_is_for_one_user_and_comes_from_somebody_else(access):
    access.set_policy("census", Policy(approval_above=0.1))
    ada, bob = signed_in(access, "ada"), signed_in(access, "bob")
    request = access.request_approval(ada, "census/ada", "ages", 0.125)
    with pytest.raises(PolicyRefused, match="somebody else"):
        access.approve(request, "ada")
    with pytest.raises(AccessDenied):
        access.approve(request, bob)
    access.approve(request, "sam")
    with pytest.raises(AccessDenied):
        access.account(bob, "census", approval=request).spend(EIGHTH, purpose="ages")
    with pytest.raises(PolicyRefused):
        access.reject(request, "sam")
    rejected = access.request_approval(ada, "census/ada", "more", 0.125)
    access.reject(rejected, "sam")
    with pytest.raises(PolicyRefused, match="rejected"):
        access.account(ada, "census", approval=rejected).spend(EIGHTH, purpose="more")
    with pytest.raises(AccessDenied):
        access.request_approval(signed_in(access, "una"), "census", "ages", 0.1)


def test_a_refused_charge_does_not_use_its_approval(access):
    access.set_policy("census", Policy(approval_above=0.1))
    ada = signed_in(access, "ada")
    request = access.request_approval(ada, "census/ada", "ages", 9.0)
    access.approve(request, "sam")
    with pytest.raises(BudgetExceeded):
        access.account(ada, "census", approval=request).spend(dp.events.Laplace(1.0), purpose="ages")
    assert access.approvals()[0].state == "approved"


# --- renewal


def test_a_renewed_budget_says_what_it_promises_altogether(access, clock):
    access.set_policy("census", Policy(period=MONTH))
    with pytest.raises(PolicyRefused, match="period ends"):
        access.renew("census", by="sam")
    ada = signed_in(access, "ada", scopes=None)
    access.account(ada, "census").spend(dp.events.Laplace(4.0))
    clock.time += MONTH
    old = access.account(signed_in(access, "ada"), "census")
    renewed = access.renew("census", by="sam")
    assert renewed.name == access.current("census") == "census period 2"
    ada = signed_in(access, "ada")
    account = access.account(ada, "census")
    assert account.name == "census period 2/ada"
    account.spend(dp.events.Laplace(2.0))
    with pytest.raises(AccessDenied):  # a share of the old period
        access.account(signed_in(access, "bob", share="census/bob"), "census")
    with pytest.raises(PolicyRefused, match="frozen"):
        old.spend(EIGHTH)
    assert "2-DP" in access.promise("census")
    assert access.periods("census") == 2
    assert access.ledger.verify()


@pytest.mark.parametrize(
    ("budget", "periods", "altogether"),
    [
        (dp.PureDP(0.1), 3, dp.PureDP(0.30000000000000004)),
        (dp.ApproxDP(1.0, 1e-6), 4, dp.ApproxDP(4.0, 4e-6)),
        (dp.ZCDP(0.5), 2, dp.ZCDP(1.0)),
        (dp.GDP(1.0), 4, dp.GDP(2.0)),
        (dp.RDP((2.0, 4.0), (0.5, 1.0)), 2, dp.RDP((2.0, 4.0), (1.0, 2.0))),
    ],
)
def test_periods_compose_and_never_round_down(budget, periods, altogether):
    assert promise_over(budget, periods) == altogether
    assert Fraction(promise_over(dp.GDP(0.3), 3).mu) ** 2 >= 3 * Fraction(0.3) ** 2


# --- the record


def test_every_change_is_recorded_with_who_made_it(access):
    sam = signed_in(access, "sam")
    access.set_policy("census", Policy(frozen=True), by=sam)
    access.disable_user("bob", by=sam)
    last = [(change.by, change.kind, change.name) for change in access.changes()[-2:]]
    assert last == [("sam", "policy", "census"), ("sam", "user", "bob")]
    assert access.disagreement() == ""


EDITS = {
    "a role": """UPDATE discreet_access_state SET body = '{"disabled":false,"role":"steward"}' WHERE name = 'ada'""",
    "a change": "UPDATE discreet_access_change SET body = replace(body, 'analyst', 'steward') WHERE sequence = 2",
    "a missing change": "DELETE FROM discreet_access_change WHERE sequence = 2",
    "a cut": "DELETE FROM discreet_access_change WHERE sequence = (SELECT MAX(sequence) FROM discreet_access_change)",
    "a missing state": "DELETE FROM discreet_access_state WHERE kind = 'user' AND name = 'una'",
    "an added state": """INSERT INTO discreet_access_state VALUES ('user', 'eve', '{}')""",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_behind_the_record_is_found(access, place, edit):
    assert access.disagreement() == ""
    place.execute(EDITS[edit])
    assert access.disagreement()


def test_refused_attempts_are_logged_beside_the_chain(access, clock):
    before = access.ledger.account("census").history()
    access.refused(None, "POST /ask", "not a token")
    clock.time += timedelta(seconds=1)
    access.refused(signed_in(access, "ada"), "x" * 10_000 + "\0\n", "she tried")
    newest, first = access.refusals()
    assert (first.user, first.action, first.reason) == ("", "POST /ask", "not a token")
    assert newest.user == "ada"
    assert len(newest.action) <= 500
    assert newest.action.isprintable()
    assert access.ledger.account("census").history() == before


def test_a_second_process_finds_the_tables(access, place, clock):
    token = access.issue("ada", MONTH)
    with dp.Ledger(place.location, create=False, clock=clock) as ledger:
        assert Access(ledger).authenticate(token).user == "ada"
