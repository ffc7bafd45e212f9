"""`check` refuses models that mix examples and gives the reasons; `fix` repairs them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.errors import InvalidArgument
from discreet.learning import Engine, Flat, check, clipped_sum, fix
from discreet.learning.compatibility import FrozenNorm, groups_for


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Sequential(nn.Conv2d(12, 6, 3), nn.BatchNorm2d(6)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip
    nn.init.normal_(model[1].weight)
    nn.init.normal_(model[1].bias)
    return model


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(6), nn.BatchNorm2d(6), nn.BatchNorm3d(6), nn.SyncBatchNorm(6)])
def test_batch_normalization_is_refused_and_explained(norm):
    with pytest.raises(InvalidArgument, match=r"inner: BatchNorm normalizes each example by the mean .* fix\(model\)"):
        check(nn.ModuleDict({"inner": norm}))
    with pytest.raises(InvalidArgument, match="BatchNorm"):
        Engine(nn.Sequential(nn.Linear(6, 6), norm), F.cross_entropy, Flat(1.0))


def test_frozen_statistics_mix_nothing():
    """In evaluation mode a BatchNorm is a fixed scale and shift."""
    model = network().eval()
    check(model)
    batch = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    assert clipped_sum(model, F.cross_entropy, batch, clipping=Flat(1.0)).finite.all()


def test_running_statistics_are_refused():
    with pytest.raises(InvalidArgument, match="running statistics"):
        check(nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True)))
    check(nn.Sequential(nn.InstanceNorm2d(4)))


def test_all_reasons_are_given_at_once():
    with pytest.raises(InvalidArgument) as caught:
        check(network())
    assert "1: BatchNorm" in str(caught.value)
    assert "3.1: BatchNorm" in str(caught.value)


def test_fix_keeps_the_affine_weights_and_leaves_the_original():
    model = network()
    fixed = fix(model)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert isinstance(fixed[1], nn.GroupNorm)
    assert torch.equal(fixed[1].weight, model[1].weight)
    assert torch.equal(fixed[1].bias, model[1].bias)
    assert not list(fixed.buffers())
    check(fixed)
    batch = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    assert clipped_sum(fixed, F.cross_entropy, batch, clipping=Flat(1.0)).finite.all()


def test_fix_replaces_a_shared_layer_once_and_a_model_that_is_one():
    norm = nn.BatchNorm1d(8)
    fixed = fix(nn.ModuleList([norm, norm]))
    assert fixed[0] is fixed[1]
    assert isinstance(fix(norm), nn.GroupNorm)
    assert fix(nn.BatchNorm2d(8, affine=False)).weight is None
    tracked = fix(nn.Sequential(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)))
    assert not tracked[0].track_running_stats
    assert tracked[0].weight is not None


@pytest.mark.parametrize("channels", range(2, 200))
def test_no_group_erases_the_data(channels):
    """A group of one value is normalized to zero."""
    groups = groups_for(channels)
    assert channels % groups == 0
    assert groups <= 32
    assert channels // groups > 1
    x = torch.randn(2, channels, generator=torch.Generator().manual_seed(channels))
    assert not torch.allclose(F.group_norm(x, groups), torch.zeros_like(x), atol=1e-3)


def test_a_single_value_cannot_be_normalized():
    with pytest.raises(InvalidArgument, match="more than one channel"):
        fix(nn.Sequential(nn.BatchNorm1d(1)))


def test_what_was_found_is_returned_and_printed():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    model.register_buffer("mean", torch.zeros(3))
    checked = check(model)
    assert (checked.trainable, checked.frozen, checked.unprotected) == (4 + 8 + 2, 12, ("mean",))
    assert "judging by its modules" in str(checked)
    tried = check(model, nn.functional.cross_entropy, (torch.randn(4, 3), torch.zeros(4, dtype=torch.long)))
    assert "judging" not in str(tried)
    assert "1.weight: linear" in str(tried)


def test_a_model_that_mixes_its_examples_is_found_only_with_a_batch():
    def centered(model, batch):
        losses = nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
        return losses - losses.mean()

    model = nn.Linear(3, 2)
    assert check(model).trainable == 8
    with pytest.raises(InvalidArgument):
        check(model, centered, (torch.randn(4, 3), torch.zeros(4, dtype=torch.long)))


# --- public statistics ---------------------------------------------------------------------------------------------


def public(count=3, rows=16):
    generator = torch.Generator().manual_seed(1)
    return [(3 + 2 * torch.randn(rows, 3, 8, 8, generator=generator), torch.zeros(rows)) for _ in range(count)]


def test_public_statistics_are_those_of_all_public_rows_together():
    model = network()
    fixed = fix(model, statistics=public())
    assert isinstance(fixed[1], FrozenNorm)
    pooled = model[0](torch.cat([inputs for inputs, _ in public()]))
    assert torch.allclose(fixed[1].running_mean, pooled.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(fixed[1].running_var, pooled.var((0, 2, 3), unbiased=False), atol=1e-4)
    assert torch.equal(fixed[1].weight, model[1].weight)
    assert isinstance(model[1], nn.BatchNorm2d)
    assert fixed.training
    model[0].eval()
    assert [m.training for m in fix(model, statistics=public())] == [m.training for m in model]


def test_a_model_with_one_public_batch_computes_what_batch_norm_did():
    model = network()
    (inputs, _), *_ = public()
    assert torch.allclose(fix(model, statistics=[inputs])(inputs), model(inputs), atol=1e-4)


def test_frozen_statistics_do_not_move_and_mix_no_examples():
    fixed = fix(network(), statistics=public())
    check(fixed)
    batch = torch.randn(4, 3, 8, 8), torch.randint(0, 4, (4,))
    before = {name: buffer.clone() for name, buffer in fixed.named_buffers()}
    fixed.train()
    alone = torch.cat([fixed(row[None]) for row in batch[0]])
    assert torch.allclose(fixed(batch[0]), alone, atol=1e-5)
    assert clipped_sum(fixed, F.cross_entropy, batch, clipping=Flat(1.0)).finite.all()
    assert all(torch.equal(before[name], buffer) for name, buffer in fixed.named_buffers())
    assert "1.weight" in str(check(fixed, F.cross_entropy, batch))


def test_batches_come_as_tensors_tuples_or_dictionaries():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.SyncBatchNorm(3)

        def forward(self, images):
            return self.norm(images)

    inputs = public()[0][0]
    expected = inputs.mean((0, 2, 3))
    for batch in (inputs, (inputs, 1), [inputs], {"images": inputs}):
        assert torch.allclose(fix(Named(), statistics=[batch]).norm.running_mean, expected, atol=1e-5)
    assert isinstance(fix(nn.BatchNorm1d(3), statistics=[torch.randn(5, 3)]), FrozenNorm)
    assert fix(nn.BatchNorm1d(3, affine=False), statistics=[torch.randn(5, 3)]).weight is None


def test_statistics_that_say_nothing_are_refused():
    for bad in ([], [("text", 1)], [torch.full((4, 3, 8, 8), torch.nan)]):
        with pytest.raises(InvalidArgument, match="statistics must"):
            fix(network(), statistics=bad)
    unused = nn.Sequential(nn.Identity())
    unused.add_module("norm", nn.BatchNorm2d(3))
    unused.forward = lambda inputs: inputs
    with pytest.raises(InvalidArgument, match="statistics must reach norm"):
        fix(unused, statistics=public())


def test_a_shared_layer_is_measured_over_all_its_uses():
    norm = nn.BatchNorm1d(2, affine=False)
    fixed = fix(nn.Sequential(norm, nn.Hardtanh(0, 9), norm), statistics=[torch.randn(50, 2)])
    assert fixed[0] is fixed[2]
