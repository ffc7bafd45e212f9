"""From a report's content to one HTML file that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from discreet.apps.report import figures, words
from discreet.apps.report.content import Report


def render(report: Report) -> str:
    """The page. All text is escaped; the figures are made here and nowhere else."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}%"
    environment.filters["figure"] = _figure
    template = environment.from_string(_text("report.html.jinja"))
    large, small = words.headline(report.budget)
    return template.render(
        report=report,
        style=Markup(_text("report.css")),
        large=large,
        small=small,
        figures=figures,
        svg=Markup,
        statement_json=Markup(report.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")),
        pretty_json=report.statement.to_json(),
    )


def _text(name: str) -> str:
    return resources.files("discreet.apps.report").joinpath(name).read_text(encoding="utf-8")


def _figure(value: Any) -> str:
    """A number for people."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
