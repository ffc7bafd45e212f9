"""Replays of code that draws its noise from numpy: what the noise is added to arrives as at a mechanism.

While a replay runs, Laplace and normal numbers of numpy are objects that know their scale. They may be scaled, and must
be added to a value; there the value is compared with the neighbor's. All other numbers of numpy's generators are equal
in both runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.lib.mixins import NDArrayOperatorsMixin

from discreet import _check
from discreet.auditing.foreign import ForeignNoise, NoiseShape, declared
from discreet.errors import InvalidArgument
from discreet.mechanisms import observation
from discreet.mechanisms.sampling import entropy

# numpy's generators are replaced while a pipeline is watched; nothing is drawn from them for a release.
_RANDOM: Any = numpy.random
# The bits of the secret that both runs of a pair share.
_SEED_BITS = 62


@dataclass(frozen=True)
class NumpyNoise:
    """What code claims of the noise that it draws from numpy, for `replay(pipeline, pairs, noise=…)`.

    The code must make its generators in the pipeline, with `numpy.random.default_rng()` or `numpy.random.RandomState`,
    or use the functions of `numpy.random`.

    Attributes:
        epsilon: the ε of each Laplace release: a value may move by ε times the scale, in L1.
        mu: the μ of each normal release: a value may move by μ standard deviations, in L2.
        together: the ε or μ is that of all releases of a run together.
    """

    epsilon: float | None = None
    mu: float | None = None
    together: bool = False

    def __post_init__(self) -> None:
        if self.epsilon is None and self.mu is None:
            raise InvalidArgument("Give epsilon for Laplace noise, mu for normal noise, or both; got none.")
        for name, value in (("epsilon", self.epsilon), ("mu", self.mu)):
            if value is not None:
                _check.positive(name, value, "it is what one release claims")

    def limit(self, kind: NoiseShape, scale: float) -> float:
        """How far a value may move that gets noise of this scale."""
        claimed, name = (self.epsilon, "epsilon") if kind == "laplace" else (self.mu, "mu")
        if claimed is None:
            raise _check.fail(f"noise.{name}", f"be given where {kind} noise is drawn", None, "it is what is claimed")
        return float(claimed) * scale

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Replace numpy's generators, and put them back afterwards."""
        seed = observation.secret(lambda: entropy.SYSTEM.integer(_SEED_BITS))
        names = ("laplace", "normal", "standard_normal", "randn", "default_rng", "RandomState")
        before = {name: getattr(_RANDOM, name) for name in names}
        shared = _Generator(self, before["RandomState"](seed % (1 << 32)))
        made = iter(range(1 << 62))

        def generator(given: Any = None) -> Any:
            if isinstance(given, _Generator):
                return given
            return _Generator(self, before["default_rng"]([seed, next(made)] if given is None else given))

        def new_state(cls: type, given: Any = None) -> Any:
            own = (seed + next(made)) % (1 << 32) if given is None else given
            return _Generator(self, before["RandomState"](own))

        # A class, since other code asks for isinstance(…, RandomState).
        state = type("RandomState", (before["RandomState"],), {"__new__": new_state})

        replaced = {name: getattr(shared, name) for name in names[:4]} | {
            "default_rng": generator,
            "RandomState": state,
        }
        with entropy.own_global_generators(seed):
            try:
                for name, function in replaced.items():
                    setattr(_RANDOM, name, function)
                yield
            finally:
                for name, function in before.items():
                    setattr(_RANDOM, name, function)


