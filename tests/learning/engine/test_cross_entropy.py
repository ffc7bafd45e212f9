"""A cross entropy over many classes as two passes over the scores: the same losses and gradients."""

from __future__ import annotations

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.nn import functional as F

from discreet.learning.engine.graph import cross_entropy, softmax_kernels
from discreet.learning.engine.graph.repeats import look
from tests.learning.engine import traces

EXAMPLES, LENGTH, CLASSES = 3, 5, 1100
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
devices = ["cpu", pytest.param("cuda", marks=cuda)]


class Words(nn.Module):
    """Scores of words; `columns` more than there are words are computed, and cut off."""

    def __init__(self, columns=0, transposed=True):
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.head = nn.Linear(8, CLASSES + columns)
        self.transposed = transposed

    def forward(self, ids):
        scores = self.head(self.table(ids))[..., :CLASSES]
        return scores.transpose(1, 2) if self.transposed else scores


def of_words(**options):
    """The loss that people write: over flattened scores, and then the mean of each text."""

    def loss(model, batch):
        ids, targets = batch
        scores = model(ids)
        values = F.cross_entropy(scores.reshape(-1, CLASSES), targets.flatten(), reduction="none", **options)
        return values.view(targets.shape).mean(1)

    return loss


def in_logarithms(model, batch):
    ids, targets = batch
    logs = model(ids).log_softmax(-1)
    values = F.nll_loss(logs.flatten(0, 1), targets.flatten(), reduction="none")
    return values.view(targets.shape).mean(1) - logs[:, 0, 0]


def as_cuda_computes_it(model, batch):
    """Under autocast, logarithms are in the type of the scores there, and only the choice of a class is in float32."""
    ids, targets = batch
    scores = model(ids)
    with torch.autocast("cpu", enabled=False):
        return F.nll_loss(scores.log_softmax(1).float(), targets, reduction="none").mean(1)


def next_words(model, batch):
    ids, _ = batch
    return F.cross_entropy(model(ids)[:, :, :-1], ids[:, 1:], reduction="none").mean(1)


def of_columns(model, batch):
    """Targets that do not lie next to each other: each second number of the batch."""
    ids, targets = batch
    pairs = torch.stack([targets, ids], 2)
    return F.cross_entropy(model(ids).flatten(0, 1), pairs[:, :, 0].flatten(), reduction="none").view(ids.shape).mean(1)


def in_another_order(model, batch):
    """Not the classes of a row, but numbers from several rows: no cross entropy, though it looks like one."""
    ids, _ = batch
    logs = model(ids)[:, :4].log_softmax(2).reshape(-1, CLASSES)
    return F.nll_loss(logs.view(len(ids), CLASSES, 4), ids[:, :4], reduction="none").mean(1)


CASES = {
    "next words": (Words(), next_words, False),
    "targets in columns": (Words(transposed=False), of_columns, True),
    "numbers in another order": (Words(transposed=False), in_another_order, False),
    "as CUDA computes it": (Words(), as_cuda_computes_it, True),
    "as CUDA computes it, columns cut off": (Words(36), as_cuda_computes_it, True),
    "torch's loss": (Words(), F.cross_entropy, True),
    "torch's loss, columns cut off": (Words(36), F.cross_entropy, True),
    "flattened": (Words(transposed=False), of_words(), True),
    "flattened, columns cut off": (Words(36, False), of_words(), True),
    "another ignored class": (Words(transposed=False), of_words(ignore_index=4), True),
    "weights of classes": (Words(), nn.CrossEntropyLoss(weight=torch.linspace(0, 1, CLASSES)), False),
    "smoothed": (Words(transposed=False), of_words(label_smoothing=0.1), False),
    "logarithms that are used again": (Words(transposed=False), in_logarithms, False),
}


