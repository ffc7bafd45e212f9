"""Hugging Face's Trainer: one charge, private batches, no exact loss in the logs, and no selection by exact numbers."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest
import torch
import transformers  # its parts are imported when they are used

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning import PadTo, Plan
from discreet.learning.integrations.huggingface import private_trainer
from tests.learning import small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate"),
]


def model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=16, n_layer=1, n_head=2, vocab_size=31, n_positions=12, bos_token_id=0, eos_token_id=0
    )
    return transformers.GPT2LMHeadModel(config)


def texts(count=40):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 31, (int(n),), generator=generator).tolist() for n in 3 + torch.arange(count) % 7]
    return [{"input_ids": row, "labels": row} for row in rows]


def plan(**changes):
    settings = {"delta": 1e-5, "examples": 40, "batch_size": 10, "steps": 6, "clip_norm": 1.0} | changes
    return Plan.for_noise(1.0, **settings)


def arguments(folder, **changes):
    settings = {"per_device_train_batch_size": 4, "logging_steps": 1, "save_steps": 2, "report_to": "none",
                "use_cpu": True, "disable_tqdm": True}  # fmt: skip
    return transformers.TrainingArguments(str(folder / "out"), **(settings | changes))


def trainer(folder, account=None, callbacks=None, private=None, **changes):
    return private_trainer(transformers.Trainer)(
        model(),
        arguments(folder, **changes),
        train_dataset=texts(),
        eval_dataset=texts(5),
        data_collator=PadTo(10),
        callbacks=callbacks,
        plan=plan(),
        account=account,
        compile=False,
        **(private or {}),
    )


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))


def stop():
    class Stop(transformers.TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            raise KeyboardInterrupt

    return Stop()


def test_training_charges_once_and_logs_no_exact_loss(tmp_path, account):
    private = trainer(tmp_path, account)
    before = [parameter.clone() for parameter in private.model.parameters()]
    assert not small.charges(account)
    result = private.train()
    assert private.state.global_step == 6
    assert small.charges(account) == [plan().event]
    assert private.gradients.guarantee == plan().guarantee
    assert any(not torch.equal(a, b) for a, b in zip(before, private.model.parameters(), strict=True))
    logged = set().union(*private.state.log_history)
    assert {"epsilon", "grad_norm", "learning_rate"} <= logged
    assert not {"loss", "train_loss"} & logged
    assert math.isnan(result.training_loss)
    assert "train_loss" not in result.metrics
    state = json.loads((tmp_path / "out" / "checkpoint-6" / "trainer_state.json").read_text())
    assert not any("loss" in name for entry in state["log_history"] for name in entry)


def test_a_resumed_training_is_not_charged_again(tmp_path, account):
    with pytest.raises(KeyboardInterrupt):
        trainer(tmp_path, account, [stop()]).train()
    with pytest.raises(InvalidArgument, match="resume_from_checkpoint=True"):
        trainer(tmp_path, account).train()
    resumed = trainer(tmp_path, account)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.gradients.remaining == 0
    assert resumed.state.global_step == 6
    assert small.charges(account) == [plan().event]
    again = trainer(tmp_path, account)
    weights = [parameter.clone() for parameter in resumed.model.parameters()]
    again.train(resume_from_checkpoint=True)  # nothing is left, and nothing changes
    assert all(torch.equal(a, b) for a, b in zip(weights, again.model.parameters(), strict=True))


def test_what_reveals_or_selects_by_exact_numbers_is_refused(tmp_path, account):
    refused = (
        {"eval_strategy": "steps"},
        {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2},
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "steps"},
        {"gradient_accumulation_steps": 2},
        {"label_smoothing_factor": 0.1},
        {"max_steps": 7},
    )
    for changes in refused:
        with pytest.raises(InvalidArgument, match=r"must"):
            trainer(tmp_path, account, **changes)
    with pytest.raises(InvalidArgument, match="EarlyStoppingCallback"):
        trainer(tmp_path, account, [transformers.EarlyStoppingCallback()])
    stopped = trainer(tmp_path, account)
    stopped.add_callback(transformers.EarlyStoppingCallback())
    with pytest.raises(InvalidArgument, match="EarlyStoppingCallback"):
        stopped.train()
    assert not small.charges(account)


def test_public_evaluation_is_allowed(tmp_path, account):
    changes = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True}
    private = trainer(tmp_path, account, private={"evaluation_is_public": True}, **changes)
    private.train()
    assert any("eval_loss" in entry for entry in private.state.log_history)


def test_a_trainer_with_its_own_step_is_refused():
    class Own(transformers.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            return super().training_step(model, inputs, num_items_in_batch)

    with pytest.raises(InvalidArgument, match="not define training_step"):
        private_trainer(Own)
    with pytest.raises(InvalidArgument, match=r"be transformers\.Trainer"):
        private_trainer(dict)


def test_gradient_checkpointing_trains(tmp_path):
    private = trainer(tmp_path, gradient_checkpointing=True, max_steps=-1)
    private.train()
    assert private.gradients.remaining == 0
