"""An example's loss must not depend on where in the batch it is, nor its gradient on Python code that others reach.

Removing an example moves the others to other positions. A model whose function differs from position to position would
let one example change the gradients of all that follow.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import _disable_current_modes

from discreet.errors import DiscreetError
from discreet.learning import Engine, Flat
from discreet.learning.engine.independence import Unproved, prove

B, K = 6, 8
ROWS = torch.arange(B)
NUMBERS = torch.arange(float(B))[:, None]
TABLE = torch.randn(20, K, generator=torch.Generator().manual_seed(1))


def why(function, rows=B):
    """Why `function` of a batch is not proved; None if it is."""
    try:
        prove(lambda fixed, x: function(x).reshape(rows, -1).sum(1), {}, {}, torch.randn(rows, K))
    except Unproved as error:
        return str(error)
    return None


def written(place, value):
    def function(x):
        x = x.clone()
        x[place] = value(x) if callable(value) else value
        return x

    return function


def beside(x):
    numbers = NUMBERS.repeat(1, K)
    numbers[:, 0] = x[:, 0]
    return x * numbers


def masked(x):
    numbers = NUMBERS.repeat(1, K)
    numbers[x > 0] = 0.0
    return x * numbers


def front_tripled(x):
    x = x.clone()
    x[:3] *= 3
    return x


def first_noise(x):
    noise = torch.rand(B, K)
    noise[0] = 100.0
    return x * noise


def symmetric_noise(x):
    noise = torch.rand(B, B)
    return x[:, :B] * (noise + noise.t().contiguous())


DIFFERENT = {
    "a row is scaled": written(0, lambda x: 5 * x[0]),
    "a row is constant": written(0, 0.0),
    "rows are scaled": front_tripled,
    "loop": lambda x: torch.stack([row * (i + 1) for i, row in enumerate(x)]),
    "loop over slices": lambda x: torch.cat([x[i : i + 1] * (i + 1) for i in range(B)]),
    "numbers beside": beside,
    "numbers under a mask": masked,
    "numbers into a column": written((slice(None), 0), NUMBERS[:, 0]),
    "numbers at own index": written((ROWS, 0), NUMBERS[:, 0]),
    "diagonal": lambda x: x * x[ROWS, ROWS][:, None],
    "flattened diagonal": lambda x: x * x.reshape(-1)[ROWS * K + ROWS][:, None],
    "scatter to some": lambda x: torch.scatter(x, 1, torch.zeros(3, K, dtype=torch.long), 9.0),
    "noise that grows": lambda x: x * torch.rand(B, 1).cumsum(0),
    "noise and numbers": lambda x: x * (NUMBERS + 0 * torch.rand(B, 1)),
    "noise repeated too often": lambda x: x.repeat(2, 1) * torch.rand(3, K).repeat(4, 1),
    "noise in order": lambda x: x * torch.rand(B, K).sort(0).values,
    "noise with means": lambda x: x * torch.normal(100 * NUMBERS, 1.0),
    "noise with rates": lambda x: x * torch.bernoulli(NUMBERS.expand(B, K) / B),
    "noise but the first": first_noise,
    "symmetric noise": symmetric_noise,
    "losses of positions": lambda x: NUMBERS,
    "added product": lambda x: torch.addmm(x, NUMBERS, TABLE[:1]),
    "added products": lambda x: torch.baddbmm(x[:, None], NUMBERS[:, None], TABLE[:1].expand(B, 1, K)),
    "bilinear": lambda x: F.bilinear(x, NUMBERS, TABLE[:K].reshape(K, K, 1)),
    "scale of a norm": lambda x: F.batch_norm(
        x.reshape(1, -1), torch.zeros(B * K), torch.ones(B * K), weight=torch.arange(float(B * K))
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_function_that_differs_from_position_to_position_is_not_proved(name):
    assert why(DIFFERENT[name]) is not None


def dropped(x):
    keep = x.new_empty(B, 1).bernoulli_(0.9)
    return x * keep.div_(0.9)


def shifted(x):
    out = torch.empty(B, K)
    out[:, 1:] = x[:, :-1]
    out[:, 0] = 7.0
    return out


SAME = {
    "dropout": lambda x: F.dropout(x, 0.5),
    "drop path": dropped,
    "noise": lambda x: x + 0.1 * torch.randn_like(x).clamp(-2, 2),
    "noise of another length": lambda x: x[:, None] + torch.rand(B, 3, K).exp() / 2,
    "flattened noise": lambda x: x.reshape(-1) * torch.rand(B * K).mul_(2),
    "one noise for all": lambda x: torch.bmm(x[:, None], torch.rand(1, K, 2).repeat(B, 1, 1)),
    "one noise for all heads": lambda x: torch.bmm(x.view(2 * B, 1, 4), torch.rand(2, 4, 2).repeat(B, 1, 1)),
    "random patches": lambda x: x.gather(1, torch.rand(B, K).argsort(1)[:, :3]),
    "noise in time": lambda x: (
        F.dropout(x.reshape(B, B, -1).transpose(0, 1), 0.5).transpose(0, 1) if x.shape[1] % B == 0 else x
    ),
    "shifted into new memory": shifted,
    "a column is constant": written((slice(None), 0), 3.0),
    "losses that are all alike": lambda x: torch.ones(B, K) * 2 + torch.arange(float(K)),
    "repeated numbers": lambda x: x + torch.arange(float(K)).expand(B, K).contiguous(),
    "own index": lambda x: x[ROWS, torch.full((B,), 2)],
    "own index from the end": lambda x: x[torch.arange(-B, 0)],
    "product of constants": lambda x: torch.addmm(x, torch.ones(B, 1), TABLE[:1]),
    "instance norm": lambda x: F.instance_norm(x.view(B, 2, 4), weight=torch.tensor([1.0, 2.0])),
}


@pytest.mark.parametrize("name", SAME)
def test_a_function_that_is_the_same_at_every_position_is_proved(name):
    assert why(SAME[name]) is None


def test_noise_in_the_shape_of_the_examples_is_theirs_though_the_sequence_has_their_length():
    def function(rows):
        steps = rows.reshape(B, B, 2).transpose(0, 1).contiguous()  # [time, examples, features], of equal lengths
        return F.dropout(steps, 0.5).transpose(0, 1)

    try:
        prove(lambda fixed, x: function(x).reshape(B, -1).sum(1), {}, {}, torch.randn(B, 2 * B))
    except Unproved as error:
        pytest.fail(str(error))


def last_bag_of_two(x):
    bags = F.embedding_bag(x.abs().long().clamp(0, 19).reshape(-1), TABLE, offsets=ROWS[:-1] * K, mode="sum")
    x = x.clone()
    x[:-1] += bags
    return x


def shared_heads(x):
    queries, keys = torch.cat((x, x))[None, :, None], x[None, :, None].expand(1, B, 2, K)
    return F.scaled_dot_product_attention(queries, keys, keys, enable_gqa=True)[0, :B]


def through_gradient(x):
    zeros = torch.zeros(B, K).requires_grad_()
    return torch.autograd.grad(F.log_softmax(zeros, 0), zeros, x)[0]


def in_a_thread(x):
    with ThreadPoolExecutor(1) as pool:
        return x - pool.submit(lambda: x.mean(0)).result()


def without_modes(x):
    with _disable_current_modes():
        mean = x.mean(0)
    return x - mean


MIXING = {
    "borders": lambda x: x * torch.bucketize(x[:, 0].contiguous(), x[:, 1].contiguous())[:, None],
    "a bag of two examples": last_bag_of_two,
    "group norm of other groups": lambda x: torch.native_group_norm(x[..., None], None, None, 1, B * K, 1, 1, 1e-5)[0],
    "gradient of a softmax over examples": through_gradient,
    "shared heads": shared_heads,
    "the last but one twice": lambda x: x[:-1][torch.cat((ROWS[:-1], torch.tensor([-1])))],
    "mean as a mean": lambda x: x + torch.normal(x.mean(0, keepdim=True).expand(B, K), 0.1),
    "mean as a deviation": lambda x: x + torch.normal(0.0, x.abs().mean(0, keepdim=True).expand(B, K)),
    "in a thread": in_a_thread,
    "where no mode looks": without_modes,
}


@pytest.mark.parametrize("name", MIXING)
def test_examples_that_meet_in_an_unusual_way_are_not_proved(name):
    assert why(MIXING[name]) is not None


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_keeps_the_examples_of_a_batch_of_copies(kind):
    """Two rows for each example: the first half of the outputs is not one row for each."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = kind(K, K, batch_first=True), nn.Linear(K, 3)

        def forward(self, x):
            twice = self.layer(x[:, None].repeat_interleave(2, 0))[0][:, 0]
            return self.out(twice[: len(x)] if len(x) > 3 else twice[::2])

    assert distance(Net()) <= 2 * CLIP


