"""What every privacy loss can answer, so that the methods need not know which event it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cells:
    """P and Q of the losses between consecutive edges, and the part of P that goes to the upper edge of each cell.

    Splitting a cell's mass between its edges so that both P and Q are kept is the connect-the-dots rule (Doroshenko,
    Ghazi, Kamath, Kumar & Manurangsi 2022, arXiv 2207.04380): `upper_share` = ∫(1 − e^{a−l})dP / (1 − e^{a−b}).
    """

    p: Floats
    q: Floats
    upper_share: Floats


class PrivacyLoss(Protocol):
    """The privacy loss ln(dP/dQ) of one release, under P: atoms, a density, and an infinite part."""

    @property
    def infinite(self) -> float:
        """P of an infinite loss: outputs that Q cannot give."""

    @property
    def unbounded(self) -> bool:
        """Whether finite losses lie outside of every finite support."""

    def atoms(self) -> tuple[Floats, Floats, Floats]:
        """Losses, P masses and Q masses of the atoms, in increasing order of the loss."""

    def support(self, tail: float) -> tuple[float, float]:
        """Losses below and above which P has at most `tail`, atoms included."""

    def cells(self, edges: Floats) -> Cells:
        """The part with a density, in the cells between `edges`."""