class _Generator:
    """One of numpy's generators, whose Laplace and normal numbers know their scale."""

    def __init__(self, claim: NumpyNoise, generator: Any) -> None:
        self._claim, self._generator = claim, generator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator, name)

    def laplace(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._noise("laplace", self._generator.laplace, loc, scale, size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        return self._noise("normal", self._generator.normal, loc, scale, size)

    def standard_normal(self, size: Any = None, *given: Any, **named: Any) -> Any:
        return self.normal(size=size)

    def randn(self, *shape: int) -> Any:
        return self.normal(size=shape or None)

    def _noise(self, kind: NoiseShape, draw: Callable[..., Any], loc: Any, scale: Any, size: Any) -> Any:
        if numpy.ndim(scale):
            raise _check.fail("scale", "be one number", numpy.shape(scale), _REMEDY)
        shape = numpy.shape(loc) if size is None else size
        noise = _Noise(self._claim, kind, float(scale), numpy.asarray(draw(0.0, float(scale), shape)))
        # A generator's own `loc` is the value that gets the noise. Without one it is the number 0.
        return noise if isinstance(loc, int | float) and not loc else noise + loc


_REMEDY = "mark this release with auditing.declared, which takes any noise"


class _Noise(NDArrayOperatorsMixin):
    """Drawn noise that is not yet added to a value."""

    def __init__(self, claim: NumpyNoise, kind: NoiseShape, scale: float, drawn: Any) -> None:
        self._claim, self._kind, self._scale, self._drawn = claim, kind, scale, drawn

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._drawn.shape)

    def __len__(self) -> int:
        return len(self._drawn)

    def __getitem__(self, index: Any) -> _Noise:
        return self._like(self._drawn[index], 1.0)

    def reshape(self, *shape: Any) -> _Noise:
        return self._like(self._drawn.reshape(*shape), 1.0)

    def _like(self, drawn: Any, factor: float) -> _Noise:
        return _Noise(self._claim, self._kind, self._scale * abs(factor), numpy.asarray(drawn))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        left, right = (*inputs, None)[:2]
        (out,) = named.pop("out", (None,))
        if method != "__call__" or named or sum(isinstance(each, _Noise) for each in inputs) != 1:
            raise self._lost(ufunc.__name__)
        if out is not None:  # values += noise
            out[...] = self.__array_ufunc__(ufunc, method, *inputs)
            return out
        if ufunc is numpy.negative:
            return self._like(-self._drawn, 1.0)
        value = right if left is self else left
        if ufunc is numpy.add or (ufunc is numpy.subtract and right is self):
            return self._added(value, self._drawn if ufunc is numpy.add else -self._drawn)
        if ufunc is numpy.subtract:
            return self._added(numpy.negative(value), self._drawn)
        number = numpy.ndim(value) == 0
        if ufunc is numpy.multiply and number:
            return self._like(self._drawn * value, float(value))
        if ufunc is numpy.true_divide and left is self and number:
            return self._like(self._drawn / value, 1 / float(value))
        raise self._lost(ufunc.__name__)

    def _added(self, value: Any, drawn: Any) -> Any:
        shape = numpy.broadcast_shapes(numpy.shape(value), drawn.shape)
        # One number of noise on several values leaves their differences without noise.
        reused = shape != drawn.shape
        limit = 0.0 if reused else self._claim.limit(self._kind, self._scale)
        spread = numpy.broadcast_to(numpy.asarray(value, dtype=numpy.float64), shape)
        return declared(spread, lambda: value + drawn[()], kind=self._kind, scale=self._scale, limit=limit)

    def __array_function__(self, function: Any, types: Any, args: Any, named: Any) -> Any:
        raise self._lost(function.__name__)

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise self._lost("a conversion")

    def __float__(self) -> float:
        raise self._lost("a conversion")

    def __int__(self) -> int:
        raise self._lost("a conversion")

    def _lost(self, what: str) -> InvalidArgument:
        return InvalidArgument(
            f"noise of numpy must be added to a value, or scaled by a number, got {what}: a replay cannot follow it "
            f"further; {_REMEDY}"
        )


def joint_share(noises: list[tuple[ForeignNoise, float]]) -> float:
    """The share of the limits that all releases of a run use together: Laplace ones add up, normal ones by squares."""
    by_kind = [[(noise, share) for noise, share in noises if noise.kind == kind] for kind in ("laplace", "normal")]
    return max((each[0][0].together([share for _, share in each]) for each in by_kind if each), default=0.0)
