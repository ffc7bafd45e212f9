"""Event → Guarantee: what an event costs. Pure functions that know nothing of mechanisms or data.

There are three ways to ask:

- for events fixed in advance, tightly and certified from both sides: `epsilon`, `delta`, `profile`, `trade_off`,
  `calibrate`;
- in a form that adds up: `pure`, `zcdp`, `rdp`, `gdp`;
- for events that are chosen step by step: `AdaptiveFilter`, `Odometer`.

`allocate` plans what remains of a budget. `compare` shows what each method would charge; `basic`, `advanced` and
`optimal_pure` are the textbook theorems. An event that no theorem prices raises `UnknownEvent`.

A tight price takes this route (`tight`): event → ways a unit can meet it (`losses.collapse`) → privacy losses
(`losses.of_events`) → a method (`methods.choose`) → certified bounds (`methods`) → `Interval`.
"""

from discreet.accounting._allocate import Allocation, allocate
from discreet.accounting._calibrate import calibrate, most_steps
from discreet.accounting._compare import Comparison, compare
from discreet.accounting._generalization import GeneralizationGap, generalization_gap
from discreet.accounting._profile import Profile, profile
from discreet.accounting._trade_off import TradeOff, trade_off
from discreet.accounting.adaptive.filter import AdaptiveFilter, Refused
from discreet.accounting.adaptive.odometer import Odometer
from discreet.accounting.composition import advanced, basic, group, optimal_pure, parallel
from discreet.accounting.forms.gdp import gdp
from discreet.accounting.forms.pure import pure
from discreet.accounting.forms.rdp import rdp
from discreet.accounting.forms.zcdp import zcdp
from discreet.accounting.interval import Interval
from discreet.accounting.prices import registry as _registry  # noqa: F401 - it registers every price
from discreet.accounting.shuffle import shuffled_delta, shuffled_epsilon
from discreet.accounting.tight import delta, epsilon

__all__ = [
    "AdaptiveFilter",
    "Allocation",
    "Comparison",
    "GeneralizationGap",
    "Interval",
    "Odometer",
    "Profile",
    "Refused",
    "TradeOff",
    "advanced",
    "allocate",
    "basic",
    "calibrate",
    "compare",
    "delta",
    "epsilon",
    "gdp",
    "generalization_gap",
    "group",
    "most_steps",
    "optimal_pure",
    "parallel",
    "profile",
    "pure",
    "rdp",
    "shuffled_delta",
    "shuffled_epsilon",
    "trade_off",
    "zcdp",
]
