"""Cuts a traced graph where its blocks repeat, so that one of them is compiled and serves all.

A transformer is the same layer many times, in the forward pass and, with its norms and sums, in the backward pass. The
traced graph repeats itself with a period. It is cut at whole periods into regions that run one after the other. A cut
changes no value: every region computes the same operations on the same values in the same order. Regions that are
equal up to the names of their values are compiled once.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from discreet.learning.engine.graph.announcement import Announcement
from discreet.learning.engine.graph.effects import in_place_writes
from discreet.learning.engine.graph.repeats import apart, look
from discreet.learning.engine.graph.replay import FlatFunction

#: Shorter blocks than this are not worth a cut: each cut keeps values in memory that a compiler would fuse away.
_SHORTEST = 24
#: A block must repeat at least this often.
_FEWEST = 3
#: How many periods are tried.
_PERIODS = 24

#: Compiles a graph for the given inputs, which are tensors without data.
Compiler = Callable[[GraphModule, Sequence[Tensor]], FlatFunction]


@dataclass(frozen=True)
class Region:
    """A part of a graph: its nodes, the values that it reads, and those that later parts read."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def key(self) -> Hashable:
        """Equal for regions that are equal up to the names of their values."""
        number = {node: position for position, node in enumerate((*self.inputs, *self.nodes))}

        def numbered(value: Any) -> Hashable:
            if isinstance(value, Node):
                return ("value", number[value])
            if isinstance(value, (list, tuple)):
                return tuple(numbered(item) for item in value)
            if isinstance(value, dict):
                return tuple((name, numbered(item)) for name, item in sorted(value.items()))
            return (type(value).__name__, repr(value))

        steps = tuple((node.target, numbered(node.args), numbered(node.kwargs)) for node in self.nodes)
        return steps, tuple(_look(node) for node in self.inputs), tuple(number[node] for node in self.outputs)

    def module(self) -> GraphModule:
        """The region as a graph of its own, from its inputs to a tuple of its outputs."""
        graph = Graph()
        copies: dict[Node, Node] = {}
        for position, node in enumerate(self.inputs):
            copies[node] = graph.placeholder(f"input_{position}")
            copies[node].meta = dict(node.meta)
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in self.outputs))
        return GraphModule(torch.nn.Module(), graph)


def _look(node: Node) -> Hashable:
    return look(node.meta.get("val"))


def _signatures(nodes: Sequence[Node]) -> list[int]:
    """A number for each node, equal for nodes that do the same to values that look the same."""
    numbers: dict[Hashable, int] = {}
    signatures = []
    for node in nodes:
        plain = tuple(repr(a) for a in node.args if not isinstance(a, (Node, list, tuple)))
        key = (node.target, plain, tuple(_look(used) for used in node.all_input_nodes), _look(node))
        signatures.append(numbers.setdefault(key, len(numbers)))
    return signatures


def _longest_run(signatures: Sequence[int], start: int, end: int) -> tuple[int, int, int] | None:
    """(first, period, repetitions) of what covers most of signatures[start:end] by repeating; None if nothing does."""
    gaps: Counter[int] = Counter()
    latest: dict[int, int] = {}
    for position in range(start, end):
        before = latest.get(signatures[position])
        if before is not None and position - before >= _SHORTEST:
            gaps[position - before] += 1
        if before is None or position - before >= _SHORTEST:
            latest[signatures[position]] = position
    best: tuple[int, int, int] | None = None
    for period, _ in gaps.most_common(_PERIODS):
        first = None
        for position in range(start, end - period + 1):
            same = position < end - period and signatures[position] == signatures[position + period]
            if same and first is None:
                first = position
            elif not same and first is not None:
                repetitions = (position - first) // period + 1
                if repetitions >= _FEWEST and (best is None or repetitions * period > best[1] * best[2]):
                    best = (first, period, repetitions)
                first = None
    return best


def _cuts(nodes: Sequence[Node], signatures: Sequence[int], start: int, end: int) -> list[int]:
    """Where to cut nodes[start:end], besides both ends."""
    run = _longest_run(signatures, start, end)
    if run is None:
        return []
    first, period, repetitions = run
    # A result of several tensors is taken apart right after it was made: don't cut in between.
    while first < end and any(
        nodes[position].target is operator.getitem
        for position in (first + period * turn for turn in range(repetitions + 1))
        if position < end
    ):
        first += 1
    cuts = [
        position for position in (first + period * turn for turn in range(repetitions + 1)) if start < position < end
    ]
    if not cuts:
        return []
    return [*_cuts(nodes, signatures, start, cuts[0]), *cuts, *_cuts(nodes, signatures, cuts[-1], end)]


