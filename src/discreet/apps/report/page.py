"""From a report to one HTML file that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from discreet.apps.report import charts, questions
from discreet.apps.report.document import Report

#: Up to this many charges the table of charges is unfolded.
_OPEN_CHARGES = 12


def render(report: Report) -> str:
    """The HTML page of a report. All text is escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda share: f"{100 * share:.1f}%"
    environment.filters["number"] = _number
    template = environment.from_string(_text("report.html.jinja"))
    large, small = questions.headline(report.budget)
    return template.render(
        report=report,
        style=Markup(_text("report.css")),
        large=large,
        small=small,
        charts=charts,
        svg=Markup,
        charges_open=len(report.charges) <= _OPEN_CHARGES,
        statement_json=Markup(report.to_json().replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")),
        pretty_json=report.statement.to_json(),
    )


def _text(name: str) -> str:
    return resources.files("discreet.apps.report").joinpath(name).read_text(encoding="utf-8")


def _number(value: Any) -> str:
    """A number with thousands separators and a few digits; other values as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
