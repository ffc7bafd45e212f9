"""What the dry run must notice on three examples: models that mix, reorder or store them, or draw random numbers."""

from __future__ import annotations

import contextlib
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from discreet.errors import InvalidArgument
from discreet.learning import Engine, Flat, clipped_sum
from discreet.learning.engine.dry_run import trials
from discreet.learning.engine.dry_run.checked_values import CheckedValues
from tests.learning.engine import truth
from tests.learning.engine.devices import DEVICES

NORM = 0.5


class Written(nn.Module):
    """A model given as one function and the shapes of its parameters."""

    def __init__(self, function, **shapes):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape)))

    def forward(self, *inputs):
        return self.function(self, *inputs)


def squares(model, batch):
    return model(*batch).flatten(1).square().sum(1)


def all_examples(batch):
    return torch.ones(batch[0].shape[0], dtype=torch.bool, device=batch[0].device)


def engine_of(function, loss=squares, **shapes):
    return Engine(Written(function, **shapes), loss, Flat(NORM), compile=False)


def inputs(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape)


def is_exact(engine, batch):
    """Whether an engine's sums are those of ordinary per-example gradients."""
    found = engine(batch, all_examples(batch))
    each = truth.gradients(engine.model, squares, batch)
    weights = (NORM / truth.norms(each)).clamp(max=1.0)
    return truth.worst(found.sums, truth.clipped(each, weights)) < 1e-4


@pytest.mark.parametrize("mask", [torch.ones(5, 6).bool(), torch.arange(30).view(5, 6) % 5 > 1])
def test_a_mean_over_all_unmasked_positions_of_a_batch_is_refused(mask):
    """The mask is boolean, and each example's share depends on how many positions the others use."""

    def mean(model, batch):
        values, used = batch
        return (model(values).square().sum(2) * used).sum(1) / (1 + used.sum())

    with pytest.raises(InvalidArgument, match="mixes"):
        clipped_sum(nn.Linear(4, 3), mean, (inputs(5, 6, 4), mask), clipping=Flat(1.0))


def test_a_loss_weighted_by_class_counts_is_refused_even_if_the_first_examples_share_a_class():
    def balanced(model, batch):
        counts = F.one_hot(batch[1], 3).sum(0)
        return F.cross_entropy(model(batch[0]), batch[1], reduction="none") / counts[batch[1]]

    with pytest.raises(InvalidArgument, match="mixes"):
        clipped_sum(nn.Linear(4, 3), balanced, (inputs(5, 4), torch.tensor([0, 0, 0, 1, 2])), clipping=Flat(1.0))


@pytest.mark.parametrize("before", [0, 4, 5, 15, 26])
def test_examples_mixed_in_a_random_order_are_refused_whatever_the_order(before):
    def mixup(model, x):
        torch.rand(7 * before)
        return (0.7 * x + 0.3 * x[torch.randperm(len(x))]) @ model.weight

    with pytest.raises(InvalidArgument, match="mixes"):
        engine_of(mixup, weight=(4, 3))((inputs(5, 4),), torch.ones(5, dtype=torch.bool))


def by_mask(model, x, lengths):
    used = torch.arange(x.shape[1]) < lengths[:, None]
    output = torch.zeros(*x.shape[:2], 3, dtype=x.dtype)
    output[used] = F.linear(x[used], model.weight).tanh()
    return output


def by_length(model, x, lengths):
    together = torch.cat([row[:length] for row, length in zip(x, lengths.tolist(), strict=True)])
    output = F.linear(together, model.weight).tanh()
    return torch.stack([part.square().sum() for part in output.split(lengths.tolist())])[:, None]


def by_value(model, x, lengths):
    places, output = x.flatten(0, 1), torch.zeros(x.shape[0] * x.shape[1], 3, dtype=x.dtype)
    for chosen in (places[:, 0] > 0, places[:, 0] <= 0):
        at = chosen.nonzero()[:, 0]
        output[at] = F.linear(places[at], model.weight).tanh()
    return output.view(*x.shape[:2], 3)


