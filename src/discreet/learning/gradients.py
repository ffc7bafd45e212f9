"""Private gradients for a loop that belongs to someone else: charges the plan, then fills `.grad` step by step.

A framework's loop calls the optimizer, the scheduler, the logger and its own checkpoints. What it must not do is draw
the batches and differentiate the loss. `PrivateGradients` does both, and keeps the ledger, so that the adapters in
`integrations` are thin.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet import _check
from discreet._files import replace_file
from discreet.errors import Exhausted, InvalidArgument, NotACheckpoint
from discreet.guarantees import Guarantee
from discreet.learning.allowance import Allowance, TrainingOrigin, checked_account, checked_plan
from discreet.learning.checkpoint import fingerprint
from discreet.learning.data.batches import BatchStream
from discreet.learning.distributed import inner_model
from discreet.learning.noise import Secret
from discreet.learning.optimizers import check_optimizer
from discreet.learning.pending import PendingFile, beside, erase
from discreet.learning.plan import Plan
from discreet.ledger.account import Account
from discreet.ledger.receipt import Receipt
from discreet.mechanisms.sampling import entropy

_FORMAT = 1
#: A record that no ledger stands behind is written this often in a plan. A crash wastes at most one part.
_PARTS = 50


class PrivateGradients:
    """Clipped and noised gradients of a plan's batches in `.grad`; the caller steps the optimizer.

    Args:
        plan: decides everything that the price depends on.
        model: the model; its trainable parameters get gradients.
        loss: `loss(model, batch)` with one value per example, or a torch loss.
        data: as for `train`; the plan draws its own batches from it.
        account: the account to charge before the first step; None charges nobody.
        key: a name for this training in the ledger.
        purpose: what the training is for; the ledger records it.
        persons: with `unit=dp.person(...)`, one id per example.
        collate: makes tensors of a list with one example (see `Plan.batches`).
        optimizer: the optimizer that will use the gradients, to check it before the charge.
        record: a file that remembers which steps are taken, so that a training can be resumed from the framework's own
            checkpoint. It holds no data, parameters or keys of noise.
        resume: continue the training of `record`, if the file exists.
        compile: None compiles in the background if the steps to come pay for it; True compiles before the first step.
        autocast: a narrower type for the model's own arithmetic, such as torch.bfloat16.

    Everything that can be checked is checked in the constructor, which charges at its end.

    Guarantee:
        Neighbors: those of the plan. All gradients together are at most `plan.steps` steps of `plan.event`, and the
        account is charged for these once, before the first one, also if the training is resumed. A step counts as
        taken once it is allowed, which is recorded before it runs; a resumed training continues after the last allowed
        step. A backward pass of the caller through the model's parameters is refused: its gradients would neither be
        clipped nor noised. Nothing that `fill` computes on the way leaves it.

    >>> plan = Plan.for_noise(1.0, delta=1e-5, examples=100, batch_size=10, steps=2, clip_norm=1.0)
    >>> model = nn.Linear(3, 2)
    >>> data = torch.randn(100, 3), torch.randint(2, (100,))
    >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for step in PrivateGradients(plan, model, nn.functional.cross_entropy, data, compile=False):
    ...     sgd.step()
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Callable[..., Any],
        data: Any,
        *,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "private training",
        persons: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        optimizer: Optimizer | None = None,
        record: Path | str | None = None,
        resume: bool = False,
        compile: bool | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.plan = checked_plan(plan)
        checked_account(account)
        own = inner_model(model)
        if optimizer is not None:
            check_optimizer(optimizer, own, {name: p for name, p in own.named_parameters() if p.requires_grad})
        self._step = plan.step(model, loss, compile=compile, autocast=autocast)
        self._team = self._step.team
        self._path = None if record is None else Path(record)
        saved = self._team.run_on_first(lambda: self._read(resume))
        origin = None if saved is None else TrainingOrigin(saved["key"], saved.get("account"), saved.get("receipt"))
        if origin is not None:
            self._team.run_on_first(lambda: origin.check(account, key))
        self._allowance = Allowance(plan, account, key, purpose, origin)
        #: The name of a training with correlated noise, in its record and in its secret file.
        self._run_name = None if plan.correlation is None else entropy.fresh_key().hex()
        kept = None if saved is None else self._team.run_on_first(lambda: self._restore_pending(saved))
        if saved is not None and saved["secret"] is not None:
            kept = bytes.fromhex(saved["secret"])
        secret = None if kept is None else Secret(plan.insecure_seed, key=kept)
        self._stream = BatchStream(plan, data, persons, collate, secret=secret)
        if (rows := self._stream.rehearsal(self._step.device)) is not None:
            self._step.rehearse(rows)
        #: The number of the plan's steps that count as taken: those that ran, may have run, or may run now.
        self.allowed = 0
        if saved is None:
            self._write()  # stores the key, so that a run after a crash can find the charge
        before = self._team.run_on_first(self._allowance.reserve)
        if saved is not None:
            self._restore(saved, before)
        trained: Any = [p for p in own.parameters() if p.requires_grad]
        self._guards = [p.register_post_accumulate_grad_hook(_refuse) for p in trained]

    # --- the steps

    @property
    def position(self) -> int:
        """The number of the plan's next step."""
        return self._step.position

    @property
    def remaining(self) -> int:
        """How many steps of the plan are left."""
        return self.plan.steps - self._step.position

    def fill(self) -> None:
        """Take the plan's next step: set `.grad` of each trainable parameter to the noisy mean over the next batch."""
        if self._step.position >= self.plan.steps:
            raise Exhausted(
                f"all {self.plan.steps} steps of the plan are taken: stop the loop when `remaining` is 0, or make a "
                "plan with more steps"
            )
        if self._step.position >= self.allowed:
            self._allow()
        self._step.fill(self._stream.next())
        if self._step.position >= self.plan.steps:
            self.close()

    def __iter__(self) -> Iterator[int]:
        """Fill `.grad` for each step that is left, and yield the step's number."""
        while self.remaining:
            number = self._step.position
            self.fill()
            yield number

    def close(self) -> Guarantee:
        """End the training: return the steps that never started to the account."""
        for guard in self._guards:
            guard.remove()
        self._guards = []
        self._team.run_on_first(self._allowance.close)
        if self._path is not None and self._team.leads:
            erase(beside(self._path))
        return self.guarantee

    # --- what it costs

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the steps that count as taken."""
        return self.plan.guarantee if self.allowed >= self.plan.steps else self.plan.guarantee_after(self.allowed)

    @property
    def receipt(self) -> Receipt | None:
        """The ledger's receipt; None if no account is charged."""
        return self._allowance.receipt

    @property
    def report(self) -> str:
        """How each parameter is handled, in words."""
        return self._step.engine.report

    # --- the record

    def _allow(self) -> None:
        """Record that the next steps may run, before they do."""
        position = self._step.position
        if self._allowance.charged:
            self.allowed = self._team.run_on_first(lambda: self._allowance.start(position))
        elif self._path is not None:
            self.allowed = min(self.plan.steps, position + max(1, self.plan.steps // _PARTS))
        else:
            self.allowed = position + 1
        self._write()

    def _read(self, resume: bool) -> dict[str, Any] | None:
        if self._path is None:
            if resume:
                raise _check.fail("record", "be given", None, "resume=True continues the training of that file")
            return None
        if not self._path.exists():
            return None
        if not resume:
            remedy = "continue with resume=True, or give a new training another path"
            raise _check.fail("record", "not exist yet", str(self._path), remedy)
        try:
            content: dict[str, Any] = json.loads(self._path.read_text())
            if content["discreet gradients"] != _FORMAT or content["allowed"] < 0:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise NotACheckpoint(f"{self._path} is not the record of a training, or is damaged") from error
        if content["plan"] != fingerprint(self.plan):
            raise NotACheckpoint(
                f"{self._path} belongs to another plan: a training continues with the plan it started with; give the "
                "same arguments, or another path for a new training"
            )
        return content

    def _write(self) -> None:
        if self._path is None or not self._team.leads:
            return
        secret = self._stream.state()["secret"]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._step.pending is not None and self._run_name is not None and self.remaining:
            pending = PendingFile.of(self.plan, self._run_name, self._step.pending, self._stream.secret_state())
            pending.write(beside(self._path))
        content = {
            "discreet gradients": _FORMAT,
            "plan": fingerprint(self.plan),
            **asdict(self._allowance.origin),
            "allowed": self.allowed,
            "step": self._step.state(),
            "secret": None if secret is None else secret.hex(),
            "run": self._run_name,
        }
        replace_file(self._path, lambda file: file.write(json.dumps(content).encode()))

    def _restore_pending(self, saved: dict[str, Any]) -> bytes | None:
        """Read the secret file of correlated noise; return the key of its sampler. For the first process only."""
        pending = self._step.pending
        if pending is None or self._path is None or saved["step"]["position"] >= self.plan.steps:
            return None
        stored = PendingFile.read(beside(self._path), self.plan, saved.get("run"))
        pending.restore(stored.kept, stored.at, self._step.device)
        self._run_name = stored.run
        return stored.sampling

    def _restore(self, saved: dict[str, Any], before: int) -> None:
        """Continue after the last step that the ledger or the file allowed: it may have run before the account came."""
        pending = self._step.pending
        drawn = 0 if pending is None else self._team.run_on_first(lambda: pending.at)
        taken = max(before, saved["step"]["position"], saved["allowed"], drawn)
        taken = min(self.plan.steps, self.plan.sampler.resumes_at(taken))
        self._step.restore(saved["step"], taken)
        self._stream.position = taken
        self.allowed = self._team.run_on_first(lambda: self._allowance.resume(before, taken))
        self._write()  # stores the receipt, before a step runs under it


def _refuse(parameter: Tensor) -> None:
    """A hook that runs when autograd has added to a parameter's `.grad`."""
    parameter.grad = None
    raise InvalidArgument(
        "the loop must not differentiate a loss with respect to the model's parameters: such a gradient is neither "
        "clipped nor noised; PrivateGradients.fill() computes the gradients, so remove backward() from the loop"
    )
