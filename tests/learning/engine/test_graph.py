"""The compiled graph: the same numbers, with each norm next to the gradient that it is computed from."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # its usual name
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from discreet.learning.clipping import Flat
from discreet.learning.engine import Engine
from discreet.learning.engine.graph.announcement import Announcement
from discreet.learning.engine.graph.effects import backward_draws
from discreet.learning.engine.graph.marks import mark
from discreet.learning.engine.graph.passes import move_norms_early, share_after_forward, share_casts
from discreet.learning.engine.graph.replay import GraphReplay, has_room
from tests.learning.engine.traces import traced as traced_sum


def backward_then_norms(x, y):
    first = mark(x) * y
    second = first.exp()
    third = second.sin()
    one, two = mark(first), mark(third)
    recomputed = x.cos()  # from activations alone
    norm = (one * recomputed).square().sum() + two.square().sum()
    return one / norm, two / norm, norm


def test_norms_move_to_their_gradients_and_change_nothing():
    arguments = torch.randn(5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    module = make_fx(backward_then_norms)(*arguments)
    move_norms_early(module)
    names = [str(node.target) for node in module.graph.nodes]
    assert names.count("discreet.mark.default") == 3
    assert names.index("aten.pow.Tensor_Scalar") < names.index("aten.exp.default")
    assert names.index("aten.cos.default") < names.index("aten.exp.default") < names.index("aten.sin.default")
    for found, expected in zip(module(*arguments), backward_then_norms(*arguments), strict=True):
        assert torch.equal(found, expected)


def test_a_wide_copy_that_only_a_sum_reads_is_made_where_it_is_read():
    def traced(x, y):
        gradient = mark(x) * y
        after = gradient.sin()
        kept, last = mark(gradient), mark(after)
        norm = kept.float().square().sum(1) + last.float().square().sum(1)
        return (kept.double().view(2, 4) / norm[:, None]).sum(0), norm

    arguments = torch.randn(2, 4), torch.randn(2, 4)
    module = make_fx(traced)(*arguments)
    move_norms_early(module)
    names = targets(module)
    assert names.index("aten.sum.dim_IntList") < names.index("aten.sin.default"), "norms are still computed early"
    assert names.index("aten._to_copy.default") > names.index("aten.sin.default")
    for found, expected in zip(module(*arguments), traced(*arguments), strict=True):
        assert torch.equal(found, expected)


def test_a_chain_of_thousands_of_cheap_operations_is_moved():
    """The norms of all parameters are added up in a row."""

    def traced(x):
        first = mark(x)
        total = mark(first.sin())
        for _ in range(3000):
            total = total + 1.0
        return total.sum()

    module = make_fx(traced)(torch.randn(3))
    move_norms_early(module)
    assert targets(module).count("aten.add.Tensor") == 3000


def test_a_graph_without_gradients_stays_as_it_is():
    module = make_fx(lambda x: x.sin() + 1)(torch.randn(3))
    before = [str(node.target) for node in module.graph.nodes]
    move_norms_early(module)
    assert [str(node.target) for node in module.graph.nodes] == before


def targets(module):
    return [str(node.target) for node in module.graph.nodes]


def test_the_backward_pass_and_the_norms_share_work_and_the_forward_pass_is_left_alone():
    def traced(x, y):
        forward = x.exp() * y
        start = mark(x)
        product = start.exp() * y  # the backward pass
        end = mark(product)
        return forward, end.sum(0) + (x.exp() * y).sum(0), (x.exp() * y).sum(0, dtype=torch.float64)

    arguments = torch.randn(3, 4), torch.randn(3, 4)
    module = make_fx(traced)(*arguments)
    share_after_forward(module)
    assert targets(module).count("aten.exp.default") == 2, "one in the forward pass, one after it"
    assert targets(module).count("aten.sum.dim_IntList") == 2, "another type is another sum"
    module.recompile()
    for found, expected in zip(module(*arguments), traced(*arguments), strict=True):
        assert torch.equal(found, expected)


def test_a_value_is_converted_to_another_type_once_for_all_layers_that_read_it():
    def traced(x, y):
        narrow = [x.bfloat16() @ y.bfloat16() for _ in range(3)]
        turned = x[None, None].to(torch.bfloat16, memory_format=torch.channels_last)
        wide = x.double() + x[None, None].to(torch.bfloat16).double()[0, 0] + turned[0, 0].double()
        start = mark(sum(narrow).float())
        return start, mark(start * 2).double() + wide, x.bfloat16()

    arguments = torch.randn(4, 4), torch.randn(4, 4)
    module = make_fx(traced)(*arguments)
    casts = targets(module).count("aten._to_copy.default")
    share_casts(module)
    assert targets(module).count("aten._to_copy.default") == casts - 4, (
        "two of each factor; the rest differs, or is later"
    )
    for found, expected in zip(module(*arguments), traced(*arguments), strict=True):
        assert torch.equal(found, expected)
    for writes in (
        lambda x, y: (x.bfloat16(), x.add_(1.0), x.bfloat16(), *traced(x, y)),
        lambda x, y: (*traced(x, y), x.add_(1.0)),
    ):
        written = make_fx(writes)(*arguments)
        before = targets(written)
        share_casts(written)
        assert targets(written) == before, "a copy may be from before a write"


def test_layers_that_read_the_same_input_keep_one_narrow_copy_of_it(monkeypatch):
    class Projections(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(8)
            self.projections = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))

        def forward(self, x):
            h = self.norm(x)
            return sum(projection(h) for projection in self.projections).float().sum(1)

    torch.manual_seed(0)
    batch = torch.randn(4, 6, 8), torch.randint(0, 8, (4,))
    graph, _ = traced_sum(Projections(), F.cross_entropy, batch, torch.bfloat16, monkeypatch)
    normalized = next(n for n in graph.graph.nodes if n.target is torch.ops.aten.native_layer_norm.default)
    (output,) = (user for user in normalized.users if user.args[1] == 0)
    copies = [user for user in output.users if user.target is torch.ops.aten._to_copy.default]
    assert len(copies) == 1


def test_random_draws_and_graphs_that_write_in_place_are_never_shared():
    def draws(x):
        mark(x)
        end = mark(x)
        return torch.rand_like(end), torch.rand_like(end)

    module = make_fx(draws)(torch.randn(3))
    share_after_forward(module)
    assert targets(module).count("aten.rand_like.default") == 2

    def writes(x):
        value = mark(x).exp()
        first = value.sin()
        value.add_(1.0)
        return first, mark(value).sin()

    module = make_fx(writes)(torch.randn(3))
    share_after_forward(module)
    assert targets(module).count("aten.sin.default") == 2


@pytest.mark.parametrize(
    ("name", "arguments", "draws"),
    [
        ("_scaled_dot_product_efficient_attention_backward", 13, False),
        ("_scaled_dot_product_cudnn_attention_backward", 15, False),
        ("_scaled_dot_product_flash_attention", (0.0,), False),
        ("_scaled_dot_product_flash_attention", (), False),
        ("_scaled_dot_product_flash_attention", (0.1,), True),
        ("native_dropout", (0.1, True), True),
        ("rand_like", (), True),
        ("exp", (), False),
    ],
)
def test_a_backward_pass_draws_again_only_where_its_numbers_are_new(name, arguments, draws):
    """Attention's backward pass gets the seed of its forward pass, though torch tags it as random."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops.discreet.mark.default, (x,))
    given = [x] * arguments if isinstance(arguments, int) else [x] * (3 if "attention" in name else 1) + list(arguments)
    made = graph.call_function(getattr(torch.ops.aten, name).default, tuple(given))
    graph.output(graph.call_function(torch.ops.discreet.mark.default, (made,)))
    assert backward_draws(torch.fx.GraphModule(nn.Module(), graph)) is draws


