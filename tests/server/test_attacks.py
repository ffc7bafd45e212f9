"""What somebody may try: each attempt fails, and what is released was charged.

docs/topics/threats.md names these tests.
"""

from __future__ import annotations

import json
import logging
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from discreet.apps.client.http import Http
from discreet.errors import DiscreetError
from discreet.ledger import Ledger
from tests.server.conftest import CONFIG, COUNT, make_world, write_people
from tests.server.serving import served, start_process

ASK = "/v1/datasets/people/ask"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """For attempts that must not spend anything."""
    yield from make_world(tmp_path_factory.mktemp("attacks"))


# --- tokens


def test_forged_tokens_are_refused(shared):
    good = shared.tokens["ann"]
    flipped = good[:-1] + ("A" if good[-1] != "A" else "B")
    swapped = "_".join([*shared.tokens["sam"].split("_")[:2], good.split("_", 2)[2]])
    bad = ["", "x", flipped, swapped, good[:-1], good + "A", good.upper(), "null", "dsc__", good.replace("_", "-")]
    for token in bad:
        response = shared.call(token, "POST", ASK, COUNT)
        assert response.status_code == 401, token
        assert response.json()["error"]["message"].startswith("access denied")
    basic = shared.client.post(ASK, json=COUNT, headers={"Authorization": f"Basic {good}"})
    assert basic.status_code == 401
    in_address = shared.client.post(f"{ASK}?token={good}&access_token={good}", json=COUNT)
    assert in_address.status_code == 401
    assert shared.spent("census") == 0


def test_expired_and_revoked_tokens_and_disabled_users_are_refused(world):
    expired = world.call("sam", "POST", "/v1/tokens", {"user": "ann", "days": 1e-10}).json()["token"]
    time.sleep(0.001)
    assert world.call(expired, "POST", ASK, COUNT).status_code == 401
    token = world.call("sam", "POST", "/v1/tokens", {"user": "ann", "days": 1}).json()["token"]
    assert world.call(token, "GET", "/v1/me").status_code == 200
    assert world.call("sam", "DELETE", f"/v1/tokens/{token.split('_')[1]}").status_code == 200
    assert world.call(token, "POST", ASK, COUNT).status_code == 401
    assert world.call("sam", "POST", "/v1/users/ann/disable").status_code == 200
    assert world.ask("ann").status_code == 401
    assert world.spent("census") == 0
    reasons = [one["reason"] for one in world.call("eve", "GET", "/v1/refusals").json()["refusals"]]
    assert any("expired" in reason for reason in reasons)
    assert any("revoked" in reason for reason in reasons)
    assert all(token not in reason for reason in reasons)


def test_a_token_revoked_while_its_question_runs_charges_nothing(world, monkeypatch):
    """Between the door and the charge a steward revokes: the charge's own transaction notices."""
    table = world.curator._tables.private
    token_id = world.tokens["ann"].split("_")[1]

    def revoke_first(*arguments):
        world.curator.access.revoke(token_id)
        return table(*arguments)

    monkeypatch.setattr(world.curator._tables, "private", revoke_first)
    assert world.ask("ann").status_code == 403
    assert world.spent("census") == 0


def test_nobody_spends_from_the_share_of_another(world):
    for share in ("census/bob", "census"):  # a token for another's share is the steward's to give, and no one else's
        body = {"user": "ann", "days": 1, "share": share}
        assert world.call("ann", "POST", "/v1/tokens", body).status_code == 403
    for name in ("account", "share", "user", "identity"):
        assert world.ask("ann", {**COUNT, name: "census/bob"}).status_code == 400
    world.ask("ann", {**COUNT, "epsilon": 1.0})
    assert world.ask("ann").status_code == 402
    assert (world.spent("census/ann"), world.spent("census/bob")) == (1, 0)
    assert world.call("ann", "GET", "/v1/accounts/census/bob/statement").status_code == 403
    assert [one["account"] for one in world.call("ann", "GET", "/v1/me").json()["shares"]] == ["census/ann"]


