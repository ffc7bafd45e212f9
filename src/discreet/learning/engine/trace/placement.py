"""Whether the examples of a watched pass lie where the dry run found them.

The dry run looks at the gradients of three examples, so a layout that it finds may be a coincidence of their values, or
hold for three examples only. The dependence that a `Watch` follows decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from discreet.learning.engine.independence import Along, Dependence, Free, Misplaced, Mixed, Watch, settled
from discreet.learning.engine.layout import Layout

#: What a tensor depends on, and its shape.
Location = tuple[Dependence, tuple[int, ...]]


def place_of(tensor: Tensor, watch: Watch) -> Location:
    """Where the examples are in a tensor now."""
    return watch.of(tensor), tuple(tensor.shape)


def along(layout: Layout, shape: Sequence[int], examples: int) -> Along:
    """A layout for tensors of this shape, as a dependence. Raises `Misplaced` if there is no room for the examples."""
    if not layout.fits(shape, examples):
        raise Misplaced("the examples do not lie where they did in the first three: the shape is another one")
    return Along(layout.dim, shape[layout.dim] // examples if layout.kind == "major" else 1)


def lies(places: Sequence[Location], layout: Layout, examples: int) -> bool:
    """Whether an output, the first place, has its examples as in a layout. Inputs may depend on none instead."""
    return _fits(places[0], layout, examples) and _inputs_fit(places[1:], layout, examples)


def placed(output: Tensor, inputs: Iterable[Tensor], layout: Layout, watch: Watch) -> Tensor:
    """The output of an operation with its examples as in a layout (see `Watch.placed`). Raises `Misplaced`.

    Inputs must have the same layout, or depend on no example.
    """
    places = [place_of(tensor, watch) for tensor in inputs]
    if not _inputs_fit(places, layout, watch.examples):
        reasons = [own.reason for own, _ in places if isinstance(own, Mixed)]
        raise Misplaced((reasons or ["the examples do not lie where they did in the first three"])[0])
    return watch.placed(output, along(layout, output.shape, watch.examples))


def _inputs_fit(places: Iterable[Location], layout: Layout, examples: int) -> bool:
    return all(isinstance(place[0], Free) or _fits(place, layout, examples) for place in places)


def _fits(place: Location, layout: Layout, examples: int) -> bool:
    own, shape = place
    return examples == 1 or (
        layout.fits(shape, examples) and own == settled(along(layout, shape, examples), shape, examples)
    )