class Plain(nn.Module):
    """Two linear layers with a given function between them."""

    def __init__(self, between):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)
        self.factor, self.wide = nn.Parameter(torch.ones(4)), nn.Parameter(torch.randn(5, 4))
        self.register_buffer("calls", torch.zeros(1))
        self.between = between

    def forward(self, x):
        return self.second(self.between(self, self.first(x)))


def renaming(model, hidden):
    again = torch.ops.aten.alias(torch.ops.aten.alias(hidden))
    third = torch.ops.aten.alias(hidden.relu())
    early = again.exp()
    hidden.mul_(3.0)
    return early + hidden + third + again


def writing_into_an_output(model, hidden):
    hidden[:, 1] = hidden[:, 0].detach() * 2.0
    hidden[:, 2:].mul_(3.0)
    return hidden


def writing_in_the_fallback(model, hidden):
    hidden = hidden / model.factor  # which has no rule
    hidden[:, 0].mul_(3.0)
    hidden[:, 1:].masked_fill_(hidden[:, 1:] > 0, 0.5)
    return hidden


def summing(model, hidden):
    """The gradient of a sum is expanded: it has fewer elements in memory than in its shape."""
    repeated = hidden[:, None, None] * torch.ones(3, 2, 1).to(hidden)
    return F.linear(repeated, model.wide).sum(1).tanh().flatten(1)[:, :4]