@pytest.mark.parametrize("packed", [by_mask, by_length, by_value], ids=lambda f: f.__name__)
def test_examples_packed_by_their_lengths_or_values_run_in_turn_and_keep_their_norms(packed):
    """Every example uses four positions at first; with other lengths, norms would mix the positions of two examples."""
    x = inputs(5, 6, 4)
    x[..., 0] = torch.where(torch.arange(6) % 2 == 0, x[..., 0].abs(), -x[..., 0].abs())
    engine = engine_of(packed, weight=(3, 4))
    assert is_exact(engine, (x, torch.full((5,), 4)))
    assert is_exact(engine, (inputs(5, 6, 4), torch.tensor([2, 6, 4, 1, 3])))
    assert "in turn" in engine.report


@pytest.mark.parametrize("lengths", [[4, 4, 4, 4, 4], [9, 7, 5, 3, 1]])
@pytest.mark.parametrize("downwards", [False, True])
def test_examples_that_the_model_sorts_keep_their_norms(lengths, downwards):
    """The first batch is sorted already, so its examples seem to be in batch order all the way through."""

    def sorting(model, x, lengths):
        order = lengths.argsort(descending=downwards, stable=True)
        return F.linear(F.linear(F.linear(x, model.first)[order], model.second).tanh()[order.argsort()], model.third)

    engine, x = engine_of(sorting, first=(4, 4), second=(4, 4), third=(4, 4)), inputs(5, 6, 4)
    assert is_exact(engine, (x, torch.tensor(lengths)))
    assert is_exact(engine, (x, torch.tensor([2, 6, 4, 1, 3])))


def test_a_weight_with_dropout_has_the_norm_of_the_gradient_that_is_summed():
    """If the numbers were drawn twice, a gradient with norm zero in one draw could be added unclipped."""
    mask, x = torch.tensor([True] + [False] * 4), inputs(5, 4)
    for seed in range(12):
        engine = engine_of(lambda model, x: 10.0 * x * F.dropout(model.weight, 0.2), weight=(4,))
        torch.manual_seed(seed)
        lengths = [engine((x,), mask).sums["weight"].norm().item() for _ in range(30)]
        assert max(lengths) <= NORM
        assert "fallback" in engine.report, "the fallback draws once"


def write_a_parameter(model, x):
    with torch.no_grad():
        model.kept.copy_(x.mean(0))
    return x @ model.weight


def write_behind_autograds_back(model, x):
    model.running.data.mul_(0.9).add_(x.mean(0))
    return x @ model.weight


@pytest.mark.parametrize("function", [write_a_parameter, write_behind_autograds_back], ids=lambda f: f.__name__)
def test_a_model_that_stores_what_it_sees_is_refused(function):
    model = Written(function, weight=(4, 3), kept=(4,))
    model.register_buffer("running", torch.zeros(4))
    before = [value.clone() for value in (model.kept, model.running)]
    with pytest.raises(InvalidArgument, match="write what it sees"):
        clipped_sum(model, squares, (inputs(5, 4),), clipping=Flat(1.0))
    assert all(map(torch.equal, before, (model.kept, model.running)))


def test_a_model_may_write_to_itself_if_the_values_do_not_depend_on_examples():
    """Each step of a spectral norm starts where the one before ended, in the dry run too."""
    torch.manual_seed(0)
    model = parametrizations.spectral_norm(nn.Linear(4, 3))
    engine = Engine(model, squares, Flat(NORM), compile=False)
    for _ in range(30):  # until it converges
        engine((inputs(5, 4),), torch.ones(5, dtype=torch.bool))
    model.eval()
    assert is_exact(engine, (inputs(5, 4),))


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x: x * model.weight.repeat(x.shape[0], 1),
        lambda model, x: x * torch.broadcast_to(model.weight, x.shape),
        lambda model, x: x + model.weight.expand(size=x.shape),
        lambda model, x: x @ torch.transpose(input=model.square, dim0=0, dim1=1),
        lambda model, x: x @ torch.t(input=model.square),
    ],
)
def test_a_parameter_in_an_unusual_call_has_the_right_gradient(function):
    engine = engine_of(function, weight=(4,), square=(4, 4))
    assert is_exact(engine, (inputs(5, 4),))


def test_an_embedding_with_sparse_gradients_has_the_same_sums():
    torch.manual_seed(0)
    sparse, dense = nn.Embedding(9, 4, sparse=True), nn.Embedding(9, 4)
    dense.load_state_dict(sparse.state_dict())
    batch = (torch.arange(10).view(5, 2) % 9,)
    sums = [clipped_sum(model, squares, batch, clipping=Flat(NORM)).sums["weight"] for model in (sparse, dense)]
    assert torch.equal(*sums)


