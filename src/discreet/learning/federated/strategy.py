"""`PrivateFedAvg`: a strategy of Flower that releases noisy means, charges them first and resumes after a crash."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.learning import pricing
from discreet.learning.allowance import checked_account
from discreet.learning.federated._flower import LOGGER, flower, quiet, strategy_base
from discreet.learning.federated.aggregation import Counts, Round, applied, draw_clients, trained
from discreet.learning.federated.plan import FederatedPlan
from discreet.learning.federated.registry import Registry
from discreet.learning.federated.rounds import RoundsTaken
from discreet.learning.noise import Secret
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy

_Strategy: Any = strategy_base()
# Seconds between two looks at who is connected, and how often a wait is logged.
_POLL, _LOG_EVERY = 0.2, 50


class PrivateFedAvg(_Strategy):  # type: ignore[misc] # Flower is optional, so its class has no type here
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
        which show the server's operator who was drawn; with `plan.secret_sample` others must not see them.
    """

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
        flower("flwr.serverapp.strategy")  # says what to install
        if not isinstance(plan, FederatedPlan):
            raise _check.fail("plan", "be a FederatedPlan", type(plan).__name__, "make one with Plan.federated(…)")
        checked_account(account)
        with quiet():
            server = flower("flwr.serverapp.strategy").FedAvg() if strategy is None else strategy
        if not isinstance(server, _Strategy) or isinstance(server, PrivateFedAvg):
            remedy = "for example flwr.serverapp.strategy.FedAdam()"
            raise _check.fail("strategy", "be a strategy of Flower", type(server).__name__, remedy)
        self.plan, self.server = plan, server
        path = None if checkpoint is None else Path(checkpoint)
        self._rounds = RoundsTaken(plan, account, key, purpose, path, resume)
        saved = self._rounds.saved
        self._clip_norm = float(plan.clipping.norm) if saved.clip_norm is None else saved.clip_norm
        _restore(self.server, saved.server)
        self._registry: Registry | None = None
        self._round: Round | None = None
        self._sent: Any = None
        self._arrays: dict[str, NDArray[Any]] = {}
        self._secret: Secret | None = None
        self._bits: entropy.Bits | None = None
        #: What happened to the replies of each round of this process. **Not private**: never log or publish it.
        self.counts: list[Counts] = []

    # --- what may be known

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None before the charge and without an account."""
        return self._rounds.receipt

    @property
    def taken(self) -> int:
        """How many rounds count as taken."""
        return self._rounds.taken

    @property
    def clip_norm(self) -> float:
        """The norm that the next round clips to: released with adaptive clipping, and else the plan's."""
        return self._clip_norm

    def epsilon_after(self, rounds: int) -> float:
        """ε of the first `rounds` rounds, rounded up to a twentieth of the plan, because computing it takes time."""
        mark = max(1, self.plan.rounds // 20)
        priced = min(self.plan.rounds, mark * math.ceil(rounds / mark))
        if priced == 0:
            return 0.0
        return pricing.price(self.plan.event_of(priced), self.plan.delta, self.plan.relation).epsilon

    # --- the interface of Flower

    def summary(self) -> None:
        """Log the plan in words. All of it is public."""
        for line in [*self.plan.explain().splitlines()[:-1], str(self.plan.guarantee)]:
            LOGGER.info("\t%s", line)

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Charge the plan if it is not charged yet, take the round, draw clients, and address the messages to them."""
        app = flower("flwr.app")
        current = {name: np.asarray(array.numpy()) for name, array in arrays.items()}
        trained(current)  # refuses arrays that cannot be trained, before anything is charged
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
        app = flower("flwr.app")
        if self._round is None or self._secret is None:
            raise _check.fail("server_round", "have been configured", server_round, "call configure_train first")
        for reply in replies:
            number = server_round if reply.metadata.group_id == str(server_round) else -1
            self._round.take(reply.metadata.src_node_id, _arrays_of(reply), number=number)
        self.counts.append(self._round.counts)
        released = self._round.release(self._secret)
        self._round = None
        after = self._optimized(server_round, applied(self._arrays, released.update))
        self._clip_norm = released.next_clip_norm
        self._rounds.save(after, self._clip_norm, _state(self.server))
        record = app.ArrayRecord({name: app.Array(array) for name, array in after.items()})
        facts = {"epsilon": self.epsilon_after(server_round), "clip-norm": released.clip_norm}
        return record, app.MetricRecord(facts)

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """No messages: what clients measure on their data is private, and is not part of the plan's event."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> None:
        """Nothing: there is no evaluation by clients."""
        return None

    def start(
        self,
        grid: Any,
        initial_arrays: Any,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: Any = None,
        evaluate_config: Any = None,
        evaluate_fn: Callable[[int, Any], Any] | None = None,
    ) -> Any:
        """Run the plan's rounds, or those that are left after a crash, and return Flower's `Result`.

        Args:
            grid: Flower's grid.
            initial_arrays: the arrays that the training starts from; a resumed training takes those of its checkpoint.
            num_rounds: the plan's rounds, which is the default.
            timeout: seconds to wait for the replies of a round. Later replies count as absent.
            train_config: sent to clients. It is public.
            evaluate_config: not used: clients are not asked to evaluate.
            evaluate_fn: called with the round and its arrays, as Flower does. What it returns is private if it uses
                public data only.
        """
        app, flower_strategy = flower("flwr.app"), flower("flwr.serverapp.strategy")
        if num_rounds is not None and num_rounds != self.plan.rounds:
            remedy = "the price is that of all rounds; make another plan for another number"
            raise _check.fail("num_rounds", f"be the {self.plan.rounds} of the plan", num_rounds, remedy)
        result, arrays = flower_strategy.Result(), initial_arrays
        if self._rounds.saved.arrays:
            arrays = app.ArrayRecord({name: app.Array(each) for name, each in self._rounds.saved.arrays.items()})
        result.arrays = arrays
        self.summary()
        self._wait(grid, timeout)
        if evaluate_fn is not None and (first := evaluate_fn(self.taken, arrays)) is not None:
            result.evaluate_metrics_serverapp[self.taken] = first  # an evaluation that fails, fails before the charge
        # What cannot be trained, and a strategy that cannot make a message, fail before the charge too.
        trained({name: np.asarray(array.numpy()) for name, array in arrays.items()})
        self._payload(self.taken + 1, arrays, _config(train_config))
        while True:
            # The charge may find rounds in the ledger that the checkpoint does not know of: they are taken too.
            self._rounds.charge()
            number = self.taken + 1
            if number > self.plan.rounds:
                break
            messages = list(self.configure_train(number, arrays, _config(train_config), grid))
            replies = grid.send_and_receive(messages, timeout=timeout) if messages else []
            del messages
            arrays, facts = self.aggregate_train(number, replies)
            result.arrays, result.train_metrics_clientapp[number] = arrays, facts
            if evaluate_fn is not None and (measured := evaluate_fn(number, arrays)) is not None:
                result.evaluate_metrics_serverapp[number] = measured
            LOGGER.info("[ROUND %s/%s] ε ≤ %.4g", number, self.plan.rounds, facts["epsilon"])
        self._rounds.close()
        return result

    # --- parts

    def _frozen(self, grid: Any) -> Registry:
        if self._registry is None:
            self._registry = self.plan.clients.frozen(grid.get_node_ids())
        return self._registry

    def _wait(self, grid: Any, timeout: float) -> None:
        """Wait until the clients of the plan are connected, and freeze them. Known ids are not waited for."""
        if self.plan.clients.ids is None:
            end, polls = time.monotonic() + timeout, 0
            while len(set(grid.get_node_ids())) < self.plan.clients.number and time.monotonic() < end:
                if polls % _LOG_EVERY == 0:
                    LOGGER.info("waiting for the %s clients of the plan to connect", self.plan.clients.number)
                polls += 1
                time.sleep(_POLL)
        self._frozen(grid)

    def _payload(self, server_round: int, arrays: Any, config: Any) -> tuple[Any, str]:
        """What the server's strategy would send, from messages that it addresses to nodes that do not exist."""
        app = flower("flwr.app")
        with quiet():
            messages = list(self.server.configure_train(server_round, arrays, config, _StandIn(self.server)))
        if messages:
            self._sent = messages[0]
            return messages[0].content, messages[0].metadata.message_type
        config["server-round"] = server_round
        record = app.RecordDict({"arrays": arrays, "config": config})
        self._sent = app.Message(record, dst_node_id=0, message_type=app.MessageType.TRAIN)
        return record, app.MessageType.TRAIN

    def _optimized(self, server_round: int, mean: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """What the server's strategy makes of the noisy mean, given as its only reply. This is post-processing."""
        app = flower("flwr.app")
        record = app.ArrayRecord({name: app.Array(array) for name, array in mean.items()})
        weight = {getattr(self.server, "weighted_by_key", "num-examples"): 1.0}
        content = app.RecordDict({"arrays": record, "metrics": app.MetricRecord(weight)})
        with quiet():
            after, _ = self.server.aggregate_train(server_round, [app.Message(content, reply_to=self._sent)])
        if after is None:
            return mean
        made = {name: np.asarray(array.numpy()) for name, array in after.items()}
        moved = set(trained(mean)) & set(made)
        return {name: made[name].astype(old.dtype) if name in moved else old for name, old in mean.items()}


class _StandIn:
    """A grid with as many made-up nodes as a strategy asks for, so that it prepares a message and draws nobody."""

    def __init__(self, server: Any) -> None:
        wanted = [getattr(server, name, 1) for name in ("min_available_nodes", "min_train_nodes")]
        self._number = max(2, *(int(each) for each in wanted))

    def get_node_ids(self) -> list[int]:
        return list(range(1, self._number + 1))


def _config(given: Any) -> Any:
    """A copy of the configuration, because strategies write into it."""
    return flower("flwr.app").ConfigRecord({} if given is None else dict(given))


def _arrays_of(reply: Any) -> dict[str, NDArray[Any]] | None:
    """The arrays of a reply; None if it reports an error, and {} if it cannot be read."""
    if reply.has_error():
        return None
    try:
        records = list(reply.content.array_records.values())
        if len(records) != 1:
            return {}
        return {name: np.asarray(array.numpy()) for name, array in records[0].items()}
    except Exception:  # whatever a client sent, it must not stop the round, nor tell by an error that it was drawn
        return {}


def _state(server: Any) -> dict[str, Any]:
    """The attributes of the server's strategy that hold arrays, such as momentum."""
    found = {}
    for name, value in vars(server).items():
        plain = _plain(value)
        if plain is not None:
            found[name] = plain
    return found


def _plain(value: Any) -> Any:
    """Arrays in dicts and lists as such; None for everything else. Flower's records are told by their key."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list) and value and all(isinstance(each, np.ndarray) for each in value):
        return value
    if isinstance(value, flower("flwr.app").ArrayRecord):
        return {"record": {name: np.asarray(array.numpy()) for name, array in value.items()}}
    if isinstance(value, dict) and value and all(isinstance(each, np.ndarray) for each in value.values()):
        return {"dict": dict(value)}
    return None


def _restore(server: Any, saved: dict[str, Any]) -> None:
    app = flower("flwr.app")
    for name, value in saved.items():
        match value:
            case {"record": arrays}:
                setattr(server, name, app.ArrayRecord({key: app.Array(each) for key, each in arrays.items()}))
            case {"dict": arrays}:
                setattr(server, name, arrays)
            case _:
                setattr(server, name, value)
