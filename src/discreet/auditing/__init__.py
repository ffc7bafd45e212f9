"""Audits: look for a violation of a claim, and say how hard one looked. They run on public or generated data only.

`audit` runs a target on neighboring datasets and looks for an event that the claim does not allow: it tests the whole
trade-off curve of an event, not one (ε, δ). `replay` runs a pipeline on neighboring data and checks, at every
mechanism, that what arrives differs by no more than was declared, and that everything else is equal. `neighboring_*`
look for pairs of datasets at which mistakes show.
"""

from discreet.auditing._audit import audit
from discreet.auditing.replay import Pair, Replay, Violation, replay
from discreet.auditing.search_neighbors import neighboring_numbers, neighboring_tables, neighboring_values
from discreet.auditing.trainings import Membership, audit_training, likelihood_scores, membership
from discreet.auditing.verdict import Audit, Power, Witness

__all__ = [
    "Audit",
    "Membership",
    "Pair",
    "Power",
    "Replay",
    "Violation",
    "Witness",
    "audit",
    "audit_training",
    "likelihood_scores",
    "membership",
    "neighboring_numbers",
    "neighboring_tables",
    "neighboring_values",
    "replay",
]
