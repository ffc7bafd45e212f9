"""One self-contained HTML page that says what an account promised, spent and released, and the same as JSON."""

from discreet.apps.report.content import Answer, Charge, Evaluation, Report, Training, collect
from discreet.apps.report.page import render

__all__ = ["Answer", "Charge", "Evaluation", "Report", "Training", "collect", "render"]
