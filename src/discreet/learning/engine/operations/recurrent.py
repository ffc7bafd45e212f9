"""`lstm`, `gru` and `rnn` split into products with the inputs, a recurrence, and the claims of the parameters.

All products with the inputs are computed at once, and the gradient of their result is also the gradient of the
recurrent products: gates = (W x + b) + (U h + c) gives ∂/∂(U h + c) = ∂/∂(W x + b) =: g. So one site in the graph
serves all four parameters of a layer; only a GRU's new gate, r·(U h + c), has r·g instead. An LSTM with a projection
runs step by step, because the projection is a separate product in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations import recurrent_steps
from discreet.learning.engine.operations.base import Args, Function, Handler, Handlers, Kwargs, ParameterUse, Recorder
from discreet.learning.engine.operations.linear import BiasVector, LinearWeight

#: From W x + b, the initial states, U, c and whether to run in reverse, to the outputs, the last states and a GRU's
#: reset gates.
Layer = Callable[
    [Tensor, tuple[Tensor, ...], Tensor, Tensor | None, bool], tuple[Tensor, tuple[Tensor, ...], Tensor | None]
]


@dataclass(frozen=True)
class RecurrentWeight(LinearWeight):
    """The recurrent weight U; its second input, if there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example(inputs[:1], _gated(inputs[1:], grad))

    def kept_gradients(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return LinearWeight().kept_gradients(inputs[:1], _gated(inputs[1:], grad))

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return super().norm_power(inputs[:1], _gated(inputs[1:], grad), order)

    def margin(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return super().margin(inputs[:1], _gated(inputs[1:], grad), order)

    def weighted_sum(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        return super().weighted_sum(inputs[:1], _gated(inputs[1:], grad), weights)


@dataclass(frozen=True)
class RecurrentBias(BiasVector):
    """The recurrent bias c; its input, if there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example((), _gated(inputs, grad))


def _gated(resets: tuple[Tensor, ...], grad: Tensor) -> Tensor:
    return recurrent_steps.gated(grad, resets[0]) if resets else grad


def _lstm(
    gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...], None]:
    del c  # already added to the gates
    outputs, cell, _, _ = recurrent_steps.lstm(gates, *states, u, reverse)
    return outputs, (recurrent_steps.last(outputs, reverse), cell), None


def _gru(
    gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    outputs, kept = recurrent_steps.gru(gates, *states, u, c, reverse)
    return outputs, (recurrent_steps.last(outputs, reverse),), kept[0]


def _rnn(relu: bool) -> Layer:
    def layer(
        gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...], None]:
        del c
        outputs = recurrent_steps.rnn(gates, *states, u, relu, reverse)
        return outputs, (recurrent_steps.last(outputs, reverse),), None

    return layer


def _projected(recorder: Recorder, projection: Tensor) -> Layer:
    """A layer of an LSTM whose outputs are projected in every step."""

    def layer(
        gates: Tensor, states: tuple[Tensor, ...], u: Tensor, c: Tensor | None, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...], None]:
        del c
        (hidden, cell), outputs = states, []
        for share in gates.unbind(0)[:: -1 if reverse else 1]:
            i, f, g, o = torch.addmm(share, hidden, u.t()).chunk(4, 1)
            cell = torch.addcmul(f.sigmoid() * cell, i.sigmoid(), g.tanh())
            hidden = recorder.apply(F.linear, (o.sigmoid() * cell.tanh(), projection), {})
            outputs.append(hidden)
        return torch.stack(outputs[:: -1 if reverse else 1]), (hidden, cell), None

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

    def without_ordinary_gradient(parameter: Tensor) -> Tensor:
        # The dry run compares rules with ordinary gradients. After it, only the rules give the gradients of parameters.
        has_rule = recorder.layouts is not None and id(parameter) in recorder.names
        return (parameter.detach() if has_rule else parameter).to(states[0].dtype)

    # A recurrence runs in the type of its states; under autocast, only the products with the inputs are narrower.
    with torch.autocast(gates.device.type, enabled=False):
        outputs, last, reset = layer(
            gates.to(states[0].dtype),
            states,
            without_ordinary_gradient(u),
            None if c is None else without_ordinary_gradient(c),
            reverse,
        )
    resets = () if reset is None else (reset,)
    previous = recurrent_steps.before(outputs, states[0], reverse)
    claims = [ParameterUse(w, LinearWeight(), (x,)), ParameterUse(u, RecurrentWeight(), (previous, *resets))]
    if b is not None and c is not None:
        claims += [ParameterUse(b, BiasVector()), ParameterUse(c, RecurrentBias(), resets)]
    recorder.record("recurrent layer", gates, claims)
    return outputs, last


def _recurrent(layer: Layer, *, state_count: int) -> Handler:
    def handle(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        x, hx, flat, biases, layers, dropout, train, bidirectional, *rest = args
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if kwargs or not isinstance(biases, bool) or len(states) != state_count or x.dim() != 3:
            return NotImplemented  # packed sequences have another signature
        directions = 2 if bidirectional else 1
        # Per layer and direction: two weights, two biases or none, an LSTM's projection or none.
        each = len(flat) // (layers * directions)
        batch_first = bool(rest and rest[0])
        sequence = x.transpose(0, 1) if batch_first else x
        if not len(sequence) or any(state.shape[:2] != (layers * directions, sequence.shape[1]) for state in states):
            return NotImplemented  # torch reports what is wrong
        final: list[tuple[Tensor, ...]] = []
        for index in range(layers):
            outputs = []
            for direction in range(directions):
                position = index * directions + direction
                output, last = _direction(
                    recorder,
                    sequence,
                    tuple(state[position] for state in states),
                    list(flat[each * position : each * (position + 1)]),
                    layer,
                    direction == 1,
                )
                outputs.append(output)
                final.append(last)
            sequence = outputs[0] if directions == 1 else torch.cat(outputs, 2)
            if dropout and train and index < layers - 1:
                sequence = F.dropout(sequence, dropout)
        last_states = [torch.stack([state[which] for state in final]) for which in range(state_count)]
        return (sequence.transpose(0, 1) if batch_first else sequence, *last_states)

    return handle


HANDLERS: Handlers = {
    torch.lstm: _recurrent(_lstm, state_count=2),
    torch.gru: _recurrent(_gru, state_count=1),
    torch.rnn_tanh: _recurrent(_rnn(False), state_count=1),
    torch.rnn_relu: _recurrent(_rnn(True), state_count=1),
}
