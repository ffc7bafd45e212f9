"""Audits: look for a violation of a claim, and say how hard one looked. They run on public or generated data only.

`audit` runs a target on neighboring datasets and looks for an event that the claim does not allow: it tests the whole
trade-off curve of an event, not one (ε, δ). `replay` runs a pipeline on neighboring data and checks, at every
mechanism, that what arrives differs by no more than was declared, and that everything else is equal. `neighboring_*`
look for pairs of datasets at which mistakes show. `training` audits a plan for private training by canaries, and one
step by its noisy sum; `attack_training`, `exposure` and `extractions` ask a trained model whom and what it remembers.
"""

from discreet.auditing._audit import audit
from discreet.auditing._membership import Membership, attack_training, likelihood_scores, membership
from discreet.auditing._replay import Pair, Replay, Violation, replay
from discreet.auditing.foreign import declared
from discreet.auditing.numpy_noise import NumpyNoise
from discreet.auditing.search_neighbors import neighboring_numbers, neighboring_tables, neighboring_values
from discreet.auditing.secrets import exposure, extractions
from discreet.auditing.training import audit_training
from discreet.auditing.verdict import Audit, Power, Witness

__all__ = [
    "Audit",
    "Membership",
    "NumpyNoise",
    "Pair",
    "Power",
    "Replay",
    "Violation",
    "Witness",
    "attack_training",
    "audit",
    "audit_training",
    "declared",
    "exposure",
    "extractions",
    "likelihood_scores",
    "membership",
    "neighboring_numbers",
    "neighboring_tables",
    "neighboring_values",
    "replay",
]
