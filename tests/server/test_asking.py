"""The three calls: what a question costs, trying it on dummy data, asking it."""

from __future__ import annotations

import pytest

from discreet.analytics import Private
from discreet.apps.server import dummy
from tests.server.conftest import COUNT, make_world

TYPED = {
    "calls": [
        ["where", [{"$call": [">=", {"$column": "age"}, 30]}]],
        ["group_by", ["sex"], {"keys": ["F", "M"]}],
        ["aggregate", [], {"n": {"$aggregate": ["count", {}]}, "h": {"$aggregate": ["mean", {"column": "hours"}]}}],
    ],
    "epsilon": 0.5,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """For tests that spend nothing."""
    yield from make_world(tmp_path_factory.mktemp("asking"))


def test_an_answer_is_charged_to_the_asker_and_to_the_account_above(world):
    response = world.ask("ann")
    assert response.status_code == 200, response.text
    answer = response.json()
    assert [column["name"] for column in answer["columns"]] == ["n", "n_error"]
    assert (world.spent("census/ann"), world.spent("census"), world.spent("census/bob")) == (1, 1, 0)
    [line] = world.curator.ledger.account("census/ann").statement().lines
    assert line.user == "ann"
    assert world.ask("ann", {**TYPED, "epsilon": 0.9}).status_code == 200  # exactly what remains
    over = world.ask("ann", {**COUNT, "epsilon": 0.01})
    assert over.status_code == 402
    assert over.json()["error"]["code"] == "budget_exceeded"
    assert not over.json()["error"]["charged"]
    assert world.spent("census/ann") == 2
    assert world.ask("bob").status_code == 200  # another share is not affected


def test_both_forms_of_a_question_cost_the_same(shared):
    sql = "SELECT sex, COUNT(*) AS n, AVG(hours) AS h FROM people WHERE age >= 30 GROUP BY sex"
    in_sql = {"sql": sql, "keys": {"sex": ["F", "M"]}, "epsilon": 0.5}
    previews = [shared.call("ann", "POST", "/v1/datasets/people/preview", body).json() for body in (TYPED, in_sql)]
    assert previews[0]["event"] == previews[1]["event"]
    assert previews[0]["groups"] == 2
    assert previews[0]["affordable"]
    assert shared.spent("census") == 0


def test_a_preview_finds_the_epsilon_for_an_error(shared):
    body = {"sql": COUNT["sql"], "error_target": 30}
    preview = shared.call("sam", "POST", "/v1/datasets/people/preview", body).json()
    assert 0.09 < preview["epsilon"] < 0.11


def test_a_trial_reads_no_row_and_charges_nobody(shared):
    response = shared.call("ann", "POST", "/v1/datasets/people/try", TYPED)
    assert response.status_code == 200, response.text
    assert response.json()["dummy"]
    assert [row[0] for row in response.json()["rows"]] == ["F", "M"]
    assert shared.spent("census") == 0


def test_dummy_data_are_the_same_whatever_the_rows_are(shared):
    dataset = shared.curator.dataset("people")
    account = shared.curator.ledger.account("census")
    made = [
        dummy.columns(Private({"sex": ["F"], "hours": [hours], "age": [age]}, account=account), dataset)
        for hours, age in ((1.0, 2), (99.0, 77))
    ]
    assert made[0] == made[1]
    assert set(made[0]["sex"].to_pylist()) == {"F", "M"}
    assert all(0 <= value <= 100 for value in made[0]["hours"].to_pylist())


def test_a_key_gives_the_same_answer_without_a_second_charge(world):
    first = world.ask("ann", Idempotency_Key="monday").json()
    again = world.ask("ann", Idempotency_Key="monday").json()
    assert again.pop("replayed")
    assert again == first
    assert world.spent("census/ann") == 1
    other = world.ask("ann", {**COUNT, "epsilon": 0.2}, Idempotency_Key="monday")
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "key_reused"
    assert world.spent("census/ann") == 1
    assert "replayed" not in world.ask("bob", Idempotency_Key="monday").json()  # keys belong to a user
    assert world.spent("census/bob") == 1


def test_an_answer_that_was_lost_after_its_charge_is_not_drawn_again(world, monkeypatch):
    monkeypatch.setattr(world.curator.state, "keep_answer", lambda *_: 1 / 0)
    failed = world.ask("ann", Idempotency_Key="lost")
    assert failed.status_code == 500
    assert "division" not in failed.text
    monkeypatch.undo()
    again = world.ask("ann", Idempotency_Key="lost")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "answer_lost")
    assert world.spent("census/ann") == 1


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"sql": COUNT["sql"]},
        {"sql": COUNT["sql"], "calls": [["count"]], "epsilon": 0.1},
        {**COUNT, "epsilon": -1},
        {**COUNT, "epsilon": True},
        {**COUNT, "epsilon": "0.1"},
        {**COUNT, "epsilon": 10**400},
        {**COUNT, "epsilon": 1e-400},
        {**COUNT, "unknown": 1},
        {**COUNT, "rows": 0},
        {**COUNT, "purpose": "x" * 3000},
        {**COUNT, "purpose": "a\0b"},
        {"sql": "DROP TABLE people", "epsilon": 0.1},
        {"sql": "SELECT hours FROM people", "epsilon": 0.1},
        {"sql": "SELECT COUNT(*) FROM read_csv('/etc/passwd')", "epsilon": 0.1},
        {"sql": "SELECT COUNT(*) FROM people; DELETE FROM people", "epsilon": 0.1},
        {"sql": "SELECT sex, COUNT(*) FROM people GROUP BY sex", "epsilon": 0.1},
        {"calls": [["where"]], "epsilon": 0.1},
        {"calls": [["__class__"]], "epsilon": 0.1},
        {"calls": [["_of", [1]]], "epsilon": 0.1},
        {"calls": [["count"], ["count"]], "epsilon": 0.1},
        {"calls": [["plan", ["SELECT 1"]]], "epsilon": 0.1},
        {"calls": [["where", [{"$call": ["__reduce__", {"$column": "age"}]}]], ["count"]], "epsilon": 0.1},
        {"calls": [["where", [{"$import": "os"}]], ["count"]], "epsilon": 0.1},
        {"calls": [["count", [1, 2, 3]]], "epsilon": 0.1},
        {"calls": [["group_by", ["sex"], {"keys": {"sex": [[1]]}}], ["count"]], "epsilon": 0.1},
        {"calls": [["marginal", ["sex", "age"], {"categories": {"sex": ["F"] * 1000, "age": [1] * 1000}}]],
         "epsilon": 0.1},
        {"calls": [["quantile", ["hours", 0.5], {"levels": 10**9}]], "epsilon": 0.1},
        {"calls": [["where", [{"$call": ["isin", {"$column": "age"}, [1] * 5000]}]], ["count"]], "epsilon": 0.1},
        {"sql": f"SELECT COUNT(*) FROM people WHERE age IN ({', '.join(['1'] * 5000)})", "epsilon": 0.1},
    ],
    ids=lambda body: str(body)[:60],
)  # fmt: skip
def test_a_question_that_breaks_a_rule_costs_nothing(shared, body):
    response = shared.call("ann", "POST", "/v1/datasets/people/ask", body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == "invalid"
    assert error["message"]
    assert error["remedy"]
    assert shared.spent("census") == 0


def test_json_that_is_not_json_is_refused(shared):
    deep = b'{"calls": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    nested = b'{"keys": ' + b"[" * 300 + b"]" * 300 + b"}"
    for content in (
        nested,
        b"{",
        b"\xff",
        b'{"sql": 1, "sql": 2}',
        b'{"epsilon": NaN}',
        b'{"epsilon": Infinity}',
        b'{"sql": "SELECT COUNT(*) FROM people", "epsilon": 0.1, "error_target": 1e999}',
        b'{"sql": "SELECT COUNT(*) AS \\"\\ud800\\" FROM people", "epsilon": 0.1}',
        b'{"calls": [["aggregate", [], {"\\udfff": {"$aggregate": ["count"]}}]], "epsilon": 0.1}',
        deep,
    ):
        headers = {"Authorization": f"Bearer {shared.tokens['ann']}", "Content-Type": "application/json"}
        response = shared.client.post("/v1/datasets/people/ask", content=content, headers=headers)
        assert response.status_code == 400, content[:40]
    form = shared.client.post(
        "/v1/datasets/people/ask", content=b"x=1", headers={**headers, "Content-Type": "text/plain"}
    )
    assert form.status_code == 415


def test_the_facts_about_a_dataset_are_public_ones(shared):
    [listed] = shared.call("eve", "GET", "/v1/datasets").json()["datasets"]
    assert listed == shared.call("ann", "GET", "/v1/datasets/people").json()
    assert [column["name"] for column in listed["columns"]] == ["sex", "hours", "age"]
    assert listed["columns"][1]["bounds"] == [0.0, 100.0]
    assert shared.call("ann", "GET", "/v1/datasets/nobody").status_code == 404
    assert shared.call("ann", "GET", "/v1/me").json()["shares"][0]["account"] == "census/ann"


def test_from_names_a_dataset(shared):
    """Any other name would be answered about this dataset, whatever its writer meant."""
    response = shared.call("ann", "POST", "/v1/datasets/people/ask", {**COUNT, "sql": "SELECT COUNT(*) AS n FROM labs"})
    assert response.status_code == 400
    assert "read a table that is known" in response.text


def test_a_question_that_takes_long_to_plan_is_refused(shared):
    means = {f"m{number}": {"$aggregate": ["mean", {"column": "hours"}]} for number in range(101)}
    response = shared.call(
        "ann", "POST", "/v1/datasets/people/ask", {"calls": [["aggregate", [], means]], "epsilon": 1}
    )
    assert response.status_code == 400
    assert "at most 100 aggregates" in response.text


def test_a_token_that_may_only_preview_sees_its_own_share(shared):
    token = shared.call("sam", "POST", "/v1/tokens", {"user": "ann", "days": 1, "scopes": ["preview"]}).json()["token"]
    preview = shared.call(token, "POST", "/v1/datasets/people/preview", COUNT).json()
    assert preview["budget"] == {"tag": "pure", "epsilon": (1.0).hex()}  # ann's part, and not the account's 2
