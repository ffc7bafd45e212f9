"""What renewing a budget promises: the guarantee of a person whose data is in several periods."""

from __future__ import annotations

from discreet import _check
from discreet.accounting.adaptive.budgets import form_of
from discreet.guarantees import Guarantee


def promise_over(budget: Guarantee, periods: int) -> Guarantee:
    """What all of `periods` budgets together promise someone whose data is in each of them.

    The periods are n mechanisms run one after the other, each chosen in view of the earlier answers. ε and δ add up
    (Dwork & Roth 2014, Theorem 3.16 and its adaptive form, Theorem B.1), ρ and each order's ε add up (Bun & Steinke
    2016, Lemma 2.3; Mironov 2017, Proposition 1), and μ grows with √n (Dong, Roth & Su 2022, Corollary 3.3).

    Args:
        budget: the budget of one period.
        periods: how many periods.

    >>> from discreet.guarantees import PureDP
    >>> print(promise_over(PureDP(1.0), 4))
    4-DP
    """
    count = _check.integer("periods", periods, "it is the number of budgets that a person's data is exposed to")
    promise: Guarantee = form_of(budget).over(count)
    return promise


def promise_words(budget: Guarantee, periods: int) -> str:
    """The same in words, for the steward who renews and for the people in the data."""
    if periods == 1:
        return f"One period: {budget}."
    return (
        f"Each of {periods} periods has a budget of its own, {budget}. Someone whose data is in all of them is "
        f"promised {promise_over(budget, periods)} altogether, not the budget of one period. Answers of earlier "
        "periods stay known: a new period gives nothing back."
    )
