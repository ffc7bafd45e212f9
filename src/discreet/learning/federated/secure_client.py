"""What a client does in secure aggregation: a mod for Flower's `ClientApp` that sends one masked, noisy integer vector.

Setup, the sharing of keys and the unmasking are Flower's own SecAgg+ stages (Bell et al. 2020). The stage that sends
the update is ours: Flower's weighs by the number of examples, rounds floats by itself, and masks with 32 bits of a
secret.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _check
from discreet.learning.federated._flower import flower
from discreet.learning.federated.aggregation import trained
from discreet.learning.federated.masks import mask, to_bytes
from discreet.learning.federated.secure_plan import SecurePlan
from discreet.mechanisms.sampling import entropy

#: Flower's module of the protocol for clients, and the names of its records.
_PROTOCOL = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_CONSTANTS = "flwr.common.secure_aggregation.secaggplus_constants"
#: The key of the round's rotation in the protocol's record, and of what a client remembers.
ROTATION, REMEMBERED = "rotation", "discreet_secure_rounds"

Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def secure_updates(plan: SecurePlan) -> Mod:
    """A mod for `ClientApp(mods=[secure_updates(plan)])` that sends updates by secure aggregation.

    Args:
        plan: the plan, which clients know in advance and do not take from the server.

    Guarantee:
        In each round the client sends its clipped update as integers with its share of the noise, under masks that
        cancel only in the sum of at least `plan.threshold` clients; nothing else that the app returns is sent. An app
        that fails sends noise, so that leaving a round does not depend on data. The client takes part in at most
        `plan.rounds` rounds, and refuses a protocol with other numbers than the plan's.
    """
    if not isinstance(plan, SecurePlan):
        raise _check.fail("plan", "be a SecurePlan", type(plan).__name__, "make one with SecurePlan.make(…)")

    def send(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        protocol, names = flower(_PROTOCOL), flower(_CONSTANTS)
        configs = message.content.config_records.get(names.RECORD_KEY_CONFIGS)
        if configs is None:
            raise _check.fail("message", "belong to secure aggregation", "another one", "the plan allows no other")
        stage = configs.get(names.Key.STAGE)
        if stage == names.Stage.SETUP:
            _check_setup(plan, configs, names.Key)
        if stage == names.Stage.UNMASK:
            _check_unmask(configs, names.Key, message.metadata.dst_node_id)
        if stage != names.Stage.COLLECT_MASKED_VECTORS:
            return protocol.secaggplus_mod(message, context, call_next)
        return _masked(plan, message, context, call_next)

    return send


def _check_setup(plan: SecurePlan, configs: Any, key: Any) -> None:
    agreed = (configs.get(key.SHARE_NUMBER), configs.get(key.THRESHOLD), configs.get(key.MOD_RANGE))
    if agreed != (plan.parties, plan.threshold, 1 << plan.updates.bits):
        raise _check.fail("setup", "match the plan", agreed, "the server and this client run different plans")


def _check_unmask(configs: Any, key: Any, own: int) -> None:
    """Refuse to reveal both secrets of a client: whoever has both can open its vector."""
    active, dead = set(configs[key.ACTIVE_NODE_ID_LIST]), set(configs[key.DEAD_NODE_ID_LIST])
    if active & dead or own not in active:
        raise _check.fail(
            "unmask", "name each client once, and this one as active", "other lists", "the server is wrong"
        )


def _masked(plan: SecurePlan, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
    protocol, names, app = flower(_PROTOCOL), flower(_CONSTANTS), flower("flwr.app")
    arithmetic = flower("flwr.common.secure_aggregation.crypto.symmetric_encryption")
    keys = flower("flwr.supercore.primitives.asymmetric")
    _count_round(plan, context)
    configs = message.content.config_records[names.RECORD_KEY_CONFIGS]
    state = protocol.SecAggPlusState(**context.state.config_records[names.RECORD_KEY_STATE])
    protocol.check_stage(state.current_stage, configs)
    state.current_stage = configs[names.Key.STAGE]
    sources = list(configs[names.Key.SOURCE_LIST])
    if len(sources) + 1 < state.threshold:
        raise _check.fail("sources", f"be at least {state.threshold - 1} clients", len(sources), "too few are left")
    for source, ciphertext in zip(sources, configs[names.Key.CIPHERTEXT_LIST], strict=True):
        shares = arithmetic.decrypt(state.ss2_dict[source], ciphertext)
        separate = flower("flwr.common.secure_aggregation.secaggplus_utils").share_keys_plaintext_separate
        sender, receiver, seed_share, key_share = separate(shares)
        if (sender, receiver) != (source, state.nid):
            raise _check.fail("shares", "come from their sender", "others", "the server mixed up messages")
        state.rd_seed_share_dict[source], state.sk1_share_dict[source] = seed_share, key_share
    updates = plan.updates
    update = _update(message, context, call_next)
    flat = update if update.size == updates.dimension else np.zeros(updates.dimension)
    vector = updates.noisy(updates.encoded(flat, configs[ROTATION]), plan.variance)
    vector = vector + mask(state.rd_seed, updates.size, updates.bits)
    own_key = keys.bytes_to_private_key(state.sk1)
    for source in sources:
        shared = arithmetic.generate_shared_key(own_key, keys.bytes_to_public_key(state.public_keys_dict[source][0]))
        pairwise = mask(shared, updates.size, updates.bits)
        vector = vector + pairwise if state.nid > source else vector - pairwise
    context.state.config_records[names.RECORD_KEY_STATE] = app.ConfigRecord(state.to_dict())
    sent = {names.Key.MASKED_PARAMETERS: [to_bytes(vector & ((1 << updates.bits) - 1))]}
    return app.Message(app.RecordDict({names.RECORD_KEY_CONFIGS: app.ConfigRecord(sent)}), reply_to=message)


def _count_round(plan: SecurePlan, context: Any) -> None:
    record = flower("flwr.app").ConfigRecord
    before = context.state.config_records.get(REMEMBERED, record({"rounds": 0}))["rounds"]
    if before >= plan.rounds:
        raise _check.fail("rounds", f"be at most the {plan.rounds} of the plan", before + 1, "its price covers no more")
    context.state.config_records[REMEMBERED] = record({"rounds": before + 1})


def _update(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> NDArray[np.float64]:
    """The app's update, flat and in float64; empty if it failed or returned something else."""
    try:
        before = _only(message.content.array_records)
        names = trained(before)
        after = _only(call_next(message, context).content.array_records)
        if any(after[name].shape != before[name].shape or after[name].dtype.kind != "f" for name in names):
            return np.zeros(0)
        with np.errstate(over="ignore", invalid="ignore"):
            differences = [np.subtract(after[name], before[name], dtype=np.float64).ravel() for name in names]
        return np.concatenate(differences)
    except Exception:  # an app that fails on its data must not be seen to fail
        return np.zeros(0)


def _only(records: Any) -> dict[str, NDArray[Any]]:
    (record,) = records.values()
    return {name: np.asarray(array.numpy()) for name, array in record.items()}


def fresh_rotation() -> bytes:
    """A new public seed for the rotation of a round."""
    return entropy.fresh_key()
