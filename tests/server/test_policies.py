"""Policies as analysts meet them: approvals, caps, small groups, freezing, renewal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from discreet.apps.server import curator
from tests.server.conftest import COUNT

BY_SEX = {
    "sql": "SELECT sex, COUNT(*) AS n, AVG(hours) AS h FROM people GROUP BY sex",
    "keys": {"sex": ["F", "M", "X"]},
    "epsilon": 0.8,
}


def _policy(world, **rules):
    response = world.call("sam", "POST", "/v1/accounts/census/policy", rules)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_large_question_waits_for_a_steward_and_is_answered_once(world):
    _policy(world, approval_above=0.05)
    refused = world.ask("ann")
    assert refused.status_code == 403
    error = refused.json()["error"]
    assert error["code"] == "approval_needed"
    assert world.ask("ann").json()["error"]["approval"] == error["approval"]  # one request for one question
    assert world.spent("census") == 0
    [pending] = world.call("sam", "GET", "/v1/approvals").json()["approvals"]
    assert (pending["id"], pending["user"], pending["state"]) == (error["approval"], "ann", "pending")
    assert pending["cost"] == 0.1
    assert world.call("ann", "POST", f"/v1/approvals/{pending['id']}/approve").status_code == 403
    assert world.call("sam", "POST", f"/v1/approvals/{pending['id']}/approve").status_code == 200
    assert world.ask("ann", {**COUNT, "epsilon": 0.2}).status_code == 403  # another question
    assert world.ask("bob").status_code == 403  # another user
    assert world.ask("ann").status_code == 200
    assert world.spent("census/ann") == 1
    assert world.ask("ann").status_code == 403  # one approval, one charge
    assert [one["user"] for one in world.call("ann", "GET", "/v1/my/approvals").json()["approvals"]] == ["ann"] * 3


def test_a_steward_sees_what_is_asked_whatever_its_purpose_says(world):
    _policy(world, approval_above=0.05)
    sql = "SELECT COUNT(*) AS n FROM people WHERE age = 33 AND hours = 13"
    world.ask("ann", {"sql": sql, "epsilon": 0.1, "purpose": "people in all wards"})
    [pending] = world.call("sam", "GET", "/v1/approvals").json()["approvals"]
    assert pending["question"]["sql"] == sql
    [(digest, stored)] = world.curator.state.items("question")
    world.curator.state.put("question", digest, {**stored, "body": stored["body"].replace("33", "34")})
    [edited] = world.call("sam", "GET", "/v1/approvals").json()["approvals"]
    assert edited["question"] is None  # not the one that the approval is bound to


def test_a_cap_holds_and_refusals_are_logged(world):
    _policy(world, max_epsilon_per_question=0.05)
    assert world.ask("ann").json()["error"]["code"] == "policy_refused"
    assert world.spent("census") == 0
    [refusal] = world.call("eve", "GET", "/v1/refusals").json()["refusals"]
    assert (refusal["user"], refusal["reason"]) == ("ann", "policy_refused")


def test_small_groups_are_withheld_by_their_released_counts(world):
    # Counts of 100 and 0 with Laplace noise of scale 2.5: P(|noise| ≥ 45) = e^(−18) < 2e-8 for each of three groups.
    _policy(world, min_group_size=50)
    answer = world.ask("ann", BY_SEX).json()
    assert [row[0] for row in answer["rows"]] == ["F", "M"]
    assert {len(end) for ends in answer["intervals"].values() for end in ends.values()} == {
        2
    }  # none of the third group
    without = {**BY_SEX, "sql": "SELECT sex, AVG(hours) AS h FROM people GROUP BY sex"}
    refused = world.ask("bob", without)
    assert refused.status_code == 400
    assert "COUNT(*)" in refused.json()["error"]["remedy"]
    assert world.spent("census/bob") == 0
    hidden = {**BY_SEX, "sql": "SELECT sex, AVG(hours) AS h FROM people GROUP BY sex HAVING COUNT(*) > -1000"}
    assert [row[0] for row in world.ask("bob", hidden).json()["rows"]] == ["F", "M"]


def test_small_groups_do_not_come_back_by_totals_or_filters(world):
    # Groups that add up to a released total would give the withheld one away by subtraction. A count is off by 50 if a
    # third of the total's noise, of scale 5, is, or a group's own, of scale 1.25: with a probability below 3 e^(−30).
    _policy(world, min_group_size=50)
    by_sex = {"calls": [["group_by", ["sex"], {"keys": ["F", "X"]}], ["count"]], "epsilon": 1.0, "total": True}
    answer = world.ask("ann", by_sex).json()
    assert [row[0] for row in answer["rows"]] == ["F"]
    assert answer["totals"] == {}
    # A count of 0 beside others with noise of scale 4 is at least 80 with probability e^(−20)/2 < 2e-9.
    _policy(world, min_group_size=80)
    filtered = "SELECT COUNT(*) AS n, COUNT(*) FILTER (WHERE sex = 'X') AS x FROM people"
    assert world.ask("bob", {"sql": filtered, "epsilon": 0.5}).json()["rows"] == []
    cells = {"$aggregate": ["marginal", {"categories": {"sex": ["F", "X"]}}]}
    both = {"calls": [["aggregate", [], {"n": {"$aggregate": ["count"]}, "m": cells}]], "epsilon": 0.5}
    assert world.ask("bob", both).json()["rows"] == []


def test_a_frozen_account_takes_no_charge(world):
    assert world.call("sam", "POST", "/v1/accounts/census/freeze").json()["frozen"]
    assert world.ask("ann").json()["error"]["code"] == "policy_refused"
    assert world.call("ann", "POST", "/v1/datasets/people/preview", COUNT).status_code == 200
    assert not world.call("sam", "POST", "/v1/accounts/census/unfreeze").json()["frozen"]
    assert world.ask("ann").status_code == 200
    _policy(world, expires="2020-01-01")
    assert world.ask("ann").status_code == 403


def test_a_renewed_budget_says_what_it_promises(world):
    assert world.call("sam", "POST", "/v1/accounts/census/renew").status_code == 403  # no period is set
    _policy(world, period_days=1e-9)
    assert world.ask("ann").status_code == 200
    renewed = world.call("sam", "POST", "/v1/accounts/census/renew").json()
    assert renewed["account"] == "census period 2"
    assert "4-DP" in renewed["promise"]
    assert world.ask("ann", {**COUNT, "epsilon": 1.0}).status_code == 200  # a full share again
    assert world.spent("census/ann") == 1
    assert world.spent("census period 2/ann") == 1
    dataset = world.call("ann", "GET", "/v1/datasets/people").json()
    assert dataset["account"] == "census period 2"


def test_rules_of_a_share_outlive_a_renewal(world):
    """Otherwise the next period would undo what a steward decided about one analyst."""
    assert world.call("sam", "POST", "/v1/accounts/census/ann/policy", {"max_epsilon_per_question": 0.05}).is_success
    assert world.call("sam", "POST", "/v1/accounts/census/bob/freeze").is_success
    _policy(world, period_days=1e-9)
    assert world.call("sam", "POST", "/v1/accounts/census/renew").status_code == 200
    assert world.ask("ann").json()["error"]["code"] == "policy_refused"
    assert world.ask("bob").json()["error"]["code"] == "policy_refused"
    assert world.ask("ann", {**COUNT, "epsilon": 0.05}).status_code == 200


def test_freezing_a_renewed_account_by_its_name_holds_back_everybody(world):
    _policy(world, period_days=1e-9)
    assert world.call("sam", "POST", "/v1/accounts/census/renew").status_code == 200
    assert world.call("sam", "POST", "/v1/accounts/census/bob/freeze").json()["account"] == "census period 2/bob"
    assert (world.ask("ann").status_code, world.ask("bob").status_code) == (200, 403)
    assert world.call("sam", "POST", "/v1/accounts/census/freeze").json()["account"] == "census period 2"
    assert world.ask("ann").json()["error"]["code"] == "policy_refused"


def test_changes_of_a_policy_at_once_all_hold(world):
    """A rule that one steward sets must not take back the freeze of another, who acted in between."""
    access = world.curator.access

    def count_up(_):
        access.change_policy("census", lambda rules: replace(rules, min_group_size=(rules.min_group_size or 0) + 1))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count_up, range(20)))
    assert access.policy("census").min_group_size == 20


def test_of_two_renewals_at_once_one_is_refused(world, monkeypatch):
    """The second one has seen the old period end, and must not open a third."""
    _policy(world, period_days=1e-9)
    access = world.curator.access
    number = access.periods

    def late(name):
        found = number(name)
        monkeypatch.undo()
        access.renew("census")
        return found

    monkeypatch.setattr(access, "periods", late)
    assert world.call("sam", "POST", "/v1/accounts/census/renew").status_code == 403
    assert access.current("census") == "census period 2"


def test_nobody_fills_the_list_of_approvals(world, monkeypatch):
    monkeypatch.setattr(curator, "MOST_WAITING", 2)
    _policy(world, approval_above=0.05)
    codes = [world.ask("ann", {**COUNT, "purpose": str(i)}).json()["error"]["code"] for i in range(4)]
    assert codes == ["approval_needed", "approval_needed", "too_many", "too_many"]
    assert world.ask("bob").json()["error"]["code"] == "approval_needed"


def test_a_period_that_no_calendar_has_is_refused(world):
    response = world.call("sam", "POST", "/v1/accounts/census/policy", {"period_days": 1e100})
    assert response.status_code == 400
    assert "a year has 365" in response.text
