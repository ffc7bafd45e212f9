"""From facts to HTML: the templates, with everything escaped, and the headers that every page has."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from discreet.apps.server.pages import charts
from discreet.apps.server.pages.session import Session
from discreet.ledger.access import Role

#: No script at all, styles from this server only, forms to this server only, and no frames.
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers hide the origin of our own forms as well
    "X-Content-Type-Options": "nosniff",
}

_LINKS = {
    Role.ANALYST: (("/", "Ask"), ("/reference", "Calls")),
    Role.STEWARD: (("/", "Steward"), ("/audit", "Audit"), ("/reference", "Calls")),
    Role.AUDITOR: (("/", "Audit"), ("/reference", "Calls")),
}


def render(template: str, session: Session | None = None, **facts: Any) -> str:
    """A page as HTML."""
    links = () if session is None else _LINKS[session.identity.role]
    return _environment().get_template(f"{template}.html.jinja").render(session=session, links=links, **facts)


@cache
def style() -> str:
    """The style sheet."""
    return resources.files("discreet.apps.server.pages").joinpath("pages.css").read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("discreet.apps.server.pages", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}%"
    environment.filters["number"] = charts.short
    return environment
