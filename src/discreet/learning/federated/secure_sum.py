"""What the server does in secure aggregation: four stages of messages, at whose end it knows a sum and nothing else.

Whatever a client sends is checked before it is used. A client whose answer cannot be used counts as one that left, and
the round goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.learning.federated._flower import flower
from discreet.learning.federated.aggregation import Counts
from discreet.learning.federated.masks import from_bytes, mask
from discreet.learning.federated.secure_client import ROTATION
from discreet.learning.federated.secure_plan import SecurePlan

_CONSTANTS = "flwr.common.secure_aggregation.secaggplus_constants"


@dataclass
class SecureSum:
    """One run of SecAgg+ (Bell et al. 2020) with a complete graph, weight 1 and integers modulo 2^bits.

    Clients that leave before they shared their keys are left out. Of those that leave later, the others reveal the key
    of their pairwise masks; of those that stay, the seed of their own mask. If fewer than `plan.threshold` are left at
    any stage, nothing is opened.

    Attributes:
        plan: the plan.
        grid: Flower's grid.
        number: the round.
        timeout: seconds to wait for the replies of each stage.
        counts: what happened to replies, over all stages. A client that stayed until its vector arrived is summed.
    """

    plan: SecurePlan
    grid: Any
    number: int
    timeout: float | None = None
    counts: Counts = field(default_factory=Counts)
    _public_keys: dict[int, list[bytes]] = field(default_factory=dict)

    def run(self, nodes: Iterable[int], content: Any, rotation: bytes) -> NDArray[np.int64] | None:
        """The sum modulo 2^bits over the clients that stayed; None if too few did.

        Args:
            nodes: the clients of this round.
            content: what the app of a client gets: a record of arrays and configuration.
            rotation: the round's public seed.
        """
        names, chosen = flower(_CONSTANTS), list(nodes)
        self.counts.drawn = len(chosen)
        setup = {
            names.Key.SAMPLE_NUMBER: self.plan.parties,
            names.Key.SHARE_NUMBER: self.plan.parties,
            names.Key.THRESHOLD: self.plan.threshold,
            # Flower's own rounding, which is not used; its clients check that the fields are there.
            names.Key.CLIPPING_RANGE: 1.0,
            names.Key.TARGET_RANGE: 2,
            names.Key.MAX_WEIGHT: 1.0,
            names.Key.MOD_RANGE: 1 << self.plan.updates.bits,
        }
        wanted = (names.Key.PUBLIC_KEY_1, names.Key.PUBLIC_KEY_2)
        ready = self._stage(names.Stage.SETUP, dict.fromkeys(chosen, setup), lambda answer: _keys(answer, wanted))
        self._public_keys = ready
        if len(ready) < self.plan.threshold:
            return None
        everyone = {str(node): keys for node, keys in self._public_keys.items()}
        wanted = (names.Key.DESTINATION_LIST, names.Key.CIPHERTEXT_LIST)
        shared = self._stage(
            names.Stage.SHARE_KEYS, dict.fromkeys(ready, everyone), lambda answer: _pairs(answer, wanted)
        )
        if len(shared) < self.plan.threshold:
            return None
        masked = self._collected(shared, content, rotation)
        if len(masked) < self.plan.threshold:
            return None
        return self._opened(set(shared), masked)

    def _collected(
        self, shared: dict[int, dict[int, bytes]], content: Any, rotation: bytes
    ) -> dict[int, NDArray[np.int64]]:
        """The masked vectors of the clients that sent one."""
        names = flower(_CONSTANTS)
        forwarded: dict[int, dict[str, Any]] = {
            node: {names.Key.CIPHERTEXT_LIST: [], names.Key.SOURCE_LIST: [], ROTATION: rotation} for node in shared
        }
        for source, ciphertexts in shared.items():
            for destination, ciphertext in ciphertexts.items():
                if destination in forwarded:
                    forwarded[destination][names.Key.CIPHERTEXT_LIST].append(ciphertext)
                    forwarded[destination][names.Key.SOURCE_LIST].append(source)
        key, stage, size = names.Key.MASKED_PARAMETERS, names.Stage.COLLECT_MASKED_VECTORS, self.plan.updates.size
        return self._stage(stage, forwarded, lambda answer: _vector(answer[key], size), content)

    def _opened(self, shared: set[int], masked: dict[int, NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """The sum without masks."""
        names, shamir = flower(_CONSTANTS), flower("flwr.common.secure_aggregation.crypto.shamir")
        active, dead = sorted(masked), sorted(shared - set(masked))
        lists = {names.Key.ACTIVE_NODE_ID_LIST: active, names.Key.DEAD_NODE_ID_LIST: dead}
        shares: dict[int, list[bytes]] = {node: [] for node in shared}
        wanted = (names.Key.NODE_ID_LIST, names.Key.SHARE_LIST)
        revealed = self._stage(names.Stage.UNMASK, dict.fromkeys(active, lists), lambda answer: _pairs(answer, wanted))
        for held in revealed.values():
            for owner, share in held.items():
                if owner in shares:
                    shares[owner].append(share)
        if any(len(each) < self.plan.threshold for each in shares.values()):
            return None
        try:
            secrets = {node: shamir.combine_shares(each) for node, each in shares.items()}
            private_key = flower("flwr.supercore.primitives.asymmetric").bytes_to_private_key
            keys = {node: private_key(secrets[node]) for node in dead}
        except Exception:  # one wrong share is enough, whatever it holds; then nothing can be opened
            return None
        self.counts.summed = len(masked)
        size, bits = self.plan.updates.size, self.plan.updates.bits
        total = np.zeros(size, np.int64)
        for vector in masked.values():
            total += vector
        for node in active:
            total -= mask(secrets[node], size, bits)
        for node in dead:
            total += self._pairwise(node, keys[node], active)
        return total & ((1 << bits) - 1)

    def _pairwise(self, node: int, key: Any, active: list[int]) -> NDArray[np.int64]:
        """What the masks between a client that left and those that stayed add to the sum, with the opposite sign."""
        arithmetic = flower("flwr.common.secure_aggregation.crypto.symmetric_encryption")
        keys = flower("flwr.supercore.primitives.asymmetric")
        total = np.zeros(self.plan.updates.size, np.int64)
        for peer in active:
            public = keys.bytes_to_public_key(self._public_keys[peer][0])
            shared = arithmetic.generate_shared_key(key, public)
            pairwise = mask(shared, self.plan.updates.size, self.plan.updates.bits)
            # A client adds the mask it shares with a client of a smaller id, and subtracts that of a larger one.
            total += pairwise if peer < node else -pairwise
        return total

    def _stage(
        self, stage: str, records: dict[int, dict[str, Any]], read: Callable[[Any], Any], content: Any = None
    ) -> dict[int, Any]:
        """Send each client its record; return what `read` makes of the first answer of each, if it can be used."""
        app, names = flower("flwr.app"), flower(_CONSTANTS)
        messages = []
        for node, values in records.items():
            record = app.RecordDict({} if content is None else dict(content.items()))
            record[names.RECORD_KEY_CONFIGS] = app.ConfigRecord({**values, names.Key.STAGE: stage})
            kind = app.MessageType.TRAIN
            messages.append(app.Message(record, dst_node_id=node, message_type=kind, group_id=str(self.number)))
        answers: dict[int, Any] = {}
        heard: set[int] = set()
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout) if messages else []:
            node = reply.metadata.src_node_id
            if node not in records or node in heard or reply.metadata.group_id != str(self.number):
                self.counts.ignored += 1
                continue
            heard.add(node)
            if reply.has_error():
                self.counts.failed += 1
                continue
            try:
                answers[node] = read(reply.content.config_records[names.RECORD_KEY_CONFIGS])
            except Exception:  # whatever a client sent, the round goes on without it
                self.counts.refused += 1
        return answers


def _keys(answer: Any, wanted: tuple[str, ...]) -> list[bytes]:
    """The public keys of a client, after a try. One that cannot be used would make all other clients fail."""
    primitives = flower("flwr.supercore.primitives.asymmetric")
    arithmetic = flower("flwr.common.secure_aggregation.crypto.symmetric_encryption")
    own, _ = primitives.generate_key_pairs()
    keys = [answer[name] for name in wanted]
    for key in keys:
        arithmetic.generate_shared_key(own, primitives.bytes_to_public_key(key))
    return keys


def _pairs(answer: Any, wanted: tuple[str, str]) -> dict[int, bytes]:
    """What a client sent for others, by their ids."""
    owners, values = (answer[name] for name in wanted)
    if not isinstance(owners, list) or not isinstance(values, list) or len(set(owners)) != len(owners):
        raise ValueError("ids and what belongs to them are lists, with each id once")
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError("shares are bytes")
    return dict(zip(owners, values, strict=True))


def _vector(sent: Any, size: int) -> NDArray[np.int64]:
    """The masked vector of a client."""
    vector = from_bytes(sent[0], size) if isinstance(sent, list) and len(sent) == 1 else None
    if vector is None:
        raise ValueError("a vector has the plan's size")
    return vector
