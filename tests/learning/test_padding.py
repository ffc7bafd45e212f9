"""Examples of different lengths: padded to a public length one by one, never to the longest of a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning import PadTo, Plan, train
from discreet.learning.data.records import Records
from tests.learning import small


def sentences(count=40):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, 9, (count,), generator=generator).tolist()
    return [{"input_ids": torch.randint(1, 20, (n,), generator=generator).tolist(), "label": n % 2} for n in lengths]


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(20, 4), nn.Linear(4, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(2).float()
        return self.out((self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp_min(1.0))


def loss(model, batch):
    scores = model(batch["input_ids"], batch["attention_mask"])
    return nn.functional.cross_entropy(scores, batch["label"], reduction="none")


def test_sequences_are_cut_or_padded_with_a_mask():
    row = PadTo(4, fill={"input_ids": 9})([{"input_ids": [1, 2], "labels": np.array([1, 2]), "weight": 0.5}])
    assert row["input_ids"].tolist() == [[1, 2, 9, 9]]
    assert row["labels"].tolist() == [[1, 2, -100, -100]]
    assert row["attention_mask"].tolist() == [[1, 1, 0, 0]]
    assert row["weight"].tolist() == [0.5]
    long = PadTo(4, mask=None)([{"input_ids": torch.arange(9)}])
    assert long["input_ids"].tolist() == [[0, 1, 2, 3]]
    assert set(long) == {"input_ids"}


@pytest.mark.parametrize("values", [[], [1], list(range(50)), torch.zeros(0, dtype=torch.long)])
def test_every_length_gives_the_same_shape_and_type(values):
    row = PadTo(5)([{"input_ids": values}])
    assert row["input_ids"].shape == (1, 5)
    assert row["input_ids"].dtype == torch.long


@pytest.mark.parametrize("length", [0, -1, 2.5, float("nan"), "8"])
def test_the_length_is_a_positive_integer(length):
    with pytest.raises(InvalidArgument, match="length must be"):
        PadTo(length)


def test_collate_sees_one_example_at_a_time():
    seen = []

    def collate(examples):
        seen.append(len(examples))
        return PadTo(8)(examples)

    batch = Records(sentences(), collate).fetch(np.array([3, 5, 5]))
    assert seen == [1, 1, 1]
    assert batch["input_ids"].shape == (3, 8)


def test_collate_works_on_columns_and_tuples_too():
    columns = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    batch = Records(columns, lambda examples: (examples[0][0][None], examples[0][1].reshape(1))).fetch(np.array([4, 0]))
    assert batch[0].tolist() == [[8.0, 9.0], [0.0, 1.0]]
    assert batch[1].tolist() == [4, 0]


def test_a_collate_that_pads_to_its_batch_is_refused_with_the_remedy():
    def longest(examples):
        return {"input_ids": torch.tensor([example["input_ids"] for example in examples])}

    with pytest.raises(InvalidArgument, match="pad to a fixed length"):
        Records(sentences(), longest).fetch(np.arange(10))
    with pytest.raises(InvalidArgument, match="one example at a time"):
        Records(sentences(), lambda examples: torch.zeros(2, 3)).fetch(np.arange(2))
    with pytest.raises(InvalidArgument, match="collate must be callable"):
        Records(sentences(), "pad")


def test_variable_lengths_are_trained_with_masks_and_fail_before_the_charge_without(tmp_path):
    account = dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))
    plan = Plan.for_noise(1.0, delta=1e-5, examples=40, batch_size=10, steps=3, clip_norm=1.0)
    model = Bag()
    settings = {
        "optimizer": torch.optim.Adam(model.parameters()),
        "account": account,
        "progress": False,
        "compile": False,
    }
    with pytest.raises(Exception, match=r"equal size|collate"):
        train(model, loss, sentences(), plan, **settings)
    assert not small.charges(account)
    run = train(model, loss, sentences(), plan, collate=PadTo(8), **settings)
    assert run.finished
    assert set(run.mechanism(sentences())) == {"words.weight", "out.weight", "out.bias"}


@pytest.mark.slow
def test_padding_changes_no_gradient():
    plan = Plan.for_noise(1e-9, delta=1e-5, examples=8, batch_size=8, steps=1, clip_norm=1.0, insecure_seed=1)
    found = []
    for length in (8, 13):
        torch.manual_seed(0)
        model = Bag().double()
        step = plan.step(model, loss, compile=False)
        for batch in plan.batches(sentences(8), collate=PadTo(length)):
            step.fill(batch)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    assert torch.allclose(*found, atol=1e-7)
