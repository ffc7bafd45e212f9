"""Private training with Hugging Face's `Trainer`, or with a subclass of it."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.guarantees import ApproxDP, PureDP
from discreet.learning.allowance import checked_plan
from discreet.learning.gradients import PrivateGradients
from discreet.learning.integrations.epochs import EmptyEpoch
from discreet.learning.integrations.model_losses import per_example_loss
from discreet.learning.plan import Plan
from discreet.ledger.account import Account

#: The file in `output_dir` that remembers which steps of the plan are taken.
RECORD = "discreet.json"
#: What a Trainer logs about the exact training loss.
_EXACT = {"loss", "train_loss"}
#: Learning-rate schedules that follow an exact loss.
_FOLLOWS_LOSS = {"reduce_lr_on_plateau", "greedy"}
#: Settings that change the loss or the gradients behind the step's back, with the value that leaves them alone.
_NEUTRAL: dict[str, Any] = {
    "auto_find_batch_size": False,
    "deepspeed": None,
    "fp16": False,
    "gradient_accumulation_steps": 1,
    "label_smoothing_factor": 0.0,
}


def private_trainer(trainer: Any) -> Any:
    """A subclass of `transformers.Trainer` (or of a subclass of it) that trains privately.

    Its constructor takes the arguments of the given class and those of `PrivateTraining`.
    """
    if not isinstance(trainer, type) or not all(hasattr(trainer, name) for name in ("training_step", "train", "log")):
        remedy = "for example private_trainer(transformers.Trainer)(model=…, plan=plan, account=account, …)"
        raise _check.fail("trainer", "be transformers.Trainer or a subclass", trainer, remedy)
    step: Any = getattr(trainer, "training_step")  # noqa: B009  # the type of a type has no such attribute
    if step is not importlib.import_module("transformers").Trainer.training_step:
        remedy = "its step would not be private; use a class that keeps Trainer.training_step"
        raise _check.fail("trainer", "not define training_step", trainer.__name__, remedy)
    return type(f"Private{trainer.__name__}", (PrivateTraining, trainer), {"__doc__": PrivateTraining.__doc__})


class PrivateTraining:
    """The private half of a Trainer. Made by `private_trainer(Trainer)`.

    Args:
        plan: the plan; it sets the number of steps and draws the batches. `per_device_train_batch_size` limits how many
            examples go through the model at once, and nothing else.
        account: the account to charge before the first step; None charges nobody.
        key: a name for this training in the ledger.
        purpose: what the training is for; the ledger records it.
        loss: `loss(model, batch)` with one value per example; by default the model's own, example by example (see
            `per_example_loss`).
        persons: with `unit=dp.person(...)`, one id per example.
        evaluation_is_public: whether the evaluation data may be seen by everyone who sees the logs.
        compile: as for `PrivateGradients`.

    The Trainer still calls the optimizer, the scheduler, the callbacks and its own checkpoints.
    `train(resume_from_checkpoint=True)` continues a training under the same charge: `discreet.json` in `output_dir`
    remembers which steps are taken.

    Guarantee:
        As `PrivateGradients`. The account is charged at the first step, after everything was checked. The training loss
        is not logged, because it is exact; ε is. Evaluation during the training, and everything that selects or stops
        by an evaluation (`load_best_model_at_end`, early stopping, plateau schedules), are refused unless the
        evaluation data is declared public.
    """

    def __init__(
        self,
        *args: Any,
        plan: Plan,
        account: Account | None = None,
        key: str | None = None,
        purpose: str = "private training",
        loss: Callable[..., Any] | None = None,
        persons: Any = None,
        evaluation_is_public: bool = False,
        compile: bool | None = None,
        **kwargs: Any,
    ) -> None:
        checked_plan(plan)
        super().__init__(*args, **kwargs)
        settings = self._private_trainer().args
        self._private_plan = dataclasses.replace(plan, physical_batch_size=settings.per_device_train_batch_size)
        self._private_loss, self._private_public = loss, evaluation_is_public
        self._private_paid: dict[str, Any] = {"account": account, "key": key, "purpose": purpose, "persons": persons}
        self._private_compiles = compile
        self._private_resumes = False
        self._private_gradients: PrivateGradients | None = None
        self._private_check_settings(settings)
        settings.max_steps = plan.steps
        settings.ignore_data_skip = True  # the plan's batches are not the loader's

    @property
    def gradients(self) -> PrivateGradients | None:
        """What the training has done so far, with its guarantee and receipt; None before the first step."""
        return self._private_gradients

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As `Trainer.train`. The result's training loss is NaN: the exact one is not for release."""
        settings = self._private_trainer().args
        self._private_check_settings(settings)
        self._private_resumes = resume_from_checkpoint is not None and resume_from_checkpoint is not False
        self._private_gradients = None
        path = Path(settings.output_dir) / RECORD
        if path.exists() and not self._private_resumes:
            remedy = "train(resume_from_checkpoint=True) continues it; give a new training another output_dir"
            raise _check.fail("output_dir", f"hold no {RECORD} of another training", settings.output_dir, remedy)
        if resume_from_checkpoint is True and path.exists() and not _has_checkpoint(settings.output_dir):
            resume_from_checkpoint = None  # it stopped before the first checkpoint: start again under the same charge
        result = self._private_above().train(resume_from_checkpoint, *args, **kwargs)
        metrics = {name: value for name, value in result.metrics.items() if name not in _EXACT}
        return result._replace(training_loss=math.nan, metrics=metrics)

    def get_train_dataloader(self) -> Any:
        """Empty batches: the plan draws its own."""
        return EmptyEpoch(self._private_plan)

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Take the plan's next step: fill `.grad`. The loss that it returns is always zero.

        When no step is left, `.grad` stays empty, so that the optimizer does nothing, and the training stops.
        """
        trainer = self._private_trainer()
        model.train()
        if callable(getattr(trainer.optimizer, "train", None)):
            trainer.optimizer.train()
        if self._private_gradients is None:
            self._private_gradients = self._private_open()
        if self._private_gradients.remaining:
            self._private_gradients.fill()
        if not self._private_gradients.remaining:
            trainer.control.should_training_stop = True
        return torch.zeros((), device=trainer.args.device)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As `Trainer.log`, without the exact training loss, and with ε so far."""
        kept = {name: value for name, value in logs.items() if name not in _EXACT}
        if len(kept) < len(logs) and self._private_gradients is not None:
            guarantee = self._private_gradients.guarantee
            if isinstance(guarantee, ApproxDP | PureDP):
                kept["epsilon"] = float(guarantee.epsilon)
        self._private_above().log(kept, *args, **kwargs)

    def _private_open(self) -> PrivateGradients:
        """Charge the plan. The optimizer exists by now, and the model is on its device."""
        trainer = self._private_trainer()
        collate, data = trainer.data_collator, trainer.train_dataset
        if hasattr(data, "remove_columns"):  # a Dataset of the `datasets` library
            data = trainer._remove_unused_columns(data, description="training")
        else:
            collate = trainer._get_collator_with_removed_columns(collate, description="training")
        optimizer = trainer.optimizer
        return PrivateGradients(
            self._private_plan,
            trainer.accelerator.unwrap_model(trainer.model),
            per_example_loss(trainer.model) if self._private_loss is None else self._private_loss,
            data,
            collate=collate,
            optimizer=getattr(optimizer, "optimizer", optimizer),
            record=Path(trainer.args.output_dir) / RECORD,
            resume=self._private_resumes,
            compile=self._private_compiles,
            autocast=torch.bfloat16 if trainer.args.bf16 else None,
            **self._private_paid,
        )

    def _private_check_settings(self, settings: Any) -> None:
        """Refuse what would reveal exact numbers, or change the gradients."""
        trainer = self._private_trainer()
        for name, neutral in _NEUTRAL.items():
            value = getattr(settings, name, neutral)
            if value != neutral and not (name == "label_smoothing_factor" and self._private_loss is not None):
                remedy = "the plan's physical batches accumulate by themselves" if "accum" in name else "leave it out"
                raise _check.fail(name, f"be {neutral!r} for private training", value, remedy)
        if settings.max_steps > 0 and settings.max_steps != self._private_plan.steps:
            remedy = f"the plan has {self._private_plan.steps} steps; leave max_steps out, or make another plan"
            raise _check.fail("max_steps", "be the number of the plan's steps", settings.max_steps, remedy)
        if settings.n_gpu > 1 or getattr(settings, "fsdp", None):
            remedy = "start one process for each device with torchrun"
            raise _check.fail("args", "use one device in each process, without sharding", settings.n_gpu, remedy)
        if self._private_public:
            return
        remedy = "it would use exact numbers; pass evaluation_is_public=True if the evaluation data is public"
        evaluates = str(getattr(settings.eval_strategy, "value", settings.eval_strategy))
        if evaluates != "no" or settings.eval_on_start:
            raise _check.fail("eval_strategy", "be 'no' in private training", evaluates, remedy)
        saves = str(getattr(settings.save_strategy, "value", settings.save_strategy))
        if settings.load_best_model_at_end or saves == "best":
            raise _check.fail("load_best_model_at_end", "be False in private training", True, remedy)
        schedule = str(getattr(settings.lr_scheduler_type, "value", settings.lr_scheduler_type))
        if schedule in _FOLLOWS_LOSS:
            raise _check.fail("lr_scheduler_type", "not follow the loss", schedule, remedy)
        names = [type(callback).__name__ for callback in trainer.callback_handler.callbacks]
        if "EarlyStoppingCallback" in names:
            raise InvalidArgument(
                f"callbacks must not stop early in private training, got EarlyStoppingCallback: {remedy}"
            )

    def _private_trainer(self) -> Any:
        return self

    def _private_above(self) -> Any:
        """The methods of the Trainer, which comes next in the bases."""
        return cast(Any, super())


def _has_checkpoint(folder: str) -> bool:
    return importlib.import_module("transformers.trainer_utils").get_last_checkpoint(folder) is not None
