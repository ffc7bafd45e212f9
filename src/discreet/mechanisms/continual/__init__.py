"""Counting as data arrives: a running answer after every step, under one event for the whole stream.

A counter is one frozen object. `state = counter.start()`, then `state, release = counter.step(state, query)` for each
step. Steps are pure; the state is small, serializable and secret. `Account.stream(counter)` is the safe way to run one:
it charges the event once and never continues a state twice. `best_for` picks the counter with the smallest exact error.
"""

from discreet.mechanisms.continual.banded import Banded, SquareRoot
from discreet.mechanisms.continual.choosing import CounterChoice, CounterRow, best_for
from discreet.mechanisms.continual.counter import Counter
from discreet.mechanisms.continual.doubling import Doubling
from discreet.mechanisms.continual.encoders import Encoded
from discreet.mechanisms.continual.participation import Participation
from discreet.mechanisms.continual.recursions import BandedInverse, Buffered
from discreet.mechanisms.continual.stream import RunningRelease, State, Stream
from discreet.mechanisms.continual.trees import SubtractionTree, Tree
from discreet.mechanisms.continual.workloads import Decayed, Total, Window

__all__ = [
    "Banded",
    "BandedInverse",
    "Buffered",
    "Counter",
    "CounterChoice",
    "CounterRow",
    "Decayed",
    "Doubling",
    "Encoded",
    "Participation",
    "RunningRelease",
    "SquareRoot",
    "State",
    "Stream",
    "SubtractionTree",
    "Total",
    "Tree",
    "Window",
    "best_for",
]
