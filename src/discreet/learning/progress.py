"""The progress bar of a training, for the owner of the data. It shows exact numbers, so it is not private."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any

from discreet.errors import MissingExtra


class ProgressBar:
    """A bar with the loss, the share of clipped examples, ε so far and at the end, throughput and time left.

    Use it as a context manager. It prints nothing if `shown` is false.
    """

    def __init__(self, shown: bool, steps: int, batch_size: int, final_epsilon: float) -> None:
        self._bar: Any = None
        self._task: Any = None
        self._batch_size, self._final = batch_size, final_epsilon
        self._began = self._first = 0.0
        self._from = 0
        if not shown:
            return
        try:
            from rich import progress as rich_progress
        except ModuleNotFoundError as error:
            raise MissingExtra(
                "a progress bar needs rich: pip install 'discreet[learning]', or progress=False"
            ) from error
        self._bar = rich_progress.Progress(
            rich_progress.TextColumn("[bold]private training"),
            rich_progress.BarColumn(bar_width=24),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TextColumn("{task.fields[words]}"),
            rich_progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("train", total=steps, words="first step: compiling …")

    def __enter__(self) -> ProgressBar:
        self._began = time.perf_counter()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def first_step(self, step: int) -> None:
        """Note that the first step is done. It includes start-up, so throughput is measured from here."""
        self._first, self._from = time.perf_counter(), step
        if self._bar is not None and self._first - self._began > 1.0:
            self._bar.console.print(f"start-up and first step: {self._first - self._began:.1f} s")

    def show(self, step: int, loss: float, clipped: float, epsilon: float) -> None:
        """Redraw the bar."""
        if self._bar is None:
            return
        passed = time.perf_counter() - self._first
        rate = (step - self._from) / passed if passed > 0 else 0.0
        words = [f"loss {loss:.4f}" if math.isfinite(loss) else "empty batch"]
        words += [f"clipped {100 * clipped:.0f}%"] if math.isfinite(clipped) else []
        words += [f"ε {epsilon:.3g} → {self._final:.3g}", f"{rate * self._batch_size:,.0f} examples/s"]
        self._bar.update(self._task, completed=step, words="  ".join(words))