CLIP = 0.01


def distance(model):
    """How far the clipped sum moves when one example becomes an outlier; 0 if the model is refused."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(B, K, generator=generator, dtype=torch.float64), ROWS % 3
    other = x.clone()
    other[2] = 1e3
    mask = torch.ones(B, dtype=torch.bool)
    try:
        engine = Engine(model.double(), F.cross_entropy, Flat(CLIP), compile=False)
        results = [engine((rows, y), mask) for rows in (x, other)]
    except DiscreetError:
        return 0.0
    kept = torch.arange(B) != 2
    # A little mixing may stay below the bound on the sum, so the norms of the others are compared too.
    assert torch.allclose(results[0].norms[:, kept], results[1].norms[:, kept], rtol=1e-9)
    one, two = (torch.cat([value.reshape(-1) for value in result.sums.values()]) for result in results)
    return float((one - two).norm())


def mean_of(gradients):
    return tuple(g if g is None else g.mean(0, keepdim=True).expand_as(g) for g in gradients)


def node_hook(h):
    h = h * 1.0
    if h.requires_grad:
        h.grad_fn.register_hook(lambda inputs, outputs: mean_of(inputs))
    return h


def saved_hook(h):
    def mixed(saved):
        return saved.mean(0, keepdim=True).expand_as(saved).contiguous() if saved.dim() == 2 else saved

    with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, mixed):
        return h * h


def other_memory(h):
    mean = h.mean(0, keepdim=True).expand_as(h).clone()
    mean.data = h.detach()
    return mean


class RuleOfItsOwn(torch.autograd.Function):
    """Multiplies by one, and if `vmap` lifts it subtracts the mean of more than three examples."""

    @staticmethod
    def forward(x):
        return x * 1.0

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad

    @staticmethod
    def vmap(info, in_dims, x):
        x = x.movedim(in_dims[0], 0)
        return x - x.mean(0, keepdim=True) if info.batch_size > 3 else x * 1.0, 0


class Then(nn.Module):
    def __init__(self, function, least):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(K, K), nn.Linear(K, 3)
        self.function, self.least = function, least

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.second(self.function(h) if len(h) > self.least else h)


BACKWARD = {
    "a hook on a node": (node_hook, 3),
    "a hook on saved tensors": (saved_hook, 3),
    "other memory": (other_memory, 3),
    "a rule of vmap": (RuleOfItsOwn.apply, 0),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_python_code_in_the_backward_pass_does_not_mix_examples(name):
    assert distance(Then(*BACKWARD[name])) <= 2 * CLIP
