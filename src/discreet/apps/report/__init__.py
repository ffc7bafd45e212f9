"""A report on an account: what was promised, spent and released, as one self-contained HTML page and as JSON."""

from discreet.apps.report._collect import collect
from discreet.apps.report.document import Charge, Evaluation, ReleasedTable, Report, Training
from discreet.apps.report.federated import federated_training
from discreet.apps.report.page import render

__all__ = ["Charge", "Evaluation", "ReleasedTable", "Report", "Training", "collect", "federated_training", "render"]
