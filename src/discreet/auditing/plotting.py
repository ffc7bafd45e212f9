"""The picture of an audit: what the claim allows any attacker, and what this one reached."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.auditing.claims import Claim
from discreet.auditing.counts import clopper_pearson
from discreet.auditing.verdict import Audit
from discreet.errors import MissingExtra

_CLAIM, _REACHED, _INK, _MUTED = "#2a9d8f", "#e76f51", "#264653", "#999999"
# The least rate that logarithmic axes show.
_LEAST_RATE = 1e-4
# Rates of fewer false alarms than this are chance, and are not drawn.
_LEAST_SHOWN = 20
# The error probability of the bars around the tested event.
_TAIL = 0.025


def new_axes(width: float = 5.0, height: float = 5.0) -> Any:
    """Axes of a figure that no window belongs to."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise MissingExtra("plots need matplotlib: pip install 'discreet[report]'") from missing
    return Figure(figsize=(width, height), layout="constrained").subplots()


def draw(audit: Audit, axes: Any = None, *, log: bool = False) -> Any:
    """Draw the ROC curve of an audit; return the axes."""
    axes = new_axes() if axes is None else axes
    rates, allowed, alarms, hits = audit.curves
    axes.fill_between(rates, allowed, 1.0, color=_CLAIM, alpha=0.15, linewidth=0, label="a violation")
    axes.plot(rates, allowed, color=_CLAIM, linewidth=2, label="the claim: no attacker is above")
    shown = alarms * audit.witness.false_alarms[1] >= _LEAST_SHOWN
    axes.plot(alarms[shown], hits[shown], color=_REACHED, linewidth=1.5, label="reached")
    axes.plot(rates, rates, color=_MUTED, linestyle=":", linewidth=1, label="guessing")
    witness = audit.witness
    (false, below), (true, above) = witness.false_alarms, witness.hits
    x, y = false / below, true / above
    across, up = clopper_pearson(false, below, _TAIL), clopper_pearson(true, above, _TAIL)
    axes.errorbar(
        [x],
        [y],
        xerr=np.abs(np.array([[x - across[0]], [across[1] - x]])),
        yerr=np.abs(np.array([[y - up[0]], [up[1] - y]])),
        fmt="o",
        color=_INK,
        markersize=4,
        linewidth=1,
        label="the event tested, 95%",
    )
    least = _LEAST_RATE if log else 0.0
    axes.set(xlabel="false alarms", ylabel="hits", xlim=(least, 1), ylim=(least, 1))
    if log:
        axes.set(xscale="log", yscale="log")
    axes.set_title("violation" if audit.violated else "no violation found", fontsize=11, color=_INK)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def draw_membership(
    alarms: NDArray[np.float64], hits: NDArray[np.float64], sure: NDArray[np.bool_], axes: Any, claim: Claim | None
) -> Any:
    """Draw the ROC curve of a membership attack on logarithmic axes, below what a claim allows; return the axes."""
    axes = new_axes() if axes is None else axes
    rates = np.geomspace(_LEAST_RATE, 1.0, 201)
    if claim is not None:
        allowed = np.max([curve.power(rates) for curve in claim.forward], axis=0)
        axes.fill_between(rates, allowed, 1.0, color=_CLAIM, alpha=0.15, linewidth=0)
        axes.plot(rates, allowed, color=_CLAIM, linewidth=2, label="the claim: no attacker is above")
    axes.step(alarms, hits, where="post", color=_REACHED, linewidth=1, alpha=0.35)
    axes.step(alarms[sure], hits[sure], where="post", color=_REACHED, linewidth=1.5, label="the attack")
    axes.plot(rates, rates, color=_MUTED, linestyle=":", linewidth=1, label="guessing")
    axes.set(xscale="log", yscale="log", xlim=(_LEAST_RATE, 1), ylim=(_LEAST_RATE, 1))
    axes.set(xlabel="false alarms", ylabel="members found")
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return axes
