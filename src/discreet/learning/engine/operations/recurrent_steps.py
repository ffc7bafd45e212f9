"""Recurrences over time as custom torch operations, forward and backward, for one layer in one direction.

A tracer that looked inside would record every step, and a compiler would take minutes over them, so each recurrence is
one operation to both. It takes the products with the inputs, W x + b as [T, B, k·H], and its backward pass returns the
gradients of the gates, which all rules of a layer use. The steps write into memory that is allocated once for all of
them and read nothing back from the device, so they can be part of a CUDA graph. There is no second derivative. On a
CPU, the steps of an LSTM are compiled code where that is built (`cpu_kernels`).

The compiler caches graphs on disk under the names of their operations. If the results of an operation change their
shape, give it a new name; under the old one, the cache would return graphs of an older release that do not fit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.learning import cpu_kernels

Gradients = tuple[Tensor | None, ...]

_sigmoid_backward = torch.ops.aten.sigmoid_backward.grad_input
_tanh_backward = torch.ops.aten.tanh_backward.grad_input


def before(values: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The value that each step starts from: that of the step before it, or the initial one."""
    return torch.cat([values[1:], first[None]] if reverse else [first[None], values[:-1]])


def last(values: Tensor, reverse: bool) -> Tensor:
    """The value after the last step in the direction of the recurrence."""
    return values[0] if reverse else values[-1]


def _steps(forwards: bool, *values: Tensor) -> list[tuple[Tensor, ...]]:
    """For each step, its slice of every [T, …], from the first step to the last or the other way round."""
    return list(zip(*(value.unbind(0) for value in values), strict=True))[:: 1 if forwards else -1]


#: The results of so many steps are copied at once. Those of all steps would lie in memory twice.
_TOGETHER = 16


class _Results:
    """Collects what operations return step by step in tensors [T, …], from the first step to the last or backwards."""

    def __init__(self, forwards: bool, *targets: Tensor) -> None:
        self._forwards, self._targets = forwards, targets
        self._pending: list[tuple[Tensor, ...]] = []
        self._steps = 0

    def add(self, *values: Tensor) -> None:
        """The results of the next step, one for each target."""
        self._pending.append(values)
        self._steps += 1
        length = self._targets[0].shape[0]
        if len(self._pending) < _TOGETHER and self._steps < length:
            return
        start = self._steps - len(self._pending) if self._forwards else length - self._steps
        for target, of_steps in zip(self._targets, zip(*self._pending, strict=True), strict=True):
            ordered = of_steps if self._forwards else of_steps[::-1]
            torch.stack(ordered, out=target[start : start + len(ordered)])
        self._pending = []


def _writable(grad: Tensor | None, like: Tensor) -> Tensor:
    """A copy of a gradient that may be written to; zeros if there is none."""
    if grad is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    return grad.clone(memory_format=torch.contiguous_format)


def _weight_gradient(grad: Tensor, inputs: Tensor) -> Tensor:
    return grad.flatten(0, 1).mT @ inputs.flatten(0, 1)


# LSTM: c' = σ(f)·c + σ(i)·tanh(g), h' = σ(o)·tanh(c')


