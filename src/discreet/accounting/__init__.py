"""Event → Guarantee: what a thing that was run costs. Pure functions that know nothing of mechanisms or data.

Three ways to ask:

- for what was fixed in advance, tightly and certified from both sides: `epsilon`, `delta`, `profile`, `calibrate`;
- in a form that adds up: `pure`, `zcdp`, `rdp`, `gdp`;
- while it is being chosen, step by step: `AdaptiveFilter`, `Odometer`.

`compare` shows what each method would have charged; `basic`, `advanced` and `optimal_pure` are the theorems that people
teach. An event that no theorem prices raises `UnknownEvent`.
"""

from discreet.accounting.calibrate import calibrate, most_steps
from discreet.accounting.compare import Comparison, compare
from discreet.accounting.composition import advanced, basic, group, optimal_pure, parallel
from discreet.accounting.filters import AdaptiveFilter, Refused
from discreet.accounting.gdp import gdp
from discreet.accounting.interval import Interval
from discreet.accounting.odometer import Odometer
from discreet.accounting.profile import Profile, profile
from discreet.accounting.pure import pure
from discreet.accounting.rdp import rdp
from discreet.accounting.shuffle import shuffled_delta, shuffled_epsilon
from discreet.accounting.tight import delta, epsilon
from discreet.accounting.zcdp import zcdp

__all__ = [
    "AdaptiveFilter",
    "Comparison",
    "Interval",
    "Odometer",
    "Profile",
    "Refused",
    "advanced",
    "basic",
    "calibrate",
    "compare",
    "delta",
    "epsilon",
    "gdp",
    "group",
    "most_steps",
    "optimal_pure",
    "parallel",
    "profile",
    "pure",
    "rdp",
    "shuffled_delta",
    "shuffled_epsilon",
    "zcdp",
]