def traced(model, loss, dtype, monkeypatch):
    """The graph of a clipped sum, and its arguments."""
    torch.manual_seed(0)
    targets = torch.randint(0, CLASSES, (EXAMPLES, LENGTH))
    targets[0, 1:3], targets[1, 0], targets[2] = -100, 4, CLASSES - 1
    if loss is not F.cross_entropy:
        targets.clamp_min_(0)
    batch = torch.randint(0, 7, (EXAMPLES, LENGTH)), targets
    return traces.traced(model, loss, batch, dtype, monkeypatch)


def looks(graph):
    values = [node.meta.get("val") for node in graph.graph.nodes]
    return [look(value) for value in values if isinstance(value, torch.Tensor)]


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_the_pattern_is_replaced_and_no_value_changes(case, dtype, monkeypatch):
    model, loss, fused = CASES[case]
    graph, arguments = traced(copy.deepcopy(model), loss, dtype, monkeypatch)
    changed = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    cross_entropy.fuse_cross_entropy(changed)
    names = [str(node.target) for node in changed.graph.nodes]
    assert names.count("discreet.row_log_sums.default") == names.count("discreet.class_gradients.default") == fused
    assert any("log_softmax" in name for name in names) is not fused
    if "cut off" in case:
        assert "aten.slice_backward.default" not in names, "gradients are written with all their columns at once"
    noted = looks(changed)
    values = [node.meta["val"] for node in changed.graph.find_nodes(op="placeholder")]
    FakeTensorProp(changed, values[0].fake_mode).propagate_dont_convert_inputs(*values)
    assert noted == looks(changed), "a compiler relies on the strides"
    for before, after in zip(graph(*arguments), changed(*arguments), strict=True):
        tolerance = 1e-5 if dtype is None else 1e-2  # in bfloat16, scores differ in their last digit now and then
        torch.testing.assert_close(after, before, rtol=tolerance, atol=tolerance * float(before.float().abs().max()))


def test_scores_that_a_softmax_widens_itself_are_found_too(monkeypatch):
    """As CUDA's operations do, which don't run on a CPU."""
    graph, arguments = traced(Words(36), F.cross_entropy, torch.bfloat16, monkeypatch)
    changed = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    (softmax,) = changed.graph.find_nodes(op="call_function", target=torch.ops.aten._log_softmax.default)
    backward = torch.ops.aten._log_softmax_backward_data.default
    (back,) = changed.graph.find_nodes(op="call_function", target=backward)
    softmax.args = (softmax.args[0].args[0], softmax.args[1], True)
    (narrowed,) = back.users
    back.args = (*back.args[:3], torch.bfloat16)
    back.meta["val"] = narrowed.meta["val"]
    narrowed.replace_all_uses_with(back)
    changed.graph.erase_node(narrowed)
    cross_entropy.fuse_cross_entropy(changed)
    assert not any("log_softmax" in str(node.target) for node in changed.graph.nodes)
    for before, after in zip(graph(*arguments), changed(*arguments), strict=True):
        torch.testing.assert_close(after, before, rtol=1e-2, atol=1e-2 * float(before.float().abs().max()))


def test_a_model_in_16_bits_keeps_the_type_of_its_losses(monkeypatch):
    graph, arguments = traced(Words().bfloat16(), F.cross_entropy, None, monkeypatch)
    changed = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
    cross_entropy.fuse_cross_entropy(changed)
    assert any("row_log_sums" in str(node.target) for node in changed.graph.nodes)
    for before, after in zip(graph(*arguments), changed(*arguments), strict=True):
        assert after.dtype == before.dtype
        torch.testing.assert_close(after, before, rtol=3e-2, atol=3e-2 * float(before.float().abs().max()))


def in_memory(tensor, places):
    """What a kernel reads at places after a tensor's address, whatever the tensor's strides are."""
    size = tensor.untyped_storage().size() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided((size,), (1,))[places]


