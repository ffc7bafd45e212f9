"""The pages in a real browser: a visit of each role, on a desktop, on a phone, in the dark, and without scripts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from discreet.apps.server.running import server
from discreet.ledger.access import Policy
from tests.server.conftest import World, make_world
from tools import chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.find() is None, reason="chromium is not installed: apt-get install chromium"),
]

PHONE, DESKTOP = (390, 844), (1200, 900)
SQL = "SELECT sex, COUNT(*) AS n, AVG(hours) AS hours FROM people GROUP BY sex"


class Visit:
    """A browser on a running server."""

    def __init__(self, browser: chromium.Browser, address: str) -> None:
        self.browser = browser
        self.address = address

    def open(self, path: str = "/", size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        self.browser.open_url(self.address + path, width=size[0], height=size[1], dark=dark)

    def text(self) -> str:
        return str(self.browser.evaluate("document.body.innerText"))

    def fill(self, field: str, value: str) -> None:
        self.browser.evaluate(f"document.getElementById({field!r}).value = {value!r}")

    def press(self, words: str) -> None:
        """Press the button with these words, and wait for the next page."""
        self.browser.evaluate("window.left = true")
        script = f"[...document.querySelectorAll('button')].find(b => b.innerText.startsWith({words!r})).click()"
        self.browser.evaluate(script)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.browser.evaluate("!window.left && document.readyState === 'complete'"):
                return
            time.sleep(0.02)
        raise TimeoutError(words)

    def sign_in(self, token: str, **view: object) -> None:
        self.browser.call("Network.clearBrowserCookies")
        self.open("/login", **view)  # type: ignore[arg-type]
        self.fill("token", token)
        self.press("Sign in")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    yield from make_world(tmp_path_factory.mktemp("visit"))


@pytest.fixture(scope="module")
def visit(world) -> Iterator[Visit]:
    running = server(world.curator, "127.0.0.1", 0)
    thread = threading.Thread(target=running.run)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.02)
    port = running.servers[0].sockets[0].getsockname()[1]
    with chromium.Browser() as browser:
        yield Visit(browser, f"http://127.0.0.1:{port}")
    running.should_exit = True
    thread.join(30)


def test_an_analyst_previews_asks_and_sees_error_bars(visit, world):
    visit.sign_in(world.tokens["ann"])
    assert "Ask a question" in visit.text()
    visit.fill("sql", SQL)
    visit.fill("epsilon", "0.3")
    visit.press("Preview cost")
    assert "What this would cost" in visit.text()
    assert world.spent("census") == 0
    visit.press("Ask, and spend")
    assert visit.browser.evaluate("document.querySelectorAll('svg.chart .error').length") >= 6
    assert world.spent("census/ann") == 1
    assert visit.browser.messages == []


def test_a_steward_approves_what_an_analyst_asked(visit, world):
    world.curator.access.set_policy("census", Policy(approval_above=0.1))
    visit.sign_in(world.tokens["bob"])
    visit.fill("sql", "SELECT COUNT(*) AS n FROM people")
    visit.fill("epsilon", "0.2")
    visit.press("Preview cost")
    visit.press("Ask, and spend")
    assert "needs approval" in visit.text()
    visit.sign_in(world.tokens["sam"])
    visit.press("Approve")
    assert "No questions are waiting" in visit.text()
    world.curator.access.set_policy("census", Policy())


@pytest.mark.parametrize("user", ["ann", "sam", "eve"])
@pytest.mark.parametrize(("size", "dark"), [(PHONE, False), (DESKTOP, True)])
def test_every_page_is_quiet_fits_and_asks_nobody_else(visit, world, user, size, dark):
    visit.sign_in(world.tokens[user], size=size, dark=dark)
    paths = ["/"] if user == "ann" else ["/", "/audit", "/account?name=census"]
    for path in paths:
        visit.open(path, size=size, dark=dark)
        assert visit.browser.messages == [], path
        assert all(url.startswith((visit.address, "data:")) for url in visit.browser.requests)
        assert visit.browser.evaluate("document.documentElement.scrollWidth") <= size[0], path
        assert visit.browser.evaluate("document.querySelectorAll('script').length") == 0
        body = visit.browser.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (body == "rgb(255, 255, 255)") is not dark
        small = "[...document.querySelectorAll('button')].filter(b => b.getBoundingClientRect().height < 24).length"
        assert visit.browser.evaluate(small) == 0  # large enough for a finger


def test_everything_is_reached_and_named_without_a_mouse(visit, world):
    """Each field has a label, each button has words, and the focus can be seen."""
    for user in ("ann", "sam", "eve"):
        visit.sign_in(world.tokens[user])
        unnamed = (
            "[...document.querySelectorAll('input:not([type=hidden]), select, textarea')]"
            ".filter(f => !f.labels.length).length"
            " + [...document.querySelectorAll('button')].filter(b => !b.textContent.trim()).length"
            " + [...document.querySelectorAll('[tabindex]')].filter(e => e.tabIndex > 0).length"
        )
        assert visit.browser.evaluate(unnamed) == 0
        for words in ("Skip to the content", "Curator"):
            for kind in ("keyDown", "keyUp"):
                visit.browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            assert visit.browser.evaluate("document.activeElement.textContent") == words
            assert visit.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_pages_work_without_javascript(visit, world):
    visit.sign_in(world.tokens["ann"])
    visit.browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        visit.open("/")
        assert "What remains" in visit.text()
    finally:
        visit.browser.call("Emulation.setScriptExecutionDisabled", value=False)
