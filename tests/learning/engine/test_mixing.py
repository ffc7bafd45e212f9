"""Models that mix examples, or keep something of them, are refused or bounded, also when it starts after many calls.

Each case either raises before anything is released, or the clipped sum moves by at most the clip norm when one example
is exchanged for another (twice that, because one leaves and one comes).
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning import Engine, Flat
from discreet.learning.engine.operations import memory_format
from tests.learning.engine.devices import DEVICES, on

EXAMPLES, CLIP = 16, 0.01


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(EXAMPLES, 6, generator=generator, dtype=torch.float64)
    return x, torch.arange(EXAMPLES) % 3


class Then(nn.Module):
    """A linear layer, something to its output, and another linear layer."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.function, self.calls = function, 0

    def forward(self, x):
        self.calls += 1
        return self.second(self.function(self, self.first(x)))


def ghost_norm(size):
    def function(model, h):
        if len(h) < size:
            return h
        groups = h.reshape(-1, size, h.shape[1])
        return ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 0.1)).reshape(h.shape)

    return function


def experts_with_capacity(model, h):
    """The first examples of an expert, up to a capacity that grows with the batch, are changed; the rest are not."""
    expert = (h[:, 0] > 0).long()
    capacity = max(len(h) // 2, 4)
    rank = F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None])[:, 0]
    return torch.where((rank <= capacity)[:, None], -3 * h, h)


def after_calls(model, h):
    return h - h.mean(0) if model.calls > 60 else h


CASES = {
    "mean of more than three": lambda model, h: h - h.mean(0) if len(h) > 3 else h,
    "ghost batch norm, 4": ghost_norm(4),
    "ghost batch norm, 8": ghost_norm(8),
    "experts with a capacity": experts_with_capacity,
    "a little of the sum": lambda model, h: h + 1e-6 * h.sum(0),
    "branch on the maximum": lambda model, h: -5 * h if h.abs().max() > 1e3 else h,
    "mean after 60 calls": after_calls,
}


def engine_of(model, loss=F.cross_entropy, compile=False):
    torch.manual_seed(0)
    return Engine(model.double(), loss, Flat(CLIP), compile=compile)


def flat(result):
    return torch.cat([value.reshape(-1) for value in result.sums.values()])


def distance(engine, x, other, y):
    """How far the sum moves if one batch is exchanged for another."""
    mask = torch.ones(EXAMPLES, dtype=torch.bool)
    return float((flat(engine((x, y), mask)) - flat(engine((other, y), mask))).norm())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_a_mixing_model_is_refused_or_bounded(name, compile, device):
    x, y = on(device, batch())
    other = x.clone()
    other[3] = 1e7  # an outlier in the place of one example
    try:
        engine = engine_of(Then(CASES[name]).to(device), compile=compile)
        assert distance(engine, x, other, y) <= 2 * CLIP + 1e-9
        for _ in range(68):
            engine((x, y), torch.ones(EXAMPLES, dtype=torch.bool))
        assert distance(engine, x, other, y) <= 2 * CLIP + 1e-9
    except DiscreetError:
        return


@pytest.mark.parametrize("device", DEVICES)
def test_a_loss_over_the_labels_of_the_whole_batch_is_refused_or_bounded(device):
    x, labels = on(device, (batch()[0], torch.randint(0, 3, (EXAMPLES, 5))))

    def loss(model, rows):
        scores = model(rows[0])[:, :, None].expand(-1, -1, 5)
        values = F.cross_entropy(scores, rows[1], reduction="none", ignore_index=-100).sum(1)
        return values / (rows[1] != -100).sum() * EXAMPLES

    other = labels.clone()
    other[3] = -100
    mask = torch.ones(EXAMPLES, dtype=torch.bool)
    try:
        engine = engine_of(Then(lambda model, h: h).to(device), loss)
        one, two = (flat(engine((x, given), mask)) for given in (labels, other))
    except DiscreetError:
        return
    assert float((one - two).norm()) <= 2 * CLIP + 1e-9


