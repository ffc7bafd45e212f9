"""The door for agents, used by the protocol's own client: it explores, and cannot overspend whatever it tries."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest

pytest.importorskip("mcp")

import httpx
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

import discreet as dp
from discreet.apps.server.running import server
from tests.server.conftest import World, make_world

T = TypeVar("T")
COUNT = {"dataset": "people", "sql": "SELECT COUNT(*) AS n FROM people", "epsilon": 0.1, "purpose": "how many"}


class Agent:
    """A language model's host: the SDK's client with a token."""

    def __init__(self, address: str) -> None:
        self.address = address

    def run(self, token: str | None, work: Callable[[Client], Awaitable[T]]) -> T:
        async def visit() -> T:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            async with (
                httpx.AsyncClient(headers=headers) as http,
                Client(streamable_http_client(f"{self.address}/mcp", http_client=http)) as client,
            ):
                return await work(client)

        return asyncio.run(visit())

    def call(self, token: str | None, tool: str, **arguments: Any) -> Any:
        return self.run(token, lambda client: client.call_tool(tool, arguments))


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    yield from make_world(tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="module")
def agent(world) -> Iterator[Agent]:
    running = server(world.curator, "127.0.0.1", 0, agents=True)
    thread = threading.Thread(target=running.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.02)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield Agent(f"http://127.0.0.1:{port}")
    running.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def token(world) -> str:
    """A token whose share is a small part of ann's own."""
    world.curator.ledger.account("census/ann").allot("agent", dp.PureDP(0.25))
    return world.curator.access.issue("ann", timedelta(days=1), share="census/ann/agent")


def test_an_agent_lists_previews_tries_and_asks_until_its_share_is_used(agent, world, token):
    async def explore(client: Client) -> list[Any]:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"list_datasets", "preview", "try_on_dummy_data", "ask"}
        question = {name: value for name, value in COUNT.items() if name != "purpose"}
        listed = await client.call_tool("list_datasets", {})
        previewed = await client.call_tool("preview", question)
        tried = await client.call_tool("try_on_dummy_data", question)
        assert world.spent("census") == 0
        asked = [await client.call_tool("ask", COUNT) for _ in range(5)]
        return [listed, previewed, tried, *asked]

    listed, previewed, tried, *asked = agent.run(token, explore)
    assert listed.structured_content["datasets"][0]["name"] == "people"
    assert listed.structured_content["shares"][0]["account"] == "census/ann/agent"
    assert previewed.structured_content["affordable"] is True
    assert tried.structured_content["dummy"] is True
    assert [answer.is_error for answer in asked] == [False, False, True, True, True]
    assert "budget_exceeded" in asked[2].content[0].text
    assert [one.reason for one in world.curator.access.refusals()] == ["budget_exceeded"] * 3
    assert world.spent("census/ann/agent") == 2
    assert world.curator.ledger.account("census/ann/agent").history()[-1].user == "ann"
    assert isinstance(asked[0].structured_content["rows"][0]["n"], int | float)
    assert world.curator.ledger.verify()


@pytest.mark.slow
def test_the_same_key_asks_once(agent, world):
    answers = [agent.call(world.tokens["bob"], "ask", **COUNT, key="k") for _ in range(2)]
    assert answers[0].structured_content["rows"] == answers[1].structured_content["rows"]
    assert world.spent("census/bob") == 1


@pytest.mark.slow
def test_groups_take_their_registered_values(agent, world):
    sql = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"
    found = agent.call(world.tokens["bob"], "ask", **{**COUNT, "sql": sql})
    assert {row["sex"] for row in found.structured_content["rows"]} == {"F", "M"}


def test_nobody_comes_in_without_a_valid_token(agent, world):
    revoked = world.curator.access.issue("ann", timedelta(days=1))
    world.curator.access.revoke(world.curator.access.authenticate(revoked).token_id)
    for wrong in (None, "dsc_nonsense", revoked):
        with pytest.raises(BaseException):  # noqa: B017  # the SDK raises a group of what its tasks raised
            agent.call(wrong, "list_datasets")
    answer = httpx.post(f"{agent.address}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert answer.status_code == 401
    assert "www-authenticate" in answer.headers


def test_a_role_that_may_not_ask_is_refused(agent, world):
    before = world.spent("census")
    for user, tool in (("eve", "preview"), ("eve", "ask"), ("sam", "ask")):
        question = COUNT if tool == "ask" else {name: COUNT[name] for name in ("dataset", "sql", "epsilon")}
        refused = agent.call(world.tokens[user], tool, **question)
        assert refused.is_error
        assert "access_denied" in refused.content[0].text
    assert world.spent("census") == before


@pytest.mark.slow
def test_errors_quote_no_data_and_charge_nothing(agent, world):
    before = world.spent("census")
    for change in (
        {"sql": "SELECT * FROM people"},
        {"dataset": "../../etc/passwd"},
        {"epsilon": -1.0},
        {"epsilon": float("1e300")},
        {"keys": {"sex": ["F"]}, "sql": "SELECT age, COUNT(*) FROM people GROUP BY age"},
    ):
        refused = agent.call(world.tokens["bob"], "ask", **{**COUNT, **change})
        assert refused.is_error, change
    assert world.spent("census") == before
