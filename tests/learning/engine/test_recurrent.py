"""Recurrences have torch's values and gradients; to a tracer each is one operation, however long it is."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from discreet.errors import DiscreetError, InvalidArgument
from discreet.learning import Engine, Flat
from discreet.learning.engine.graph import repeats
from discreet.learning.engine.operations import recurrent_steps
from discreet.learning.losses import per_example
from tests.learning.engine import truth

RIGHT = recurrent_steps.before
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def drawn(kind, length, examples, size, dtype=torch.float64):
    """Products with the inputs, initial states (including a cell), U and c."""
    shapes = [(length, examples, GATES[kind] * size), (examples, size), (examples, size)]
    shapes += [(GATES[kind] * size, size), (GATES[kind] * size,)]
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def ours(kind, reverse, gates, hidden, cell, u, c):
    """Outputs and the last cell."""
    if kind == "lstm":
        return recurrent_steps.lstm(gates, hidden, cell, u, reverse)[:2]
    if kind == "gru":
        return (recurrent_steps.gru(gates, hidden, u, c, reverse)[0],)
    return (recurrent_steps.rnn(gates, hidden, u, False, reverse),)


def torchs(kind, reverse, gates, hidden, cell, u, c):
    """The same by torch, with the identity as input weight, so that its inputs are the products with the inputs."""
    gates = gates.flip(0) if reverse else gates
    identity, none = torch.eye(gates.shape[2], dtype=gates.dtype), torch.zeros_like(gates[0, 0])
    rest = (True, 1, 0.0, False, False, False)
    if kind == "lstm":
        outputs, _, last = torch.lstm(gates, (hidden[None], cell[None]), [identity, u, none, none], *rest)
        return (outputs.flip(0) if reverse else outputs), last[0]
    function, bias = (torch.gru, c) if kind == "gru" else (torch.rnn_tanh, none)
    outputs, _ = function(gates, hidden[None], [identity, u, none, bias], *rest)
    return ((outputs.flip(0) if reverse else outputs),)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(list(GATES)),
    length=st.integers(1, 6),
    examples=st.integers(1, 4),
    size=st.integers(1, 5),
    reverse=st.booleans(),
    of_cell=st.sampled_from(["outputs", "cell", "both"]),
    seed=st.integers(0, 2**31),
)
def test_values_and_gradients_equal_torchs(kind, length, examples, size, reverse, of_cell, seed):
    torch.manual_seed(seed)
    arguments = drawn(kind, length, examples, size)
    found, expected = (function(kind, reverse, *arguments) for function in (ours, torchs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)
    chosen = {"outputs": slice(0, 1), "cell": slice(-1, None), "both": slice(None)}[of_cell]
    weights = [torch.randn_like(one) for one in found[chosen]]
    gradients = [
        torch.autograd.grad(
            sum((w * one).sum() for w, one in zip(weights, values[chosen], strict=True)), arguments, allow_unused=True
        )
        for values in (found, expected)
    ]
    for one, other in zip(*gradients, strict=True):
        if one is None or other is None:
            assert one is other
        else:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_plain_recurrence_has_either_activation(relu, reverse):
    torch.manual_seed(1)
    gates, hidden, _, u, _ = drawn("rnn", 4, 3, 2)
    assert torch.autograd.gradcheck(lambda *a: recurrent_steps.rnn(*a, relu, reverse), (gates, hidden, u))
    outputs = recurrent_steps.rnn(gates, hidden, u, relu, reverse)
    assert bool((outputs < 0).any()) is not relu


@pytest.mark.parametrize("dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reverse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", list(GATES))
def test_custom_operations_pass_torchs_own_checks(kind, reverse, dtype):
    """No hidden aliasing or mutation, and fake tensors get the shapes of real ones."""
    gates, hidden, cell, u, c = drawn(kind, 3, 2, 4, dtype)
    grad = torch.randn(3, 2, 4, dtype=dtype)
    if kind == "lstm":
        checked = [(recurrent_steps.lstm, (gates, hidden, cell, u, reverse))]
        _, _, cells, kept = (value.detach() for value in recurrent_steps.lstm(gates, hidden, cell, u, reverse))
        for some in ((grad, None), (None, grad[0]), (grad, grad[0])):
            back = (*some, cell.detach(), u.detach(), cells, kept, reverse)
            checked.append((recurrent_steps.lstm_backward, back))
    elif kind == "gru":
        checked = [(recurrent_steps.gru, (gates, hidden, u, bias, reverse)) for bias in (None, c)]
        kept = [value.detach() for value in recurrent_steps.gru(gates, hidden, u, c, reverse)]
        checked.append((recurrent_steps.gru_backward, (grad, hidden.detach(), u.detach(), *kept, reverse)))
    else:
        checked = [(recurrent_steps.rnn, (gates, hidden, u, relu, reverse)) for relu in (False, True)]
        checked.append((recurrent_steps.rnn_backward, (grad, u.detach(), torch.randn_like(grad), False, reverse)))
    for operation, arguments in checked:
        torch.library.opcheck(operation, arguments)


class Classifier(nn.Module):
    """A classifier of all outputs and last states of a recurrent layer, whose initial state may be learned."""

    def __init__(self, layer, learned=False, **options):
        super().__init__()
        self.inner = layer(3, 4, **options)
        places = self.inner.num_layers * (2 if self.inner.bidirectional else 1)
        self.first = nn.Parameter(torch.randn(places, 1, 4)) if learned else None
        self.head = nn.Linear(4 * (2 if self.inner.bidirectional else 1) + 4, 3)

    def forward(self, x):
        first = None
        if self.first is not None:
            hidden = self.first.expand(-1, x.shape[0], -1).contiguous()
            first = (hidden, hidden.tanh()) if isinstance(self.inner, nn.LSTM) else hidden
        outputs, last = self.inner(x if self.inner.batch_first else x.transpose(0, 1), first)
        mean = outputs.mean(1 if self.inner.batch_first else 0)
        last = last[1] if isinstance(last, tuple) else last
        return self.head(torch.cat([mean, last.mean(0)], 1))


def engine_and_truth(model, batch, dtype=None, compile=False):
    each = truth.gradients(model, per_example(F.cross_entropy), batch)
    norms = truth.norms(each)
    clip_norm = float(norms.mean())
    engine = Engine(model, F.cross_entropy, Flat(clip_norm), compile=compile, dtype=dtype)
    found = engine(batch, torch.ones(len(each), dtype=torch.bool))
    return engine, found, norms, truth.clipped(each, torch.clamp(clip_norm / norms, max=1.0))


@settings(max_examples=4, deadline=None)
@given(
    layer=st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]),
    examples=st.integers(1, 4),
    length=st.integers(1, 6),
    layers=st.integers(1, 2),
    bidirectional=st.booleans(),
    bias=st.booleans(),
    batch_first=st.booleans(),
    learned=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_clipped_sums_are_exact_for_every_form(
    layer, examples, length, layers, bidirectional, bias, batch_first, learned, seed
):
    torch.manual_seed(seed)
    options = {"num_layers": layers, "bidirectional": bidirectional, "bias": bias, "batch_first": batch_first}
    model = Classifier(layer, learned, **options).double()
    batch = torch.randn(examples, length, 3).double(), torch.randint(0, 3, (examples,))
    engine, found, norms, expected = engine_and_truth(model, batch)
    assert torch.allclose(found.norms[0], norms, rtol=1e-9)
    assert truth.worst(found.sums, expected) < 1e-9
    assert "inner.weight_hh_l0: recurrent layer" in engine.report


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_dropout_between_layers_leaves_every_rule_in_place(layer):
    model = Classifier(layer, num_layers=2, dropout=0.5, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=False)
    assert engine(batch, torch.ones(5, dtype=torch.bool)).finite.all()
    assert "fallback" not in engine.report


@pytest.mark.parametrize("trained", ["weight_hh_l0", "bias_hh_l0", "weight_ih_l0"])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_any_parameter_of_a_layer_can_be_trained_alone(layer, trained):
    torch.manual_seed(5)
    model = Classifier(layer, batch_first=True).double()
    for name, parameter in model.inner.named_parameters():
        parameter.requires_grad_(name == trained)
    batch = torch.randn(5, 6, 3).double(), torch.randint(0, 3, (5,))
    engine, found, norms, expected = engine_and_truth(model, batch)
    assert f"inner.{trained}: recurrent layer" in engine.report
    assert torch.allclose(found.norms[0], norms, rtol=1e-9)
    assert truth.worst(found.sums, expected) < 1e-9


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_under_autocast_only_the_products_with_inputs_are_narrow(layer):
    torch.manual_seed(4)
    model = Classifier(layer, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    seen = []
    model.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].dtype))
    engine, found, norms, expected = engine_and_truth(model, batch, torch.bfloat16)
    assert seen[0] == torch.float32
    assert torch.allclose(found.norms[0], norms, rtol=3e-2)
    assert truth.worst(found.sums, expected) < 3e-2
    assert "fallback" not in engine.report


@pytest.mark.parametrize("layer", [nn.LSTM, *(pytest.param(one, marks=pytest.mark.slow) for one in (nn.GRU, nn.RNN))])
def test_the_graph_is_as_large_for_long_sequences_as_for_short_ones(layer, monkeypatch):
    sizes = []
    for length in (3, 40):
        model = Classifier(layer, batch_first=True)
        batch = torch.randn(5, length, 3), torch.randint(0, 3, (5,))

        def counted(graph, *rest):
            repeats.expand(graph)
            ours = [str(node.target) for node in graph.graph.nodes if "discreet" in str(node.target)]
            sizes.append(len([name for name in ours if "mark" not in name and "grams" not in name]))
            sizes.append(len([node for node in graph.graph.nodes if node.op == "call_function"]))
            raise NotImplementedError

        monkeypatch.setattr("discreet.learning.engine.engine.compile_flat", counted)
        Engine(model, F.cross_entropy, Flat(1.0), compile=True)(batch, torch.ones(5, dtype=torch.bool))
    assert sizes[0] == sizes[2] == 2
    assert sizes[3] <= sizes[1] + 10, "norms may be computed another way for longer sequences"


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("length", [1, 16, 17, 40])
def test_results_of_steps_are_collected_in_their_order(length, forwards):
    targets = torch.zeros(length, 2), torch.zeros(length, 3)
    results = recurrent_steps._Results(forwards, *targets)
    for step in range(length) if forwards else reversed(range(length)):
        results.add(torch.full((2,), 1.0 + step), torch.full((3,), -1.0 - step))
    for sign, target in zip((1, -1), targets, strict=True):
        assert target[:, 0].tolist() == [sign * (1.0 + step) for step in range(length)]


def shifted(values, first, reverse):
    """The states of the wrong steps: one step off."""
    return RIGHT(values, first, reverse).roll(1, 0)


def test_a_claim_on_the_wrong_steps_states_is_not_used(monkeypatch):
    """The rule does not add up to the gradient; whether `vmap` knows `lstm` depends on torch and on the type."""
    names = {**vars(recurrent_steps), "before": shifted}
    monkeypatch.setattr("discreet.learning.engine.operations.recurrent.recurrent_steps", SimpleNamespace(**names))
    torch.manual_seed(0)
    model = Classifier(nn.LSTM, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    try:
        engine, found, _, expected = engine_and_truth(model, batch)
    except DiscreetError as refused:
        assert "no path covers the parameters inner.weight_hh_l0: no rule fits" in str(refused)  # noqa: PT017
    else:
        assert "inner.weight_hh_l0: linear" not in engine.report
        words = ("fallback (vmap), because of rules that do not add up", "each example in turn")
        assert any(f"inner.weight_hh_l0: {word}" in engine.report for word in words)
        assert truth.worst(found.sums, expected) < 1e-5


def test_a_recurrence_with_a_wrong_gradient_is_refused(monkeypatch):
    monkeypatch.setattr(recurrent_steps, "before", shifted)
    torch.manual_seed(0)
    model = Classifier(nn.LSTM, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    with pytest.raises(InvalidArgument, match=r"the gradient of inner\.\w+ must"):
        Engine(model, F.cross_entropy, Flat(1.0), compile=False)(batch, torch.ones(5, dtype=torch.bool))


@pytest.mark.parametrize("gate", range(4))
def test_a_gates_wrong_gradient_is_refused(gate, monkeypatch):
    right = recurrent_steps.lstm_backward

    def wrong(*arguments):
        grads, of_cell = right(*arguments)
        grads.chunk(4, 2)[gate].mul_(1.01)
        return grads, of_cell

    monkeypatch.setattr(recurrent_steps, "lstm_backward", wrong)
    torch.manual_seed(0)
    model = Classifier(nn.LSTM, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    with pytest.raises(InvalidArgument, match="must depend on one example at a time"):
        Engine(model, F.cross_entropy, Flat(1.0), compile=False)(batch, torch.ones(5, dtype=torch.bool))


class Advising(nn.LSTM):
    """Warns as torch does on CUDA about a recurrent layer whose weights are not packed."""

    def forward(self, *arguments):
        warnings.warn("RNN module weights are not part of single contiguous chunk of memory. This means", stacklevel=1)
        return super().forward(*arguments)


def test_torchs_advice_to_pack_weights_is_not_passed_on():
    model = Classifier(Advising, batch_first=True)
    batch = torch.randn(5, 6, 3), torch.randint(0, 3, (5,))
    assert Engine(model, F.cross_entropy, Flat(1.0), compile=False)(batch, torch.ones(5, dtype=torch.bool)).finite.all()
    with pytest.raises(UserWarning, match="single contiguous"):
        model(batch[0])


def test_torch_refuses_an_empty_sequence():
    model = Classifier(nn.LSTM, batch_first=True)
    batch = torch.randn(5, 0, 3), torch.randint(0, 3, (5,))
    with pytest.raises(RuntimeError, match="larger than 0"):
        Engine(model, F.cross_entropy, Flat(1.0), compile=False)(batch, torch.ones(5, dtype=torch.bool))


@pytest.mark.slow
def test_a_long_sequence_compiles():
    torch.manual_seed(2)
    model = Classifier(nn.LSTM, learned=True, bidirectional=True, batch_first=True)
    batch = torch.randn(5, 128, 3), torch.randint(0, 3, (5,))
    engine, found, norms, expected = engine_and_truth(model, batch, compile=True)
    assert "\ncompiled" in engine.report
    assert torch.allclose(found.norms[0], norms, rtol=1e-5)
    assert truth.worst(found.sums, expected) < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", list(GATES))
def test_on_cuda_values_and_gradients_are_those_of_the_cpu(kind, reverse):
    torch.manual_seed(6)
    arguments = drawn(kind, 5, 3, 4)
    found = []
    for device in ("cpu", "cuda"):
        there = [argument.detach().to(device).requires_grad_() for argument in arguments]
        values = ours(kind, reverse, *there)
        total = sum((value * (1 + place)).sin().sum() for place, value in enumerate(values))
        gradients = torch.autograd.grad(total, there, allow_unused=True)
        found.append([*values, *(gradient for gradient in gradients if gradient is not None)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.cpu(), rtol=1e-9, atol=1e-11)
