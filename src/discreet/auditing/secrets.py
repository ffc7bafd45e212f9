"""What a language model remembers of its training texts: the exposure of a secret, and extracting it by generation.

A secret is inserted into the training texts on purpose. Its exposure says how high the trained model ranks it among all
secrets of its form; an extraction asks the model to go on after a prompt. Both take any model: losses of candidates, or
a function that gives the probabilities of the next character. (Carlini, Liu, Erlingsson, Kos & Song, "The Secret
Sharer", 2019, arXiv 1802.08232.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike

from discreet import _check

# Continuations that a search looks at before it gives up; the likeliest ones come first.
_MOST_LOOKED_AT = 100_000


def exposure(losses: ArrayLike, secret: int) -> float:
    """How far a model prefers a secret to others of its form, in bits: log₂ of their number less log₂ of its rank.

    0 is the last rank, 1 is what chance has on average (about), and log₂ of the number is the first rank: the model
    gives the secret away. (Definition 3 of the paper; ties count half.)

    Args:
        losses: the loss of each candidate under the model, such as all codes of four digits.
        secret: the place of the inserted one.

    >>> exposure([3.0, 1.0, 2.0, 4.0], 1)
    2.0
    """
    values = np.asarray(losses, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.all(np.isfinite(values)):
        raise _check.fail("losses", "be finite numbers in one dimension", values.shape, "one for each candidate")
    index = _check.integer("secret", secret, "it is the place of the secret", at_least=0, at_most=len(values) - 1)
    better = np.count_nonzero(values < values[index])
    ties = np.count_nonzero(values == values[index]) - 1
    return math.log2(len(values)) - math.log2(1 + better + ties / 2)


def extractions(
    next_character: Callable[[str], Mapping[str, float]],
    prompt: str,
    length: int,
    *,
    alphabet: str | None = None,
) -> Iterator[tuple[str, float]]:
    """The likeliest continuations of `prompt`, the best one first, each with ln of its probability.

    This is the search of the paper's section 7 (Dijkstra 1959, where the length of an edge is −ln of a probability): it
    finds what the model would most likely write without trying all continuations.

    Args:
        next_character: from a text to ln of the probability of each character that may follow.
        prompt: what the attacker knows.
        length: how many characters to generate.
        alphabet: the characters that the secret may have; all of them by default.

    >>> coin = {"a": math.log(0.9), "b": math.log(0.1)}
    >>> next(extractions(lambda text: coin, "", 3))[0]
    'aaa'
    """
    wanted = _check.integer("length", length, "it is the number of characters to generate")
    candidates = [(0.0, "")]
    for _ in range(_MOST_LOOKED_AT):
        if not candidates:
            return
        distance, text = heapq.heappop(candidates)
        if len(text) == wanted:
            yield text, -distance
            continue
        for character, score in next_character(prompt + text).items():
            if (alphabet is None or character in alphabet) and score > -math.inf:
                heapq.heappush(candidates, (distance - score, text + character))
