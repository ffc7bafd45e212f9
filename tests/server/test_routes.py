"""Who may call what: one table, which is the whole application."""

from __future__ import annotations

import re

import pytest
from starlette.routing import Route as StarletteRoute

from discreet.apps.server.app import build
from discreet.apps.server.routes import ROUTES
from discreet.ledger.access import Role
from tests.server.conftest import make_world
from tests.server.test_pages import POSTS

USERS = {Role.STEWARD: "sam", Role.ANALYST: "ann", Role.AUDITOR: "eve"}
PUBLIC = {"/v1/health", "/openapi.json", "/reference"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield from make_world(tmp_path_factory.mktemp("routes"))


#: The pages, whose own tests say who may see and do what (test_pages.py).
PAGES = {
    ("/style.css", "GET"),
    ("/login", "GET"),
    ("/login", "POST"),
    ("/logout", "POST"),
    ("/", "GET"),
    ("/audit", "GET"),
    ("/account", "GET"),
    ("/audit.jsonl", "GET"),
    *((path, "POST") for path in POSTS),
}


def test_the_application_is_the_table_and_the_pages(shared):
    built = build(shared.curator).routes
    assert all(isinstance(route, StarletteRoute) for route in built)
    mine = {(route.path, method) for route in built for method in route.methods - {"HEAD"}}
    assert mine == {(route.path, route.method) for route in ROUTES} | PAGES
    assert len(mine) == len(ROUTES) + len(PAGES)


def test_only_three_calls_need_no_token():
    assert {route.path for route in ROUTES if route.scope is None} == PUBLIC


def test_a_scope_belongs_to_a_role():
    assert all(route.roles for route in ROUTES if route.scope is not None)


def _address(route):
    return re.sub(r"{\w+(:path)?}", "none", route.path)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_call_is_refused_without_its_scope(shared, route):
    if route.scope is None:
        assert shared.call(None, route.method, _address(route)).status_code == 200
        return
    refused = shared.call(None, route.method, _address(route))
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "not_authenticated"
    for role in Role:
        status = shared.call(USERS[role], route.method, _address(route)).status_code
        assert (status == 403) == (role not in route.roles), (role, status)


def test_a_token_with_fewer_scopes_can_do_less(shared):
    issued = shared.call("sam", "POST", "/v1/tokens", {"user": "ann", "days": 1, "scopes": ["datasets", "preview"]})
    narrow = issued.json()["token"]
    body = {"sql": "SELECT COUNT(*) FROM people", "epsilon": 0.1}
    assert shared.call(narrow, "POST", "/v1/datasets/people/preview", body).status_code == 200
    assert shared.call(narrow, "POST", "/v1/datasets/people/ask", body).status_code == 403
    assert shared.spent("census") == 0


def test_the_description_lists_every_call(shared):
    document = shared.call(None, "GET", "/openapi.json").json()
    listed = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    assert listed == {(route.path.replace(":path}", "}"), route.method) for route in ROUTES}
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    page = shared.call(None, "GET", "/reference")
    assert "<script" not in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")


def test_an_unknown_address_and_a_wrong_method_are_json_errors(shared):
    assert shared.call("ann", "GET", "/v1/nothing").json()["error"]["code"] == "not_found"
    assert shared.call("ann", "DELETE", "/v1/datasets").json()["error"]["code"] == "wrong_method"
