"""The report in a real browser: no console messages, no requests, readable on a phone and in dark mode."""

from __future__ import annotations

import pytest

from discreet.apps.report import render
from tests.apps.test_report import sample
from tools import chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.find() is None, reason="chromium is not installed: apt-get install chromium"),
]

PHONE, DESKTOP = (390, 844), (1200, 900)


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    path = folder / "report.html"
    path.write_text(render(sample(folder)[1]))
    return path


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_it_opens_without_console_messages_and_requests_nothing(browser, page, size, dark):
    browser.open(page, width=size[0], height=size[1], dark=dark)
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [page.as_uri()]


def test_hostile_text_does_not_run(browser, page):
    browser.open(page, width=1200, height=900)
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert "alert(1)" in browser.evaluate("document.body.innerText")


def test_a_phone_needs_no_sideways_scrolling(browser, page):
    browser.open(page, width=PHONE[0], height=PHONE[1])
    assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    smallest = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect().height))"
    )
    assert smallest >= 9, "text in a figure is too small to read"


def test_dark_mode_changes_page_and_figures(browser, page):
    colors = []
    for dark in (False, True):
        browser.open(page, width=1200, height=900, dark=dark)
        body = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        text = browser.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
        colors.append((body, text))
    assert colors[0][0] == "rgb(255, 255, 255)"
    assert colors[0][0] != colors[1][0]
    assert colors[0][1] != colors[1][1]


def test_print_is_dark_on_light_and_hides_the_navigation(browser, page, tmp_path):
    browser.open(page, width=800, height=1100, dark=True, media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    heights = browser.evaluate(
        "[...document.querySelectorAll('details:not(.machine)')].map(d => d.getBoundingClientRect().height)"
    )
    assert heights
    assert min(heights) > 40, "print must unfold everything: paper cannot be clicked"
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_accessibility_tree_has_landmarks_headings_and_named_figures(browser, page):
    browser.open(page, width=1200, height=900)
    nodes = browser.accessibility()
    roles = [node["role"]["value"] for node in nodes]
    for role in ("main", "navigation", "contentinfo", "banner", "heading", "table", "figure"):
        assert role in roles, role
    for node in nodes:
        if node["role"]["value"] in ("figure", "table", "region"):
            assert node["name"]["value"], f"a {node['role']['value']} without a name"


def test_every_link_in_the_page_leads_somewhere(browser, page):
    browser.open(page, width=1200, height=900)
    lost = "[...document.querySelectorAll('a')].filter(a => !document.querySelector(a.getAttribute('href'))).length"
    assert browser.evaluate(lost) == 0
