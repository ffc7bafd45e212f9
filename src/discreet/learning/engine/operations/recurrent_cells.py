"""One step of an LSTM, a GRU or a plain recurrent layer: two products, which have rules, and elementwise steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from discreet.learning.engine.operations.base import Args, Function, Handler, Handlers, Kwargs, Recorder, arguments

_NAMES = "input hx w_ih w_hh b_ih b_hh"


def _products(recorder: Recorder, args: Args, kwargs: Kwargs) -> tuple[Any, Tensor, Tensor]:
    """The state, W x + b and U h + c."""
    x, state, w, u, b, c = arguments(_NAMES, args, kwargs)
    hidden = state if isinstance(state, Tensor) else state[0]
    return state, recorder.apply(F.linear, (x, w, b), {}), recorder.apply(F.linear, (hidden, u, c), {})


def lstm_cell(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """The next hidden state and the next cell."""
    (_, cell), from_input, from_state = _products(recorder, args, kwargs)
    enters, forgets, new, leaves = (from_input + from_state).chunk(4, 1)
    cell = forgets.sigmoid() * cell + enters.sigmoid() * new.tanh()
    return leaves.sigmoid() * cell.tanh(), cell


def gru_cell(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
    """The next hidden state."""
    hidden, from_input, from_state = _products(recorder, args, kwargs)
    reset, update, new = from_input.chunk(3, 1)
    reset_state, update_state, new_state = from_state.chunk(3, 1)
    new = (new + (reset + reset_state).sigmoid() * new_state).tanh()
    return new + (update + update_state).sigmoid() * (hidden - new)


def _plain_cell(activation: Function) -> Handler:
    def cell(recorder: Recorder, func: Function, args: Args, kwargs: Kwargs) -> Any:
        _, from_input, from_state = _products(recorder, args, kwargs)
        return activation(from_input + from_state)

    return cell


HANDLERS: Handlers = {
    torch.lstm_cell: lstm_cell,
    torch.gru_cell: gru_cell,
    torch.rnn_tanh_cell: _plain_cell(torch.tanh),
    torch.rnn_relu_cell: _plain_cell(torch.relu),
}