def test_a_branch_on_the_largest_value_of_a_batch_sees_one_example_at_a_time():
    def branching(model, x):
        output = x @ model.weight
        return output + torch.einsum("bi,ij->bj", x, model.weight) if x.abs().max() > 100 else output

    engine = engine_of(branching, weight=(4, 3))
    x = inputs(5, 4)
    x[2] *= 1000
    assert is_exact(engine, (x,))
    assert "in turn" in engine.report


@pytest.mark.parametrize("where", ["trials.run", "search.norm_power", "mixing.ordinary_gradients"])
def test_a_dry_run_that_does_not_fit_into_memory_keeps_its_values_on_the_host(where, monkeypatch, caplog):
    """Also where a failure would otherwise be taken for a rule that does not fit, or an example that is refused."""
    module, name = where.split(".")
    users = ["search", "mixing"] if module == "trials" else [module]
    on_host = []
    original = getattr(importlib.import_module(f"discreet.learning.engine.dry_run.{users[0]}"), name)

    def limited(*args, **kwargs):
        if not on_host:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(*args, **kwargs)

    def save_on_cpu():
        on_host.append(True)
        return contextlib.nullcontext()

    for user in users:
        monkeypatch.setattr(f"discreet.learning.engine.dry_run.{user}.{name}", limited)
    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", save_on_cpu)
    batch = torch.randn(4, 3), torch.randint(0, 2, (4,))
    engine = Engine(nn.Linear(3, 2), F.cross_entropy, Flat(NORM), compile=False)
    engine.start(batch)
    assert "linear" in engine.report
    assert "fallback" not in engine.report
    assert "needs more memory" in caplog.text


@pytest.mark.parametrize("blank", [3, 5, 11, 16])
def test_examples_without_labels_do_not_hide_where_the_examples_are(blank):
    """Their losses depend on nothing. If all examples that are looked at are such, the slow way is taken."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    batch = torch.randn(16, 6), torch.arange(16) % 3
    batch[1][:blank] = -100

    def loss(model, rows):
        return F.cross_entropy(model(rows[0]), rows[1], reduction="none", ignore_index=-100)

    engine = Engine(model, loss, Flat(NORM), compile=False)
    found = engine(batch, all_examples(batch))
    assert ("fallback" in engine.report) == (blank == 16)
    each = truth.gradients(model, loss, batch)
    weights = (NORM / truth.norms(each).clamp_min(1e-30)).clamp(max=1.0)
    assert truth.worst(found.sums, truth.clipped(each, weights)) < 1e-4


@pytest.mark.parametrize("device", DEVICES)
def test_a_column_of_numbers_may_be_read_as_categories(device, monkeypatch):
    """The example that the dry run makes up has a category that does not exist."""
    refused = []

    class Checked(CheckedValues):
        def __torch_dispatch__(self, *args):
            try:
                return super().__torch_dispatch__(*args)
            except IndexError as error:
                refused.append(str(error))
                raise

    monkeypatch.setattr(trials, "CheckedValues", Checked)

    def function(model, x):
        return F.embedding(x[:, 3:].long(), model.table).mean(1) * x[:, :3]

    model = Written(function, table=(2, 3)).to(device)
    x = torch.cat([inputs(6, 3), torch.arange(120.0).view(6, 20).remainder(2)], 1).to(device)
    engine = Engine(model, squares, Flat(NORM), compile=False)
    assert is_exact(engine, (x,))
    assert refused
    assert all("out of range in aten" in text for text in refused)


def test_a_label_out_of_range_is_an_error_that_does_not_name_it():
    with pytest.raises(IndexError) as error:
        clipped_sum(nn.Linear(4, 3), F.cross_entropy, (inputs(5, 4), torch.full((5,), 4012)), clipping=Flat(1.0))
    assert "4012" not in str(error.value)


def test_a_model_that_fails_in_float64_runs_in_its_own_type():
    """Whatever it raises: here an index out of range."""

    def function(model, x):
        return x @ model.weight * [1.0][x.dtype == torch.float64]

    assert is_exact(engine_of(function, weight=(4, 3)), (inputs(5, 4),))
