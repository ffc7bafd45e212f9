"""What a language model remembers: codes that were in its training texts once, and are written down on request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.reidentification.demonstration import Demonstration, generator
from discreet.auditing.secrets import exposure, extractions

# Sizes with which a model without privacy learns each code by heart in seconds.
_PEOPLE, _TEXTS, _DIGITS = 20, 200, 3
_FOODS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey")
_VOWELS, _CONSONANTS = "aeiou", "bdfgklmnprstv"
#: The ε of the private model. One text holds one person's code.
EPSILON = 4.0
_DELTA = 1e-5


@dataclass(frozen=True, eq=False)
class Memorized:
    """What two models remember of the codes that are each in one of their training texts.

    Attributes:
        exposures: the exposure of each code in bits: of the model without privacy, and of the one with it.
        extracted: the share of codes that each model writes down when it is asked.
        most: the exposure of a code that is ranked first.
        epsilon: the ε of the private model.
    """

    exposures: tuple[NDArray[np.float64], NDArray[np.float64]]
    extracted: tuple[float, float]
    most: float
    epsilon: float


def remember() -> Memorized:
    """Train a tiny language model with and without privacy on generated texts, and ask both for the secrets in them.

    It needs the `learning` extra, and takes some seconds.

    Guarantee: none: the texts are generated.
    """
    from discreet.learning import Plan
    from discreet.learning.characters import CharacterModel

    draw = generator("memorized")
    names = ["".join(letters) for letters in product(_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS)]
    people = draw.choice(names, size=_TEXTS, replace=False).tolist()
    codes = ["".join(map(str, draw.integers(0, 10, _DIGITS))) for _ in range(_PEOPLE)]
    texts = [f"{name} has {code}" for name, code in zip(people, codes, strict=False)]
    texts += [f"{name} eats {draw.choice(_FOODS)}" for name in people[_PEOPLE:]]
    length = max(map(len, texts))
    models = CharacterModel(length), CharacterModel(length)
    models[0].fit(texts)
    plan = Plan.for_epsilon(EPSILON, delta=_DELTA, examples=_TEXTS, batch_size=50, steps=120, clip_norm=1.0)
    models[1].fit(texts, plan)
    candidates = ["".join(digits) for digits in product("0123456789", repeat=_DIGITS)]
    exposures, extracted = [], []
    for model in models:
        exposed = [
            exposure(model.losses([f"{name} has {code}" for code in candidates]), candidates.index(secret))
            for name, secret in zip(people, codes, strict=False)
        ]
        written = [
            next(extractions(model.next_character, f"{name} has ", _DIGITS))[0] == secret
            for name, secret in zip(people, codes, strict=False)
        ]
        exposures.append(np.array(exposed))
        extracted.append(float(np.mean(written)))
    most = float(np.log2(len(candidates)))
    return Memorized((exposures[0], exposures[1]), (extracted[0], extracted[1]), most, EPSILON)


def memorized() -> Demonstration:
    """Secret codes in the training texts of a language model, which writes them down when it is asked.

    Guarantee: none: the texts are generated.
    """
    seen = remember()
    return Demonstration(
        name="A language model",
        story=f"A tiny language model learns from {_TEXTS} sentences. {_PEOPLE} of them hold somebody's secret code, "
        "each of them once. The attacker writes a name and the words before the code, and lets the model go on.",
        measured=f"codes that the model writes down, of {_PEOPLE}",
        plain=seen.extracted[0],
        protected=seen.extracted[1],
        chance=10.0**-_DIGITS,
        epsilon=seen.epsilon,
    )