def counting(model, hidden):
    model.calls += 1
    return hidden


FORWARDS = [writing_into_an_output]
FORWARDS += [pytest.param(f, marks=pytest.mark.slow) for f in (renaming, writing_in_the_fallback, summing, counting)]


@pytest.mark.parametrize("between", FORWARDS, ids=lambda f: f.__name__)
def test_a_model_with_in_place_writes_or_aliases_has_the_same_sums_compiled(between):
    torch.manual_seed(0)
    model = Plain(between).double()
    batch, mask = (torch.randn(6, 4).double(), torch.randint(0, 3, (6,))), torch.ones(6, dtype=torch.bool)
    eager, compiled = (Engine(model, F.cross_entropy, Flat(0.1), compile=how) for how in (False, True))
    expected, calls = eager(batch, mask), float(model.calls)
    found = compiled(batch, mask)
    assert "\ncompiled" in compiled.report
    assert float(model.calls) == calls == 0, "neither calls nor trial runs of a graph leave a trace in the model"
    torch.testing.assert_close(found.norms, expected.norms)
    for name, total in found.sums.items():
        torch.testing.assert_close(total, expected.sums[name])


def flat_sums(result):
    return torch.cat([value.flatten() for value in result.sums.values()])


def test_a_counter_in_the_model_is_put_back_in_every_type():
    for kind in (torch.float32, torch.float64):
        model = Plain(counting).to(kind)
        model.calls = torch.zeros((), dtype=kind)
        engine = Engine(model, F.cross_entropy, Flat(0.1))
        batch = torch.ones(2, 4, dtype=kind), torch.tensor([0, 1])
        sums = [flat_sums(engine(batch, torch.ones(2, dtype=torch.bool))) for _ in range(3)]
        assert torch.equal(sums[0], sums[2])
        assert float(model.calls) == 0.0


@pytest.mark.slow
def test_values_in_a_batch_other_than_tensors_are_not_cached():
    torch.manual_seed(0)
    model, mask = nn.Linear(4, 3), torch.ones(5, dtype=torch.bool)
    inputs = torch.randn(5, 4)

    def loss(model, batch):
        return (model(batch[0]) * float(batch[1])).square().sum(1)

    eager, compiled = (Engine(model, loss, Flat(0.1), compile=how) for how in (False, True))
    for factor in (2.0, 5.0, np.array(0.5)):  # the last has no hash
        torch.testing.assert_close(compiled((inputs, factor), mask).norms, eager((inputs, factor), mask).norms)


