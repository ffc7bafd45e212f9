"""The proof that examples do not mix: what it accepts, what it does not, and that it is never wrong on the unsafe side.

The property test builds small random programs out of operations that keep examples apart and operations that do not. A
program that is proved must leave the other losses as they were when one example is exchanged, by a change of size 1 or
1e6, and must give each example the same loss at another position; nothing is asked of a program that is not proved.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from discreet.learning.engine.independence import Unproved, prove
from discreet.learning.engine.independence.dependence import (
    FREE,
    Along,
    Mixed,
    Single,
    Stripes,
    in_memory,
    in_view,
    joined,
)

B = 6


def proved(function, batch, **tensors):
    """Why a function of tensors and a batch could not be proved, or None."""
    try:
        prove(lambda fixed, rows: function(rows, **fixed), {}, tensors, batch)
    except Unproved as error:
        return str(error)
    return None


def model_proved(model, batch, loss=None):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, rows):
            if loss is not None:
                return loss(self.model, rows)
            return F.cross_entropy(self.model(rows[0]), rows[1], reduction="none")

    whole = Whole()
    trainable, rest = dict(whole.named_parameters()), dict(whole.named_buffers())
    try:
        prove(lambda fixed, rows: functional_call(whole, fixed, (rows,)), trainable, rest, batch)
    except Unproved as error:
        return str(error)
    return None


VECTORS = (torch.randn(B, 20), torch.randint(0, 4, (B,)))
IMAGES = (torch.randn(B, 3, 12, 12), torch.randint(0, 4, (B,)))
SERIES = (torch.randn(B, 9, 5), torch.randint(0, 4, (B,)))
TOKENS = (torch.randint(0, 50, (B, 9)), torch.randint(0, 4, (B,)))


class After(nn.Module):
    """A linear layer and then a function."""

    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(20, 4)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def shifted(h):
    out = torch.zeros(B, 4)
    out[..., 1:] = h[..., :-1]
    return out


SEPARATE = {
    "sorted within": lambda h: h.sort(1).values,
    "shifted in place": shifted,
    "own index": lambda h: h.unsqueeze(1).expand(B, 3, 4)[torch.arange(B), torch.ones(B, dtype=torch.long)],
    "gather": lambda h: h.gather(1, h.argsort(1)),
    "one-hot": lambda h: h * F.one_hot(h.argmax(1), 4),
    "flattened": lambda h: (h.repeat_interleave(2, 1).reshape(-1, 2).cumsum(1)).view(B, 8)[:, :4],
    "twice": lambda h: torch.cat((h, h)).view(2, B, 4).sum(0),
    "outer first": lambda h: h.t().contiguous().softmax(0).t(),
    "zeros for all": lambda h: h + torch.zeros(B, 4),
    "random for all": lambda h: h + torch.randn(B, 4),
    "windows": lambda h: F.pad(h, (1, 1)).unfold(1, 3, 1).mean(2),
    "einsum": lambda h: torch.einsum("bi,bj->bij", h, h).sum(2),
    "masked": lambda h: h.masked_fill(h > 0, -1.0),
}
MIXING = {
    "mean": lambda h: h - h.mean(0),
    "mean of more than three": lambda h: h - h.mean(0) if len(h) > 3 else h,
    "a little": lambda h: h + 1e-6 * h.sum(0),
    "maximum as a number": lambda h: h / h.max(),
    "branch": lambda h: 2 * h if h.max() > 3 else h,
    "item": lambda h: h * h[0, 0].item(),
    "tolist": lambda h: h * h.tolist()[0][0],
    "groups of three": lambda h: (h.view(2, 3, 4) - h.view(2, 3, 4).mean(1, keepdim=True)).reshape(B, 4),
    "position": lambda h: h * torch.arange(float(B))[:, None],
    "neighbor": lambda h: h.roll(1, 0),
    "order": lambda h: h.sort(0).values,
    "backwards": lambda h: h.flip(0),
    "another order": lambda h: h[torch.arange(B - 1, -1, -1)],
    "random order": lambda h: h[torch.randperm(B)],
    "loop backwards": lambda h: torch.stack([h[B - 1 - i] for i in range(B)]),
    "first one": lambda h: h - h[0],
    "every second one": lambda h: torch.cat((h[::2], h[1::2])),
    "running": lambda h: h.cumsum(0),
    "products": lambda h: h @ h.t() @ h,
    "written through a view": lambda h: h.clone().view(-1).add_(h.sum()).view(B, 4),
    "selected": lambda h: h[h[:, 0] > 0].sum() + h,
    "a row for all": lambda h: h.clone().index_fill_(0, torch.tensor([1]), 0.0) + h[1:2],
    "transposed": lambda h: torch.cat((h[:4] + h[:4].t(), h[4:])),
}


@pytest.mark.parametrize("name", SEPARATE)
def test_what_keeps_examples_apart_is_proved(name):
    assert model_proved(After(SEPARATE[name]), VECTORS) is None


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_examples_is_not_proved(name):
    assert model_proved(After(MIXING[name]), VECTORS) is not None


def test_the_operation_and_the_line_are_named():
    why = model_proved(After(MIXING["mean"]), VECTORS)
    assert "aten.mean" in why
    assert "test_independence.py" in why


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer, self.out = kind(5, 7, batch_first=True), nn.Linear(7, 4)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTMCell(5, 7), nn.Linear(7, 4)

    def forward(self, x):
        h = c = torch.zeros(len(x), 7)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.out(h)


class Attentive(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(16, 4)

    def forward(self, x):
        return self.out(self.layers(self.embedding(x)).mean(1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4)), VECTORS),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(200, 4)
        ),
        IMAGES,
    ),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.Flatten(), nn.Linear(800, 4)),
        IMAGES,
    ),
    "batch norm at rest": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8).eval(), nn.Flatten(), nn.Linear(800, 4)),
        IMAGES,
    ),
    "lstm": (lambda: Recurrent(nn.LSTM), SERIES),
    "gru": (lambda: Recurrent(nn.GRU), SERIES),
    "rnn": (lambda: Recurrent(nn.RNN), SERIES),
    "lstm cell": (Cell, SERIES),
    "transformer": (Attentive, TOKENS),
    "embedding bag": (lambda: nn.Sequential(nn.EmbeddingBag(50, 16), nn.Linear(16, 4)), TOKENS),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("size", [1, 2, B])
def test_ordinary_models_are_proved_at_any_batch_size(name, size):
    make, (x, y) = MODELS[name]
    torch.manual_seed(0)
    assert model_proved(make(), (x[:size], y[:size])) is None


def test_batch_normalization_is_not_proved():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(800, 4))
    assert "batch" in model_proved(model, IMAGES)


def test_a_write_of_examples_into_a_buffer_is_not_proved():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(20, 4)
            self.register_buffer("kept", torch.zeros(20))

        def forward(self, x):
            self.kept.data.copy_(x[0])
            return self.linear(x)

    assert "outlives" in model_proved(Keeps(), VECTORS)


def test_a_count_of_calls_may_be_written():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(20, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return self.linear(x) * self.calls

    assert model_proved(Counts(), VECTORS) is None


def test_a_loss_over_the_tokens_of_the_whole_batch_is_not_proved():
    labels = torch.randint(0, 4, (B, 5))

    def loss(model, batch):
        scores = model(batch[0])[:, :, None].expand(B, 4, 5)
        return F.cross_entropy(scores, batch[1], reduction="none").sum(1) / (batch[1] != -100).sum()

    assert "aten.sum" in model_proved(nn.Linear(20, 4), (VECTORS[0], labels), loss)


def test_a_loss_over_flattened_tokens_is_proved():
    labels = torch.randint(0, 4, (B, 5))

    def loss(model, batch):
        scores = model(batch[0])[:, None].expand(B, 5, 4).reshape(-1, 4)
        return F.cross_entropy(scores, batch[1].reshape(-1), reduction="none").view(B, 5).mean(1)

    assert model_proved(nn.Linear(20, 4), (VECTORS[0], labels), loss) is None


def test_losses_in_another_order_are_not_proved():
    assert proved(lambda rows: rows.flip(0).sum(1), torch.randn(B, 3)) is not None


def test_a_parameter_with_a_row_per_position_is_not_proved():
    """Zero when training starts, so that its values alone would not show it: the caller gives moved values."""
    assert proved(lambda rows, w: (rows * (1 + w)).sum(1), torch.randn(B, 3), w=torch.randn(B, 3)) is not None
    assert proved(lambda rows, w: (rows * (1 + w)).sum(1), torch.randn(B, 3), w=torch.randn(1, 3)) is None


def test_positions_within_an_example_may_differ_whatever_their_size(monkeypatch):
    """Embedded positions are the same for every example by how they are made; their values need not be known."""
    monkeypatch.setattr("discreet.learning.engine.independence.watch.REMEMBERED", 0)
    table = torch.randn(9, 4)

    def positions(rows, table):
        places = torch.arange(9).expand(B, -1)
        return (rows + F.embedding(places, table) + torch.zeros(B, 9, 4)).sum((1, 2))

    assert proved(positions, torch.randn(B, 9, 4), table=table) is None
    assert (
        proved(lambda rows, table: (rows + table[:B, None]).sum((1, 2)), torch.randn(B, 9, 4), table=table) is not None
    )


def test_parameters_in_one_storage_keep_their_own_values():
    """cuDNN packs the weights of a recurrent layer into one storage."""
    packed = torch.cat([torch.randn(12), torch.ones(B * 3)])
    first, second = packed[:12].view(4, 3), packed[12:].view(B, 3)

    def uses_both(rows, first, second):
        return ((rows + second) @ first.t()).sum(1)

    assert proved(uses_both, torch.randn(B, 3), first=first, second=second) is None
    packed[12:] = torch.randn(B * 3)
    assert proved(uses_both, torch.randn(B, 3), first=first, second=second) is not None


def test_stripes_are_read_back_from_every_view():
    x = torch.zeros(B, 4, 5)
    memory = in_memory(x, Along(0), B)
    assert memory == Stripes(80, 0)
    assert in_view(x.permute(2, 0, 1), memory, B) == Along(1)
    assert in_view(x.view(B * 4, 5), memory, B) == Along(0, 4)
    assert in_view(x.view(-1), memory, B) == Along(0, 20)
    assert in_view(x[:, 1:, 2], memory, B) == Along(0)
    assert in_view(x[2:5], memory, B) == Along(0, 1, 2)
    assert in_view(x[3], memory, B) == Single(3)
    assert in_view(x[None].expand(7, B, 4, 5), memory, B) == Along(1)
    assert isinstance(in_view(x[::2], memory, B), Mixed)
    assert isinstance(in_view(x.view(2, 3, 20), memory, B), Mixed)
    assert in_view(x.view(-1)[3:23], memory, B) == Along(0, 20, 3)


def test_a_write_joins_what_was_there():
    x = torch.zeros(B, 4)
    assert joined(x[:, 1:], FREE, Along(0), B) == Stripes(16, 0)
    assert joined(x[2], FREE, Single(2), B) == Stripes(16, 0)
    assert isinstance(joined(x[2], FREE, Single(3), B), Mixed)
    assert isinstance(joined(x, Stripes(16, 0), Along(1), B), Mixed)
    assert joined(x, Stripes(16, 0), FREE, B) == Stripes(16, 0)


def tripled_front(a):
    a = a.clone()
    a[: len(a) // 2] *= 3
    return a


def beside_numbers(a):
    out = torch.arange(float(a.numel()), dtype=a.dtype).view(a.shape)
    out[..., :1] = a[..., :1]
    return out


# Random programs. Each step takes the values so far and adds one; shapes that do not fit are skipped.
UNARY = [
    lambda a: a * 2 - 1,
    lambda a: a.tanh(),
    lambda a: a.t() if a.dim() == 2 else a.transpose(0, 1),
    lambda a: a.reshape(-1),
    lambda a: a.reshape(2, -1),
    lambda a: a.reshape(-1, 2),
    lambda a: a.reshape(B, -1),
    lambda a: a.sum(0, keepdim=True),
    lambda a: a.sum(-1, keepdim=True),
    lambda a: a.cumsum(0),
    lambda a: a.cumsum(-1),
    lambda a: a.softmax(-1),
    lambda a: a.softmax(0),
    lambda a: a.flip(0),
    lambda a: a.flip(-1),
    lambda a: a.roll(1, -1),
    lambda a: a[1:],
    lambda a: a[..., 1:],
    lambda a: a[::2],
    lambda a: a.sort(-1).values,
    lambda a: torch.cat((a, a)),
    lambda a: torch.cat((a, a), -1),
    lambda a: torch.stack((a, a)),
    lambda a: a.unsqueeze(0).expand(2, *a.shape).reshape(-1, *a.shape[1:]),
    lambda a: a.repeat_interleave(2, 0),
    lambda a: a.clone().view(-1).add_(1).view(a.shape),
    lambda a: a.index_select(0, torch.arange(len(a))),
    lambda a: a[torch.arange(len(a)).flip(0)],
    lambda a: a[torch.arange(len(a))],
    lambda a: a.gather(-1, a.argsort(-1)),
    lambda a: a.gather(0, a.argsort(0)),
    lambda a: torch.zeros_like(a).copy_(a),
    lambda a: torch.zeros_like(a).index_put_((torch.arange(len(a)),), a),
    lambda a: torch.zeros_like(a).scatter(-1, a.argsort(-1), a),
    lambda a: a.unfold(0, 2, 1).sum(-1),
    lambda a: torch.einsum("i...,i...->i...", a, a),
    lambda a: torch.stack([row * (place + 1) for place, row in enumerate(a)]),
    lambda a: a.clone().index_put_((torch.arange(len(a)),), torch.arange(float(len(a)), dtype=a.dtype)[:, None]),
    lambda a: a[torch.arange(len(a)), torch.arange(len(a)) % a.shape[-1]],
    lambda a: torch.cat((a[:-1], a[:-1]))[torch.arange(-1, len(a) - 1)],
    tripled_front,
    beside_numbers,
]
BINARY = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a @ b,
    lambda a, b: torch.cat((a, b)),
    lambda a, b: torch.cat((a, b), -1),
    lambda a, b: torch.where(a > b, a, b),
    lambda a, b: a.clone().add_(b),
    torch.minimum,
]
STEP = st.one_of(
    st.tuples(st.just(1), st.integers(0, len(UNARY) - 1), st.integers(0, 7), st.just(0)),
    st.tuples(st.just(2), st.integers(0, len(BINARY) - 1), st.integers(0, 7), st.integers(0, 7)),
)


def run(program, x):
    values = [x, x.reshape(B, -1), torch.ones(4, 4, dtype=x.dtype), torch.arange(24, dtype=x.dtype).view(B, 4)]
    for arity, which, first, second in program:
        a, b = values[first % len(values)], values[second % len(values)]
        try:
            made = UNARY[which](a) if arity == 1 else BINARY[which](a, b)
        except (RuntimeError, IndexError, ValueError):
            continue
        if 0 < made.numel() < 4096:
            values.append(made)
    last = values[-1]
    return last.reshape(B, -1).sum(1) if last.numel() % B == 0 else last.sum().expand(B)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, max_size=7), st.integers(0, B - 1), st.sampled_from([1.0, 1e6]))
def test_a_proved_program_keeps_the_other_losses_when_one_example_is_exchanged(program, place, size):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(B, 4, dtype=torch.float64, generator=generator)
    if proved(lambda rows: run(program, rows), x) is not None:
        return
    other = x.clone()
    other[place] += size * torch.randn(4, dtype=torch.float64, generator=generator)
    before, after = run(program, x), run(program, other)
    kept = torch.arange(B) != place
    assert torch.allclose(before[kept], after[kept], rtol=1e-12, atol=1e-12)
    # Nor do losses depend on the position: a neighboring dataset puts the same examples elsewhere.
    moved = run(program, x.roll(place, 0)).roll(-place, 0)
    assert torch.allclose(before, moved, rtol=1e-12, atol=1e-12)


def test_most_separate_programs_of_a_few_steps_are_proved():
    """The property test says nothing unless many programs are proved: all one-step programs that do not mix are."""
    x = torch.randn(B, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    other = x.clone()
    other[2] += 5.0
    kept = torch.arange(B) != 2
    missed = []
    for which in range(len(UNARY)):
        program = [(1, which, 0, 0)]
        separate = torch.allclose(run(program, x)[kept], run(program, other)[kept])
        separate &= torch.allclose(run(program, x), run(program, x.roll(1, 0)).roll(-1, 0))
        if separate and proved(lambda rows, program=program: run(program, rows), x) is not None:
            missed.append(which)
    assert len(missed) <= 2, missed
