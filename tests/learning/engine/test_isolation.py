"""Models that mix examples or store them are refused; dropout is not mistaken for mixing."""

from __future__ import annotations

import array
import collections
import functools
import random
import types
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from discreet.errors import InvalidArgument
from discreet.learning import Flat, losses
from discreet.learning.engine import Engine, clipped_sum
from discreet.learning.engine.isolation import ReachableState


def _squares(net: Any, batch: Any) -> Tensor:
    return (net(batch[0]) - batch[1]).square().flatten(1).sum(1)


class _Counting(nn.Module):
    """Keeps a running mean of what it sees, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
        return self.last(x)


class _Bounded(nn.Module):
    """A frozen table whose rows are shortened, in place, when they are looked up."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4, max_norm=0.5)
        self.table.weight.requires_grad_(False)
        self.last = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.table(x).mean(1))


@pytest.mark.parametrize("net", [_Counting(), _Bounded()])
def test_a_model_that_writes_its_examples_down_is_refused(net):
    inputs = torch.randn(4, 3) if isinstance(net, _Counting) else torch.tensor([[1, 2], [3, 4], [5, 6], [7, 8]])
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(InvalidArgument, match="without noise"):
        clipped_sum(net, _squares, (inputs, torch.randn(4, 1)), clipping=Flat(1.0))
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