def test_an_analyst_cannot_raise_her_own_limits(shared):
    attempts = [
        ("POST", "/v1/shares", {"account": "census", "user": "ann", "epsilon": 100}),
        ("POST", "/v1/accounts", {"name": "census2", "epsilon": 100}),
        ("POST", "/v1/accounts/census/policy", {"max_epsilon_per_question": 100}),
        ("POST", "/v1/users", {"name": "ann2", "role": "steward"}),
        ("POST", "/v1/accounts/census/renew", None),
        ("POST", "/v1/datasets", {"name": "copy", "source": "people.parquet", "account": "census"}),
    ]
    for user in ("ann", "eve"):
        for method, path, body in attempts:
            assert shared.call(user, method, path, body).status_code == 403, path
    assert shared.call("sam", "POST", ASK, COUNT).status_code == 403  # a steward does not ask
    raised = {"account": "census", "user": "ann", "epsilon": 100}
    assert shared.call("sam", "POST", "/v1/shares", raised).status_code == 409  # terms never change


# --- injections


@pytest.mark.parametrize(
    "name", ["..%2F..%2Fcurator.toml", "people.parquet", "people%00", "%2e%2e", "people'--", "a" * 999]
)
def test_an_address_names_datasets_and_no_files(shared, name):
    response = shared.call("ann", "POST", f"/v1/datasets/{name}/ask", COUNT)
    assert response.status_code == 404
    assert str(shared.folder) not in response.text


@pytest.mark.parametrize(
    "source",
    ["../other.parquet", "/etc/passwd", "link.parquet", "*.parquet", "duckdb:///x.duckdb?table=t", "", ".", "a\0b"],
)
def test_a_source_lies_below_the_folder(shared, source, tmp_path_factory):
    link = shared.folder / "link.parquet"
    if not link.is_symlink():
        outside = tmp_path_factory.mktemp("outside") / "other.parquet"
        outside.write_bytes((shared.folder / "people.parquet").read_bytes())
        link.symlink_to(outside)
    body = {"name": "stolen", "source": source, "account": "census"}
    response = shared.call("sam", "POST", "/v1/datasets", body)
    assert response.status_code == 400, response.text


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", "'; DROP TABLE people; --", "\\'; ATTACH 'x'; --", "${HOME}", "%s", "{}", "\u202e", "🙂"]
)
def test_text_in_a_question_is_only_ever_text(shared, text):
    body = {"calls": [["where", [{"$call": ["==", {"$column": "sex"}, text]}]], ["count"]], "epsilon": 0.5}
    response = shared.call("ann", "POST", "/v1/datasets/people/try", body)
    assert response.status_code == 200, response.text
    [[count, error]] = response.json()["rows"]
    assert abs(count) < 60 + error  # 0 rows and noise of scale 2: P(|noise| ≥ 60) < e^(−30)


# --- what an error tells


def test_no_error_quotes_a_row(world, monkeypatch, caplog):
    secret = "Ann Example, born 1970"

    def fail(*arguments, **options):
        raise duckdb.Error(f"could not convert {secret}")

    monkeypatch.setattr("discreet.analytics.engine.running.Planned.arrow", fail)
    with caplog.at_level(logging.DEBUG):
        response = world.ask("ann", Idempotency_Key="x")
    assert response.status_code == 500
    error = response.json()["error"]
    assert (error["code"], error["charged"]) == ("engine_failed", True)
    assert secret not in response.text + caplog.text
    assert world.spent("census/ann") == 1  # a failure that may depend on data is an output, so it stays charged


# --- too much, too slow, too often


def test_a_request_that_is_too_large_is_refused(shared):
    big = {**COUNT, "purpose": "x" * 300_000}
    response = shared.call("ann", "POST", ASK, big)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
    combinations = {"sex": ["F", "M"] * 5000, "age": list(range(5000))}
    body = {"sql": "SELECT sex, age, COUNT(*) FROM people GROUP BY sex, age", "keys": combinations, "epsilon": 0.1}
    assert shared.call("ann", "POST", ASK, body).status_code == 400
    assert shared.spent("census") == 0


def test_a_request_that_comes_too_slowly_is_refused(tmp_path):
    for world in make_world(tmp_path, CONFIG + "read_seconds = 0.2\n"):
        with served(world) as url:
            host, port = url.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), timeout=5) as slow:
                head = f"POST {ASK} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {world.tokens['ann']}\r\n"
                slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
                assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert world.spent("census") == 0


def test_too_many_requests_are_turned_away(tmp_path):
    text = CONFIG.replace("requests_per_minute = 100000", "requests_per_minute = 20")
    for world in make_world(tmp_path, text):
        statuses = [world.call("ann", "GET", "/v1/me").status_code for _ in range(12)]
        assert statuses[:10] == [200] * 10
        assert statuses[11] == 429
        assert world.call("bob", "GET", "/v1/me").status_code == 200
        guesses = [world.call(f"guess {number}", "GET", "/v1/me") for number in range(70)]
        assert guesses[-1].status_code == 429
        assert int(guesses[-1].headers["retry-after"]) >= 1


