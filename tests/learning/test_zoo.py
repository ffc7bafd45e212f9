"""The small models can be trained privately as they are, and the helpers around them work."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discreet.errors import InvalidArgument
from discreet.learning import zoo
from discreet.learning.compatibility import findings


@pytest.mark.parametrize(
    ("kind", "shape"), [("logistic", (12,)), ("mlp", (12,)), ("mlp", (1, 28, 28)), ("cnn", (1, 28, 28))]
)
def test_every_model_of_the_zoo_treats_each_example_by_itself(kind, shape):
    model = zoo.build(kind, shape, 10)
    assert findings(model) == ()
    assert "fallback" not in zoo.rehearse(model, shape, 10)
    x = torch.randn(5, *shape)
    assert torch.allclose(model(x)[2:3], model(x[2:3]), atol=1e-6)


def test_the_cnn_for_mnist_has_as_many_parameters_as_the_paper_says():
    """Tramèr & Boneh 2021: 26,010."""
    assert sum(p.numel() for p in zoo.build("cnn", (1, 28, 28), 10).parameters()) == 26_010


def test_a_prediction_is_the_most_likely_class_and_leaves_the_model_as_it_was():
    model = zoo.build("mlp", (3,), 4).train()
    x = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)
    expected = model(torch.from_numpy(x)).argmax(1).numpy()
    assert np.array_equal(zoo.predict(model, x, batch_size=4), expected)
    assert model.training
    assert zoo.predict(model, x[:0]).shape == (0,)


def test_the_number_of_threads_comes_back_even_after_an_error():
    before, during = torch.get_num_threads(), []

    @zoo.one_thread()
    def fails() -> None:
        during.append(torch.get_num_threads())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert during == [1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: zoo.build("forest", (3,), 2),
        lambda: zoo.build("mlp", (0,), 2),
        lambda: zoo.build("mlp", (3,), 1),
        lambda: zoo.build("mlp", (3,), 2, hidden=(0,)),
        lambda: zoo.build("cnn", (28, 28), 2),
        lambda: zoo.build("cnn", (1, 8, 8), 2),
        lambda: zoo.optimizer("lbfgs", zoo.build("logistic", (3,), 2), 0.1),
        lambda: zoo.optimizer("adam", zoo.build("logistic", (3,), 2), -0.1),
        lambda: zoo.rehearse(zoo.build("logistic", (3,), 2), (0,), 2),
    ],
)
def test_what_the_zoo_does_not_have_is_refused_in_words(wrong):
    with pytest.raises(InvalidArgument):
        wrong()


def test_something_is_done_after_just_these_steps():
    model = zoo.build("logistic", (3,), 2)
    adam, calls = zoo.optimizer("adam", model, 0.1), []
    zoo.after_steps(adam, (1, 3), calls.append)
    for _ in range(4):
        adam.step()
    assert calls == [1, 3]
