"""Five models, one budget of ε = 1: publishing the loss of each costs ε = 1 each, so the second one is refused."""

from __future__ import annotations

import numpy as np

import discreet as dp
from discreet.errors import BudgetExceeded

people = dp.datasets.adult()
ages, rich = people["age"], people["income"] == ">50K"
census = dp.Ledger("five_models.ledger").account("census", budget=dp.PureDP(1.0))

for number, threshold in enumerate([30, 35, 40, 45, 50], 1):
    loss = dp.queries.mean(np.abs((ages > threshold) - 1.0 * rich), bounds=(0, 1))
    noise = dp.mechanisms.Laplace.for_epsilon(loss, 1.0)
    try:
        census.spend(noise.event(loss), purpose=f"loss of model {number}")
    except BudgetExceeded as refused:
        print(f"model {number}: refused. {refused}")
    else:
        print(f"model {number}: loss {noise.release(loss)}")
print(census.statement())
