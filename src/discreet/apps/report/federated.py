"""A federated training as a section of the report: accuracy and ε, round by round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.apps.report.document import Training

if TYPE_CHECKING:
    from discreet.learning.federated.plan import RoundsPlan


def federated_training(plan: RoundsPlan, result: Any, title: str = "Federated training") -> Training:
    """What a report shows of a federated training: the plan, ε after each round, and what the server measured.

    Args:
        plan: the plan that ran.
        result: what `strategy.start(…)` returned. After a restart it holds the rounds of the last process only.
        title: the heading of the section.

    Guarantee:
        ε is a number of the plan, and the clip norm a release of it. Numbers that `evaluate_fn` returned are shown as
        they are, so it must have used public data or releases.

    >>> from discreet.learning import Plan
    >>> plan = Plan.federated(100, rate=0.5, rounds=2, clip_norm=1.0, epsilon=1.0, delta=1e-5)
    >>> class Result:
    ...     train_metrics_clientapp = {1: {"epsilon": 0.7, "clip-norm": 1.0}, 2: {"epsilon": 1.0, "clip-norm": 1.0}}
    ...     evaluate_metrics_serverapp = {0: {"accuracy": 0.5}, 1: {"accuracy": 0.7}, 2: {"accuracy": 0.8}}
    >>> federated_training(plan, Result()).series
    (('ε so far', (0.0, 0.7, 1.0)), ('accuracy', (0.5, 0.7, 0.8)))
    """
    taken = dict(result.train_metrics_clientapp)
    measured = dict(result.evaluate_metrics_serverapp)
    rounds = tuple(sorted(measured or taken))
    spent = tuple(
        float(taken[number]["epsilon"]) if number in taken else plan.epsilon_after(number) for number in rounds
    )
    series = [("ε so far", spent)] if rounds else []
    for name in dict.fromkeys(name for metrics in measured.values() for name in metrics):
        values = [measured[number].get(name) for number in rounds]
        if all(isinstance(value, int | float) for value in values):
            series.append((str(name), tuple(float(value) for value in values)))
    norms = {float(facts["clip-norm"]) for facts in taken.values()}
    if len(norms) > 1:
        first = min(taken)
        # Before the first round that is known, the norm is the one that this round was clipped with.
        shown = tuple(float(taken[max(number, first)]["clip-norm"]) for number in rounds)
        series.append(("clip norm", shown))
    return Training(
        title=title,
        plan=" ".join(plan.explain().splitlines()[:-1]),
        steps=rounds,
        series=tuple(series),
        guarantee=str(plan.guarantee),
        unit="round",
    )
