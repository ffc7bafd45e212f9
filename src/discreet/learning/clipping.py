"""Clipping: how one example's gradient is bounded, as a weight computed from its norms.

Every kind of clipping is a choice of weights. The engine computes the norm of each example's gradient in each group of
parameters; a `Clipping` returns one weight for each, and bounds how far one example can move the sum.

Rounding: a weight computed as C / norm in floating point may exceed the exact quotient by a few units in the last
place, and the norm itself is a rounded sum. Every weight is therefore shrunk by the factor 1 - 256 u, where u is the
machine epsilon of the norms' type (3e-5 in float32). That covers the division and the root, and long sums of numbers of
one sign, whose errors do not average out: hundreds of additions in a row that all round in the same direction. What
products in float32, bfloat16 or TF32 may round, also where the terms of a gradient cancel, is part of the norm
(docs/proofs/clipping-in-floats.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from discreet import _check

_NORM = "it is the largest norm of one example's clipped gradient"
_ORDER = "2 bounds the Euclidean norm (Gaussian noise), 1 bounds the sum of absolute values (Laplace noise)"

#: The range of clip norms. In it, neither noise nor clipped gradients vanish or overflow in float32.
SMALLEST, LARGEST = 1e-30, 1e30


def layer_of(name: str) -> str:
    """The layer that a parameter belongs to: its name without the last part."""
    return name.rpartition(".")[0]


#: By how much weights are shrunk, in units of the machine epsilon.
_SHRUNK_BY = 256.0


def _shrunk(quotient: Tensor) -> Tensor:
    """A little less, and nothing where the type has too few digits left."""
    info = torch.finfo(quotient.dtype)
    return torch.where(quotient < 16 * info.tiny, 0.0, quotient * (1.0 - _SHRUNK_BY * info.eps))


def _at_least_countable(norms: Tensor) -> Tensor:
    """Squares of very small numbers underflow, so a computed norm of zero only means that the norm is below this."""
    return norms.clamp_min(torch.finfo(norms.dtype).tiny ** 0.4)  # 7e-16 in float32: far above where squares underflow


def _at_most(norms: Tensor, bound: Tensor) -> Tensor:
    """The weight min(1, bound / norm), rounded down."""
    norms = _at_least_countable(norms)
    return torch.where(norms <= _shrunk(bound), torch.ones_like(norms), _shrunk(bound / norms))


class Clipping(ABC):
    """How each example's gradient is bounded.

    Guarantee:
        Neighbors: add/remove or zero-out one example. For a gradient g in groups g_1 … g_G with norms n_1 … n_G, the
        vector (w_1·g_1, …, w_G·g_G) has an `order`-norm of at most `sensitivity(clip_norm, G)`, whatever g is. So one
        example moves the sum by at most that much, and replacing one by at most twice that.
    """

    norm: float
    order: int

    def groups(self, names: Sequence[str]) -> tuple[int, ...]:
        """The group of each trainable parameter. One group by default."""
        return (0,) * len(names)

    @abstractmethod
    def in_words(self, limit: str) -> str:
        """What happens to a gradient, after "the gradient is"; `limit` stands for the clip norm."""

    @abstractmethod
    def weights(self, norms: Tensor, clip_norm: Tensor) -> Tensor:
        """The weight ≥ 0 of each example's gradient in each group, from norms of shape [groups, examples]."""

    def sensitivity(self, clip_norm: float, groups: int) -> float:
        """The largest `order`-norm by which one example moves the weighted sum (add/remove, zero-out)."""
        del groups
        return clip_norm


def checked_norm(name: str, value: object) -> float:
    """A clip norm that float32 has room for."""
    norm = float(_check.positive(name, value, _NORM))
    if not SMALLEST <= norm <= LARGEST:
        raise _check.fail(name, f"be between {SMALLEST:g} and {LARGEST:g}", value, _NORM)
    return norm


def _settle(clipping: Clipping) -> None:
    object.__setattr__(clipping, "norm", checked_norm("norm", clipping.norm))
    _check.one_of("order", clipping.order, (1, 2), _ORDER)


@dataclass(frozen=True)
class Flat(Clipping):
    """Scale each example's whole gradient down to norm C if it is longer: weight min(1, C / ‖g‖).

    Guarantee:
        ‖w·g‖ = min(‖g‖, C) ≤ C. Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, Algorithm 1.
    """

    norm: float
    order: int = 2

    def __post_init__(self) -> None:
        _settle(self)

    def in_words(self, limit: str) -> str:
        return f"scaled down to an L{self.order} norm of at most {limit}"

    def weights(self, norms: Tensor, clip_norm: Tensor) -> Tensor:
        """min(1, C / ‖g‖)."""
        return _at_most(norms, clip_norm)


