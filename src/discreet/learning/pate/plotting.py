"""Charts of answers: one that may be published, and one of the votes themselves, which is for the data's owner."""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet import _check, accounting
from discreet.errors import MissingExtra
from discreet.learning.pate._answers import Answers, voting_event
from discreet.learning.pate.price import spent_by_order, to_epsilon
from discreet.learning.pate.voting import ConfidentVoting, Voting

_ANSWERED, _OTHER, _INK, _SECRET = "#2a9d8f", "#b8c4c2", "#264653", "#e76f51"
#: Points of a curve of prices; each is computed by an accountant.
_POINTS = 12
_SECRET_TITLE = "SECRET: computed from exact votes, for the data's owner only"


def plot_answers(answers: Answers, voting: Voting, delta: float) -> Any:
    """The answered share and ε as questions are asked, as a matplotlib figure. It may be published.

    Guarantee: that of `answers.event`: it is drawn from released labels and public settings alone, and its ε holds for
    all votes.
    """
    figure, (left, right) = _panels(9.0)
    _share(left, answers)
    asked, prices = _prices(answers, voting, delta)
    right.plot(asked, prices, color=_INK, linewidth=2, marker="o", markersize=3)
    right.set(xlabel="questions asked", ylabel=f"ε at δ = {delta:g}", ylim=(0, None))
    right.set_title("data-independent price: holds for all votes", fontsize=10, color=_INK)
    if given := int(answers.answered.sum()):
        each = f"{prices[-1] / given:.3g} for each of {given:,} labels, {asked[-1]:,} questions"
        right.annotate(each, (0.98, 0.06), xycoords="axes fraction", ha="right", fontsize=9, color=_INK)
    return figure


def plot_votes(answers: Answers, voting: Voting, delta: float) -> Any:
    """The consensus of the teachers, and ε in both prices, as a matplotlib figure. **Not private.**

    Guarantee: none. It shows exact votes and a price that depends on them; only the data's owner may see it.
    """
    if answers.counts is None:
        raise _check.fail("answers", "hold their votes", "answers that were read back", "votes are never stored")
    figure, (left, right) = _panels(9.0)
    consensus = answers.counts.max(axis=1)
    teachers = max(1, int(answers.counts.sum(axis=1).max(initial=1)))
    bins = np.linspace(0, teachers, min(teachers, 25) + 1)
    groups = [consensus[answers.answered], consensus[~answers.answered]]
    left.hist(groups, bins=bins, stacked=True, color=[_ANSWERED, _OTHER], label=["answered", "not answered"])
    if isinstance(voting, ConfidentVoting):
        left.axvline(voting.threshold, color=_SECRET, linestyle="--", linewidth=1.5, label="threshold")
    left.set(xlabel="votes for the most frequent class", ylabel="questions")
    left.legend(frameon=False, fontsize=9)
    left.set_title("consensus of the teachers", fontsize=10, color=_INK)
    asked, prices = _prices(answers, voting, delta)
    by_order = np.cumsum(spent_by_order(answers, voting), axis=0)
    dependent = np.array([to_epsilon(by_order[until - 1], delta)[0] if until else 0.0 for until in asked])
    right.plot(asked, prices, color=_INK, linewidth=2, label="data-independent: charged, may be published")
    right.plot(asked, np.minimum(dependent, prices), color=_SECRET, linewidth=2, label="data-dependent: secret")
    right.set(xlabel="questions asked", ylabel=f"ε at δ = {delta:g}", ylim=(0, None))
    right.legend(frameon=False, fontsize=9)
    right.set_title("what the answers cost", fontsize=10, color=_INK)
    figure.suptitle(_SECRET_TITLE, color=_SECRET, fontsize=11)
    return figure


def _panels(width: float) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
    figure = Figure(figsize=(width, 3.6), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _share(axes: Any, answers: Answers) -> None:
    asked = np.arange(1, len(answers.labels) + 1)
    axes.plot(asked, np.cumsum(answers.answered) / np.maximum(asked, 1), color=_ANSWERED, linewidth=2)
    axes.set(xlabel="questions asked", ylabel="share answered", ylim=(0, 1.05))
    axes.set_title("answered so far", fontsize=10, color=_INK)


def _prices(answers: Answers, voting: Voting, delta: float) -> tuple[list[int], list[float]]:
    """ε of the first questions, at a few numbers of questions: as many answered as could be, so it holds for all votes.

    The last one is ε of `answers.event`. How many passed is known afterwards only, and a price of it is no guarantee.
    """
    total = len(answers.labels)
    asked = sorted({round(total * share) for share in np.linspace(0, 1, _POINTS)})
    most = next((k for k in range(total + 1) if voting_event(voting, total, k) == answers.event), total)
    declared = (voting_event(voting, until, min(until, most)) for until in asked)
    return asked, [
        accounting.epsilon(event, delta).upper if until else 0.0 for until, event in zip(asked, declared, strict=True)
    ]
