"""Which teacher sees whom: a keyed hash of the person decides, and nothing else does.

The price of a vote rests on this: one person's rows are all in one shard, and which shard it is depends on no other
person and on nothing that the rows say. So one person changes the training data of one teacher, and at most one vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _check
from discreet.mechanisms.sampling import entropy

_PERSON_REMEDY = "use text, bytes or whole numbers; a row without a person has no shard"


def shards_of(persons: ArrayLike, shards: int, key: bytes) -> NDArray[np.int64]:
    """The shard of each row: a number in [0, shards) that its person determines, by BLAKE2b under a secret `key`.

    Args:
        persons: each row's person, as text, bytes or whole numbers.
        shards: how many shards there are.
        key: 32 random bytes. Whoever knows it knows which teacher saw a person.

    Guarantee: equal persons have equal shards, whatever the other rows hold; a neighbor changes the rows of one shard.

    >>> shards_of(["ann", "bob", "ann"], 1000, b"k" * 32).tolist()
    [280, 350, 280]
    """
    count = _check.integer("shards", shards, "it is the number of teachers", at_least=1)
    if not isinstance(key, bytes) or len(key) != entropy.KEY_BYTES:
        raise _check.fail("key", f"be {entropy.KEY_BYTES} random bytes", type(key).__name__, "it must stay secret")
    texts = [_canonical(person) for person in listed(persons)]
    names = [name for name in texts if name is not None]
    if len(names) < len(texts):  # whose row it is, and what it holds, stays secret
        raise _check.fail("persons", "identify each row's person", "a row without one", _PERSON_REMEDY)
    shard = {name: int.from_bytes(entropy.derived(key, "shard", name), "little") % count for name in set(names)}
    return np.array([shard[name] for name in names], dtype=np.int64)


def identified(persons: ArrayLike) -> NDArray[np.bool_]:
    """Which rows have a person: text, bytes or a whole number.

    Guarantee: an entry depends on its row alone.
    """
    return np.array([_canonical(person) is not None for person in listed(persons)], dtype=np.bool_)


def listed(persons: ArrayLike) -> list[Any]:
    """Persons as a list, one for each row."""
    return list(persons) if isinstance(persons, list | tuple) else list(np.asarray(persons).tolist())


def _canonical(person: Any) -> str | None:
    """One text for all values that are equal as persons, None for nobody.

    7, 7.0 and np.int64(7) are one person, "7" is another.
    """
    value = person.item() if isinstance(person, np.generic) else person
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | bytes | int) or value == "":
        return None
    return f"{type(value).__name__}:{value!r}"