@dataclass(frozen=True)
class Automatic(Clipping):
    """Normalize each example's gradient: weight C / (‖g‖ + γ), with no threshold to tune.

    Guarantee:
        ‖w·g‖ = C·‖g‖ / (‖g‖ + γ) < C for every γ > 0. Bu et al., "Automatic Clipping", NeurIPS 2023
        (arXiv 2206.07136), section 3.
    """

    norm: float
    gamma: float = 0.01
    order: int = 2

    def __post_init__(self) -> None:
        _settle(self)
        remedy = "it keeps the weight of a small gradient finite; 0.01 is the paper's choice"
        object.__setattr__(self, "gamma", float(_check.positive("gamma", self.gamma, remedy)))

    def in_words(self, limit: str) -> str:
        return f"normalized to an L{self.order} norm below {limit}, with a stabilizer of {self.gamma:g}"

    def weights(self, norms: Tensor, clip_norm: Tensor) -> Tensor:
        """C / (‖g‖ + γ)."""
        return _shrunk(clip_norm / (_at_least_countable(norms) + self.gamma))


@dataclass(frozen=True)
class PerLayer(Clipping):
    """Clip the gradient of each layer separately.

    `norm` bounds the whole clipped gradient. It is split equally over the layers, or in the proportions of `layers`,
    which maps every layer's name (a parameter's name without its last part) to a positive number.

    Guarantee:
        Layer l is scaled to norm C_l with ΣC_l² = C² (order 2) or ΣC_l = C (order 1), so the whole vector has a norm of
        at most C: the norm of the layers' norms is the norm of the whole. McMahan et al. 2018 (arXiv 1812.06210), §3.1.
    """

    norm: float
    layers: Mapping[str, float] | None = None
    order: int = 2

    def __post_init__(self) -> None:
        _settle(self)
        if self.layers is not None:
            remedy = "it is the layer's share of the norm"
            shares = {name: float(_check.positive(f"layers[{name!r}]", v, remedy)) for name, v in self.layers.items()}
            if not shares:
                raise _check.fail("layers", "name at least one layer", self.layers, "leave it out for an equal split")
            object.__setattr__(self, "layers", MappingProxyType(shares))

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the shares as a dict, because a mapping proxy cannot be pickled."""
        return type(self), (self.norm, None if self.layers is None else dict(self.layers), self.order)

    def __hash__(self) -> int:
        return hash((self.norm, None if self.layers is None else tuple(self.layers.items()), self.order))

    def groups(self, names: Sequence[str]) -> tuple[int, ...]:
        """One group per layer."""
        of_model = list(dict.fromkeys(layer_of(name) for name in names))
        listed = of_model if self.layers is None else list(self.layers)
        missing = [layer for layer in of_model if layer not in listed]
        if missing:
            raise _check.fail("layers", f"name the layer {missing[0]!r}", listed, "every trainable layer needs a share")
        foreign = [layer for layer in listed if layer not in of_model]
        if foreign:
            raise _check.fail("layers", "name layers of the model", foreign[0], f"its trainable layers are {of_model}")
        return tuple(listed.index(layer_of(name)) for name in names)

    def shares(self, groups: int) -> tuple[float, ...]:
        """C_l / C of each group."""
        proportions = (1.0,) * groups if self.layers is None else tuple(self.layers.values())
        total = math.hypot(*proportions) if self.order == 2 else math.fsum(proportions)
        return tuple(proportion / total for proportion in proportions)

    def in_words(self, limit: str) -> str:
        return f"scaled down layer by layer, to an L{self.order} norm of at most {limit} in total"

    def weights(self, norms: Tensor, clip_norm: Tensor) -> Tensor:
        """min(1, C_l / ‖g_l‖) in each layer."""
        shares = self.shares(norms.shape[0])
        return torch.stack([_at_most(norms[group], clip_norm * share) for group, share in enumerate(shares)])


@dataclass(frozen=True)
class Adaptive(Clipping):
    """Flat clipping whose norm follows a private quantile of the examples' norms.

    Each step also releases, with noise, how many examples were below the norm, and moves the norm by
    exp(-learning_rate·(share below - quantile)). `count_noise` is the standard deviation of the noise on that count,
    which one example changes by at most one; its cost is part of the plan's event.

    Guarantee:
        The weights are those of `Flat` at the current norm, which depends on earlier releases only. Andrew et al.,
        "Differentially Private Learning with Adaptive Clipping", NeurIPS 2021 (arXiv 1905.03871), Algorithm 1.
    """

    norm: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float = 10.0
    order: int = 2

    def __post_init__(self) -> None:
        _settle(self)
        remedy = "it is the share of examples that should lie below the norm"
        object.__setattr__(self, "quantile", float(_check.probability("quantile", self.quantile, remedy)))
        remedy = "it is how far one step moves the logarithm of the norm; 0.2 is the paper's choice"
        object.__setattr__(self, "learning_rate", float(_check.positive("learning_rate", self.learning_rate, remedy)))
        remedy = "it is the standard deviation of the noise on the count; a twentieth of the batch is usual"
        object.__setattr__(self, "count_noise", float(_check.positive("count_noise", self.count_noise, remedy)))

    def in_words(self, limit: str) -> str:
        return (
            f"scaled down to an L{self.order} norm that starts at {limit} and follows a private estimate of the "
            f"{self.quantile:g} quantile of the gradients' norms"
        )

    def weights(self, norms: Tensor, clip_norm: Tensor) -> Tensor:
        """min(1, C / ‖g‖)."""
        return _at_most(norms, clip_norm)