def test_dropout_in_a_checkpoint_is_the_same_in_the_backward_pass():
    """A compiled graph would draw again there, and its gradient would belong to no forward pass."""

    def between(model, hidden):
        dropped = checkpoint(lambda x: F.dropout(F.linear(x, model.first.weight), 0.5), hidden, use_reentrant=False)
        return dropped * model.factor

    model, mask = Plain(between), torch.ones(1, dtype=torch.bool)
    with torch.no_grad():
        model.first.weight.copy_(torch.eye(4))
        model.first.bias.zero_()
        model.second.weight.fill_(1.0)
    engine = Engine(model, lambda model, batch: model(batch).sum(1), Flat(1e6))
    for _ in range(20):
        sums = engine(torch.ones(1, 4), mask).sums
        # Both are 3·m, where m are the factors of the dropout.
        torch.testing.assert_close(sums["factor"], sums["first.bias"])


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@cuda
def test_a_replayed_graph_sees_new_batches_new_parameters_and_moved_ones():
    weight = torch.randn(4, 3, device="cuda")
    replay = GraphReplay(lambda w, x: [w @ x], [weight, torch.randn(3, device="cuda")], 1)
    inputs = torch.randn(3, device="cuda")
    first = replay(weight, inputs)[0]
    torch.testing.assert_close(first, weight @ inputs)
    kept = first.clone()
    weight.mul_(2.0)
    torch.testing.assert_close(replay(weight, inputs)[0], weight @ inputs)
    assert torch.equal(first, kept), "returned tensors belong to the caller"
    moved = torch.randn(4, 3, device="cuda")
    torch.testing.assert_close(replay(moved, inputs)[0], moved @ inputs)


@cuda
def test_a_graph_that_lends_its_results_computes_the_same():
    weight, inputs = torch.randn(4, 3, device="cuda"), torch.randn(3, device="cuda")
    replay = GraphReplay(lambda w, x: [w @ x], [weight, inputs], 1, lend=True)
    for _ in range(2):
        inputs = torch.randn(3, device="cuda")
        torch.testing.assert_close(replay(weight, inputs)[0], weight @ inputs)


@cuda
def test_a_lent_result_that_someone_keeps_does_not_change(caplog):
    weight, inputs = torch.randn(4, 3, device="cuda"), torch.randn(3, device="cuda")
    replay = GraphReplay(lambda w, x: [w @ x], [weight, inputs], 1, lend=True)
    first = replay(weight, inputs)[0]
    address, kept, before = first.data_ptr(), first[1:], first.clone()
    del first
    others = torch.randn(2, 3, device="cuda")
    for other in others:
        torch.testing.assert_close(replay(weight, other)[0], weight @ other)
    assert torch.equal(kept, before[1:])
    assert len(caplog.records) == 1
    del kept
    assert replay(weight, inputs)[0].data_ptr() == address


@cuda
def test_compiled_sums_on_cuda_are_those_of_eager():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).cuda()
    mask = torch.tensor([True] * 6 + [False] * 2).cuda()
    engines = [Engine(model, F.cross_entropy, Flat(0.5), compile=how) for how in (False, True)]
    for _ in range(3):
        batch = torch.randn(8, 6, device="cuda"), torch.randint(0, 3, (8,), device="cuda")
        eager, compiled = (engine(batch, mask) for engine in engines)
        for name in eager.sums:
            torch.testing.assert_close(compiled.sums[name], eager.sums[name], rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1)


@pytest.mark.parametrize(("free", "fits"), [(100, True), (60, True), (59, False)])
def test_a_graph_takes_at_most_half_of_the_free_memory(free, fits, monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 50)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 20)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 1000))
    assert has_room() is fits


def busy(size: int = 8192) -> torch.Tensor:
    """Tens of milliseconds of work for a GPU."""
    value = torch.ones(size, size, device="cuda")
    for _ in range(4):
        value = value @ value * 1e-4
    return value


