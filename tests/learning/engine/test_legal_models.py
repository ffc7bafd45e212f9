"""Legal models that are hard to prove: each is accepted, by a rule or by running its examples alone, and is exact."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from discreet.errors import DiscreetError
from discreet.learning import Engine, Flat
from tests.learning.engine import truth
from tests.learning.engine.devices import DEVICES, on

EXAMPLES = 4
LENGTHS = torch.tensor([5, 3, 5, 2])


class Cells(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self, kind, **options):
        super().__init__()
        self.cell, self.out = kind(5, 6, **options), nn.Linear(6, 3)
        self.pair = kind is nn.LSTMCell

    def forward(self, x, lengths):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return self.out(state[0] if self.pair else state)


class Packed(nn.Module):
    """A recurrent layer over a packed sequence, as tutorials write it."""

    def __init__(self, kind=nn.LSTM):
        super().__init__()
        self.layer, self.out = kind(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        output, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=x.shape[1])
        return self.out(output.sum(1) / lengths[:, None])


class Experts(nn.Module):
    """A mixture of experts that gathers the tokens of each expert by their index."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(5, 3)
        self.experts = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.out = nn.Linear(5, 3)

    def forward(self, x, lengths):
        tokens = x.reshape(-1, 5)
        weight, chosen = self.router(tokens).softmax(-1).max(-1)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            places = torch.where(chosen == number)[0]
            result.index_add_(0, places, expert(tokens[places]) * weight[places, None])
        return self.out(result.view(x.shape).mean(1))


class _Cubed(torch.autograd.Function):
    """A backward pass written by hand."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x, lengths):
        return self.out(_Cubed.apply(self.first(x)).mean(1))


class Branching(nn.Module):
    """Another layer where an example is large."""

    def __init__(self):
        super().__init__()
        self.small, self.large = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x, lengths):
        return torch.stack([(self.large if row.sum() > 0 else self.small)(row).mean(0) for row in x])


class Layerdrop(nn.Module):
    """Leaves out whole layers at random, as OPT does in training."""

    def __init__(self, share):
        super().__init__()
        self.layers, self.out = nn.ModuleList(nn.Linear(5, 5) for _ in range(3)), nn.Linear(5, 3)
        self.share = share

    def forward(self, x, lengths):
        for layer in self.layers:
            if torch.rand([]) >= self.share:
                x = layer(x).tanh()
        return self.out(x.mean(1))


PROVED = {
    "rnn cell": lambda: Cells(nn.RNNCell),
    "rnn cell, relu, no bias": lambda: Cells(nn.RNNCell, nonlinearity="relu", bias=False),
    "gru cell": lambda: Cells(nn.GRUCell),
    "layerdrop of nothing": lambda: Layerdrop(0.0),
    "lstm cell": lambda: Cells(nn.LSTMCell),
}
ALONE = {
    "packed lstm": Packed,
    "packed gru": lambda: Packed(nn.GRU),
    "experts by index": Experts,
    "custom backward pass": Custom,
    "branch on an example": Branching,
}


def loss(model, batch):
    return F.cross_entropy(model(*batch[:2]), batch[2], reduction="none")


def example_batch(seed=1):
    torch.manual_seed(seed)
    return torch.randn(EXAMPLES, 5, 5), LENGTHS, torch.arange(EXAMPLES) % 3


def exact(make, calls=1, device="cpu"):
    """The engine of a model, after its clipped sums were compared with those of ordinary gradients."""
    torch.manual_seed(0)
    model = make().to(device)
    engine = Engine(model, loss, Flat(0.5), compile=False)
    for call in range(calls):
        batch = on(device, example_batch(call))
        each = truth.gradients(model, loss, batch)
        weights = (0.5 / truth.norms(each)).clamp(max=1.0) * torch.tensor([1, 1, 0, 1], device=device)
        result = engine(batch, torch.tensor([True, True, False, True]))
        assert truth.worst(result.sums, truth.clipped(each, weights)) < 1e-5
        shown = torch.tensor([0, 1, 3])  # a row that only fills up the batch needs no norm
        torch.testing.assert_close(result.norms[0, shown], truth.norms(each)[shown])
    return engine


@pytest.fixture
def _all_digits():
    """torch lets cuDNN round factors to 11 digits, which would differ between a batch and its examples."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


@pytest.mark.usefixtures("_all_digits")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROVED)
def test_a_legal_model_that_is_proved_has_rules_and_is_exact(name, device):
    report = exact(PROVED[name], device=device).report
    assert "fallback" not in report
    assert "alone" not in report


@pytest.mark.usefixtures("_all_digits")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ALONE)
def test_a_legal_model_that_is_not_proved_runs_example_by_example_and_is_exact(name, device, caplog):
    engine = exact(ALONE[name], calls=2, device=device)
    assert "in turn" in engine.report
    assert "each example runs alone" in caplog.text


