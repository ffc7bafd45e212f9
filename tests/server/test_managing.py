"""The steward's and the auditor's calls."""

from __future__ import annotations

import json
import logging

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from discreet.apps.server.config import read_config
from discreet.apps.server.starting import start
from discreet.ledger.access import Access
from discreet.ledger.chain import digest
from tests.server.conftest import CONFIG, COUNT, make_world, write_people


def test_a_new_analyst_gets_a_share_and_asks(world):
    assert world.call("sam", "POST", "/v1/users", {"name": "dan", "role": "analyst"}).status_code == 200
    token = world.call("sam", "POST", "/v1/tokens", {"user": "dan", "days": 1}).json()["token"]
    assert world.call(token, "POST", "/v1/datasets/people/ask", COUNT).status_code == 403  # no share yet
    share = {"account": "census", "user": "dan", "epsilon": 0.25}
    assert world.call("sam", "POST", "/v1/shares", share).json()["account"] == "census/dan"
    assert world.call(token, "POST", "/v1/datasets/people/ask", COUNT).status_code == 200
    [listed] = [one for one in world.call("sam", "GET", "/v1/tokens").json()["tokens"] if one["user"] == "dan"]
    assert token not in json.dumps(world.call("sam", "GET", "/v1/tokens").json())
    assert world.call("sam", "DELETE", f"/v1/tokens/{listed['id']}").status_code == 200
    assert world.call(token, "POST", "/v1/datasets/people/ask", COUNT).status_code == 401
    assert world.call("sam", "POST", "/v1/users/ann/disable").status_code == 200
    assert world.ask("ann").status_code == 401
    assert world.spent("census") == 1


def test_a_steward_opens_an_account_and_registers_a_file_of_the_folder(world):
    pq.write_table(pa.table({"day": [1, 2, 3], "patient": [1, 1, 2]}), world.folder / "visits.parquet")
    opened = world.call(
        "sam", "POST", "/v1/accounts", {"name": "clinic", "epsilon": 1, "unit": "patient", "max_rows": 2}
    )
    assert opened.status_code == 200, opened.text
    assert "one person" in opened.json()["protects"]
    dataset = {"name": "visits", "source": "visits.parquet", "account": "clinic", "bounds": {"day": [0, 31]}}
    assert world.call("sam", "POST", "/v1/datasets", dataset).status_code == 200
    world.call("sam", "POST", "/v1/shares", {"account": "clinic", "user": "ann", "epsilon": 1})
    body = {"sql": "SELECT COUNT(DISTINCT patient) AS patients FROM visits", "epsilon": 0.5}
    assert world.call("ann", "POST", "/v1/datasets/visits/ask", body).status_code == 200
    assert world.call("ann", "POST", "/v1/datasets/visits/try", body).status_code == 200


def test_an_auditor_verifies_and_exports_all_of_the_ledger(world):
    receipt = world.ask("ann").json()["receipt"]
    world.ask("bob")
    found = world.call("eve", "POST", "/v1/ledger/verify", {"receipts": [json.dumps(receipt)]}).json()
    assert found["ok"], found
    lines = [json.loads(line) for line in world.call("eve", "GET", "/v1/ledger/export").text.splitlines()]
    assert len(lines) == found["entries"]
    assert all(digest(line["body"]) == line["hash"] for line in lines)
    assert {json.loads(line["body"]).get("user") for line in lines} >= {"ann", "bob"}
    statement = world.call("eve", "GET", "/v1/accounts/census/ann/statement").json()
    assert [charge["user"] for charge in statement["charges"]] == ["ann"]
    assert {one["account"] for one in world.call("eve", "GET", "/v1/accounts").json()["accounts"]} == {
        "census", "census/ann", "census/bob",
    }  # fmt: skip
    assert "digest" not in world.call("eve", "GET", "/v1/changes").text
    assert world.call("eve", "GET", "/v1/accounts/nobody/statement").status_code == 404


def test_the_steward_is_told_when_half_of_a_share_is_used(world, caplog):
    alerts = world.client.app.state.server.alerts
    with caplog.at_level(logging.WARNING, "discreet.server"):
        world.ask("ann", {**COUNT, "epsilon": 0.6})
        alerts.look()
        alerts.look()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["account census/ann has used 50% of its budget"]


def test_a_second_start_opens_the_same_budget_and_shows_no_token(tmp_path):
    write_people(tmp_path)
    config = read_config(tmp_path / "curator.toml", CONFIG)
    first = start(config)
    assert [user for user, _, _ in first.tokens] == ["sam", "ann", "bob", "eve"]
    first.curator.close()
    second = start(config)
    assert second.tokens == ()
    assert sorted(second.curator.datasets()) == ["people"]
    second.curator.close()


def test_a_dataset_that_gets_another_budget_is_in_the_record(world):
    """The same people under a fresh account are promised less: that must not happen silently."""
    assert world.call("sam", "POST", "/v1/accounts", {"name": "fresh", "epsilon": 5.0}).is_success
    body = {"name": "people", "source": "people.parquet", "account": "fresh"}
    assert world.call("sam", "POST", "/v1/datasets", body).is_success
    changes = [one for one in world.call("eve", "GET", "/v1/changes").json()["changes"] if one["kind"] == "dataset"]
    assert [(one["by"], one["body"]["account"]) for one in changes] == [("operator", "census"), ("sam", "fresh")]
    assert "parquet" not in str(changes)  # an address may hold a password
    assert world.call("eve", "POST", "/v1/ledger/verify", {}).json()["ok"]


def test_a_first_start_that_was_killed_leaves_no_account_without_its_policy(tmp_path, monkeypatch):
    text = CONFIG.replace("[accounts.census.shares]", "policy = { approval_above = 0.05 }\n[accounts.census.shares]")
    write_people(tmp_path)

    def killed(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Access, "set_policy", killed)
    with pytest.raises(KeyboardInterrupt):
        start(read_config(tmp_path / "curator.toml", text))
    monkeypatch.undo()
    for world in make_world(tmp_path, text):
        assert world.ask("ann").json()["error"]["code"] == "approval_needed"
