"""The server on a ledger in PostgreSQL: two servers on one ledger, as behind a proxy."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.ledger.conftest import new_postgres, server  # noqa: F401  # fixtures
from tests.server.conftest import CONFIG, COUNT, make_world


@pytest.mark.slow
def test_two_servers_on_one_ledger_share_one_budget(tmp_path, new_postgres):  # noqa: F811
    text = CONFIG.replace('ledger = "curator.ledger"', f'ledger = "{new_postgres().location}"')
    for one in make_world(tmp_path, text):
        for other in make_world(tmp_path, text):
            assert other.tokens == {}
            other.tokens.update(one.tokens)
            first = one.ask("ann", Idempotency_Key="monday").json()
            again = other.ask("ann", Idempotency_Key="monday").json()
            assert again.pop("replayed")
            assert again == first
            with ThreadPoolExecutor(4) as clients:
                body = {**COUNT, "epsilon": 0.9}
                asked = [clients.submit(world.ask, "ann", body) for world in (one, other, one, other)]
                statuses = sorted(response.result().status_code for response in asked)
            assert statuses == [200, 402, 402, 402]
            assert one.spent("census/ann") == 2
            assert other.call("sam", "POST", "/v1/accounts/census/freeze").status_code == 200
            assert one.ask("bob").status_code == 403
            assert other.call("eve", "POST", "/v1/ledger/verify", {}).json()["ok"]


@pytest.mark.slow
def test_a_killed_database_loses_no_charge_of_an_answer(tmp_path, new_postgres):  # noqa: F811
    """PostgreSQL is killed while four clients ask: whoever got an answer finds its charge, and nobody overspends."""
    place = new_postgres()
    text = CONFIG.replace('ledger = "curator.ledger"', f'ledger = "{place.location}"')
    for world in make_world(tmp_path, text):
        answered, stop = {}, threading.Event()

        def keep_asking(number, world=world, answered=answered, stop=stop):
            count = 0
            while not stop.is_set():
                key = f"{number}-{count}"
                response = world.ask("ann", {**COUNT, "epsilon": 0.01}, Idempotency_Key=key)
                if response.status_code == 200:
                    answered[key] = response.json()
                count += 1

        with ThreadPoolExecutor(4) as clients:
            asking = [clients.submit(keep_asking, number) for number in range(4)]
            while len(answered) < 10:
                time.sleep(0.01)
            try:
                place.server.kill()
                place.server.start()
            except BaseException:
                stop.set()  # otherwise the clients would ask on
                raise
            before = len(answered)
            deadline = time.monotonic() + 30
            while len(answered) < min(before + 5, 90) and time.monotonic() < deadline:
                time.sleep(0.01)
            stop.set()
            for one in asking:
                one.result()
        assert len(answered) > before  # it goes on by itself
        charges = world.spent("census/ann")
        assert len(answered) <= charges <= 100
        assert world.spent("census") == charges
        receipts = [json.dumps(answer["receipt"]) for answer in answered.values()]
        assert world.call("eve", "POST", "/v1/ledger/verify", {"receipts": receipts}).json()["ok"]
        for key, answer in answered.items():
            again = world.ask("ann", {**COUNT, "epsilon": 0.01}, Idempotency_Key=key).json()
            assert again["rows"] == answer["rows"]
