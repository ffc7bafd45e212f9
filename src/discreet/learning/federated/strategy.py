"""`PrivateFedAvg`: a strategy of Flower that releases noisy means, charges them first and resumes after a crash."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from discreet import _check
from discreet.learning.federated._flower import flower
from discreet.learning.federated.aggregation import Counts, Round, applied, draw_clients
from discreet.learning.federated.plan import FederatedPlan
from discreet.learning.federated.replies import arrays_of, arrays_of_reply
from discreet.learning.federated.rounds_strategy import RoundsStrategy
from discreet.learning.noise import Secret
from discreet.ledger.account import Account
from discreet.mechanisms.sampling import entropy


class PrivateFedAvg(RoundsStrategy):
    """Federated averaging with a price that holds, as a strategy of Flower (flwr ≥ 1.41).

    Args:
        plan: `Plan.federated(…)`.
        strategy: the server's optimizer, a strategy of Flower such as `FedAdam()`. It sees the noisy mean of each
            round as the only reply, so it costs nothing. FedAvg by default.
        account: the account to charge; None charges nobody.
        key: a name for this training in the ledger.
        purpose: what the training is for; the ledger records it.
        checkpoint: a file to save each round to, so that a server that was killed can resume.
        resume: continue from `checkpoint` if the file exists.

    Guarantee:
        Neighbors: those of the plan, a client or a person with several. The account is charged for all rounds before
        the first message, and a round counts as taken before its messages are sent. Clients are drawn from the frozen
        registry with the operating system's randomness. The arrays after each round, the clip norm and ε are outputs of
        at most `plan.rounds` rounds of `plan.event`, and so is everything that the server's optimizer, Flower's
        `Result`, its log and the checkpoint show. Whatever else comes with a reply (metrics, numbers of examples, error
        messages) is dropped, and clients are not asked to evaluate. The server is trusted: it sees replies, and
        `counts`, which are exact and not private. Not protected: how long a round takes, and messages on the network,
        which show the server's operator who was drawn; with `plan.secret_sample` others must not see them. The log of
        Flower's SuperLink names the node of each reply at level INFO: start it with FLWR_LOG_LEVEL=WARNING.
    """

    plan: FederatedPlan

    def __init__(
        self,
        plan: FederatedPlan,
        strategy: Any = None,
        *,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "federated training",
        checkpoint: Path | str | None = None,
        resume: bool = False,
    ) -> None:
        if not isinstance(plan, FederatedPlan):
            raise _check.fail("plan", "be a FederatedPlan", type(plan).__name__, "make one with Plan.federated(…)")
        super().__init__(plan, strategy, account, key, purpose, checkpoint, resume)
        saved = self._rounds.saved
        self._clip_norm = float(plan.clipping.norm) if saved.clip_norm is None else saved.clip_norm
        self._round: Round | None = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._secret: Secret | None = None
        self._bits: entropy.Bits | None = None
        #: What happened to the replies of each round of this process. **Not private**: never log or publish it.
        self.counts: list[Counts] = []

    @property
    def clip_norm(self) -> float:
        """The norm that the next round clips to: released with adaptive clipping, and else the plan's."""
        return self._clip_norm

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Charge the plan if it is not charged yet, take the round, draw clients, and address the messages to them."""
        app = flower("flwr.app")
        current = arrays_of(arrays)
        self._check_arrays(current)
        registry = self._frozen(grid)
        record, message_type = self._payload(server_round, arrays, config)
        if self._secret is None or self._bits is None:
            self._secret, self._bits = Secret(self.plan.insecure_seed), entropy.bits(self.plan.insecure_seed)
        self._rounds.charge()
        self._rounds.start(server_round)
        assert registry.ids is not None
        drawn = draw_clients(self.plan, registry.ids, self._bits)
        self._round = Round(self.plan, server_round, current, self._clip_norm, drawn)
        self._arrays = current
        # A message to a node that is not connected would name it in the log as an invalid destination.
        present = drawn & set(grid.get_node_ids())
        return [
            app.Message(record, dst_node_id=node, message_type=message_type, group_id=str(server_round))
            for node in sorted(present)
        ]

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """Clip, sum, add noise and divide; then let the server's optimizer take the noisy mean."""
        if self._round is None or self._secret is None:
            raise _check.fail("server_round", "have been configured", server_round, "call configure_train first")
        for reply in replies:
            number = server_round if reply.metadata.group_id == str(server_round) else -1
            self._round.take(reply.metadata.src_node_id, arrays_of_reply(reply), number=number)
        self.counts.append(self._round.counts)
        released = self._round.release(self._secret)
        self._round = None
        self._clip_norm = released.next_clip_norm
        mean = applied(self._arrays, released.update)
        return self._released(server_round, mean, released.clip_norm, self._clip_norm)

    def _take_round(self, number: int, arrays: Any, config: Any, grid: Any, timeout: float) -> tuple[Any, Any]:
        messages = list(self.configure_train(number, arrays, config, grid))
        replies = grid.send_and_receive(messages, timeout=timeout) if messages else []
        return self.aggregate_train(number, replies)
