"""The server on a ledger in PostgreSQL: two servers on one ledger, as behind a proxy."""

from __future__ import annotations

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
