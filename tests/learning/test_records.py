"""Data with random access is accepted as it is; other data is refused with a remedy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from discreet.errors import InvalidArgument
from discreet.learning.data.records import Records, padded, persons_rows
from tests.learning import small


class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 9

    def __getitem__(self, index):
        return torch.full((3,), float(index)), index % 2


ROWS = np.array([4, 1, 4])


def test_all_forms_of_data_give_the_same_rows():
    inputs, targets = torch.arange(9.0).reshape(9, 1).repeat(1, 3), torch.arange(9) % 2
    forms = [
        (inputs, targets),
        [inputs, targets],
        (inputs.numpy(), targets.numpy()),
        torch.utils.data.TensorDataset(inputs, targets),
        Pairs(),
    ]
    for form in forms:
        records = Records(form)
        assert records.size == 9
        got_inputs, got_targets = records.fetch(ROWS)
        assert torch.equal(got_inputs, inputs[ROWS])
        assert torch.equal(got_targets, targets[ROWS])
    nested = Records({"a": inputs, "b": {"c": targets.numpy()}}).fetch(ROWS)
    assert torch.equal(nested["b"]["c"], targets[ROWS])
    assert torch.equal(Records(inputs).fetch(ROWS), inputs[ROWS])


def test_what_has_no_random_access_is_refused_with_the_remedy():
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    for bad in (Endless(), iter([1, 2]), (x for x in range(3)), "text", 3, None):
        with pytest.raises(InvalidArgument, match="random access"):
            Records(bad)
    with pytest.raises(InvalidArgument, match="dataset instead"):
        Records(torch.utils.data.DataLoader(Pairs()))


def test_tensors_of_different_lengths_are_refused_without_saying_the_lengths():
    with pytest.raises(InvalidArgument, match="same length") as caught:
        Records((torch.zeros(51, 2), torch.zeros(52)))
    assert "51" not in str(caught.value)
    assert "52" not in str(caught.value)


def test_a_piece_is_filled_up_and_masked():
    rows, mask = padded(np.array([7, 3]), 5)
    assert rows.tolist() == [7, 3, 7, 7, 7]
    assert mask.tolist() == [True, True, False, False, False]


def test_pieces_of_a_batch_have_one_size_and_hold_each_row_once():
    plan = small.plan(physical_batch_size=5, batch_size=30, steps=20)
    inputs, targets = small.data()
    for batch in plan.batches((inputs, targets)):
        pieces = list(batch.pieces("cpu"))
        assert all(piece[0].shape == (5, 4) and mask.shape == (5,) for piece, mask in pieces)
        kept = [piece[0][mask] for piece, mask in pieces]
        assert torch.equal(torch.cat(kept), inputs[batch._rows])
        shares = [torch.cat([p[0][m] for p, m in batch.pieces("cpu", (rank, 3))]) for rank in range(3)]
        assert sorted(map(tuple, torch.cat(shares).tolist())) == sorted(map(tuple, inputs[batch._rows].tolist()))


@pytest.mark.parametrize(
    "ids",
    [
        ["a", None, "b", None, "a"],
        np.array([1.0, np.nan, 2.0, np.nan, 1.0]),
        torch.tensor([1, 7, 2, 7, 1]),
        np.array(["a", "", "b", "", "a"]),
    ],
)
def test_a_persons_rows_are_together_and_missing_ids_are_one_person(ids):
    rows = persons_rows(ids, 5)
    assert sorted(sorted(each.tolist()) for each in rows) == [[0, 4], [1, 3], [2]]


def test_as_many_ids_as_rows_are_needed():
    with pytest.raises(InvalidArgument, match="one id per"):
        persons_rows([1, 2], 3)
    assert persons_rows([], 0) == []


def test_persons_that_differ_after_a_nul_are_two_persons():
    assert len(persons_rows(["a", "a\0", "b"], 3)) == 3
