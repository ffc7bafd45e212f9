"""`discreet tour`: why removing names is not enough, shown by attacks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from discreet import _check
from discreet.apps.cli.command import Command, with_output
from discreet.apps.cli.printing import Output
from discreet.auditing import reidentification
from discreet.errors import MissingExtra


@click.command("tour", cls=Command, example="discreet tour --folder tour")
@click.option("--folder", default="tour", show_default=True, help="Where to write the page with the pictures.")
@with_output
def command(output: Output, folder: str) -> None:
    """Attack data without names, and the same data with differential privacy, in two minutes.

    Uses the Adult data, generated tables and no network. Writes FOLDER/tour.html.
    """
    try:
        from discreet.apps.tour import write_page
    except ModuleNotFoundError as missing:
        raise MissingExtra("the tour's page needs jinja2 and matplotlib: pip install 'discreet[report]'") from missing
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise _check.fail("folder", "be a folder, or be free for one", folder, "the page with the pictures goes there")
    stops = []
    for stop in reidentification.tour():
        stops.append(stop)
        if not output.json:
            output.say(f"{stop.name}\n  {stop.story}")
            output.say(
                f"  without noise {stop.plain:.0%}   with ε = {stop.epsilon:g} {stop.protected:.0%}   "
                f"by chance {stop.chance:.0%}   ({stop.measured})\n"
            )
    page = target / "tour.html"
    write_page(stops, page)
    if output.json:
        output.emit({"page": str(page), "attacks": [asdict(stop) for stop in stops]})
    else:
        output.say(f"wrote {page}: open it in a browser")
