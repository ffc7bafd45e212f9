"""Private training with Lightning: of any module by `private_loader`, or with a base class of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.learning.gradients import PrivateGradients
from discreet.learning.integrations.epochs import EmptyEpoch
from discreet.learning.losses import Unreduced
from discreet.learning.plan import Plan
from discreet.ledger.account import Account

#: Lightning's names of the types that a private step can compute in. Loss scaling for fp16 is not among them.
_AUTOCAST: dict[str, torch.dtype | None] = {
    "32-true": None,
    "64-true": None,
    "bf16-true": None,
    "bf16-mixed": torch.bfloat16,
}


#: Lightning's ways to place a model that leave every parameter whole in each process.
_WHOLE = {"SingleDeviceStrategy", "DDPStrategy"}


def private_loader(module: Any, plan: Plan, data: Any, **settings: Any) -> EmptyEpoch:
    """Make a `LightningModule` train privately, and return the loader for `trainer.fit`.

    The loss of an example is what `training_step` returns, with the torch losses in it taken for each example rather
    than over the batch. What `training_step` logs is left out, because it is exact. Afterwards the module has the
    methods of `PrivateModule`; its own class is as it was.

    Args:
        module: the module, whose `training_step` returns a loss.
        plan: as for `PrivateModule.private`, like all further arguments.
        data: the training data itself, not a loader.
        settings: further arguments of `PrivateModule.private`.

    Guarantee: as `PrivateModule`.
    """
    if not callable(getattr(module, "training_step", None)) or not hasattr(module, "configure_optimizers"):
        raise _check.fail("module", "be a LightningModule", type(module).__name__, "pass the model that is fitted")
    if not isinstance(module, PrivateModule):
        if (backward := type(module).__dict__.get("backward")) is not None:
            remedy = "its own backward pass would not be private; remove it"
            raise _check.fail("module", "not define backward", backward.__qualname__, remedy)
        module.__class__ = type(
            f"Private{type(module).__name__}", (PrivateModule, type(module)), {"_private_borrows": True}
        )
    loader: EmptyEpoch = module.private(plan, data, **settings)
    return loader


class PrivateModule:
    """Makes a `LightningModule` train privately: `class Model(PrivateModule, LightningModule)`.

    Define `example_losses(batch)`, which returns one value per example, in place of `training_step`, and give
    `trainer.fit` the loader that `private(plan, data, account=…)` returns. Lightning still calls the optimizer, the
    scheduler, the callbacks and its own checkpoints.

    Guarantee:
        As `PrivateGradients`. The account is charged at the first step, after everything was checked. Nothing exact
        about the data is logged: no training loss exists outside of the step, and `self.log` is refused in
        `example_losses`. Validation during the fit, and callbacks that monitor a metric to select a model or to stop,
        are refused unless the validation data is declared public: they would reveal or select by exact numbers.
    """

    _private_plan: Plan | None = None
    _private_gradients: PrivateGradients | None = None
    _private_pass = False
    #: Whether the losses come from the module's own training_step.
    _private_borrows = False

    def example_losses(self, batch: Any) -> Tensor:
        """One loss for each example of `batch`, which depends on that example alone. To be defined by the model.

        By default, and only for `private_loader`, the loss of the module's own `training_step`.
        """
        if not self._private_borrows:
            raise NotImplementedError(f"{type(self).__name__} must define example_losses(batch): one value per example")
        with Unreduced():
            returned = super().training_step(batch, 0)  # type: ignore[misc]  # of the module, next in the bases
        loss: Tensor = returned["loss"] if isinstance(returned, dict) else returned
        return loss

    def private(
        self,
        plan: Plan,
        data: Any,
        *,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "private training",
        persons: Any = None,
        collate: Callable[[list[Any]], Any] | None = None,
        record: Path | str | None = None,
        resume: bool = False,
        validation_is_public: bool = False,
        compile: bool | None = None,
    ) -> EmptyEpoch:
        """Prepare a private fit, and return the loader for `trainer.fit`: epochs of empty batches.

        Args:
            plan: the plan; training stops when its steps are taken.
            data: the training data itself, not a loader: the plan draws its own batches.
            account: the account to charge before the first step; None charges nobody.
            key: a name for this training in the ledger.
            purpose: what the training is for; the ledger records it.
            persons: with `unit=dp.person(...)`, one id per example.
            collate: makes tensors of a list with one example (see `Plan.batches`).
            record: a file that remembers which steps are taken, to resume from one of Lightning's checkpoints.
            resume: continue the training of `record`, if the file exists; give `trainer.fit` its `ckpt_path`.
            validation_is_public: whether the validation data may be seen by everyone who sees the logs.
            compile: as for `PrivateGradients`.
        """
        for name in ("training_step", "backward"):
            if getattr(type(self), name) is not getattr(PrivateModule, name):
                raise InvalidArgument(
                    f"{type(self).__name__} must not define {name} for private training: define example_losses(batch), "
                    "and name PrivateModule before LightningModule in the class's bases"
                )
        self._private_plan, self._private_gradients, self._private_public = plan, None, validation_is_public
        self._private_settings: dict[str, Any] = {
            "account": account, "key": key, "purpose": purpose, "persons": persons, "collate": collate,
            "record": record, "resume": resume, "compile": compile,
        }  # fmt: skip
        self._private_data = data
        return EmptyEpoch(plan)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Give Lightning something to call `backward` with. It is always zero, so it may be logged."""
        return torch.zeros((), device=next(iter(self._private_self().parameters())).device)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the plan's next step: fill `.grad`. Lightning calls this after `zero_grad`, before the optimizer.

        When no step is left, `.grad` stays empty, so that the optimizer does nothing, and the fit stops.
        """
        if self._private_gradients is None:
            self._private_gradients = self._private_open()
        if self._private_gradients.remaining:
            self._private_gradients.fill()
        if not self._private_gradients.remaining:
            self._private_self().trainer.should_stop = True

    def log(self, name: str, *args: Any, **kwargs: Any) -> None:
        """As Lightning's, but not in `example_losses`: what it would log there is exact."""
        if self._private_pass and self._private_borrows:
            return  # a line of the module's training_step, which would log an exact number
        if self._private_pass:
            raise InvalidArgument(
                f"self.log({name!r}, …) must not be called in example_losses: it would reveal exact numbers of the "
                "batch; remove it"
            )
        super().log(name, *args, **kwargs)  # type: ignore[misc]  # LightningModule's, which comes next in the bases

    @property
    def gradients(self) -> PrivateGradients | None:
        """What the fit has done so far, with its guarantee and receipt; None before the first step."""
        return self._private_gradients

    # --- before the first step

    def _private_open(self) -> PrivateGradients:
        """Check what Lightning was told, and charge the plan."""
        if self._private_plan is None:
            raise InvalidArgument(
                f"{type(self).__name__}.private(plan, data, …) must be called before trainer.fit, which takes what it "
                "returns as the loader"
            )
        trainer, module = self._private_self().trainer, self._private_self()
        if trainer.accumulate_grad_batches != 1:
            remedy = "one step of a plan is one update; Plan.for_epsilon(…, physical_batch_size=…) splits its batches"
            raise _check.fail("accumulate_grad_batches", "be 1", trainer.accumulate_grad_batches, remedy)
        if str(trainer.precision) not in _AUTOCAST:
            remedy = f"use one of {', '.join(_AUTOCAST)}: noisy gradients must not be scaled"
            raise _check.fail("precision", "be one without loss scaling", trainer.precision, remedy)
        strategy = type(trainer.strategy).__name__
        if strategy not in _WHOLE:
            raise _check.fail(
                "strategy", f"be one of {', '.join(sorted(_WHOLE))}", strategy, "use one device, or 'ddp'"
            )
        if not self._private_public:
            self._private_check_validation(trainer)
        optimizer = module.optimizers(use_pl_optimizer=False)
        if isinstance(optimizer, list):
            raise _check.fail("configure_optimizers", "return one optimizer", len(optimizer), "use one for all")

        def losses(model: Any, batch: Any) -> Tensor:
            model._private_pass = True
            try:
                return self.example_losses(batch)
            finally:
                model._private_pass = False

        return PrivateGradients(
            self._private_plan,
            module,
            losses,
            self._private_data,
            optimizer=optimizer,
            autocast=_AUTOCAST[str(trainer.precision)],
            **self._private_settings,
        )

    def _private_check_validation(self, trainer: Any) -> None:
        remedy = "pass validation_is_public=True to private(…) if the validation data is public, or leave it out"
        if trainer.enable_validation:
            raise _check.fail("validation", "not run during a private fit", "validation data", remedy)
        monitors = [callback for callback in trainer.callbacks if getattr(callback, "monitor", None) is not None]
        if monitors:
            raise _check.fail("callbacks", "monitor nothing in a private fit", type(monitors[0]).__name__, remedy)
        if any(config.reduce_on_plateau for config in trainer.lr_scheduler_configs):
            raise _check.fail("lr_scheduler", "not follow a metric in a private fit", "ReduceLROnPlateau", remedy)

    def _private_self(self) -> Any:
        return self
