"""Mistakes that access control and evidence could make. The tests must fail on each of them."""

from __future__ import annotations

import pytest

from discreet.errors import DiscreetError
from discreet.ledger.access import approvals, guard, tokens
from discreet.ledger.access.identity import Identity
from discreet.ledger.access.policy import Policy
from discreet.ledger.evidence import anchors
from discreet.ledger.evidence.keys import PublicKeys, SigningKey, append_line
from tests.ledger import test_access, test_evidence
from tests.ledger.test_access import Clock, shared_ledger

FAILURES = (AssertionError, DiscreetError, pytest.fail.Exception)


def taken_away(change):
    return lambda access, clock: test_access.test_what_a_steward_takes_away_ends_accounts_that_are_open(
        access, clock, change
    )


def stays_valid(patch):
    patch.setattr(guard, "check_standing", lambda *arguments, **options: None)


def never_frozen(patch):
    patch.setattr(Policy, "check_open", lambda *arguments: None)


def any_cost(patch):
    patch.setattr(Policy, "check_cost", lambda *arguments, **options: None)


def approved_forever(patch):
    patch.setattr(approvals, "use", lambda *arguments: None)


def any_secret(patch):
    patch.setattr(tokens, "matches", lambda secret, stored: stored is not None)


def any_scope(patch):
    patch.setattr(Identity, "require", lambda self, scope: None)


MUTANTS = {
    "a revoked token goes on": (stays_valid, taken_away("revoke")),
    "a disabled user goes on": (stays_valid, taken_away("disable")),
    "an expired token goes on": (stays_valid, taken_away("expire")),
    "freezing does nothing": (never_frozen, taken_away("freeze")),
    "a question of any size": (
        any_cost,
        lambda access, clock: test_access.test_a_question_may_cost_at_most_what_the_policy_says(access),
    ),
    "an approval is used again": (
        approved_forever,
        lambda access, clock: test_access.test_a_large_question_needs_an_approval_that_is_used_once(access),
    ),
    "any secret opens": (any_secret, test_access.test_every_bad_token_gets_the_same_answer),
    "any role manages": (any_scope, lambda access, clock: test_access.test_only_a_steward_manages(access, "ada")),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_access_is_caught(new_sqlite, monkeypatch, name):
    mutate, check = MUTANTS[name]
    clock = Clock()
    with shared_ledger(new_sqlite(), clock) as access, monkeypatch.context() as patch:
        mutate(patch)
        with pytest.raises(BaseException) as caught:
            check(access, clock)
    assert isinstance(caught.value, FAILURES), caught.value


def any_signature(patch):
    patch.setattr(PublicKeys, "check", lambda self, kind, value: str(value["key"]))


def any_head(patch):
    patch.setattr(anchors, "missing", lambda ledger, head: "")


EVIDENCE = {
    any_signature: lambda access, place, *rest: test_evidence.test_a_forged_head_is_refused(access.ledger, *rest),
    any_head: lambda access, place, *rest: test_evidence.test_a_rollback_is_noticed_without_receipts(
        access.ledger, place, *rest
    ),
}


def keys_in(folder):
    key = SigningKey.create(folder / "steward.key")
    append_line(folder / "steward.pub", key.first_line())
    return key, PublicKeys.of_file(folder / "steward.pub")


@pytest.mark.parametrize("mutate", EVIDENCE)
def test_a_mutant_of_evidence_is_caught(new_sqlite, monkeypatch, tmp_path, mutate):
    place, (key, keys) = new_sqlite(), keys_in(tmp_path)
    with shared_ledger(place, Clock()) as access, monkeypatch.context() as patch:
        mutate(patch)
        with pytest.raises(BaseException) as caught:
            EVIDENCE[mutate](access, place, key, keys, tmp_path)
    assert isinstance(caught.value, FAILURES), caught.value


def test_without_the_mutations_the_same_checks_pass(new_sqlite, tmp_path):
    for _, check in MUTANTS.values():
        clock = Clock()
        with shared_ledger(new_sqlite(), clock) as access:
            check(access, clock)
    for number, check in enumerate(EVIDENCE.values()):
        place, folder = new_sqlite(), tmp_path / str(number)
        folder.mkdir()
        with shared_ledger(place, Clock()) as access:
            check(access, place, *keys_in(folder), folder)