@torch.library.custom_op("discreet::lstm_steps", mutates_args=())
def lstm(
    gates: Tensor, hidden: Tensor, cell: Tensor, u: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The outputs [T, B, H] and the last cell; then, for the backward pass, all cells and i, f, g, o and tanh(c')."""
    if cpu_kernels.supports(gates, hidden, cell, u):
        return cpu_kernels.lstm(gates, hidden, cell, u, reverse)
    length, examples, size = *gates.shape[:2], hidden.shape[1]
    outputs, cells = (gates.new_empty(length, examples, size) for _ in range(2))
    kept = gates.new_empty(length, 5, examples, size)  # each gate is contiguous: sigmoid and tanh are fast only then
    four_gates, transposed_u = kept[:, :4], u.reshape(4, size, size).mT
    four_gates.copy_(gates.reshape(length, examples, 4, size).transpose(1, 2))
    steps = _steps(not reverse, four_gates, kept[:, :2], *kept.unbind(1), cells, outputs)
    for products, i_and_f, i, f, g, o, tanh_cell, new_cell, output in steps:
        products.baddbmm_(hidden.expand(4, -1, -1), transposed_u)
        i_and_f.sigmoid_()
        g.tanh_()
        o.sigmoid_()
        torch.mul(f, cell, out=new_cell).addcmul_(i, g)
        hidden, cell = torch.mul(o, torch.tanh(new_cell, out=tanh_cell), out=output), new_cell
    return outputs, cell.clone(), cells, kept


@lstm.register_kernel("cuda")
def _(gates: Tensor, hidden: Tensor, cell: Tensor, u: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two kernels per step, with torch's fused cell, which keeps the four gates as [T, B, 4·H]."""
    outputs, cells = (gates.new_empty(*gates.shape[:2], hidden.shape[1]) for _ in range(2))
    kept, products, transposed_u = gates.new_empty(gates.shape), gates.new_empty(gates.shape[1:]), u.t()
    results = _Results(not reverse, outputs, cells, kept)
    for (from_input,) in _steps(not reverse, gates):
        torch.mm(hidden, transposed_u, out=products)
        hidden, cell, open_gates = torch.ops.aten._thnn_fused_lstm_cell(from_input, products, cell)
        results.add(hidden, cell, open_gates)
    return outputs, cell.clone(), cells, kept


@lstm.register_fake
def _(gates: Tensor, hidden: Tensor, cell: Tensor, u: Tensor, reverse: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shape = (*gates.shape[:2], hidden.shape[1])
    kept = gates.new_empty(gates.shape if gates.is_cuda else (shape[0], 5, *shape[1:]))
    return gates.new_empty(shape), gates.new_empty(shape[1:]), gates.new_empty(shape), kept


@torch.library.custom_op("discreet::lstm_backward", mutates_args=())
def lstm_backward(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, u: Tensor, cells: Tensor, kept: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates [T, B, 4·H] and of the initial cell.

    The factors of the cell's gradient (for i, f and g) and of the output's (for o) are computed for all steps at once.
    """
    if cpu_kernels.supports_backward(grad, grad_cell, cell, u, cells, kept):
        return cpu_kernels.lstm_backward(grad, grad_cell, cell, u, cells, kept, reverse)
    i, f, g, o, tanh_cell = kept.unbind(1)
    grads = cells.new_empty(*cells.shape[:2], 4 * cells.shape[2])
    of_i, of_f, of_g, of_o = grads.chunk(4, 2)
    _sigmoid_backward(g, i, grad_input=of_i)
    _sigmoid_backward(before(cells, cell, reverse), f, grad_input=of_f)
    _tanh_backward(i, g, grad_input=of_g)
    _sigmoid_backward(tanh_cell, o, grad_input=of_o)
    cell_by_output = torch.ops.aten.tanh_backward(o, tanh_cell)
    of_ifg = grads.view(*cells.shape[:2], 4, cells.shape[2])[:, :, :3]
    of_outputs = _writable(grad, cells)
    of_cell, later_gates = _writable(grad_cell, cell), None
    for of_hidden, by_output, forget, of_gates, by_cell, by_hidden in _steps(
        reverse, of_outputs, cell_by_output, f, grads, of_ifg, of_o
    ):
        if later_gates is not None:
            of_hidden.addmm_(later_gates, u)
        of_cell.addcmul_(of_hidden, by_output)
        by_cell.mul_(of_cell[:, None])
        by_hidden.mul_(of_hidden)
        of_cell.mul_(forget)
        later_gates = of_gates
    return grads, of_cell


@lstm_backward.register_kernel("cuda")
def _(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, u: Tensor, cells: Tensor, kept: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    grads = kept.new_empty(kept.shape)
    results, of_gates = _Results(reverse, grads), None
    of_outputs, of_cell = _writable(grad, cells), _writable(grad_cell, cell)
    starts = [cell, *cells.unbind(0)[:: -1 if reverse else 1]][-2::-1]
    for (of_hidden, new_cell, open_gates), start in zip(_steps(reverse, of_outputs, cells, kept), starts, strict=True):
        if of_gates is not None:
            of_hidden.addmm_(of_gates, u)
        of_gates, of_cell, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
            of_hidden, of_cell, start, new_cell, open_gates, False
        )
        results.add(of_gates)
    return grads, of_cell


@lstm_backward.register_fake
def _(
    grad: Tensor | None, grad_cell: Tensor | None, cell: Tensor, u: Tensor, cells: Tensor, kept: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    return cells.new_empty(*cells.shape[:2], 4 * cells.shape[2]), cells.new_empty(cell.shape)


def _save_lstm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, hidden, cell, u, ctx.reverse = inputs
    outputs, _, cells, kept = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, cell, u, outputs, cells, kept)


def _lstm_gradients(ctx: Any, grad: Tensor | None, grad_cell: Tensor | None, *rest: None) -> Gradients:
    del rest
    hidden, cell, u, outputs, cells, kept = ctx.saved_tensors
    gates, of_cell = lstm_backward(grad, grad_cell, cell, u, cells, kept, ctx.reverse)
    of_hidden = last(gates, not ctx.reverse) @ u if ctx.needs_input_grad[1] else None
    of_u = _weight_gradient(gates, before(outputs, hidden, ctx.reverse)) if ctx.needs_input_grad[3] else None
    return gates, of_hidden, of_cell, of_u, None


lstm.register_autograd(_lstm_gradients, setup_context=_save_lstm)


# GRU: h' = n + σ(z)·(h − n) with n = tanh(x_n + σ(r)·(U_n h + c_n))


@torch.library.custom_op("discreet::gru", mutates_args=())
def gru(gates: Tensor, hidden: Tensor, u: Tensor, c: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """The outputs [T, B, H] and, for the backward pass, r, z, n and U_n h + c_n."""
    length, examples, size = *gates.shape[:2], hidden.shape[1]
    outputs = gates.new_empty(length, examples, size)
    kept = gates.new_empty(4, length, examples, size)
    products = gates.new_empty(examples, 3 * size)
    transposed_u = u.t()
    h_reset, h_update, h_new = products.chunk(3, 1)
    steps = _steps(not reverse, outputs, *gates.chunk(3, 2), *kept)
    for output, x_reset, x_update, x_new, reset, update, new, recurrent in steps:
        if c is None:
            torch.mm(hidden, transposed_u, out=products)
        else:
            torch.addmm(c, hidden, transposed_u, out=products)
        torch.add(x_reset, h_reset, out=reset).sigmoid_()
        torch.add(x_update, h_update, out=update).sigmoid_()
        torch.addcmul(x_new, reset, recurrent.copy_(h_new), out=new).tanh_()
        hidden = torch.lerp(new, hidden, update, out=output)
    return outputs, kept


@gru.register_fake
def _(gates: Tensor, hidden: Tensor, u: Tensor, c: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    shape = (*gates.shape[:2], hidden.shape[1])
    return gates.new_empty(shape), gates.new_empty(4, *shape)


@torch.library.custom_op("discreet::gru_backward", mutates_args=())
def gru_backward(
    grad: Tensor, hidden: Tensor, u: Tensor, outputs: Tensor, kept: Tensor, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of the gates [T, B, 3·H] and of the initial output."""
    reset, update, new, recurrent = kept
    # The loop multiplies these factors by the gradient of the output. Until its end, `grads` holds the gradients of the
    # recurrent products, which the step before needs; those of the gates differ in the last third.
    of_new = torch.ops.aten.tanh_backward(1.0 - update, new)
    grads = outputs.new_empty(*outputs.shape[:2], 3 * outputs.shape[2])
    of_reset, of_update, of_recurrent = grads.chunk(3, 2)
    _sigmoid_backward(of_new * recurrent, reset, grad_input=of_reset)
    _sigmoid_backward(before(outputs, hidden, reverse) - new, update, grad_input=of_update)
    torch.mul(of_new, reset, out=of_recurrent)
    of_hidden = torch.zeros_like(hidden)
    for of_output, of_products, factor, passed in _steps(reverse, grad, grads, of_new, update):
        of_hidden.add_(of_output)
        of_products.view(-1, 3, of_hidden.shape[1]).mul_(of_hidden[:, None])
        factor.mul_(of_hidden)
        of_hidden.mul_(passed).addmm_(of_products, u)
    of_recurrent.copy_(of_new)
    return grads, of_hidden


@gru_backward.register_fake
def _(grad: Tensor, hidden: Tensor, u: Tensor, outputs: Tensor, kept: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    return outputs.new_empty(*outputs.shape[:2], 3 * outputs.shape[2]), torch.empty_like(hidden)


def gated(grad: Tensor, reset: Tensor) -> Tensor:
    """The gradient of a GRU's recurrent products, from that of its gates: the last third times the reset gate."""
    size = reset.shape[-1]
    return torch.cat([grad[..., : 2 * size], grad[..., 2 * size :] * reset], -1)


def _save_gru(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, hidden, u, _, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, u, *output)


def _gru_gradients(ctx: Any, grad: Tensor | None, rest: None) -> Gradients:
    del rest
    hidden, u, outputs, kept = ctx.saved_tensors
    if grad is None:
        return (None,) * 5
    gates, of_hidden = gru_backward(grad, hidden, u, outputs, kept, ctx.reverse)
    of_u = of_c = None
    if ctx.needs_input_grad[2]:
        of_u = _weight_gradient(gated(gates, kept[0]), before(outputs, hidden, ctx.reverse))
    if ctx.needs_input_grad[3]:
        of_c = gated(gates, kept[0]).sum((0, 1))
    return gates, of_hidden, of_u, of_c, None


gru.register_autograd(_gru_gradients, setup_context=_save_gru)


# RNN: h' = tanh(x + U h), or relu


@torch.library.custom_op("discreet::rnn", mutates_args=())
def rnn(gates: Tensor, hidden: Tensor, u: Tensor, relu: bool, reverse: bool) -> Tensor:
    """The outputs [T, B, H]."""
    outputs, transposed_u = torch.empty_like(gates, memory_format=torch.contiguous_format), u.t()
    for from_input, output in _steps(not reverse, gates, outputs):
        torch.addmm(from_input, hidden, transposed_u, out=output)
        hidden = output.relu_() if relu else output.tanh_()
    return outputs


@rnn.register_fake
def _(gates: Tensor, hidden: Tensor, u: Tensor, relu: bool, reverse: bool) -> Tensor:
    return torch.empty_like(gates, memory_format=torch.contiguous_format)


@torch.library.custom_op("discreet::rnn_backward", mutates_args=())
def rnn_backward(grad: Tensor, u: Tensor, outputs: Tensor, relu: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    """The gradients of the gates [T, B, H] and of the initial output."""
    grads = (outputs > 0).to(outputs.dtype) if relu else 1.0 - outputs.square()
    of_hidden = torch.zeros_like(outputs[0])
    for of_output, of_gates in _steps(reverse, grad, grads):
        of_gates.mul_(of_hidden.add_(of_output))
        torch.mm(of_gates, u, out=of_hidden)
    return grads, of_hidden


@rnn_backward.register_fake
def _(grad: Tensor, u: Tensor, outputs: Tensor, relu: bool, reverse: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(outputs), torch.empty_like(outputs[0])


def _save_rnn(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, hidden, u, ctx.relu, ctx.reverse = inputs
    ctx.save_for_backward(hidden, u, output)


def _rnn_gradients(ctx: Any, grad: Tensor) -> Gradients:
    hidden, u, outputs = ctx.saved_tensors
    gates, of_hidden = rnn_backward(grad, u, outputs, ctx.relu, ctx.reverse)
    of_u = _weight_gradient(gates, before(outputs, hidden, ctx.reverse)) if ctx.needs_input_grad[2] else None
    return gates, of_hidden, of_u, None, None


rnn.register_autograd(_rnn_gradients, setup_context=_save_rnn)
