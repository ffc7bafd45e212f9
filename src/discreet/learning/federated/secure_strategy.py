"""`SecureFedAvg`: a strategy of Flower whose server sees only noisy sums, by secure aggregation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.learning.federated.aggregation import Counts, applied, trained
from discreet.learning.federated.replies import arrays_of
from discreet.learning.federated.rounds_strategy import RoundsStrategy
from discreet.learning.federated.secure_client import fresh_rotation
from discreet.learning.federated.secure_plan import SecurePlan
from discreet.learning.federated.secure_sum import SecureSum
from discreet.ledger.account import Account
from discreet.mechanisms.sampling import samplers


class SecureFedAvg(RoundsStrategy):
    """Federated averaging whose clients add the noise, and whose server opens only their sum.

    Args:
        plan: `SecurePlan.make(…)`; clients run `secure_updates(plan)` as a mod.
        strategy: the server's optimizer, as in `PrivateFedAvg`.
        account: the account to charge, with `unit=dp.client()` and `relation=dp.ZERO_OUT`; None charges nobody.
        key: a name for this training in the ledger.
        purpose: what the training is for; the ledger records it.
        checkpoint: a file to save each round to, so that a server that was killed can resume.
        resume: continue from `checkpoint` if the file exists.

    Guarantee:
        As `SecurePlan`: it holds against the server too, as long as it follows the protocol, without amplification. A
        round in which fewer than `plan.threshold` clients stay opens nothing and leaves the model as it is; it counts
        as taken. Everything that the strategy returns, logs and saves is a function of the opened sums.
    """

    plan: SecurePlan

    def __init__(
        self,
        plan: SecurePlan,
        strategy: Any = None,
        *,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "federated training with secure aggregation",
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> None:
        if not isinstance(plan, SecurePlan):
            raise _check.fail("plan", "be a SecurePlan", type(plan).__name__, "make one with SecurePlan.make(…)")
        super().__init__(plan, strategy, account, key, purpose, checkpoint, resume)
        #: What happened to the replies of each round of this process, over all stages of the protocol.
        self.counts: list[Counts] = []

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Refused: a round of secure aggregation takes four stages of messages, which `start` sends."""
        raise InvalidArgument("secure aggregation must run with start(…): a round takes four stages of messages")

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Refused, as `configure_train`."""
        raise InvalidArgument("secure aggregation must run with start(…): a round takes four stages of messages")

    def _check_arrays(self, current: dict[str, NDArray[Any]]) -> None:
        size = sum(current[name].size for name in trained(current))
        if size != self.plan.updates.dimension:
            remedy = "make the plan with the number of parameters of the model"
            raise _check.fail("initial_arrays", f"hold the plan's {self.plan.updates.dimension} numbers", size, remedy)

    def _take_round(self, number: int, arrays: Any, config: Any, grid: Any, timeout: float) -> tuple[Any, Any]:
        current = arrays_of(arrays)
        record, _ = self._payload(number, arrays, config)
        self._rounds.start(number)
        present = sorted(set(self._frozen(grid).ids or ()) & set(grid.get_node_ids()))
        # Which clients take part is not secret and amplifies nothing; a random choice spreads the work.
        chosen = [present[index] for index in samplers.permutation(len(present))[: self.plan.parties]]
        rotation, updates = fresh_rotation(), self.plan.updates
        protocol = SecureSum(self.plan, grid, number, timeout)
        opened = protocol.run(chosen, record, rotation)
        self.counts.append(protocol.counts)
        mean = np.zeros(updates.dimension) if opened is None else updates.decoded(opened, rotation) / self.plan.parties
        update, start = {}, 0
        for name in trained(current):
            size = current[name].size
            update[name] = mean[start : start + size].reshape(current[name].shape)
            start += size
        return self._released(number, applied(current, update), updates.clip_norm, updates.clip_norm)