def regions_of(module: GraphModule, announced: Node | None = None) -> list[Region]:
    """The regions of a graph in their order; a single one if nothing repeats.

    A value that is announced ends a region.
    """
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    if in_place_writes(nodes):
        cuts: list[int] = []  # who reads a value after it was overwritten is not in the graph
    else:
        nodes = _taken_apart_at_once(nodes)
        cuts = _cuts(nodes, _signatures(nodes), 0, len(nodes))
        if announced in nodes:
            cuts = sorted({*cuts, nodes.index(announced) + 1})
    ends = [*cuts, len(nodes)]
    return [_region(nodes[start:end]) for start, end in zip([0, *cuts], ends, strict=True) if end > start]


def _taken_apart_at_once(nodes: Sequence[Node]) -> list[Node]:
    """The nodes, reordered so that the items of a tuple result follow it immediately."""
    items: dict[Node, list[Node]] = {}
    for node in nodes:
        if node.target is operator.getitem:
            items.setdefault(node.all_input_nodes[0], []).append(node)
    ordered: list[Node] = []

    def add(node: Node) -> None:
        ordered.append(node)
        for item in items.get(node, ()):
            add(item)

    for node in nodes:
        if node.target is not operator.getitem:
            add(node)
    return ordered


def _region(nodes: Sequence[Node]) -> Region:
    inside = set(nodes)
    inputs = dict.fromkeys(used for node in nodes for used in node.all_input_nodes if used not in inside)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    return Region(tuple(nodes), tuple(inputs), tuple(outputs))


class Joined:
    """A graph as compiled regions that run one after the other. Values are dropped after their last use.

    Attributes:
        announcement: tells early whether all of the announced result is true; None if nothing is announced.
    """

    def __init__(
        self,
        module: GraphModule,
        regions: Sequence[Region],
        functions: Sequence[FlatFunction],
        announced: Node | None = None,
    ) -> None:
        graph = module.graph
        placeholders = list(graph.find_nodes(op="placeholder"))
        attributes = list(graph.find_nodes(op="get_attr"))
        (output,) = graph.find_nodes(op="output")
        held = [*placeholders, *attributes, *(node for region in regions for node in region.outputs)]
        slot = {node: number for number, node in enumerate(held)}
        self._constants = [_attribute(module, str(node.target)) for node in attributes]
        self._results = [slot[node] for node in output.args[0]]
        last: dict[int, int] = {}
        for turn, region in enumerate(regions):
            last |= {slot[node]: turn for node in (*region.inputs, *region.outputs)}
        dropped: list[list[int]] = [[] for _ in regions]
        for number, turn in last.items():
            if number not in self._results:
                dropped[turn].append(number)
        self._turns = [
            (function, [slot[node] for node in region.inputs], [slot[node] for node in region.outputs], gone)
            for region, function, gone in zip(regions, functions, dropped, strict=True)
        ]
        self._size = len(held)
        turns = [turn for turn, region in enumerate(regions) if announced in region.outputs]
        self._announced = (turns[0], slot[announced]) if announced is not None and turns else None
        self.announcement = Announcement() if self._announced else None

    def __call__(self, *arguments: Tensor) -> Sequence[Tensor]:
        values: list[Any] = [*arguments, *self._constants]
        values += [None] * (self._size - len(values))
        for turn, (function, inputs, outputs, dropped) in enumerate(self._turns):
            for number, value in zip(outputs, function(*[values[i] for i in inputs]), strict=True):
                values[number] = value
            if self._announced and turn == self._announced[0] and self.announcement:
                self.announcement.send(values[self._announced[1]].all())
            for number in dropped:
                values[number] = None
        return [values[number] for number in self._results]


def _attribute(module: GraphModule, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value


def compile_regions(module: GraphModule, compiler: Compiler, announced: int | None = None) -> tuple[Joined, int]:
    """The graph as compiled regions, and how many different ones were compiled.

    Args:
        module: the graph.
        compiler: compiles one region.
        announced: the number of a boolean result that a CUDA device announces to the host early.
    """
    (output,) = module.graph.find_nodes(op="output")
    result = None if announced is None else output.args[0][announced]
    regions = regions_of(module, result)
    by_key: dict[Hashable, FlatFunction] = {}
    functions = []
    for region in regions:
        key = region.key()
        if key not in by_key:
            # Values of equal layers may share the tensor that stands for them. A compiler would take them for one.
            by_key[key] = compiler(region.module(), [apart(node.meta["val"]) for node in region.inputs])
        functions.append(by_key[key])
    return Joined(module, regions, functions, result), len(by_key)