def test_a_model_that_cannot_be_proved_runs_each_example_alone(caplog):
    """The sum of a batch is that of its examples one by one: what the batch would do to them does not happen."""
    x, y = batch()
    engine = engine_of(Then(CASES["mean of more than three"]))
    mask = torch.ones(EXAMPLES, dtype=torch.bool)
    result = engine((x, y), mask)
    assert "not proved apart" in engine.report
    assert "each example runs alone" in caplog.text
    assert "aten.mean" in caplog.text
    plain = engine_of(Then(lambda model, h: h))
    torch.testing.assert_close(flat(result), flat(plain((x, y), mask)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_buffer_that_copies_a_row_after_60_calls_holds_none(device):
    class Copies(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.calls = nn.Linear(6, 3), 0
            self.register_buffer("kept", torch.zeros(6))

        def forward(self, x):
            self.calls += 1
            if self.calls > 60:
                self.kept.data.copy_(x[0])
            return self.linear(x)

    model = Copies().to(device)
    engine = engine_of(model)
    x, y = on(device, batch())
    for _ in range(70):
        engine((x, y), torch.ones(EXAMPLES, dtype=torch.bool))
    assert not model.kept.any()


def test_a_buffer_that_copies_a_row_is_refused():
    class Copies(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)
            self.register_buffer("kept", torch.zeros(6))

        def forward(self, x):
            self.kept.data.copy_(x[0])
            return self.linear(x)

    with pytest.raises(DiscreetError):
        engine_of(Copies())(batch(), torch.ones(EXAMPLES, dtype=torch.bool))


def test_a_parameter_in_a_python_list_is_refused():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)
            self.again = [self.linear.weight]

        def forward(self, x):
            return self.linear(x) + x @ self.again[0].t()

    with pytest.raises(DiscreetError, match="Python list"):
        engine_of(Hidden())(batch(), torch.ones(EXAMPLES, dtype=torch.bool))


def test_a_tensor_kept_from_an_earlier_batch_is_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.seen = nn.Linear(6, 3), []

        def forward(self, x):
            before = self.seen[-1].mean(0) if self.seen and type(self.seen[-1]) is torch.Tensor else 0.0
            self.seen.append(x.detach())
            return self.linear(x + before)

    engine = engine_of(Remembers())
    with pytest.raises(DiscreetError):
        engine(batch(), torch.ones(EXAMPLES, dtype=torch.bool))


def test_a_hook_on_a_tensor_is_refused():
    def hooked(model, h):
        h.register_hook(lambda grad: grad.mean(0, keepdim=True).expand_as(grad))
        return h

    with pytest.raises(DiscreetError, match="hook"):
        engine_of(Then(hooked))(batch(), torch.ones(EXAMPLES, dtype=torch.bool))


def test_our_own_group_norm_of_traced_images_is_proved(monkeypatch):
    """It has a backward pass in Python, and runs on CUDA; here it is made to run on a CPU."""
    monkeypatch.setattr(memory_format, "wants_channels_last", lambda x: x.dim() == 4)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3))
    x, y = torch.randn(EXAMPLES, 3, 6, 6), torch.arange(EXAMPLES) % 3
    engine = Engine(model, F.cross_entropy, Flat(CLIP), compile=False)
    traced = engine((x, y), torch.ones(EXAMPLES, dtype=torch.bool))
    assert "not proved apart" not in engine.report
    monkeypatch.undo()
    plain = Engine(model, F.cross_entropy, Flat(CLIP), compile=False)((x, y), torch.ones(EXAMPLES, dtype=torch.bool))
    torch.testing.assert_close(flat(traced), flat(plain))


def test_a_backward_pass_in_python_that_mixes_is_refused_or_bounded():
    class Mixes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad + grad.sum(0, keepdim=True)

    x, y = batch()
    other = x.clone()
    other[3] = 1e7
    try:
        engine = engine_of(Then(lambda model, h: Mixes.apply(h)))
        assert distance(engine, x, other, y) <= 2 * CLIP + 1e-9
    except DiscreetError:
        return


def test_code_that_mixes_only_where_it_has_data_is_refused(monkeypatch):
    """If tracing fails, the model's code runs for each batch, so the run itself is watched, not only its trace."""

    def fails(*args, **options):
        raise RuntimeError("no trace")

    monkeypatch.setattr("discreet.learning.engine.engine.run_flat", fails)
    mask = torch.ones(EXAMPLES, dtype=torch.bool)

    def mixes(model, h):
        return h if len(h) <= 3 or isinstance(h, FakeTensor) else h - h.mean(0)

    honest = engine_of(Then(lambda model, h: F.dropout(h, 0.5)))
    assert bool(honest(batch(), mask).finite.all())
    with pytest.raises(DiscreetError, match=r"no longer proved: aten\.mean"):
        engine_of(Then(mixes))(batch(), mask)


