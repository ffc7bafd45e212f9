"""`check` refuses models that mix examples and gives the reasons; `fix` repairs them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.errors import InvalidArgument
from discreet.learning import Engine, Flat, check, clipped_sum, fix
from discreet.learning.compatibility import groups_for


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
