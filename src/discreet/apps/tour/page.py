"""The page of the tour: one HTML file with its pictures inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import discreet
from discreet.apps.tour import pictures
from discreet.auditing.reidentification import Demonstration


@dataclass(frozen=True)
class Shown:
    """An attack and its picture."""

    demonstration: Demonstration
    picture: Markup


def write_page(demonstrations: Sequence[Demonstration], path: Path) -> None:
    """Write the page. It loads nothing from the network."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda share: f"{100 * share:.0f}%"
    shown = [Shown(each, Markup(pictures.attack(each))) for each in demonstrations]  # SVG that matplotlib wrote
    template = resources.files("discreet.apps.tour").joinpath("tour.html.jinja").read_text(encoding="utf-8")
    style = resources.files("discreet.apps.report").joinpath("report.css").read_text(encoding="utf-8")
    text = environment.from_string(template).render(
        shown=shown,
        style=Markup(style),
        version=discreet.__version__,
        limit=demonstrations[0].limit,
        epsilon=demonstrations[0].epsilon,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
