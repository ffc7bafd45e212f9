"""The usual torch losses become one value per example; other losses are refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.errors import InvalidArgument
from discreet.learning.losses import FUNCTIONS, Unreduced, checked, per_example


def identity(x):
    return x


@pytest.mark.parametrize("given", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum"), F.cross_entropy])
def test_cross_entropy_gives_one_value_per_example(given):
    scores, classes = torch.randn(5, 4), torch.randint(0, 4, (5,))
    losses = per_example(given)(identity, (scores, classes))
    assert torch.allclose(losses, F.cross_entropy(scores, classes, reduction="none"))


@pytest.mark.parametrize("function", [f for f in FUNCTIONS if f not in (F.cross_entropy, F.nll_loss)])
def test_a_loss_over_many_outputs_is_their_mean(function):
    values, targets = torch.rand(5, 3, 2), torch.rand(5, 3, 2)
    losses = per_example(function)(identity, (values, targets))
    assert losses.shape == (5,)
    for row in range(5):
        alone = function(values[row], targets[row], reduction="none").mean()
        assert torch.allclose(losses[row], alone)


def test_the_loss_of_an_example_is_what_it_would_be_alone():
    """The mean over its own counted positions, not over those of the batch."""
    scores, words = torch.randn(3, 7, 5), torch.randint(0, 7, (3, 5))
    words[0, 2:] = -100
    words[2] = -100
    losses = per_example(nn.CrossEntropyLoss())(identity, (scores, words))
    assert torch.allclose(losses[0], F.cross_entropy(scores[:1], words[:1]))
    assert torch.allclose(losses[1], F.cross_entropy(scores[1:2], words[1:2]))
    assert float(losses[2]) == 0.0


def test_probabilities_as_targets_are_taken():
    scores, targets = torch.randn(5, 4), torch.rand(5, 4).softmax(1)
    losses = per_example(F.cross_entropy)(identity, (scores, targets))
    assert torch.allclose(losses, F.cross_entropy(scores, targets, reduction="none"))


def test_options_of_a_loss_are_kept_and_the_module_is_not_changed():
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    scores, classes = torch.randn(5, 4), torch.randint(0, 4, (5,))
    losses = per_example(loss)(identity, (scores, classes))
    assert torch.allclose(losses, F.cross_entropy(scores, classes, label_smoothing=0.1, reduction="none"))
    assert loss.reduction == "mean"


def test_an_own_function_is_taken_as_it_is():
    def loss(model, batch):
        return model(batch)

    assert per_example(loss) is loss


@pytest.mark.parametrize("bad", [nn.Linear(2, 2), "cross_entropy", None])
def test_what_is_no_loss_is_refused(bad):
    with pytest.raises(InvalidArgument, match="loss"):
        per_example(bad)


def test_a_batch_that_is_no_pair_is_refused():
    with pytest.raises(InvalidArgument, match="inputs, targets"):
        per_example(F.cross_entropy)(identity, {"x": torch.zeros(2)})


@pytest.mark.parametrize("bad", [torch.tensor(1.0), torch.ones(4, 2), torch.ones(3), 1.0])
def test_other_than_one_value_per_example_is_refused(bad):
    with pytest.raises(InvalidArgument, match="one value per example"):
        checked(bad, 4)


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), ignore_index=1)]
)
def test_scores_with_the_classes_last_in_memory_give_the_same_losses_and_gradients(loss):
    torch.manual_seed(0)
    targets = torch.randint(0, 3, (4, 5))
    targets[0] = loss.ignore_index if isinstance(loss, nn.Module) else -100
    for_words = torch.randn(4, 5, 3)
    results = []
    for given in (for_words.transpose(1, 2), for_words.transpose(1, 2).contiguous()):
        scores = given.detach().requires_grad_()
        losses = per_example(loss)(identity, (scores, targets))
        results.append((losses, torch.autograd.grad(losses.sum(), scores)[0]))
    assert torch.allclose(results[0][0], results[1][0])
    assert torch.allclose(results[0][1], results[1][1])
    assert float(results[0][0][0].detach()) == 0.0


@pytest.mark.parametrize("function", FUNCTIONS)
def test_losses_of_a_batch_have_one_value_per_example_while_their_mean_is_held_back(function):
    torch.manual_seed(0)
    outputs = torch.rand(4, 3)
    targets = torch.arange(4) % 3 if function in (F.cross_entropy, F.nll_loss) else torch.rand(4, 3)
    with Unreduced():
        losses = function(outputs, targets)
    assert torch.allclose(losses, per_example(function)(identity, (outputs, targets)))
    assert losses.shape == (4,)


def test_modules_of_losses_keep_their_options_while_the_mean_is_held_back():
    scores, classes = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), label_smoothing=0.1)
    with Unreduced():
        losses = loss(scores, classes)
    assert torch.allclose(losses, per_example(loss)(identity, (scores, classes)))
    with Unreduced(), pytest.raises(InvalidArgument, match="mean over the batch"):
        nn.functional.mse_loss(scores, scores, reduction="sum")