class _Cumulative(nn.Module):
    """Each example less the mean of those before it: nothing reaches the first ones, and no gradient shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.cumsum(0) / torch.arange(1, len(x) + 1, dtype=x.dtype).unsqueeze(1)
        return self.last(x - mean.detach())


class _Centered(nn.Module):
    """Words less the mean over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(10, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = self.table(x).mean(1)
        return self.last(found - found.mean(0).detach())


@pytest.mark.parametrize("net", [_Cumulative(), _Centered()])
def test_examples_that_mix_in_one_direction_or_in_a_batch_of_copies_are_found(net):
    one = torch.randn(1, 3) if isinstance(net, _Cumulative) else torch.tensor([[3, 5, 7]])
    with pytest.raises(InvalidArgument, match="mixes"):  # a draw of one example is filled up with copies
        clipped_sum(net, _squares, (one.expand(8, 3), torch.randn(1, 1).expand(8, 1)), clipping=Flat(1.0))


class _Dropping(nn.Module):
    """Dropout beside a parameter that has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Bilinear(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = nn.functional.dropout(self.first(x), 0.5)
        return self.last(hidden, hidden)


def test_dropout_is_not_taken_for_mixing_where_a_parameter_needs_the_fallback():
    found = clipped_sum(_Dropping(), _squares, (torch.randn(4, 3), torch.randn(4, 1)), clipping=Flat(0.1))
    whole = torch.cat([value.flatten() for value in found.sums.values()])
    assert 0 < float(whole.norm()) <= 0.4


class _Slotted:
    __slots__ = ("t",)

    def __init__(self, t: float) -> None:
        self.t = t


class _Range:
    """Where a model keeps the largest value that it has seen, as a quantization observer does."""

    def __init__(self, held: Any, get: Any, put: Any) -> None:
        self.held, self.get, self.put = held, get, put


def _in_array(held: Any, value: float) -> None:
    held[0] = value


PLACES = {
    "namespace": lambda: _Range(
        types.SimpleNamespace(t=20.0), lambda held: held.t, lambda held, v: setattr(held, "t", v)
    ),
    "slots": lambda: _Range(_Slotted(20.0), lambda held: held.t, lambda held, v: setattr(held, "t", v)),
    "nested dict": lambda: _Range({"a": {"t": 20.0}}, lambda held: held["a"]["t"], lambda h, v: h["a"].update(t=v)),
    "defaultdict": lambda: _Range(
        collections.defaultdict(functools.partial(float, 20)), lambda held: held["t"], lambda held, v: held.update(t=v)
    ),
    "ordered dict": lambda: _Range(
        collections.OrderedDict(t=20.0), lambda held: held["t"], lambda held, v: held.update(t=v)
    ),
    "deque": lambda: _Range(collections.deque([20.0], maxlen=1), lambda held: held[0], lambda held, v: held.append(v)),
    "numpy": lambda: _Range(np.full(1, 20.0), lambda held: float(held[0]), _in_array),
    "numpy of objects": lambda: _Range(np.array([20.0], dtype=object), lambda held: held[0], _in_array),
    "array": lambda: _Range(array.array("d", [20.0]), lambda held: held[0], _in_array),
    "list in a tuple": lambda: _Range(([20.0],), lambda held: held[0][0], lambda held, v: _in_array(held[0], v)),
}


class _Observing(nn.Module):
    """Divides by the largest value so far, which it takes out of the tensors."""

    def __init__(self, place: _Range) -> None:
        super().__init__()
        self.last = nn.Linear(3, 1, bias=False)
        nn.init.ones_(self.last.weight)
        self.held, self._functions = place.held, (place.get, place.put)

    def forward(self, x: Tensor) -> Tensor:
        get, put = self._functions
        put(self.held, max(get(self.held), x.abs().max().item()))
        return self.last((x / get(self.held)).clamp(-1, 1))


class _InClass(_Observing):
    t = 20.0

    def __init__(self) -> None:
        super().__init__(_Range(None, lambda _: type(self).t, lambda _, v: setattr(type(self), "t", v)))


def _twice(net: Any, batch: Any) -> Tensor:
    return 2 * net(batch[0])[:, 0]


def _moved_by_one_example(make: Any, loss: Any = _twice, ordinary: float = 10.0, unusual: float = 1e6) -> float:
    """How far the clipped sum moves, in clip norms, if one of 16 examples is exchanged."""
    found = []
    for value in (ordinary, unusual):
        engine = Engine(make(), loss() if loss is not _twice else loss, Flat(1.0), compile=False)
        x = 10 + torch.rand(16, 3, generator=torch.Generator().manual_seed(0))
        engine.start((x[:8],))
        x[0] = value
        found.append(engine((x,), torch.ones(16, dtype=torch.bool)).sums["last.weight"])
    return float((found[0] - found[1]).norm())


@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_an_example_leaves_in_the_model_never_reaches_the_next(place):
    assert _moved_by_one_example(lambda: _Observing(PLACES[place]())) <= 2.001


def test_a_number_that_an_example_leaves_in_the_class_never_reaches_the_next():
    assert _moved_by_one_example(_InClass) <= 2.001
    assert _InClass.t == 20.0


class _Scaled:
    """A loss that keeps the largest value that it has seen."""

    def __init__(self) -> None:
        self.seen = {"range": [20.0]}

    def __call__(self, net: Any, batch: Any) -> Tensor:
        held = self.seen["range"]
        held[0] = max(held[0], batch[0].abs().max().item())
        return 2 * net((batch[0] / held[0]).clamp(-1, 1))[:, 0]


def _last() -> nn.Module:
    net = nn.Sequential(collections.OrderedDict(last=nn.Linear(3, 1, bias=False)))
    nn.init.ones_(net.last.weight)
    return net


def test_a_number_that_an_example_leaves_in_the_loss_never_reaches_the_next():
    assert _moved_by_one_example(_last, _Scaled) <= 2.001


class _Noting:
    """A loss that writes down what it sees, which changes no value."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def __call__(self, net: Any, batch: Any) -> Tensor:
        self.seen.append(batch[0].sum().item())
        return _twice(net, batch)


def test_what_a_loss_keeps_of_the_dry_run_is_put_back():
    loss = _Noting()
    Engine(_last(), loss, Flat(1.0), compile=False).start((torch.randn(8, 3),))
    assert loss.seen == []


def test_a_partial_function_is_a_loss():
    """Its class has slots of its own, which change when it is called first."""
    loss = functools.partial(_Noting.__call__, _Noting())
    Engine(_last(), loss, Flat(1.0), compile=False).start((torch.randn(8, 3),))
    assert loss.args[0].seen == []


def test_what_the_loss_of_persons_keeps_is_put_back():
    """The loss of a person wraps another one; what that one holds is reached through it."""
    loss = _Noting()
    engine = Engine(_last(), losses.of_persons(loss), Flat(1.0), compile=False)
    batch = (torch.randn(4, 2, 3),), torch.ones(4, 2, dtype=torch.bool)
    engine.start(batch)
    assert loss.seen == []
    engine(batch, torch.ones(4, dtype=torch.bool))
    assert loss.seen == []


KEEPING = {
    "input": lambda x: x,
    "view": lambda x: x[:, :2],
    "detached": lambda x: x.detach(),
    "numpy": lambda x: x.numpy(),
    "computed": lambda x: x * 1,
}


@pytest.mark.parametrize("way", KEEPING)
def test_a_model_that_keeps_its_input_in_a_closure_is_refused(way):
    kept: list[Any] = []

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            if x.abs().max().item() > 50:
                kept.append(KEEPING[way](x))
            return self.last(x)

    engine = Engine(Remembers(), _twice, Flat(1.0), compile=False)
    x = torch.rand(8, 3)
    engine.start((x,))
    x[0] = 100.0
    kept.clear()
    with pytest.raises(InvalidArgument, match="alive after its pass"):
        engine((x,), torch.ones(8, dtype=torch.bool))


def test_a_model_that_keeps_its_input_is_refused_where_vmap_lifts_it():
    kept: list[Any] = []
    keeping = [False]

    class Custom(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 2

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(3, 1, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            if keeping[0]:
                kept.append(x)
            return Custom.apply(self.last(x))

    engine = Engine(Remembers(), _twice, Flat(1.0), compile=False)
    given = (torch.rand(8, 3),), torch.ones(8, dtype=torch.bool)
    engine(*given)
    assert "fallback (vmap)" in engine.report
    keeping[0] = True
    with pytest.raises(InvalidArgument, match="alive after its pass"):
        engine(*given)


def test_what_cannot_be_put_back_is_refused_in_the_dry_run():
    class Shuffles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.bits = nn.Linear(3, 1, bias=False), {"own": [np.random.PCG64(0)]}

        def forward(self, x: Tensor) -> Tensor:
            if x.abs().max().item() > 0:
                self.bits["own"][0].random_raw()
            return self.last(x)

    with pytest.raises(InvalidArgument, match="PCG64 that cannot be put back"):
        Engine(Shuffles(), _twice, Flat(1.0), compile=False).start((torch.rand(8, 3),))


@pytest.mark.parametrize("held", [random.Random(0), iter([1, 2, 3]), torch.Generator()], ids=lambda v: type(v).__name__)
def test_a_generator_or_iterator_that_was_used_is_refused(held):
    state = ReachableState(types.SimpleNamespace(inner=(held,)))
    state.restore()
    if isinstance(held, torch.Generator):
        torch.rand(1, generator=held)
    else:
        held.random() if isinstance(held, random.Random) else next(held)
    with pytest.raises(InvalidArgument, match="cannot be put back"):
        state.restore()


def test_a_state_is_put_back_exactly():
    inner = collections.OrderedDict(b=1, a={2, 3})
    root = types.SimpleNamespace(inner=inner, data=bytearray(b"ab"), weight=nn.Parameter(torch.zeros(1)))
    root.itself = root
    state = ReachableState(root)
    inner["c"], root.weight.seen, root.data[0] = 5, 1.5, 0
    inner.move_to_end("b")
    inner["a"].add(7)
    root.other = [1]
    state.restore()
    assert list(inner.items()) == [("b", 1), ("a", {2, 3})]
    assert root.data == b"ab"
    assert not hasattr(root, "other")
    assert not hasattr(root.weight, "seen")