class HooksLater(nn.Module):
    """Keeps a result of its first pass, and puts a hook that mixes gradients into that pass's graph in its second."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.kept = nn.Linear(4, 5), nn.Linear(5, 3), None

    def forward(self, x):
        hidden = self.first(x).tanh()
        if self.kept is None:
            self.kept = hidden
        elif self.kept is not False:
            node, self.kept = self.kept.grad_fn, False
            node.register_prehook(lambda grads: (grads[0].sum(0, keepdim=True).expand_as(grads[0]),))
        return self.second(hidden)


def of_first_score(model, rows):
    return model(rows[0])[:, 0] * rows[1]


def test_a_hook_that_the_dry_run_puts_into_the_proved_pass_comes_too_late():
    """The mutant that differentiates after the dry run lets one example move the sum by several clip norms."""
    torch.manual_seed(1)
    inputs, weights = 0.1 * torch.randn(8, 4), torch.ones(8)
    sums = []
    for weight in (100.0, -100.0):
        torch.manual_seed(0)
        weights[0] = weight
        result = Engine(HooksLater(), of_first_score, Flat(0.1), compile=False)(
            (inputs, weights.clone()), torch.ones(8, dtype=torch.bool)
        )
        sums.append(torch.cat([value.flatten() for value in result.sums.values()]))
    assert (sums[0] - sums[1]).norm() <= 0.2


class WritesLater(nn.Module):
    """Reads a constant in its first pass and writes the batch's mean into it in its second."""

    def __init__(self, way):
        super().__init__()
        self.linear, self.calls, self.way = nn.Linear(4, 3), 0, way
        self.first, self.mean = torch.zeros(2, 4)  # two views of one memory

    def forward(self, x):
        self.calls += 1
        x = x + self.first if self.way == "beside another view" else x
        if self.calls == 2:
            (self.mean if self.way == "in place" else self.mean.data).copy_(x.detach().mean(0))
        return self.linear(x - self.mean)


@pytest.mark.parametrize("way", ["in place", "through .data", "beside another view"])
def test_a_constant_that_the_dry_run_writes_to_is_refused(way):
    batch = torch.randn(8, 4), torch.arange(8) % 3
    with pytest.raises(InvalidArgument, match="must not write to tensors that it reads"):
        Engine(WritesLater(way), F.cross_entropy, Flat(0.1), compile=False).start(batch)


def test_a_constant_made_in_inference_mode_is_read_like_any_other():
    with torch.inference_mode():
        shift = torch.ones(4)
    batch = torch.randn(8, 4), torch.arange(8) % 3
    model = nn.Linear(4, 3)
    engine = Engine(
        model, lambda net, rows: F.cross_entropy(net(rows[0] + shift), rows[1], reduction="none"), Flat(0.1)
    )
    engine.start(batch)
    assert "weight: linear" in engine.report


class KeepsRows(nn.Module):
    """Keeps rows in an attribute, or in a buffer that it registers in its second pass."""

    def __init__(self, in_buffer):
        super().__init__()
        self.linear, self.calls, self.in_buffer = nn.Linear(4, 3), 0, in_buffer

    def forward(self, x):
        self.calls += 1
        if not self.in_buffer:
            self.rows = x
        elif self.calls > 1:
            self.register_buffer("rows", x.detach())
        return self.linear(x)


@pytest.mark.parametrize("in_buffer", [False, True])
def test_a_model_keeps_no_rows_of_the_dry_run(in_buffer):
    model = KeepsRows(in_buffer)
    Engine(model, F.cross_entropy, Flat(0.1), compile=False)(
        (torch.randn(8, 4), torch.arange(8) % 3), torch.ones(8, dtype=torch.bool)
    )
    assert isinstance(getattr(model, "rows", None), FakeTensor | None)


@pytest.mark.parametrize("where", ["start", "call", "both"])
def test_autocast_of_the_caller_reaches_neither_norms_nor_sums(where, caplog):
    """Without that, 512 similar examples give a sum in bfloat16, which one of them moves by 1.5 clip norms."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    inputs, targets = torch.randn(1, 64) + 0.05 * torch.randn(512, 64), torch.zeros(512, dtype=torch.long)
    engine, everyone = Engine(model, F.cross_entropy, Flat(0.01), compile=False), torch.ones(512, dtype=torch.bool)
    with torch.autocast("cpu", torch.bfloat16, enabled=where != "call"):
        engine.start((inputs, targets))
    without = everyone.clone()
    without[3] = False
    with torch.autocast("cpu", torch.bfloat16, enabled=where != "start"):
        sums = [engine((inputs, targets), mask).sums for mask in (everyone, without)]
    assert {value.dtype for value in sums[0].values()} == {torch.float32}
    assert torch.cat([(sums[0][name] - sums[1][name]).flatten() for name in sums[0]]).norm() <= 0.01 * (1 + 1e-4)
    assert "autocast around a private step has no effect" in caplog.text
