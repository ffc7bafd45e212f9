"""Make the pictures of the server's pages: `python -m tools.make_server_screenshots`. Needs Chromium."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from discreet import datasets
from discreet.apps.server.config import read_config
from discreet.apps.server.problems import Problem
from discreet.apps.server.running import server
from discreet.apps.server.starting import start
from discreet.apps.server.tables import Work
from discreet.ledger.access import Policy
from tools.chromium import Browser

IMAGES = Path(__file__).parent.parent / "docs" / "img"
CONFIG = """
[accounts.census]
epsilon = 3.0
delta = 1e-6
[accounts.census.policy]
approval_above = 0.5
[accounts.census.shares]
ada = { epsilon = 1.5, delta = 1e-6 }
bob = { epsilon = 1.0, delta = 1e-6 }

[datasets.people]
source = "people.parquet"
account = "census"
description = "adults in the US census of 1994"
version = "1994"
[datasets.people.bounds]
age = [17, 90]
hours = [0, 100]
[datasets.people.values]
sex = ["Female", "Male"]
education = [EDUCATION]

[users.sam]
role = "steward"
[users.ada]
role = "analyst"
[users.bob]
role = "analyst"
[users.eve]
role = "auditor"
"""
BY_EDUCATION = "SELECT education, AVG(hours) AS hours_a_week\nFROM people\nGROUP BY education"


def main() -> None:
    """Run a server with the Adult data, let people ask, and take all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        datasets.write_adult(folder / "people.parquet")
        names = ", ".join(f'"{value}"' for value in datasets.EDUCATION)
        started = start(read_config(folder / "curator.toml", CONFIG.replace("EDUCATION", names)))
        curator, tokens = started.curator, {user: token for user, _, token in started.tokens}
        for user, sql, epsilon, purpose in (
            ("ada", "SELECT COUNT(*) AS n FROM people", 0.1, "how many people"),
            ("bob", "SELECT AVG(age) AS age FROM people", 0.2, "mean age"),
            ("ada", "SELECT AVG(hours) AS hours_a_week FROM people", 0.2, "hours of work"),
        ):
            curator.ask(
                curator.access.authenticate(tokens[user]),
                "people",
                {"sql": sql, "epsilon": epsilon, "purpose": purpose},
                None,
                Work(),
            )
        bob = curator.access.authenticate(tokens["bob"])
        large = {"sql": BY_EDUCATION, "keys": {"education": list(datasets.EDUCATION)}, "epsilon": 0.6}
        with suppress(Problem):  # it waits for the steward
            curator.ask(bob, "people", {**large, "purpose": "hours by education, for the annual report"}, None, Work())
        curator.access.refused(bob, "POST /v1/users", "no scope manage")
        assert curator.access.policy("census") != Policy()
        running = server(curator, "127.0.0.1", 0)
        thread = threading.Thread(target=running.run)
        thread.start()
        while not running.started:
            time.sleep(0.02)
        address = f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
        try:
            with Browser() as browser:
                _pictures(browser, address, tokens)
        finally:
            running.should_exit = True
            thread.join()


def _pictures(browser: Browser, address: str, tokens: dict[str, str]) -> None:
    _sign_in(browser, address, tokens["ada"], 1200, 900, False)
    browser.evaluate(f"document.getElementById('sql').value = {BY_EDUCATION!r}")
    browser.evaluate("document.getElementById('epsilon').value = '0.3'")
    browser.evaluate("document.getElementById('purpose').value = 'hours by education'")
    _press(browser, "Preview cost")
    browser.screenshot(IMAGES / "server-preview.png")
    _press(browser, "Ask, and spend")
    browser.screenshot(IMAGES / "server-answer.png")
    for user, picture, width, height, dark in (
        ("sam", "server-steward", 1200, 900, False),
        ("eve", "server-auditor", 1200, 900, True),
        ("ada", "server-phone", 390, 844, False),
    ):
        _sign_in(browser, address, tokens[user], width, height, dark)
        browser.screenshot(IMAGES / f"{picture}.png")


def _sign_in(browser: Browser, address: str, token: str, width: int, height: int, dark: bool) -> None:
    browser.call("Network.clearBrowserCookies")
    browser.open_url(f"{address}/login", width=width, height=height, dark=dark)
    browser.evaluate(f"document.getElementById('token').value = {token!r}")
    _press(browser, "Sign in")


def _press(browser: Browser, words: str) -> None:
    browser.evaluate("window.left = true")
    browser.evaluate(f"[...document.querySelectorAll('button')].find(b => b.textContent.startsWith({words!r})).click()")
    while not browser.evaluate("!window.left && document.readyState === 'complete'"):
        time.sleep(0.02)


if __name__ == "__main__":
    main()
