"""Federated training with a price that holds: data stay with clients, and one event is charged before any message.

- `registry` fixes who can be drawn, `plan` the whole training as one event;
- `aggregation` is one round on the server: draw, clip, sum, add noise, divide; it knows no framework;
- `queries` asks clients for a mean or a histogram in one round;
- `rounds` keeps rounds in the ledger and in a checkpoint, so that none is taken twice;
- `rounds_strategy` is what strategies of Flower share, `strategy` the one with a trusted server;
- `correlated_plan` and `correlated_strategy` correlate the noise of rounds, for devices that come when they like;
- `integers`, `secure_plan`, `secure_client`, `secure_sum` and `secure_strategy` sum noisy integers that nobody sees.
"""

import importlib
import typing

from discreet.learning.federated.aggregation import Counts, Round, RoundRelease, applied, draw_clients
from discreet.learning.federated.correlated_plan import CorrelatedPlan
from discreet.learning.federated.integers import IntegerUpdates
from discreet.learning.federated.plan import FederatedPlan
from discreet.learning.federated.queries import FederatedAnswer, ask
from discreet.learning.federated.registry import Registry, clients
from discreet.learning.federated.secure_client import secure_updates
from discreet.learning.federated.secure_plan import SecurePlan

if typing.TYPE_CHECKING:
    from discreet.learning.federated.correlated_strategy import PrivateFTRL
    from discreet.learning.federated.secure_strategy import SecureFedAvg
    from discreet.learning.federated.strategy import PrivateFedAvg

__all__ = [
    "CorrelatedPlan",
    "Counts",
    "FederatedAnswer",
    "FederatedPlan",
    "IntegerUpdates",
    "PrivateFTRL",
    "PrivateFedAvg",
    "Registry",
    "Round",
    "RoundRelease",
    "SecureFedAvg",
    "SecurePlan",
    "applied",
    "ask",
    "clients",
    "draw_clients",
    "secure_updates",
]

#: Names that need Flower, and the modules that define them.
_LAZY = {"PrivateFTRL": "correlated_strategy", "PrivateFedAvg": "strategy", "SecureFedAvg": "secure_strategy"}


def __getattr__(name: str) -> typing.Any:
    """Import names that need Flower on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
