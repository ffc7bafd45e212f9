"""Questions to a federation: a private mean or histogram over clients, drawn, clipped and noised as a round is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.events import Event
from discreet.guarantees import Guarantee
from discreet.learning.allowance import checked_account
from discreet.learning.clipping import Adaptive
from discreet.learning.federated._flower import flower
from discreet.learning.federated.aggregation import Round, draw_clients
from discreet.learning.federated.plan import FederatedPlan
from discreet.learning.federated.replies import arrays_of_reply
from discreet.learning.federated.rounds import RoundsTaken
from discreet.learning.noise import Secret
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy

_NAME = "answer"


@dataclass(frozen=True, eq=False)
class FederatedAnswer:
    """The released answer of a federation.

    Attributes:
        mean: the mean over clients of their clipped vectors; absent clients count as zero.
        standard_deviation: that of the noise in each number of `mean`. It does not tell the error of drawing clients.
        event: what was run.
        guarantee: what it costs.
        receipt: the ledger's receipt; None without an account.
    """

    mean: NDArray[np.float64]
    standard_deviation: float
    event: Event
    guarantee: Guarantee
    receipt: Receipt | None = None


def ask(
    grid: Any,
    plan: FederatedPlan,
    question: str,
    size: int,
    *,
    account: Account | None = None,
    config: Mapping[str, Any] | None = None,
    purpose: str = "a question to a federation",
    timeout: float = 3600,
) -> FederatedAnswer:
    """Ask clients for a vector each, and release the noisy mean.

    A client answers in its `ClientApp` with a function under `@app.query("question")` that returns one array of `size`
    floats: its histogram, its sums, or one number. It is clipped as a whole to the plan's norm, so scale it to about
    that.

    Args:
        grid: Flower's grid.
        plan: `Plan.federated(…, rounds=1, clip_norm=…)`.
        question: the name of the function in the app.
        size: how many numbers the answer has.
        account: the account to charge; None charges nobody.
        config: sent to clients. It is public.
        purpose: what the ledger records.
        timeout: seconds to wait for answers. Later ones count as absent.

    Guarantee:
        Neighbors: those of the plan. The account is charged before the first message. The answer is one release of
        `plan.event`; everything else in replies is dropped, and no reply is fatal (see `Round`).
    """
    app = flower("flwr.app")
    if not isinstance(plan, FederatedPlan) or plan.rounds != 1 or isinstance(plan.clipping, Adaptive):
        remedy = "make it with Plan.federated(…, rounds=1, clip_norm=…)"
        raise _check.fail("plan", "be a FederatedPlan of one round with a fixed clip norm", plan, remedy)
    checked_account(account)
    length = _check.integer("size", size, "it is how many numbers the answer has")
    if not isinstance(question, str) or not question.isidentifier():
        raise _check.fail("question", "be the name of a function", question, 'such as "histogram"')
    registry = plan.clients.frozen(grid.get_node_ids())
    record = app.RecordDict({"config": app.ConfigRecord(dict(config or {}))})
    taken = RoundsTaken(plan, account, None, purpose, None, False)
    taken.charge()
    taken.start(1)
    assert registry.ids is not None
    drawn = draw_clients(plan, registry.ids, entropy.bits(plan.insecure_seed))
    messages = [
        app.Message(record, dst_node_id=node, message_type=f"query.{question}", group_id="1")
        for node in sorted(drawn & set(grid.get_node_ids()))
    ]
    only_round = Round(plan, 1, {_NAME: np.zeros(length)}, float(plan.clipping.norm), drawn)
    for reply in grid.send_and_receive(messages, timeout=timeout) if messages else []:
        arrays = arrays_of_reply(reply)
        if arrays is not None:  # the only array, whatever its name
            arrays = dict(zip([_NAME], arrays.values(), strict=True)) if len(arrays) == 1 else {}
        only_round.take(reply.metadata.src_node_id, arrays, number=1 if reply.metadata.group_id == "1" else -1)
    released = only_round.release(Secret(plan.insecure_seed))
    spread = plan.sum_multiplier * released.clip_norm / plan.expected_clients
    return FederatedAnswer(released.update[_NAME], spread, plan.event, plan.guarantee, taken.receipt)
