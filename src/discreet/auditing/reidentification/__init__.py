"""Why names are not enough: attacks on tables without names and on exact statistics, each beside the same with noise.

They run on the Adult data and on generated tables. `tour` runs all of them; `discreet tour` shows them in a terminal
and writes a page.
"""

from discreet.auditing.reidentification._memorized import Memorized, memorized, remember
from discreet.auditing.reidentification.adult_attacks import k_anonymity, linkage, uniqueness
from discreet.auditing.reidentification.count_attacks import differencing, membership, reconstruction
from discreet.auditing.reidentification.demonstration import Demonstration
from discreet.auditing.reidentification.generated_attacks import governor, ratings
from discreet.auditing.reidentification.walk import tour

__all__ = [
    "Demonstration",
    "Memorized",
    "differencing",
    "governor",
    "k_anonymity",
    "linkage",
    "membership",
    "memorized",
    "ratings",
    "reconstruction",
    "remember",
    "tour",
    "uniqueness",
]
