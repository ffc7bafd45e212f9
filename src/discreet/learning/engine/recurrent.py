"""`lstm`, `gru` and `rnn` taken apart: products with the inputs, a recurrence, and the claims of the parameters.

All products with the inputs are made at once, and the gradient that reaches their result also is the gradient of the
recurrent products: gates = (W x + b) + (U h + c) gives ∂/∂(U h + c) = ∂/∂(W x + b) =: g. So one place in the graph
serves all four parameters of a layer; only a GRU's new gate, r·(U h + c), has r·g instead. An LSTM with a projection
runs step by step: the projection is a product of its own in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine import recurrence
from discreet.learning.engine.capture import Claim, Recorder
from discreet.learning.engine.rules.linear import Bias, LinearWeight

#: From the gates' share of the inputs, the initial states, U, c and the direction to the outputs, the last states and a
#: GRU's reset gates.
Layer = Callable[
    [Tensor, tuple[Tensor, ...], Tensor, Tensor | None, bool], tuple[Tensor, tuple[Tensor, ...], Tensor | None]
]


@dataclass(frozen=True)
class RecurrentWeight(LinearWeight):
    """The recurrent weight; its second input, where there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example(inputs[:1], _gated(inputs[1:], grad))

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return super().norm_power(inputs[:1], _gated(inputs[1:], grad), order)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        return super().weighted(inputs[:1], _gated(inputs[1:], grad), weights)


@dataclass(frozen=True)
class RecurrentBias(Bias):
    """The bias beside it; its input, where there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example((), _gated(inputs, grad))


def _gated(resets: tuple[Tensor, ...], grad: Tensor) -> Tensor:
    return recurrence.gated(grad, resets[0]) if resets else grad


def _lstm(
    gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...], None]:
    del c  # already added to the gates
    outputs, cell, _, _ = recurrence.lstm(gates, *states, u, reverse)
    return outputs, (recurrence.last(outputs, reverse), cell), None


def _gru(
    gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    outputs, kept = recurrence.gru(gates, *states, u, c, reverse)
    return outputs, (recurrence.last(outputs, reverse),), kept[0]


def _rnn(relu: bool) -> Layer:
    def layer(
        gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...], None]:
        del c
        outputs = recurrence.rnn(gates, *states, u, relu, reverse)
        return outputs, (recurrence.last(outputs, reverse),), None

    return layer


def _projected(recorder: Recorder, projection: Tensor) -> Layer:
    """An LSTM's layer whose outputs are projected, step by step."""

    def layer(
        gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...], None]:
        del c
        (hidden, cell), made = states, []
        for share in gates.unbind(0)[:: -1 if reverse else 1]:
            i, f, g, o = torch.addmm(share, hidden, u.t()).chunk(4, 1)
            cell = torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh())
            hidden = recorder.apply(F.linear, (o.sigmoid() * cell.tanh(), projection), {})
            made.append(hidden)
        return torch.stack(made[:: -1 if reverse else 1]), (hidden, cell), None

    return layer


def _direction(
    recorder: Recorder, x: Tensor, states: tuple[Tensor, ...], weights: list[Tensor], layer: Layer, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction over [T, B, d]."""
    w, u = weights[0], weights[1]
    b, c = (weights[2], weights[3]) if len(weights) >= 4 else (None, None)
    layer = _projected(recorder, weights[-1]) if len(weights) % 2 else layer
    gates = F.linear(x, w, b if b is None or c is None or layer is _gru else b + c)
    if not gates.requires_grad:  # the input weight is frozen, but something after it is not
        gates = gates.detach().requires_grad_()

    def served(parameter: Tensor) -> Tensor:
        # The dry run compares with ordinary gradients; after it the rules alone are asked for those of parameters.
        known = recorder.layouts is not None and id(parameter) in recorder.names
        return (parameter.detach() if known else parameter).to(states[0].dtype)

    # A recurrence runs in the type of its states: under autocast, only the products with the inputs are narrower.
    with torch.autocast(gates.device.type, enabled=False):
        outputs, last, reset = layer(
            gates.to(states[0].dtype), states, served(u), None if c is None else served(c), reverse
        )
    resets = () if reset is None else (reset,)
    started = recurrence.before(outputs, states[0], reverse)
    claims = [Claim(w, LinearWeight(), (x,)), Claim(u, RecurrentWeight(), (started, *resets))]
    if b is not None and c is not None:
        claims += [Claim(b, Bias()), Claim(c, RecurrentBias(), resets)]
    recorder.record("recurrent layer", gates, claims)
    return outputs, last


def _recurrent(layer: Layer, *, cells: int) -> Callable[..., Any]:
    def handle(recorder: Recorder, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, hx, flat, biases, layers, dropout, train, bidirectional, *rest = args
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if kwargs or not isinstance(biases, bool) or len(states) != cells or x.dim() != 3:
            return NotImplemented  # packed sequences have another signature
        directions = 2 if bidirectional else 1
        each = len(flat) // (layers * directions)  # two weights, two biases or none, an LSTM's projection or none
        batch_first = bool(rest and rest[0])
        sequence = x.transpose(0, 1) if batch_first else x
        if not len(sequence) or any(state.shape[:2] != (layers * directions, sequence.shape[1]) for state in states):
            return NotImplemented  # torch says what is wrong with it
        final: list[tuple[Tensor, ...]] = []
        for index in range(layers):
            made = []
            for direction in range(directions):
                place = index * directions + direction
                output, last = _direction(
                    recorder,
                    sequence,
                    tuple(state[place] for state in states),
                    list(flat[each * place : each * (place + 1)]),
                    layer,
                    direction == 1,
                )
                made.append(output)
                final.append(last)
            sequence = made[0] if directions == 1 else torch.cat(made, 2)
            if dropout and train and index < layers - 1:
                sequence = F.dropout(sequence, dropout)
        last_states = [torch.stack([state[part] for state in final]) for part in range(cells)]
        return (sequence.transpose(0, 1) if batch_first else sequence, *last_states)

    return handle


lstm = _recurrent(_lstm, cells=2)
gru = _recurrent(_gru, cells=1)
rnn_tanh = _recurrent(_rnn(False), cells=1)
rnn_relu = _recurrent(_rnn(True), cells=1)
