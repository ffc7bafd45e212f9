"""The tour through all attacks, in the order of the story."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

from discreet.auditing.reidentification._memorized import memorized
from discreet.auditing.reidentification.adult_attacks import k_anonymity, linkage, uniqueness
from discreet.auditing.reidentification.count_attacks import differencing, membership, reconstruction
from discreet.auditing.reidentification.demonstration import Demonstration
from discreet.auditing.reidentification.generated_attacks import governor, ratings

#: From tables without names to exact statistics.
STOPS: tuple[Callable[[], Demonstration], ...] = (
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
    """All attacks, one after the other. Each takes seconds. The last one trains a model, if torch is installed.

    Guarantee: none for the exact releases, which is the point. The protected ones are ε-DP with ε = 0.1 for all that
    one person's row holds, and the model with ε = 4 for one sentence. The data is public or generated.
    """
    stops = STOPS if find_spec("torch") is None else (*STOPS, memorized)
    return (stop() for stop in stops)
