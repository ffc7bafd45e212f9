"""`discreet plan`: every cell costs the budget, and the best one is within the limit of compute."""

from __future__ import annotations

import json

import pytest

from discreet import accounting
from discreet.accounting.trainings import trainings
from discreet.errors import InvalidArgument
from discreet.events import Gaussian, PoissonSampled, Repeated
from discreet.guarantees import ApproxDP

BUDGET = ApproxDP(3.0, 1e-5)


def test_every_training_of_the_grid_uses_up_the_budget_and_no_more():
    found = trainings(BUDGET, examples=10_000, batch_sizes=[100, 1000], epochs=[1, 10])
    assert [(cell.batch_size, cell.epochs) for cell in found.cells] == [(100, 1), (100, 10), (1000, 1), (1000, 10)]
    for cell in found.cells:
        event = Repeated(PoissonSampled(cell.batch_size / 10_000, Gaussian(cell.noise_multiplier)), cell.steps)
        assert 2.98 < accounting.epsilon(event, 1e-5).upper <= 3.0
        assert cell.gradients == cell.batch_size * cell.steps


def test_the_best_is_within_the_limit_and_no_other_there_has_much_less_noise():
    free = trainings(BUDGET, examples=10_000, batch_sizes=[100, 1000], epochs=[1, 10])
    assert free.best is not None
    assert (free.best.batch_size, free.best.epochs) == (1000, 10.0)
    bounded = trainings(BUDGET, examples=10_000, batch_sizes=[100, 1000], epochs=[1, 10], gradients=20_000)
    assert bounded.best is not None
    assert bounded.best.gradients <= 20_000
    within = [cell.run_noise for cell in bounded.cells if cell.gradients <= 20_000]
    assert bounded.best.run_noise <= 1.01 * min(within)
    assert trainings(BUDGET, examples=10_000, batch_sizes=[100], epochs=[1], gradients=9).best is None


@pytest.mark.parametrize(
    "changes", [{"batch_sizes": []}, {"epochs": [float("nan")]}, {"batch_sizes": [20_000]}, {"gradients": 0}]
)
def test_a_grid_that_makes_no_sense_is_refused(changes):
    settings = {"examples": 10_000, "batch_sizes": [100], "epochs": [1.0]} | changes
    with pytest.raises(InvalidArgument):
        trainings(BUDGET, **settings)


def test_the_command_shows_the_grid_and_marks_the_best(run):
    line = "discreet plan --examples 10000 --epsilon 3 --delta 1e-5 --batch-sizes 100,1000 --epochs 1,10"
    shown = run(f"{line} --gradients 20000").out
    assert shown.count("*") == 2, "in the table, and where it is explained"
    assert "more than 20000 gradients" in shown
    assert any(bar in shown for bar in "▁█")
    answer = json.loads(run(f"{line} --json").out)
    assert len(answer["trainings"]) == 4
    assert answer["best"] in answer["trainings"]


@pytest.mark.parametrize("flags", ["--batch-sizes 1,x", "--epochs 1,,2", "--epsilon 0", "--batch-sizes 0"])
def test_wrong_flags_are_refused_in_one_line(run, flags):
    outcome = run(f"discreet plan --examples 1000 --epsilon 1 --delta 1e-5 {flags}")
    assert outcome.code == 2
    assert len(outcome.err.strip().splitlines()) == 1
