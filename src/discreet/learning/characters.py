"""A tiny language model over characters: it trains in seconds, with or without privacy, and shows what models remember.

It predicts each character from the last few. It is for demonstrations and audits of memorization
(`discreet.auditing.secrets`), not for good text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from discreet import _check
from discreet.learning.losses import per_example
from discreet.learning.plan import Plan

Floats = NDArray[np.float64]

#: What the model reads and writes. Other characters are read as a space.
ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789."
# How many characters back it sees, and its sizes. A secret must fit into what it sees.
_WINDOW, _WIDTH, _HIDDEN = 12, 8, 64
# Marks positions after the end of a text; the loss ignores them, as torch's losses do.
_IGNORED = -100


class _Network(nn.Module):
    """Scores of the next character at each position of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(ALPHABET) + 1, _WIDTH)  # the last one stands before the start
        self.hidden = nn.Linear(_WINDOW * _WIDTH, _HIDDEN)
        self.out = nn.Linear(_HIDDEN, len(ALPHABET))

    def forward(self, windows: Tensor) -> Tensor:
        scores: Tensor = self.out(torch.tanh(self.hidden(self.embedding(windows).flatten(2))))
        return scores.transpose(1, 2)  # the classes second, as torch's losses take them


class CharacterModel:
    """A language model over `ALPHABET` that predicts a character from the last twelve.

    Args:
        length: the length of the texts that it is trained on; longer ones are cut.
        seed: of the initial weights, which are public.
    """

    def __init__(self, length: int = 40, *, seed: int = 0) -> None:
        self.length = _check.integer("length", length, "it is the number of characters of a text", at_least=2)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._network = _Network()

    def fit(
        self, texts: Sequence[str], plan: Plan | None = None, *, steps: int = 300, learning_rate: float = 1e-2
    ) -> None:
        """Train on texts, each of which is one example: by a plan, or without privacy on all of them in each step.

        Guarantee:
            With a plan, the model is the output of `plan.event`, and nobody is charged: use public or generated texts.
            Without one, there is none.
        """
        rows = self._rows(texts)
        adam = torch.optim.Adam(self._network.parameters(), lr=learning_rate)
        if plan is not None:
            step = plan.step(self._network, functional.cross_entropy, adam, compile=False)
            for batch in plan.batches(rows):
                step(batch)
            return
        loss = per_example(functional.cross_entropy)
        for _ in range(steps):
            adam.zero_grad()
            values: Any = loss(self._network, rows).mean()
            values.backward()
            adam.step()

    def losses(self, texts: Sequence[str]) -> Floats:
        """How unlikely each text is: minus the sum of ln of the probabilities of its characters."""
        windows, targets = self._rows(texts)
        with torch.no_grad():
            values = functional.cross_entropy(self._network(windows), targets, reduction="none", ignore_index=_IGNORED)
        return np.asarray(values.double().sum(1).numpy())

    def next_character(self, text: str) -> dict[str, float]:
        """ln of the probability of each character after `text`."""
        windows, _ = _windows([_codes(text)[-_WINDOW:]], _WINDOW + 1)
        with torch.no_grad():
            position = min(len(text), _WINDOW)
            scores = torch.log_softmax(self._network(windows)[0, :, position].double(), 0)
        return dict(zip(ALPHABET, scores.tolist(), strict=True))

    def _rows(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        return _windows([_codes(text)[: self.length] for text in texts], self.length)


def _codes(text: str) -> list[int]:
    return [max(0, ALPHABET.find(character)) for character in text.lower()]


def _windows(texts: Sequence[list[int]], length: int) -> tuple[Tensor, Tensor]:
    """For each text and position the characters before it, and the character that follows."""
    start = len(ALPHABET)
    padded = np.full((len(texts), _WINDOW + length), start, dtype=np.int64)
    targets = np.full((len(texts), length), _IGNORED, dtype=np.int64)
    for row, codes in enumerate(texts):
        padded[row, _WINDOW : _WINDOW + len(codes)] = codes
        targets[row, : len(codes)] = codes
    windows = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW, axis=1)[:, :length]
    return torch.from_numpy(windows.copy()), torch.from_numpy(targets)
