"""Audits: look for a violation of a claim, and say how hard one looked. They run on public or generated data only.

`replay` runs a pipeline on neighboring data and checks, at every mechanism, that what arrives differs by no more than
was declared, and that everything else is equal.
"""

from discreet.auditing.replay import Pair, Replay, Violation, replay

__all__ = ["Pair", "Replay", "Violation", "replay"]
