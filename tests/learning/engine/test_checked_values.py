"""Indices and probabilities that are out of range are found before an operation reads them; others are not refused."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from discreet.learning.engine.dry_run.checked_values import CheckedValues

TABLE, SCORES, ONE = torch.randn(5, 3), torch.randn(4, 5).log_softmax(1), torch.ones(1)
WIDE = torch.randn(5, 3, 4)
MASK = torch.arange(15).view(5, 3) == 7
LARGE = torch.finfo(torch.float32).max


def at(*places):
    return torch.tensor(places)


def trained():
    return TABLE.clone().requires_grad_()


def assign(target, places):
    target[places] = 1.0


def at_rows(name, *rest):
    """An operation along the rows of a table."""
    return lambda i: getattr(TABLE.clone(), name)(0, i, *rest)


#: Operations with an index or a probability that is out of range, and the same with one that is not.
OUT_OF_RANGE = {
    "embedding": (lambda i: F.embedding(i, TABLE), at(5), at(4)),
    "embedding from the end": (lambda i: F.embedding(i, TABLE), at(-1), at(0)),
    "embedding of bounded norm": (lambda i: torch.embedding_renorm_(TABLE.clone(), i, 1.0, 2.0), at(5), at(4)),
    "bag": (lambda i: F.embedding_bag(i, TABLE), at([5]), at([4])),
    "bag in training": (lambda i: F.embedding_bag(i, trained()), at([5]), at([4])),
    "index": (lambda i: TABLE[:, i], at(3), at(-3)),
    "index after a mask": (lambda i: TABLE[torch.arange(5) > 3, i], at(3), at(2)),
    "index after a mask of two dimensions": (lambda i: WIDE[MASK, i], at(4), at(3)),
    "two indices": (lambda i: TABLE[i, i], at(4), at(2)),
    "index_put": (lambda i: TABLE.clone().index_put((i,), ONE), at(-6), at(-5)),
    "index_put_": (lambda i: TABLE.clone().index_put_((i,), ONE), at(-6), at(-5)),
    "_index_put_impl_": (lambda i: torch._index_put_impl_(TABLE.clone(), (i,), ONE), at(5), at(4)),
    "assignment": (lambda i: assign(TABLE.clone(), i), at(5), at(-5)),
    "index_select": (lambda i: TABLE.index_select(1, i), at(3), at(2)),
    "index_select from the end": (lambda i: TABLE.index_select(0, i), at(-1), at(4)),
    "gather": (lambda i: TABLE.gather(-1, i), at([3]), at([2])),
    "gather of a number": (lambda i: torch.tensor(1.0).gather(0, i), at(1), at(0)),
    **{name: (at_rows(name, ONE.view(1, 1)), at([5]), at([4])) for name in ("scatter", "scatter_")},
    "scatter from the end": (at_rows("scatter", 1.0), at([-1]), at([4])),
    **{name: (at_rows(name, ONE.view(1, 1)), at([-1]), at([4])) for name in ("scatter_add", "scatter_add_")},
    **{
        name: (at_rows(name, ONE.view(1, 1), "sum"), at([5]), at([0])) for name in ("scatter_reduce", "scatter_reduce_")
    },
    **{
        f"{name} at {place}": (at_rows(name, torch.ones(1, 3)), at(place), at(4))
        for name in ("index_add", "index_add_", "index_copy", "index_copy_")
        for place in (-1, 5)
    },
    "index_fill": (at_rows("index_fill", 1.0), at(5), at(-5, 4)),
    "index_fill from the end": (at_rows("index_fill", 1.0), at(-6), at(4)),
    "index_fill_": (at_rows("index_fill_", 1.0), at(-6), at(-5, 4)),
    "take": (TABLE.take, at(15), at(-15)),
    "put": (lambda i: TABLE.put(i, ONE), at(15), at(-15)),
    "put_": (lambda i: TABLE.clone().put_(i, ONE), at(-16), at(14)),
    "classes": (lambda i: F.nll_loss(SCORES, i), at(0, 1, 2, 5), at(0, 1, 4, -100)),
    "classes of one example": (lambda i: F.nll_loss(SCORES[0], i), torch.tensor(5), torch.tensor(4)),
    "another ignored class": (lambda i: F.nll_loss(SCORES, i, ignore_index=7), at(0, 1, 2, -100), at(0, 1, 4, 7)),
    "classes in bytes": (
        lambda i: F.nll_loss(torch.zeros(2, 100), i),
        torch.tensor([1, 156], dtype=torch.uint8),
        torch.tensor([1, 99], dtype=torch.uint8),
    ),
    "classes of pixels": (
        lambda i: F.nll_loss(SCORES.view(2, 5, 2, 1), i),
        at(0, 1, 2, 5).view(2, 2, 1),
        at(0, 1, -100, 4).view(2, 2, 1),
    ),
    "margins of classes": (lambda i: F.multi_margin_loss(SCORES, i), at(0, 1, 2, 5), at(0, 1, 2, 4)),
    "margins of one example": (lambda i: F.multi_margin_loss(SCORES[0], i), at(-1), at(4)),
    "margins of one class": (lambda i: F.multi_margin_loss(torch.tensor(0.5), i), torch.tensor(1), torch.tensor(0)),
    "margins of sets of one class": (
        lambda i: F.multilabel_margin_loss(torch.tensor(0.5), i),
        torch.tensor(1),
        torch.tensor(0),
    ),
    "margins of sets": (lambda i: F.multilabel_margin_loss(SCORES[0], i), at(0, 5, -1, 0, 0), at(0, 4, -1, 0, 0)),
    "masked_scatter": (lambda v: TABLE.masked_scatter(TABLE == TABLE, v), torch.ones(14), torch.ones(15)),
    "masked_scatter of copies": (lambda v: TABLE.masked_scatter(at(1, 0, 1) > 0, v), torch.ones(9), torch.ones(10)),
    "masked_scatter_": (lambda v: TABLE.clone().masked_scatter_(TABLE == TABLE, v), torch.ones(14), torch.ones(15)),
    "bernoulli": (torch.bernoulli, at(1.5), at(1.0)),
    "bernoulli_": (lambda p: torch.zeros(1).bernoulli_(p), at(-0.5), at(0.0)),
    "bernoulli like": (lambda p: torch.ops.aten.bernoulli.Tensor(ONE, p), at(1.5), at(0.5)),
    "multinomial": (lambda p: torch.multinomial(p, 1), at(-1.0, 2.0), at(0.0, 2.0)),
    "infinite weights": (lambda p: torch.multinomial(p, 1), at(float("inf"), 1.0), at(LARGE, 0.0)),
    "an infinite sum": (lambda p: torch.multinomial(p, 2, True), at(LARGE, LARGE), at(LARGE / 2, LARGE / 2)),
    "a row of zeros": (lambda p: torch.multinomial(p, 2, True), at([1.0, 2.0], [0.0, 0.0]), at([1.0, 2.0], [0.0, 9.0])),
    "binary": (lambda p: F.binary_cross_entropy(p, ONE), at(float("nan")), at(0.5)),
    "binary targets": (lambda p: F.binary_cross_entropy(ONE / 2, p), at(2.0), at(0.5)),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_value_out_of_range_is_an_error_before_the_operation_runs(name):
    """On a GPU the operation itself would end the process's use of the device, on a CPU its error names the value."""
    operation, bad, good = OUT_OF_RANGE[name]
    with CheckedValues():
        with pytest.raises(IndexError, match=r"^a value is out of range in aten\.\w+\.\w+$"):
            operation(bad)
        operation(good)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", ["index_reduce", "index_reduce_"])
def test_a_reduction_by_index_is_checked(name):
    operation = at_rows(name, torch.ones(1, 3), "prod")
    with CheckedValues():
        with pytest.raises(IndexError, match="out of range in aten"):
            operation(at(5))
        operation(at(4))


def test_many_classes_may_be_given_as_bytes():
    with CheckedValues():
        F.nll_loss(torch.zeros(2, 300), torch.tensor([156, 255], dtype=torch.uint8))


@pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
def test_masks_of_bytes_are_masks():
    with CheckedValues():
        assert TABLE[:1][torch.ones(1, dtype=torch.uint8)].shape == (1, 3)
        assert WIDE[MASK.byte(), at(3)].shape == (1,)


def test_tensors_without_values_are_not_checked():
    """A model may trace a part of itself."""
    with CheckedValues():
        F.embedding(at(1).to("meta"), TABLE.to("meta"))
        with FakeTensorMode():
            F.embedding(torch.zeros(3, dtype=torch.int64), torch.zeros(5, 3))
