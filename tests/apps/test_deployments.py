"""Published deployments: every price is computed again, and the page is not stale."""

from __future__ import annotations

import pytest

from discreet.apps import deployments
from discreet.apps.deployments import DEPLOYMENTS, Deployment
from tools import make_textbook


@pytest.mark.parametrize("one", DEPLOYMENTS, ids=lambda one: one.what)
def test_the_price_supports_what_the_page_says(one: Deployment):
    assert one.still_holds, one.values
    assert "{" not in one.found
    assert max(map(len, one.code.splitlines())) <= 88


@pytest.mark.parametrize("one", DEPLOYMENTS, ids=lambda one: one.what)
def test_every_deployment_names_its_unit_and_its_sources(one: Deployment):
    assert one.unit
    assert one.checked
    assert one.sources
    assert all(address.startswith("https://") for _, address in one.sources)


def test_the_four_that_textbooks_name_are_covered():
    assert {one.who for one in DEPLOYMENTS} == {"US Census Bureau", "Apple", "Google", "Meta"}


def test_the_published_epsilon_of_the_census_follows_from_its_configuration():
    """The production configuration has σ = 339/542; the bureau published ε = 17.14 at δ = 1e-10."""
    rho, converted, exact = DEPLOYMENTS[0].values
    assert rho == pytest.approx((542 / 339) ** 2)
    assert converted == pytest.approx(17.14, abs=0.005)
    assert exact < converted


def test_the_page_is_what_the_deployments_say():
    page = make_textbook.DOCS / "topics" / "deployments.md"
    assert page.read_text(encoding="utf-8") == deployments.text()
