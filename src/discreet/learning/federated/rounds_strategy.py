"""What private strategies of Flower share: the charge, the loop over rounds, the server's optimizer, the checkpoint."""

from __future__ import annotations

import copy
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.learning.allowance import checked_account
from discreet.learning.federated._flower import LOGGER, flower, quiet, strategy_base
from discreet.learning.federated.aggregation import applied, trained
from discreet.learning.federated.plan import RoundsPlan
from discreet.learning.federated.registry import Registry
from discreet.learning.federated.replies import arrays_of
from discreet.learning.federated.rounds import RoundsTaken
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt

_Strategy: Any = strategy_base()
# Seconds between two looks at who is connected, and how often a wait is logged.
_POLL, _LOG_EVERY = 0.2, 50


class RoundsStrategy(_Strategy):  # type: ignore[misc] # Flower is optional, so its class has no type here
    """A strategy of Flower that runs the rounds of a plan. Abstract."""

    plan: RoundsPlan

    def __init__(
        self,
        plan: RoundsPlan,
        strategy: Any,
        account: Account | None,
        key: str | None,
        purpose: str,
        checkpoint: Path | str | None,
        resume: bool,
    ) -> None:
        flower("flwr.serverapp.strategy")  # says what to install
        checked_account(account)
        with quiet():
            server = flower("flwr.serverapp.strategy").FedAvg() if strategy is None else strategy
        if not isinstance(server, _Strategy) or isinstance(server, RoundsStrategy):
            remedy = "for example flwr.serverapp.strategy.FedAdam()"
            raise _check.fail("strategy", "be a strategy of Flower", type(server).__name__, remedy)
        self.plan, self.server = plan, server
        path = None if checkpoint is None else Path(checkpoint)
        self._rounds = RoundsTaken(plan, account, key, purpose, path, resume)
        _restore(self.server, self._rounds.saved.server)
        self._registry: Registry | None = None
        self._sent: Any = None

    @abstractmethod
    def _take_round(self, number: int, arrays: Any, config: Any, grid: Any, timeout: float) -> tuple[Any, Any]:
        """Run one round; return the arrays after it, and public facts about it."""

    # --- what may be known

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None before the charge and without an account."""
        return self._rounds.receipt

    @property
    def taken(self) -> int:
        """How many rounds count as taken."""
        return self._rounds.taken

    def epsilon_after(self, rounds: int) -> float:
        """ε of the first `rounds` rounds, rounded up to a twentieth of the plan, because computing it takes time."""
        mark = max(1, self.plan.rounds // 20)
        return self.plan.epsilon_after(min(self.plan.rounds, mark * math.ceil(rounds / mark)))

    # --- the interface of Flower

    def summary(self) -> None:
        """Log the plan in words. All of it is public."""
        for line in [*self.plan.explain().splitlines()[:-1], str(self.plan.guarantee)]:
            LOGGER.info("\t%s", line)

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
        # What cannot be trained, and a strategy that cannot be used, fail before the charge too.
        current = arrays_of(arrays)
        self._check_arrays(current)
        self._payload(self.taken + 1, arrays, _config(train_config))
        self._rehearse(self.taken + 1, current)
        while True:
            # The charge may find rounds in the ledger that the checkpoint does not know of: they are taken too.
            self._rounds.charge()
            number = self.taken + 1
            if number > self.plan.rounds:
                break
            arrays, facts = self._take_round(number, arrays, _config(train_config), grid, timeout)
            result.arrays, result.train_metrics_clientapp[number] = arrays, facts
            if evaluate_fn is not None and (measured := evaluate_fn(number, arrays)) is not None:
                result.evaluate_metrics_serverapp[number] = measured
            LOGGER.info("[ROUND %s/%s] ε ≤ %.4g", number, self.plan.rounds, facts["epsilon"])
        self._rounds.close()
        return result

    # --- parts

    def _check_arrays(self, current: dict[str, NDArray[Any]]) -> None:
        """Refuse arrays that cannot be trained, before anything is charged."""
        trained(current)

    def _released(
        self,
        number: int,
        mean: dict[str, NDArray[Any]],
        clip_norm: float,
        next_norm: float,
        secret: dict[str, Any] | None = None,
    ) -> tuple[Any, Any]:
        """Let the server's optimizer take the noisy mean, save what it made of it, and give both to Flower."""
        app = flower("flwr.app")
        after = self._optimized(number, mean)
        self._rounds.save(after, next_norm, _state(self.server), secret)
        record = app.ArrayRecord({name: app.Array(array) for name, array in after.items()})
        return record, app.MetricRecord({"epsilon": self.epsilon_after(number), "clip-norm": clip_norm})

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

    def _rehearse(self, server_round: int, current: dict[str, NDArray[Any]]) -> None:
        """Let a copy of the server's strategy take a made-up mean: some need what no reply has."""
        try:
            copied = copy.deepcopy(self.server)
        except Exception:  # a strategy of the user may hold anything; without a copy there is no rehearsal
            return
        kept, self.server = self.server, copied
        try:
            self._optimized(server_round, applied(current, {name: np.array(1e-3) for name in trained(current)}))
        except Exception as error:
            remedy = (
                "it sees the noisy mean as its only reply, with no metrics; FedAvg, FedAdam and others do with that"
            )
            name = f"{type(kept).__name__}, which raises {type(error).__name__}"
            raise _check.fail("strategy", "aggregate one reply of arrays", name, remedy) from error
        finally:
            self.server = kept

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


def _state(server: Any) -> dict[str, Any]:
    """The attributes of the server's strategy that hold arrays, such as momentum."""
    arrays = {}
    for name, value in vars(server).items():
        plain = _plain(value)
        if plain is not None:
            arrays[name] = plain
    return arrays


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