@cuda
@pytest.mark.parametrize("answer", [True, False])
def test_an_announcement_gives_the_answer_before_the_work_after_it_is_done(answer):
    announcement, done = Announcement(), torch.cuda.Event()
    announcement.expect()
    announcement.send(torch.tensor(answer, device="cuda"))
    for _ in range(20):
        busy()
    done.record()
    assert announcement.wait() is answer
    assert not done.query()


@cuda
def test_an_answer_that_nobody_waited_for_is_not_that_of_the_next_call():
    announcement = Announcement()
    busy()
    announcement.send(torch.tensor(True, device="cuda"))  # as a trial run does; it arrives late
    announcement.expect()
    busy()
    announcement.send(torch.tensor(False, device="cuda"))
    assert announcement.wait() is False
    assert announcement.wait() is False  # nothing was asked: never the old answer


@cuda
def test_a_replayed_graph_announces_anew_each_time():
    announcement, given = Announcement(), torch.ones(3, dtype=torch.bool, device="cuda")

    def function(values):
        announcement.send(values.all())
        return [values]

    function.announcement = announcement
    replay = GraphReplay(function, [given], 0)
    assert replay.announcement is announcement
    for answer in (True, False, True, True, False):
        announcement.expect()
        replay(torch.tensor([True, answer, True], device="cuda"))
        assert announcement.wait() is answer


@cuda
def test_examples_that_are_not_finite_are_noticed_in_compiled_calls_too():
    """Each call's own answer counts, whether the code runs as a CUDA graph or not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 3)).cuda()
    compiled = Engine(model, nn.functional.cross_entropy, Flat(0.5), compile=True, lend=True)
    plain = Engine(model, nn.functional.cross_entropy, Flat(0.5), compile=False)
    mask = torch.ones(8, dtype=torch.bool)
    for turn, poisoned in enumerate((False, True, False, True, True, False)):
        inputs, targets = torch.randn(8, 20, device="cuda"), torch.arange(8, device="cuda") % 3
        if poisoned:
            inputs[turn] = float("inf")
        ours, theirs = compiled((inputs, targets), mask), plain((inputs, targets), mask)
        assert ours.lent == isinstance(compiled._current.function, GraphReplay)
        for name, value in theirs.sums.items():
            torch.testing.assert_close(ours.sums[name], value, rtol=1e-4, atol=1e-5)
        assert torch.equal(ours.finite, theirs.finite)
        del ours  # so that a graph is replayed again


@cuda
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_kept_in_bfloat16_are_bounded_as_they_are_summed(transposed):
    """Long sequences of narrow layers: each example's gradient is smaller than its inputs."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 96, bias=False).cuda()
    if transposed:  # [d, p], as Hugging Face's GPT-2 keeps it
        layer.weight = nn.Parameter(layer.weight.detach().t().contiguous())

    def loss(model, batch):
        scores = torch.matmul(batch[0], model.weight) if transposed else model(batch[0])
        return (scores * batch[1]).float().sum((1, 2))

    rows, factors = torch.randn(4, 512, 64, device="cuda"), torch.randn(4, 512, 96, device="cuda")
    exact = torch.einsum("btp,btd->bpd", factors.double(), rows.double())
    for compile in (False, True):
        for norm in (1.0, 1e6):  # all are clipped, or none
            engine = Engine(layer, loss, Flat(norm), compile=compile, dtype=torch.bfloat16)
            for row in range(4):
                result = engine((rows[row : row + 1], factors[row : row + 1]), torch.ones(1, dtype=torch.bool))
                (total,) = result.sums.values()
                total = total.t() if transposed else total
                assert float(total.double().norm()) <= norm
                expected = exact[row] * min(1.0, norm / float(exact[row].norm()))
                assert float((total.double() - expected).norm() / expected.norm()) < 0.02
