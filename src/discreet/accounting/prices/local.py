"""Local reports whose loss takes three values: with probability w a binary report, and nothing otherwise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from discreet.accounting.forms import renyi
from discreet.accounting.forms.gdp import pure_mu
from discreet.accounting.forms.sampled_renyi import convex
from discreet.accounting.forms.zcdp import pure_rho
from discreet.accounting.losses.atoms import AtomLoss, randomized_response
from discreet.accounting.losses.composed import Losses
from discreet.accounting.losses.of_events import View
from discreet.accounting.prices.price import EventPrices
from discreet.accounting.refusal import unknown
from discreet.events import Event, LocalReport
from discreet.neighbors import ADD_REMOVE, Relation
from discreet.numeric.rounding import Floats, exact, float_up, raised, rounded_down


class LocalReportPrice(EventPrices):
    """The loss is ±ε as in randomized response with probability w, and 0 with 1 − w, on both neighbors."""

    has_losses = True

    def losses(self, event: LocalReport, view: View) -> Losses:
        _check_relation(event, view.relation)
        weight, binary = float(event.informative), randomized_response(float(event.epsilon))
        if weight <= 0 or not view.upper:  # `informative` is a bound: a report may tell less, and nothing at all
            return Losses()
        (low_p, high_p), (low_q, high_q) = weight * binary.p, weight * binary.q
        losses = np.insert(binary.losses, 1, 0.0)
        return Losses.of(AtomLoss(losses, np.array([low_p, 1 - weight, high_p]), np.array([low_q, 1 - weight, high_q])))

    def pure(self, event: LocalReport, relation: Relation) -> float:
        _check_relation(event, relation)
        return 0.0 if event.informative <= 0 else float_up(event.epsilon)

    def zcdp(self, event: LocalReport, relation: Relation) -> float:
        return pure_rho(self.pure(event, relation))

    def gdp(self, event: LocalReport, relation: Relation) -> float:
        return pure_mu(self.pure(event, relation))

    def rdp(self, event: LocalReport, orders: Floats, relation: Relation) -> Floats:
        """ln(1 − w + w·e^{(α−1)D})/(α−1) with D that of a binary report."""
        always, weight = renyi.pure(orders, self.pure(event, relation)), float_up(exact(event.informative))
        moments = [convex(float(a), weight, (float(a) - 1) * float(d)) for a, d in zip(orders, always, strict=True)]
        return np.minimum(always, raised(np.array(moments) / (orders - 1)))

    def scaled(self, event: LocalReport, factor: float) -> Event:
        return replace(event, epsilon=rounded_down(event.epsilon / Fraction(factor)))


def _check_relation(event: LocalReport, relation: Relation) -> None:
    if relation is ADD_REMOVE:
        why = "who sends a report is seen, which add/remove hides; price it under REPLACE_ONE or ZERO_OUT"
        raise unknown(event, "accounting", why)
