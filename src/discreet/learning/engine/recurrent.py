"""`lstm`, `gru` and `rnn` taken apart, one step of time after the other.

All products with the inputs are made at once, and the gradient that reaches their result also is the gradient of the
recurrent products: gates = (W x + b) + (U h + c) gives ∂/∂(U h + c) = ∂/∂(W x + b) =: g. So one place in the graph
serves all four parameters of a layer; only a GRU's new gate, r·(U h + c), has r·g instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.capture import Claim, Recorder
from discreet.learning.engine.rules.linear import Bias, LinearWeight

Step = Callable[[Tensor, tuple[Tensor, ...], Tensor, Tensor | None], tuple[tuple[Tensor, ...], Tensor | None]]


def _gated(inputs: tuple[Tensor, ...], grad: Tensor, reset: int) -> Tensor:
    """The gradient of a GRU's recurrent products: the last third times the reset gate."""
    if len(inputs) <= reset:
        return grad
    size = grad.shape[-1] // 3
    return torch.cat([grad[..., : 2 * size], grad[..., 2 * size :] * inputs[reset]], -1)


@dataclass(frozen=True)
class RecurrentWeight(LinearWeight):
    """The recurrent weight; its second input, where there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example(inputs[:1], _gated(inputs, grad, 1))

    def norm_power(self, inputs: tuple[Tensor, ...], grad: Tensor, order: int) -> Tensor:
        return super().norm_power(inputs[:1], _gated(inputs, grad, 1), order)

    def weighted(self, inputs: tuple[Tensor, ...], grad: Tensor, weights: Tensor) -> Tensor:
        return super().weighted(inputs[:1], _gated(inputs, grad, 1), weights)


@dataclass(frozen=True)
class RecurrentBias(Bias):
    """The bias beside it; its input, where there is one, is a GRU's reset gate."""

    def per_example(self, inputs: tuple[Tensor, ...], grad: Tensor) -> Tensor:
        return super().per_example((), _gated(inputs, grad, 0))


def _lstm_step(
    gates: Tensor, state: tuple[Tensor, ...], u: Tensor, c: Tensor | None
) -> tuple[tuple[Tensor, ...], None]:
    del c  # already added to the gates
    i, f, g, o = torch.addmm(gates, state[0], u).chunk(4, 1)
    cell = torch.addcmul(f.sigmoid() * state[1], i.sigmoid(), g.tanh())
    return (o.sigmoid() * cell.tanh(), cell), None


def _gru_step(
    gates: Tensor, state: tuple[Tensor, ...], u: Tensor, c: Tensor | None
) -> tuple[tuple[Tensor, ...], Tensor]:
    h = state[0]
    recurrent = h @ u if c is None else torch.addmm(c, h, u)
    xr, xz, xn = gates.chunk(3, 1)
    hr, hz, hn = recurrent.chunk(3, 1)
    reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    new = (xn + reset * hn).tanh()
    return (new + update * (h - new),), reset


def _plain_step(activation: Callable[[Tensor], Tensor]) -> Step:
    def step(gates: Tensor, state: tuple[Tensor, ...], u: Tensor, c: Tensor | None) -> tuple[tuple[Tensor, ...], None]:
        del c
        return (activation(torch.addmm(gates, state[0], u)),), None

    return step


def _direction(
    recorder: Recorder,
    x: Tensor,
    state: tuple[Tensor, ...],
    weights: list[Tensor],
    step: Step,
    *,
    gru_like: bool,
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction over [T, B, d]."""
    w, u = weights[0], weights[1]
    b, c = (weights[2], weights[3]) if len(weights) >= 4 else (None, None)
    projection = weights[-1] if len(weights) % 2 else None
    outside = b if b is None or c is None or gru_like else b + c
    gates = F.linear(x, w, outside)
    turned = u.t()
    before: list[Tensor] = []
    resets: list[Tensor] = []
    outputs: list[Tensor] = []
    times = gates.unbind(0)
    for gate in reversed(times) if backwards else times:
        before.append(state[0])
        state, reset = step(gate, state, turned, c)
        if projection is not None:
            state = (recorder.apply(F.linear, (state[0], projection), {}), *state[1:])
        outputs.append(state[0])
        if reset is not None:
            resets.append(reset)

    def in_time(values: list[Tensor]) -> Tensor:
        return torch.stack(values[::-1] if backwards else values)

    gate_inputs = (in_time(resets),) if resets else ()
    claims = [Claim(w, LinearWeight(), (x,)), Claim(u, RecurrentWeight(), (in_time(before), *gate_inputs))]
    if b is not None and c is not None:
        claims += [Claim(b, Bias()), Claim(c, RecurrentBias(), gate_inputs)]
    recorder.record("recurrent layer", gates, claims)
    return in_time(outputs), state


def _recurrent(step: Step, *, cells: int, gru_like: bool) -> Callable[..., Any]:
    def handle(recorder: Recorder, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, hx, flat, biases, layers, dropout, train, bidirectional, *rest = args
        states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        if kwargs or not isinstance(biases, bool) or len(states) != cells or x.dim() != 3:
            return NotImplemented  # packed sequences have another signature
        directions = 2 if bidirectional else 1
        each = len(flat) // (layers * directions)  # two weights, two biases or none, an LSTM's projection or none
        batch_first = bool(rest and rest[0])
        sequence = x.transpose(0, 1) if batch_first else x
        final: list[tuple[Tensor, ...]] = []
        for layer in range(layers):
            made = []
            for direction in range(directions):
                index = layer * directions + direction
                output, last = _direction(
                    recorder,
                    sequence,
                    tuple(state[index] for state in states),
                    list(flat[each * index : each * (index + 1)]),
                    step,
                    gru_like=gru_like,
                    backwards=direction == 1,
                )
                made.append(output)
                final.append(last)
            sequence = made[0] if directions == 1 else torch.cat(made, 2)
            if dropout and train and layer < layers - 1:
                sequence = F.dropout(sequence, dropout)
        last_states = [torch.stack([state[part] for state in final]) for part in range(cells)]
        return (sequence.transpose(0, 1) if batch_first else sequence, *last_states)

    return handle


lstm = _recurrent(_lstm_step, cells=2, gru_like=False)
gru = _recurrent(_gru_step, cells=1, gru_like=True)
rnn_tanh = _recurrent(_plain_step(torch.tanh), cells=1, gru_like=False)
rnn_relu = _recurrent(_plain_step(torch.relu), cells=1, gru_like=False)