def test_a_question_that_runs_too_long_is_cancelled_and_stays_charged(tmp_path):
    with duckdb.connect(str(tmp_path / "slow.duckdb")) as connection:
        connection.execute("CREATE VIEW slow AS SELECT i % 7 AS age FROM range(30000000000) t(i)")
    dataset = '[datasets.slow]\nsource = "duckdb:///slow.duckdb?table=slow"\naccount = "census"\n'
    text = CONFIG.replace("[users.sam]", dataset.replace("slow.duckdb", f"{tmp_path}/slow.duckdb") + "[users.sam]")
    for world in make_world(tmp_path, text + "query_seconds = 0.5\n"):
        began = time.monotonic()
        response = world.call("ann", "POST", "/v1/datasets/slow/ask", {"calls": [["count"]], "epsilon": 0.1})
        assert (response.status_code, response.json()["error"]["code"]) == (504, "timed_out")
        assert response.json()["error"]["charged"]
        assert time.monotonic() - began < 30
        assert world.spent("census/ann") == 1
        assert world.ask("ann").status_code == 200  # the thread is free again


# --- at the same time, and in the middle


def _asked(url, token, key, epsilon):
    """The status of one question, and its answer."""
    http = Http(url, token, 30.0)
    try:
        return 200, http.call("POST", ASK, {**COUNT, "epsilon": epsilon}, key=key)
    except DiscreetError as error:
        return type(error).__name__, None
    finally:
        http.close()


def test_of_eight_at_once_for_the_last_drop_one_gets_it(world):
    with served(world) as url, ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(_asked, url, world.tokens["ann"], f"drop {n}", 1.0) for n in range(8)]
        statuses = [one.result()[0] for one in asked]
    assert sorted(map(str, statuses)) == ["200", *["BudgetExceeded"] * 7]
    assert world.spent("census/ann") == 1


def test_of_eight_at_once_with_one_key_one_is_charged(world):
    with served(world) as url, ThreadPoolExecutor(8) as clients:
        asked = [clients.submit(_asked, url, world.tokens["ann"], "same", 0.1) for _ in range(8)]
        answers = [one.result() for one in asked]
    rows = {json.dumps(answer["rows"]) for status, answer in answers if status == 200}
    assert len(rows) == 1  # whoever got an answer got this one
    assert {status for status, _ in answers} <= {200, "Exhausted"}  # or was told that another request has it
    assert world.spent("census/ann") == 1


@pytest.mark.slow
def test_a_killed_server_released_nothing_uncharged_and_overspent_nothing(tmp_path):
    write_people(tmp_path)
    config = tmp_path / "curator.toml"
    config.write_text(CONFIG)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process, tokens, url = start_process(config, port)
    got: dict[str, dict] = {}
    stop = threading.Event()

    def keep_asking(number):
        count = 0
        while not stop.is_set():
            key = f"{number}-{count}"
            status, answer = _asked(url, tokens["ann"], key, 0.01)
            if status == 200:
                got[key] = answer
            elif status != 200 and stop.is_set():
                return
            count += 1

    with ThreadPoolExecutor(4) as clients:
        asking = [clients.submit(keep_asking, number) for number in range(4)]
        while len(got) < 10 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        stop.set()
        for one in asking:
            one.result()
    process.stdout.close()
    with Ledger(tmp_path / "curator.ledger", create=False) as ledger:
        found = ledger.verify([json.dumps(answer["receipt"]) for answer in got.values()])
        assert not found.problem, found
        charges = ledger.account("census/ann").summary().charges
        assert len(got) <= charges <= 100  # 100 × 0.01 is the whole share
        assert ledger.account("census").summary().charges == charges
    again, _, url = start_process(config, port)
    try:
        for key, answer in got.items():
            status, replayed = _asked(url, tokens["ann"], key, 0.01)
            assert (status, replayed["rows"]) == (200, answer["rows"])
        with Ledger(tmp_path / "curator.ledger", create=False) as ledger:
            assert ledger.account("census/ann").summary().charges == charges
    finally:
        again.terminate()
        again.wait()
        again.stdout.close()
