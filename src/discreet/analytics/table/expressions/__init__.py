"""What may be computed from a row, a file for each family; `nodes` holds what all of them share."""

from discreet.analytics.table.expressions.choices import case, coalesce, greatest, least
from discreet.analytics.table.expressions.depth import compilable, within_the_stack
from discreet.analytics.table.expressions.nodes import (
    Cases,
    Clipped,
    Column,
    Compared,
    Constant,
    Expression,
    Filled,
    FunctionCall,
    Logic,
    Missing,
    Present,
    wrap,
)
from discreet.analytics.table.expressions.unsupported import Unsupported

__all__ = [
    "Cases",
    "Clipped",
    "Column",
    "Compared",
    "Constant",
    "Expression",
    "Filled",
    "FunctionCall",
    "Logic",
    "Missing",
    "Present",
    "Unsupported",
    "case",
    "coalesce",
    "compilable",
    "greatest",
    "least",
    "within_the_stack",
    "wrap",
]