@pytest.mark.slow
@pytest.mark.usefixtures("_all_digits")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [*PROVED, *ALONE])
def test_a_legal_model_stays_exact_for_more_than_sixty_calls(name, device):
    exact((PROVED | ALONE)[name], calls=62, device=device)


def test_layerdrop_is_bounded_by_the_clip_norm():
    torch.manual_seed(0)
    engine = Engine(Layerdrop(0.5), loss, Flat(0.5), compile=False)
    mask = torch.tensor([True, False, False, False])
    for seed in range(8):
        sums = engine(example_batch(seed), mask).sums.values()
        assert float(torch.cat([value.flatten() for value in sums]).norm()) <= 0.5 * (1 + 1e-5)


#: What a model keeps outside of itself, and how often models were called.
KEPT: list[torch.Tensor] = []
CALLS = [0]


class Keeps(nn.Module):
    """Uses what it kept from the example before, in one of several ways, from the first call or after 60 calls."""

    def __init__(self, way, after):
        super().__init__()
        self.linear, self.way, self.after, self.kept, self.number = nn.Linear(5, 3), way, after, [], 0.0
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x, lengths):
        h = self.linear(x).mean(1)
        CALLS[0] += 1
        if bool(h.detach()[0, 0] > 1e9) or CALLS[0] <= self.after:  # a branch on a value, so that nothing is proved
            return h
        if self.way == "buffer":
            h = h + self.mean
            self.mean.data.copy_(h.detach()[0])
            return h
        if self.way == "number":
            before, self.number = self.number, float(h.detach().max())
            return h + before * torch.arange(3)
        kept = KEPT if self.way == "global" else self.kept
        before = kept[-1] if kept else torch.zeros(3)
        kept.append(h.detach()[0].to(torch.float32))
        return h + before.to(h.dtype)


@pytest.mark.parametrize("after", [0, 60])
@pytest.mark.parametrize("way", ["global", "list", "buffer", "number"])
def test_what_a_model_keeps_from_one_example_never_reaches_the_next(way, after):
    """Refused, or as if it had kept nothing; the mutant without `Isolation` fails all of those after 60 calls."""
    KEPT.clear()
    CALLS[0] = 0
    torch.manual_seed(0)
    mask = torch.ones(EXAMPLES, dtype=torch.bool)
    try:
        engine = Engine(Keeps(way, after), loss, Flat(0.01), compile=False)
        x, lengths, y = example_batch()
        other = x.clone()
        other[0] = 1e3
        for _ in range(20):
            engine((x, lengths, y), mask)
        one, two = (engine((given, lengths, y), mask).losses[1:].clone() for given in (x, other))
    except DiscreetError:
        return
    finally:
        KEPT.clear()
    assert CALLS[0] > after
    torch.testing.assert_close(one, two)


def test_a_model_that_counts_its_passes_is_refused_if_each_example_is_one():
    """Its buffer, which is saved with the model, would hold the number of examples."""

    class Counts(Branching):
        def __init__(self):
            super().__init__()
            self.register_buffer("passes", torch.zeros(()))

        def forward(self, x, lengths):
            self.passes += 1
            return super().forward(x, lengths)

    with pytest.raises(DiscreetError, match="number of examples"):
        Engine(Counts(), loss, Flat(0.5), compile=False).start(example_batch())


def test_random_numbers_do_not_tell_how_many_examples_there_were():
    engine = Engine(Layerdrop(0.5), loss, Flat(0.5), compile=False)
    given, states = example_batch(), []
    for mask in ([True, True, True, True], [True, False, False, False]):
        engine.start(given)
        torch.manual_seed(3)
        engine(given, torch.tensor(mask))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize("pos_weight", [None, torch.tensor([2.0])])
def test_a_binary_loss_of_logits_is_proved(pos_weight):
    torch.manual_seed(0)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    batch = torch.randn(6, 4), torch.rand(6, 1).round()
    engine = Engine(torch.nn.Linear(4, 1), loss, Flat(1.0), compile=False)
    engine(batch, torch.ones(6, dtype=torch.bool))
    assert "linear" in engine.report
    assert "each example in turn" not in engine.report
    mixed = Engine(torch.nn.Linear(4, 1), _batch_mean, Flat(1.0), compile=False)
    with pytest.raises(DiscreetError):
        mixed(batch, torch.ones(6, dtype=torch.bool))


def _batch_mean(model, batch):
    """A mean over the batch, repeated for each example."""
    return torch.nn.functional.binary_cross_entropy_with_logits(model(batch[0]), batch[1]).expand(len(batch[0]))
