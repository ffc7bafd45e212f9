"""A run's secret stays in its process and in its object."""

from __future__ import annotations

import copy
import os

import pytest

from discreet.errors import DiscreetError
from tests.learning import small


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn about forks in a process with threads
def test_a_forked_process_does_not_draw_the_same_noise():
    step = small.step(small.plan(insecure_seed=None))
    child = os.fork()
    if child == 0:
        try:
            step._noise(0, 1.0)
        except DiscreetError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    step._noise(0, 1.0)


def test_a_step_is_not_copied_with_its_noise():
    step = small.step(small.plan(insecure_seed=None))
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="noise"):
            copied(step)
