"""With the weights of every clipping, one example never adds more than the sensitivity, even in floating point."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import InvalidArgument
from discreet.learning import Adaptive, Automatic, Flat, PerLayer
from tests.learning import small
from tests.learning.engine import truth

KINDS = [Flat(1.0), Automatic(1.0), PerLayer(1.0), Adaptive(1.0), Flat(1.0, order=1), PerLayer(1.0, order=1)]


@settings(max_examples=300, deadline=None)
@given(
    norms=st.lists(st.floats(0, 2.0**100, width=32), min_size=3, max_size=3),
    clip_norm=st.floats(1e-6, 1e6),
    clipping=st.sampled_from(KINDS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_weighted_gradient_is_never_longer_than_the_sensitivity(norms, clip_norm, clipping, dtype):
    groups = 3 if isinstance(clipping, PerLayer) else 1
    given = torch.tensor(norms[:groups], dtype=dtype).unsqueeze(1)
    weights = clipping.weights(given, torch.tensor(clip_norm, dtype=torch.float64).to(dtype))
    assert (weights >= 0).all()
    longest = (weights.double() * given.double()).norm(clipping.order)
    assert float(longest) <= clipping.sensitivity(clip_norm, groups)


@pytest.mark.parametrize("clipping", KINDS)
def test_a_gradient_of_zero_has_a_finite_weight(clipping):
    weights = clipping.weights(torch.zeros(1, 2), torch.tensor(1.0))
    assert torch.isfinite(weights).all()


def test_flat_clipping_leaves_short_gradients_as_they_are():
    weights = Flat(1.0).weights(torch.tensor([[0.5, 2.0]]), torch.tensor(1.0))
    assert float(weights[0, 0]) == 1.0
    assert float(weights[0, 1]) == pytest.approx(0.5 * truth.shrunk(), rel=1e-6)


def test_automatic_clipping_scales_all():
    weights = Automatic(1.0, gamma=0.5).weights(torch.tensor([[0.0, 1.5]]), torch.tensor(2.0))
    assert weights.tolist()[0] == pytest.approx([4.0 * truth.shrunk(), truth.shrunk()], rel=1e-6)


def test_layers_share_the_norm_equally_or_as_told():
    names = ["a.weight", "a.bias", "b.weight"]
    assert PerLayer(1.0).groups(names) == (0, 0, 1)
    assert PerLayer(1.0).shares(2) == pytest.approx((0.5**0.5, 0.5**0.5))
    told = PerLayer(1.0, {"b": 3.0, "a": 4.0})
    assert told.groups(names) == (1, 1, 0)
    assert told.shares(2) == pytest.approx((0.6, 0.8))
    assert PerLayer(1.0, {"b": 3.0, "a": 1.0}, order=1).shares(2) == pytest.approx((0.75, 0.25))
    with pytest.raises(InvalidArgument, match="name the layer 'b'"):
        PerLayer(1.0, {"a": 1.0}).groups(names)


@pytest.mark.parametrize("clipping", [*KINDS, PerLayer(2.0, {"a": 1.0})])
def test_a_clipping_can_be_hashed_compared_and_pickled(clipping):
    again = pickle.loads(pickle.dumps(clipping))
    assert again == clipping
    assert hash(again) == hash(clipping)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "1", None])
def test_a_norm_that_bounds_nothing_is_refused(bad):
    for kind in (Flat, Automatic, PerLayer, Adaptive):
        with pytest.raises(InvalidArgument, match="norm"):
            kind(bad)


def test_other_arguments_are_checked():
    with pytest.raises(InvalidArgument, match="order"):
        Flat(1.0, order=3)
    with pytest.raises(InvalidArgument, match="gamma"):
        Automatic(1.0, gamma=0.0)
    with pytest.raises(InvalidArgument, match="quantile"):
        Adaptive(1.0, quantile=1.5)
    with pytest.raises(InvalidArgument, match="count_noise"):
        Adaptive(1.0, count_noise=0.0)
    with pytest.raises(InvalidArgument, match="layers"):
        PerLayer(1.0, {})


@pytest.mark.parametrize("norm", [1e-43, 1e-100, 1e60])
def test_norms_that_float32_has_no_room_for_are_refused(norm):
    with pytest.raises(InvalidArgument, match="between"):
        Flat(norm)
    with pytest.raises(InvalidArgument, match="between"):
        small.plan(clip_schedule=((0, 1.0), (2, norm)))
