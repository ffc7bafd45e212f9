"""How many runs DP-Auditorium's testers need to see missing Laplace noise at ε = 1, in an environment of its own.

`PYTHON benchmarks/_auditing_auditorium.py REPEATS` prints as JSON, for each tester and share of missing noise, the
runs on each dataset and the seconds of one test. DP-Auditorium is on no package index: the interpreter needs the folder
python/dp_auditorium of google/differential-privacy on its path, and what its requirements name.

A number of runs is enough if all of REPEATS tests reject (ε, δ) = (1, 1e-5) at a failure probability of 1e-6; numbers
grow by a fifth until one is. The testers get the best of what can be set: the two bins of the histogram meet at the
best event, and the classifier is the package's own.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
properties: Any = importlib.import_module("dp_auditorium.configs.privacy_property")
configs: Any = importlib.import_module("dp_auditorium.configs.property_tester_config")
testers: Any = importlib.import_module("dp_auditorium.testers")
hockey_stick: Any = importlib.import_module("dp_auditorium.testers.hockey_stick_tester")

EPSILON, DELTA, ALPHA = 1.0, 1e-5, 1e-6
#: Where a search starts: fewer runs are too few for the tester's own confidence bound.
START = {"histogram": {0.2: 300_000, 0.1: 1_400_000}, "hockey stick": {0.2: 12_000, 0.1: 50_000}}


def histogram() -> Any:
    """Two bins, [−2, 1) and [1, 4]."""
    claim = properties.ApproximateDp(EPSILON, DELTA)
    return testers.HistogramTester(configs.HistogramPropertyTesterConfig(False, 2, -2.0, 4.0, claim))


def classifier() -> Any:
    """A network that tells the two datasets apart, with the package's own settings."""
    claim = properties.ApproximateDp(EPSILON, DELTA)
    settings = configs.HockeyStickPropertyTesterConfig(hockey_stick.make_default_hs_training_config(), claim)
    return testers.HockeyStickPropertyTester(settings, hockey_stick.make_default_hs_base_model())


def seen(make: Callable[[], Any], share: float, runs: int) -> bool:
    """Whether one test rejects."""
    generator, tester = np.random.default_rng(), make()
    moved, other = 1 + generator.laplace(0.0, share, runs), generator.laplace(0.0, share, runs)
    return bool(tester.reject_property(tester.estimate_lower_bound(moved, other, ALPHA)))


def main(repeats: int) -> None:
    """Search, and print what was found."""
    results = []
    for name, make in (("histogram", histogram), ("hockey stick", classifier)):
        for missing, start in START[name].items():
            runs = start
            while True:
                began = time.perf_counter()
                if all(seen(make, 1 - missing, runs) for _ in range(repeats)):
                    break
                runs = round(1.2 * runs)
            results.append((name, missing, runs, (time.perf_counter() - began) / repeats))
    print("\n" + json.dumps(results))  # the classifier prints its progress


if __name__ == "__main__":
    main(int(sys.argv[1]))
