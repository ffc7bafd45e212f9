"""`PrivateFTRL`: a strategy of Flower with noise that is correlated over rounds; devices come when they like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.learning.federated._flower import flower
from discreet.learning.federated.aggregation import Counts, Round, applied, trained
from discreet.learning.federated.correlated_plan import Calendar, CorrelatedNoise, CorrelatedPlan
from discreet.learning.federated.replies import arrays_of, arrays_of_reply
from discreet.learning.federated.rounds_strategy import RoundsStrategy
from discreet.learning.noise import Secret
from discreet.ledger.account import Account


class PrivateFTRL(RoundsStrategy):
    """Federated training with correlated noise, as a strategy of Flower.

    Args:
        plan: `CorrelatedPlan.make(…)`.
        strategy: the server's optimizer, as in `PrivateFedAvg`.
        account: the account to charge, with `unit=dp.client()` and `relation=dp.ZERO_OUT`; None charges nobody.
        key: a name for this training in the ledger.
        purpose: what the training is for; the ledger records it.
        checkpoint: a file to save each round to. **It is secret**: it holds the noise of the last rounds, without which
            the training could not go on. Only its owner can read it. After the last round it holds no noise any more.
        resume: continue from `checkpoint` if the file exists.

    Guarantee:
        That of the plan, charged before the first message. The server chooses clients among those who are connected,
        and keeps each within `plan.participations` and `plan.separation`, after a crash too: who is asked is saved
        before the first message of a round. With an account, the ledger counts the rounds, and a checkpoint that is
        older than the ledger is refused: it does not know who took part since. What a round makes of replies, and what
        is logged, is as in `PrivateFedAvg`.
    """

    plan: CorrelatedPlan

    def __init__(
        self,
        plan: CorrelatedPlan,
        strategy: Any = None,
        *,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "federated training with correlated noise",
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> None:
        if not isinstance(plan, CorrelatedPlan):
            raise _check.fail("plan", "be a CorrelatedPlan", type(plan).__name__, "use CorrelatedPlan.make(…)")
        super().__init__(plan, strategy, account, key, purpose, checkpoint, resume)
        self._calendar: Calendar | None = None
        self._noise = CorrelatedNoise(plan)
        self._secret: Secret | None = None
        saved = self._rounds.saved.secret
        if saved:
            self._calendar = Calendar(plan, saved["ids"], saved["times"], saved["last"])
            self._noise = CorrelatedNoise(plan, list(saved["noise"]), int(saved["number"]))
            ids = tuple(int(each) for each in saved["ids"])
            self._registry = replace(plan.clients, ids=ids)
        #: What happened to the replies of each round of this process. **Not private**: never log or publish it.
        self.counts: list[Counts] = []

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Refused: rounds must run in order, with `start`."""
        raise InvalidArgument("correlated noise must run with start(…): the noise of a round depends on earlier rounds")

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Refused, as `configure_train`."""
        raise InvalidArgument("correlated noise must run with start(…): the noise of a round depends on earlier rounds")

    def _take_round(self, number: int, arrays: Any, config: Any, grid: Any, timeout: float) -> tuple[Any, Any]:
        app, current = flower("flwr.app"), arrays_of(arrays)
        record, message_type = self._payload(number, arrays, config)
        size = sum(current[name].size for name in trained(current))
        self._secret = self._secret or Secret(self.plan.insecure_seed)
        while self._noise.number < number - 1:  # rounds that were lost in a crash
            self._noise.skip(size)
        ids = self._frozen(grid).ids or ()
        self._calendar = self._calendar or Calendar.empty(self.plan, ids)
        present = set(grid.get_node_ids())
        chosen = self._calendar.choose(number, present)
        self._rounds.start(number, self._secrets())
        current_round = Round(self.plan, number, current, float(self.plan.clipping.norm), chosen)
        messages = [
            app.Message(record, dst_node_id=node, message_type=message_type, group_id=str(number))
            for node in sorted(chosen)
        ]
        for reply in grid.send_and_receive(messages, timeout=timeout) if messages else []:
            belongs = number if reply.metadata.group_id == str(number) else -1
            current_round.take(reply.metadata.src_node_id, arrays_of_reply(reply), number=belongs)
        self.counts.append(current_round.counts)
        released = current_round.release_with(self._noise.next(size, self._secret))
        mean = applied(current, released.update)
        # No later round takes anything back from the last one, so its noise is kept nowhere.
        secret = self._secrets() if number < self.plan.rounds else None
        return self._released(number, mean, released.clip_norm, released.clip_norm, secret)

    def _secrets(self) -> dict[str, Any]:
        assert self._calendar is not None
        calendar = self._calendar
        return {
            "ids": calendar.ids,
            "times": calendar.times,
            "last": calendar.last,
            "noise": self._noise.recent,
            "number": np.array(self._noise.number),
        }