def test_the_kernel_gets_the_targets_of_its_own_rows(monkeypatch):
    """They may be columns of a batch. The mutant that reads them in memory order mixes examples."""

    class Kernel:
        def __getitem__(self, grid):
            def launch(scores, log_sums, targets, weights, out, classes, width, stride, blocks, block, num_warps):
                rows, columns = torch.arange(len(out)), torch.arange(classes)
                scores = in_memory(scores, (rows * stride)[:, None] + columns)
                log_sums, targets, weights = (in_memory(value, rows) for value in (log_sums, targets, weights))
                shares = (scores - log_sums[:, None]).exp() - F.one_hot(targets, classes)
                out.zero_()[:, :classes] = shares * weights[:, None]

            return launch

    monkeypatch.setattr(softmax_kernels, "triton", SimpleNamespace(cdiv=lambda a, b: -(-a // b)))
    monkeypatch.setattr(softmax_kernels, "_gradients", Kernel(), raising=False)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    torch.manual_seed(0)
    scores = torch.randn(6, 40)[:, ::2]
    targets = torch.randint(0, 20, (6, 3))[:, 1]
    log_sums, weights = torch.stack([scores.logsumexp(1), torch.rand(6)], 1).unbind(1)
    expected = softmax_kernels.class_gradients(scores, log_sums, targets, weights, 24)
    found = softmax_kernels._launch_gradients(scores, log_sums, targets, weights, 24)
    torch.testing.assert_close(found, expected)


def test_few_classes_are_left_to_the_compiler(monkeypatch):
    monkeypatch.setattr(cross_entropy, "FEWEST_CLASSES", CLASSES + 1)
    graph, _ = traced(Words(), F.cross_entropy, None, monkeypatch)
    cross_entropy.fuse_cross_entropy(graph)
    assert all("discreet" not in str(node.target) for node in graph.graph.nodes if "softmax" in str(node.target))
    assert not any("row_log_sums" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize("device", devices)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("classes", "width"), [(1, 1), (1100, 1152), (4096, 4096), (4097, 4097), (50257, 50304)])
def test_log_sums_and_gradients_are_those_of_float64(classes, width, kind, device):
    torch.manual_seed(1)
    wide = (torch.randn(6, width, device=device) * 4).to(kind)
    wide[:, classes:] = float("nan")
    scores = wide[:, :classes]
    targets = torch.tensor([0, classes - 1, classes // 2, -100, 0, classes - 1], device=device)
    weights = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, 1e-3], device=device)
    targets, weights = (torch.stack([value, 1 - value], 1)[:, 0] for value in (targets, weights))  # in columns
    expected = scores.double().requires_grad_()
    log_sums = softmax_kernels.row_log_sums(scores)
    torch.testing.assert_close(log_sums.double(), expected.logsumexp(1).detach(), rtol=1e-6, atol=1e-6)
    losses = F.cross_entropy(expected, targets, reduction="none")
    (gradients,) = torch.autograd.grad((losses * weights).sum(), expected)
    found = softmax_kernels.class_gradients(scores, log_sums, targets, weights, width)
    assert found.dtype == kind
    assert found.shape == (6, width)
    digits = torch.finfo(kind).eps
    torch.testing.assert_close(found[:, :classes].double(), gradients, rtol=digits, atol=1e-6)
    assert not found[:, classes:].any()


@pytest.mark.parametrize("device", devices)
def test_classes_without_probability_and_scores_that_are_not_finite(device):
    scores = torch.randn(4, 5000, device=device)
    scores[0, :4500] = -torch.inf
    scores[1] = -torch.inf
    scores[2, 3] = torch.inf
    scores[3, 4999] = torch.nan
    log_sums = softmax_kernels.row_log_sums(scores)
    torch.testing.assert_close(log_sums[0], scores[0, 4500:].logsumexp(0))
    assert log_sums[1] == -torch.inf
    assert not torch.isfinite(log_sums[2])
    assert torch.isnan(log_sums[3])
    targets, weights = torch.full((4,), 4600, device=device), torch.ones(4, device=device)
    gradients = softmax_kernels.class_gradients(scores, log_sums, targets, weights, 5000)
    assert not gradients[0, :4500].any()
    assert torch.isfinite(gradients[0]).all()
    assert not torch.isfinite(gradients[1:]).all(1).any()
