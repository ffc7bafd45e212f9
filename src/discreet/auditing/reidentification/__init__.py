"""Why names are not enough: attacks on tables without names and on exact statistics, each beside the same with noise.

They run on the Adult data and on generated tables. `tour` runs all of them; `discreet tour` shows them in a terminal
and writes a page.
"""

from collections.abc import Callable, Iterator

from discreet.auditing.reidentification.adult_attacks import k_anonymity, linkage, uniqueness
from discreet.auditing.reidentification.count_attacks import differencing, membership, reconstruction
from discreet.auditing.reidentification.demonstration import Demonstration
from discreet.auditing.reidentification.generated_attacks import governor, ratings

__all__ = [
    "Demonstration",
    "differencing",
    "governor",
    "k_anonymity",
    "linkage",
    "membership",
    "ratings",
    "reconstruction",
    "tour",
    "uniqueness",
]

_STOPS: tuple[Callable[[], Demonstration], ...] = (
    uniqueness,
    linkage,
    governor,
    ratings,
    k_anonymity,
    differencing,
    reconstruction,
    membership,
)


def tour() -> Iterator[Demonstration]:
    """All attacks, one after the other. Each takes seconds.

    Guarantee: none for the exact releases, which is the point. The protected ones are ε-DP for one person with ε = 0.1.
    The data is public or generated.
    """
    return (stop() for stop in _STOPS)
