"""Choosing among candidates, such as settings of a training, at a price that is known in advance.

- `_select` is the one-call interface, `methods` the ways to choose and what each costs;
- `advice` says how many candidates are worth trying, before anything runs;
- `trials` draws the number of trials of a random search, `journal` lets a search continue after a crash.
"""

from discreet.learning.selection._select import Selected, select
from discreet.learning.selection.advice import Search, SearchAdvice, worth_trying
from discreet.learning.selection.methods import Method, PrivateScores, RandomStopping

__all__ = ["Method", "PrivateScores", "RandomStopping", "Search", "SearchAdvice", "Selected", "select", "worth_trying"]
