"""The loop over a plan's steps: charging, allowing steps before they run, checkpoints, progress and Ctrl-C."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from discreet import _check
from discreet.learning import pricing, sharded
from discreet.learning.allowance import Allowance, TrainingOrigin
from discreet.learning.checkpoint import Checkpoint, fingerprint
from discreet.learning.data.batches import BatchStream
from discreet.learning.distributed import inner_model
from discreet.learning.evaluation import PeriodicEvaluation
from discreet.learning.noise import Secret
from discreet.learning.pending import PendingFile, beside, erase
from discreet.learning.plan import Plan
from discreet.learning.progress import ProgressBar
from discreet.learning.run import History
from discreet.learning.step import Observed, Step
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy


class TrainingLoop:
    """One training in progress. `train` creates it, and `Run` holds it."""

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        step: Step,
        optimizer: Optimizer,
        scheduler: Any,
        account: Account | None,
        purpose: str,
        progress: bool,
        evaluation: PeriodicEvaluation | None = None,
    ) -> None:
        self.plan, self.model, self.step = plan, model, step
        self._optimizer, self._scheduler = optimizer, scheduler
        self._account, self._purpose, self._progress = account, purpose, progress
        self._evaluation = evaluation
        self._team = step.team
        self._path: Path | None = None
        self._every = 1
        self.history = History()
        #: The number of the plan's steps that count as taken: those that ran, may have run, or may run now.
        self.allowed = 0
        #: The name of a training with correlated noise, in its checkpoint and in its secret file.
        self._run_name = None if plan.correlation is None else entropy.fresh_key().hex()

    # --- before the first step

    def prepare(
        self,
        data: Any,
        persons: Any,
        key: str | None,
        path: Path | None,
        every: int | None,
        resume: bool,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        """Read the checkpoint, check the model on a few rows, reserve the budget, and draw the sampler's secret."""
        plan = self.plan
        self._path = path
        if every is not None:
            _check.integer("every", every, "it is the number of steps between two checkpoints")
        self._every = every or max(1, plan.steps // 50)
        saved = self._team.run_on_first(lambda: self._saved(path, resume))
        origin = None if saved is None else TrainingOrigin(saved.key, saved.account, saved.receipt)
        if origin is not None:
            self._team.run_on_first(lambda: origin.check(self._account, key))
        self._allowance = Allowance(plan, self._account, key, self._purpose, origin)
        kept = None if saved is None else self._team.run_on_first(lambda: self._restore_pending(saved))
        if saved is not None and saved.sampler["secret"] is not None:
            kept = saved.sampler["secret"]
        secret = None if kept is None else Secret(plan.insecure_seed, key=kept)
        self._stream = BatchStream(plan, data, persons, collate, secret=secret)
        # Find a model or a loss that cannot be trained before anything is charged. This releases nothing.
        if (rows := self._stream.rehearsal(self.step.device)) is not None:
            self.step.rehearse(rows)
        if saved is None:
            if self._evaluation is not None:
                self._evaluation.run(0, self.history)  # an evaluation that fails, fails here
            self._save()  # stores the key, so that a run after a crash can find the charge
        before = self._team.run_on_first(self._allowance.reserve)
        if saved is not None:
            self._restore(saved, before)

    def _saved(self, path: Path | None, resume: bool) -> Checkpoint | None:
        if path is None:
            if resume:
                raise _check.fail("checkpoint", "be given", None, "resume=True continues from that file")
            return None
        if not path.exists():
            return None
        if not resume:
            remedy = "continue with resume=True, or give a new training another path"
            raise _check.fail("checkpoint", "not exist yet", str(path), remedy)
        return Checkpoint.read(path, self.plan)

    def _restore_pending(self, saved: Checkpoint) -> bytes | None:
        """Read the secret file of a training with correlated noise; return the key of its sampler. First process only.

        A training that has taken all its steps has no such file any more.
        """
        pending = self.step.pending
        if pending is None or self._path is None or saved.step["position"] >= self.plan.steps:
            return None
        stored = PendingFile.read(beside(self._path), self.plan, saved.run)
        pending.restore(stored.kept, stored.at, self.step.device)
        self._run_name = stored.run
        return stored.sampling

    def _restore(self, saved: Checkpoint, before: int) -> None:
        """Continue after the last step that the ledger or the file allowed: it may have run before the account came."""
        pending = self.step.pending
        drawn = 0 if pending is None else self._team.run_on_first(lambda: pending.at)
        taken = max(before, saved.step["position"], saved.allowed, drawn)
        taken = min(self.plan.steps, self.plan.sampler.resumes_at(taken))
        model = inner_model(self.model)
        model.load_state_dict(sharded.model_state(model, saved.model))
        self._optimizer.load_state_dict(sharded.optimizer_state(self._optimizer, saved.optimizer))
        if self._scheduler is not None and saved.scheduler is not None:
            self._scheduler.load_state_dict(saved.scheduler)
        self.step.restore(saved.step, taken)
        self._stream.position = taken
        history = None if self._path is None else Path(f"{self._path}.history.json")
        if history is not None and history.exists():
            self.history = History.read(history)
        self.allowed = self._team.run_on_first(lambda: self._allowance.resume(before, taken))
        self._save()  # stores the receipt, before a step runs under it

    # --- the steps

    def run(self) -> None:
        """Take the remaining steps, until the end or until Ctrl-C."""
        plan, unread = self.plan, _Unread()
        final = pricing.price(plan.event, plan.delta, plan.relation).epsilon
        shown = self._progress and self._team.leads
        saved = self.step.position
        with ProgressBar(shown, plan.steps, plan.sampler.batch_size, final) as bar, _interrupts() as stop:
            first = True
            while self.step.position < plan.steps and not self._stopped(stop):
                if self.step.position >= self.allowed or self.step.position - saved >= self._every:
                    saved = self._allow(saved)
                number = self.step.position
                observed = self.step(self._stream.next())
                if self._scheduler is not None:
                    self._scheduler.step()
                unread.add(number, observed)
                if self._evaluation is not None and self._evaluation.due(self.step.position):
                    self._evaluation.run(self.step.position, self.history)
                if first:
                    bar.first_step(self.step.position)
                if first or unread.due() or self.step.position == plan.steps:
                    loss, clipped = unread.flush(self.history)
                    bar.show(self.step.position, loss, clipped, self._epsilon())
                first = False
            unread.flush(self.history)
            self._epsilon()
        self._end()

    def _stopped(self, stop: threading.Event) -> bool:
        """Whether to stop. All processes must agree, so with several this is decided only at the end of a block."""
        if self._team.size == 1:
            return stop.is_set()
        return self.step.position >= self.allowed and self._team.run_on_first(stop.is_set)

    def _allow(self, saved: int) -> int:
        """Record that the next steps may run: in the checkpoint, if one is due, and in the ledger."""
        position = self.step.position
        if position - saved >= self._every or position == 0 or self._account is None:
            if self._account is None:  # else the ledger counts the steps, and the file is refused without it
                self.allowed = max(self.allowed, min(self.plan.steps, position + self._every))
            self._save()
            saved = position
        if self._account is not None:
            self.allowed = self._team.run_on_first(lambda: self._allowance.start(position))
        return saved

    def _end(self) -> None:
        """Write the last checkpoint. Return steps that never ran, unless the file lets the training resume."""
        finished = self.step.position >= self.plan.steps
        if self._account is None:
            self.allowed = self.step.position
        self._save()
        if finished or self._path is None:
            self.close()

    def close(self) -> None:
        """Return the steps that never started to the account, and erase pending noise."""
        self._team.run_on_first(self._allowance.close)
        if self._path is not None and self._team.leads:
            erase(beside(self._path))

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None if no account is charged."""
        return self._allowance.receipt

    def _epsilon(self) -> float:
        """ε of the steps so far, rounded up to a twentieth of the plan, because computing it takes time."""
        mark = max(1, self.plan.steps // 20)
        steps = min(self.plan.steps, mark * math.ceil(self.step.position / mark))
        if steps == 0:
            return 0.0
        epsilon = pricing.price(self.plan.event_of(steps), self.plan.delta, self.plan.relation).epsilon
        if not self.history.epsilon or self.history.epsilon[-1][0] < steps:
            self.history.epsilon.append((steps, epsilon))
        return epsilon

    def _save(self) -> None:
        if self._path is None:
            return
        # Gathering the state of a model that is spread over processes takes all of them.
        model = sharded.whole(inner_model(self.model).state_dict())
        optimizer = sharded.whole(self._optimizer.state_dict())
        if not self._team.leads:
            return
        origin = self._allowance.origin
        if self.step.pending is not None and self._run_name is not None and self.step.position < self.plan.steps:
            secret = self._stream.secret_state()
            PendingFile.of(self.plan, self._run_name, self.step.pending, secret).write(beside(self._path))
        Checkpoint(
            plan=fingerprint(self.plan),
            key=origin.key,
            receipt=origin.receipt,
            account=origin.account,
            allowed=self.allowed,
            step=self.step.state(),
            sampler=self._stream.state(),
            model=model,
            optimizer=optimizer,
            scheduler=None if self._scheduler is None else self._scheduler.state_dict(),
            random={},
            run=self._run_name,
        ).write(self._path)
        if len(self.history):
            self.history.write(f"{self._path}.history.json")


class _Unread:
    """Observations that are still on the device. They are read in batches, because each read makes the device wait."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._observed: list[Observed] = []
        self._last_read = time.perf_counter()

    def add(self, step: int, observed: Observed) -> None:
        self._steps.append(step)
        self._observed.append(observed)

    def due(self) -> bool:
        return time.perf_counter() - self._last_read > 0.5  # seconds

    def flush(self, history: History) -> tuple[float, float]:
        """Move the observations into the history; return their mean loss and clipped share."""
        if not self._observed:
            return math.nan, math.nan
        figures = torch.stack([torch.stack([each.loss, each.clipped]) for each in self._observed]).cpu()
        history.step += self._steps
        history.loss += figures[:, 0].tolist()
        history.clipped += figures[:, 1].tolist()
        history.clip_norm += [each.clip_norm for each in self._observed]
        mean = figures.nanmean(dim=0)
        self._steps, self._observed, self._last_read = [], [], time.perf_counter()
        return float(mean[0]), float(mean[1])


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; a second Ctrl-C interrupts at once. It works in the main thread only."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request_stop(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
