"""One call of the engine as a flat list of tensors, and the clipped sum as a function of that list."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learning.clipping import Clipping
from discreet.learning.engine.clipped import Coverage, clip
from discreet.learning.engine.fallback import Forward
from discreet.learning.engine.independence import Outside, Watch, general_position
from discreet.learning.engine.operations.arithmetic import precision_settings


class FlatCall:
    """A batch with its mask and clip norm, and the tensors of a model.

    Attributes:
        arguments: trainable parameters, everything else that the model holds, the batch's tensors, mask and clip norm.
        fixed: how many of them are the model's.
        key: equal for calls that one graph serves; None if that cannot be told.
    """

    def __init__(
        self, trainable: Mapping[str, Tensor], rest: Mapping[str, Tensor], batch: Any, mask: Tensor, clip_norm: Tensor
    ) -> None:
        self._trainable, self._rest = trainable, rest
        self._leaves, self._structure = pytree.tree_flatten(batch)
        self._positions = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, Tensor)]
        self.fixed = len(trainable) + len(rest)
        tensors = [*trainable.values(), *rest.values(), *self.rows, mask, clip_norm]
        self.arguments = [tensor.detach() for tensor in tensors]
        constants = [(i, type(leaf), leaf) for i, leaf in enumerate(self._leaves) if i not in self._positions]
        shapes = ((a.shape, a.stride(), a.dtype, a.device) for a in self.arguments)
        hashable = all(isinstance(leaf, Hashable) for _, _, leaf in constants)
        self.key = (precision_settings(), self._structure, *constants, *shapes) if hashable else None

    @property
    def rows(self) -> list[Tensor]:
        """The batch's tensors."""
        return [self._leaves[position] for position in self._positions]

    def function(
        self,
        forward: Forward,
        clipping: Clipping,
        coverage: Coverage | Callable[[frozenset[str]], Coverage],
        outside: Outside,
    ) -> Callable[..., Sequence[Tensor]]:
        """The clipped sum as a function of the arguments, which proves its examples apart while it is traced."""
        trainable, rest = self._trainable, self._rest
        constants = [None if i in self._positions else leaf for i, leaf in enumerate(self._leaves)]
        values = [*general_position(trainable).values(), *rest.values()]

        def flat(*arguments: Tensor) -> Sequence[Tensor]:
            filled = list(constants)
            rows = arguments[self.fixed : -2]
            for position, value in zip(self._positions, rows, strict=True):
                filled[position] = value
            watch = Watch(rows, rows[0].shape[0], list(zip(arguments, values, strict=False)), outside)
            result = clip(
                forward,
                dict(zip(trainable, arguments, strict=False)),
                dict(zip(rest, arguments[len(trainable) : self.fixed], strict=True)),
                pytree.tree_unflatten(filled, self._structure),
                arguments[-2],
                arguments[-1],
                clipping,
                coverage,
                watch,
            )
            return [result.norms, result.losses, result.finite, *result.sums.values()]

        return flat
