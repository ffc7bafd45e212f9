"""One training of `benchmarks.startup`: prints the seconds from a model on its device to the end of each step, as JSON.

python -m benchmarks._startup_run CASE DEVICE KIND SECONDS quick|full
"""

from __future__ import annotations

import json
import sys
import time

import torch

from benchmarks.training import cases, ours, plain

#: With fewer steps, nobody could tell how long they take at the end.
_FEWEST = 30


def end_times(name: str, device: str, kind: str, seconds: float, quick: bool) -> list[float]:
    """When each step ended, for about `seconds` and some steps at least. `kind` is "ours", "compiled" or "eager"."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    (case,) = (case for case in cases(device == "cuda", quick) if case.name == name)
    with torch.device(device if case.large else "cpu"):
        model = case.model().to(device).train()
    inputs, targets = case.batch()
    batch = (inputs.to(device), targets.to(device))

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    ends: list[float] = []
    start = now()
    if kind == "ours":
        step = ours(case, model, batch, compiled=None)
    else:
        step = plain(case, model, batch, compiled=kind == "compiled")
    while len(ends) < _FEWEST or ends[-1] < seconds:
        step()
        ends.append(now() - start)
    return ends


if __name__ == "__main__":
    name, device, kind, seconds, quick = sys.argv[1:]
    print(json.dumps(end_times(name, device, kind, float(seconds), quick == "quick")))
