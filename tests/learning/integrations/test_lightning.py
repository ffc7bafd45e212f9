"""Lightning: one charge, the plan's batches, no exact numbers in logs, and no selection by them."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from torch import nn

import discreet as dp
from discreet.errors import InvalidArgument
from discreet.learning.integrations.lightning import PrivateModule, private_loader
from tests.learning import small

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="needs lightning"),
]


def classifier(**more):
    import lightning

    class Classifier(PrivateModule, lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = small.model()

        def example_losses(self, batch):
            return small.loss(self.layers, batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return type("Chosen", (Classifier,), more)()


def trainer(folder, **settings):
    import lightning

    defaults = {"max_epochs": 20, "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
                "enable_model_summary": False, "accelerator": "cpu", "default_root_dir": folder}  # fmt: skip
    return lightning.Trainer(**(defaults | settings))


@pytest.fixture
def account(tmp_path):
    return dp.Ledger(tmp_path / "a.ledger").account("a", budget=dp.ApproxDP(20.0, 1e-5))


def test_a_fit_takes_the_plans_steps_and_charges_once(tmp_path, account):
    plan = small.plan(steps=7, insecure_seed=None)
    model = classifier()
    before = small.flat(model)
    fit = trainer(tmp_path)
    fit.fit(model, model.private(plan, small.data(), account=account, compile=False))
    assert fit.global_step == 7
    assert model.gradients.guarantee == plan.guarantee
    assert small.charges(account) == [plan.event]
    assert not torch.equal(before, small.flat(model))
    assert not fit.logged_metrics


def test_a_fit_gives_the_model_of_train(tmp_path):
    from discreet.learning import train

    plan, first, second = small.plan(), small.model(), classifier()
    sgd = torch.optim.SGD(first.parameters(), lr=0.1)
    train(first, small.loss, small.data(), plan, optimizer=sgd, compile=False, progress=False)
    trainer(tmp_path).fit(second, second.private(plan, small.data(), compile=False))
    assert torch.equal(small.flat(first), small.flat(second))


def test_a_resumed_fit_is_not_charged_again(tmp_path, account):
    plan, record = small.plan(steps=8, insecure_seed=None), tmp_path / "steps.json"
    settings = {"account": account, "record": record, "compile": False}
    model = classifier()
    fit = trainer(tmp_path, max_steps=3)
    fit.fit(model, model.private(plan, small.data(), **settings))
    fit.save_checkpoint(tmp_path / "last.ckpt")
    again = classifier()
    fit = trainer(tmp_path)
    fit.fit(again, again.private(plan, small.data(), resume=True, **settings), ckpt_path=tmp_path / "last.ckpt")
    assert again.gradients.remaining == 0
    assert fit.global_step == 8
    assert small.charges(account) == [plan.event]


def test_what_reveals_or_selects_by_exact_numbers_is_refused_before_the_charge(tmp_path, account):
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    def validation_step(self, batch, batch_idx):
        self.log("val", small.loss(self.layers, batch).mean())

    def logging(self, batch):
        losses = small.loss(self.layers, batch)
        self.log("train_loss", losses.mean())
        return losses

    def lbfgs(self):
        return torch.optim.LBFGS(self.parameters())

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*small.data()), batch_size=20)
    cases = (
        ({}, {"accumulate_grad_batches": 2}, None, "accumulate_grad_batches"),
        ({}, {"callbacks": [EarlyStopping("val", strict=False)]}, None, "EarlyStopping"),
        ({}, {"callbacks": [ModelCheckpoint(monitor="val")], "enable_checkpointing": True}, None, "ModelCheckpoint"),
        ({"validation_step": validation_step}, {}, loader, "validation"),
        ({"example_losses": logging}, {}, None, "train_loss"),
        ({"configure_optimizers": lbfgs}, {}, None, "closure"),
    )
    plan = small.plan(insecure_seed=None)
    for members, settings, validation, match in cases:
        model = classifier(**members)
        with pytest.raises(InvalidArgument, match=match):
            trainer(tmp_path, **settings).fit(
                model, model.private(plan, small.data(), account=account, compile=False), validation
            )
    assert not small.charges(account)
    model = classifier(validation_step=validation_step)
    fit = trainer(tmp_path)
    fit.fit(model, model.private(plan, small.data(), validation_is_public=True, compile=False), loader)
    assert "val" in fit.callback_metrics


def test_a_model_that_keeps_its_own_step_is_refused():
    model = classifier(training_step=lambda self, batch, batch_idx: None)
    with pytest.raises(InvalidArgument, match="must not define training_step"):
        model.private(small.plan(), small.data())
    with pytest.raises(NotImplementedError, match="example_losses"):
        PrivateModule().example_losses(None)


def test_a_fit_without_a_plan_is_refused(tmp_path):
    model = classifier()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*small.data()), batch_size=20)
    with pytest.raises(InvalidArgument, match="private"):
        trainer(tmp_path).fit(model, loader)
    assert isinstance(model, nn.Module)


def ordinary(step):
    """A module that nobody wrote for private training."""
    import lightning

    class Ordinary(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = small.model()

        def training_step(self, batch, batch_idx):
            return step(self, batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Ordinary()


def mean_loss(module, batch):
    loss = nn.functional.cross_entropy(module.layers(batch[0]), batch[1])
    module.log("train_loss", loss)
    return {"loss": loss}


def test_a_module_of_lightnings_own_trains_as_one_with_losses_of_examples(tmp_path):
    plan = small.plan(steps=5)
    borrowed, written = ordinary(mean_loss), classifier()
    written.layers.load_state_dict(borrowed.layers.state_dict())
    trainer(tmp_path).fit(borrowed, private_loader(borrowed, plan, small.data(), compile=False))
    trainer(tmp_path).fit(written, written.private(plan, small.data(), compile=False))
    assert torch.allclose(small.flat(borrowed), small.flat(written), atol=1e-6)


def test_a_module_of_lightnings_own_is_charged_once_and_logs_no_loss(tmp_path, account):
    plan, model, fit = small.plan(insecure_seed=None), ordinary(mean_loss), trainer(tmp_path)
    fit.fit(model, private_loader(model, plan, small.data(), account=account, compile=False))
    assert len(small.charges(account)) == 1
    assert "train_loss" not in fit.callback_metrics


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda m, b: nn.functional.cross_entropy(m.layers(b[0]), b[1], reduction="sum"), "mean over the batch"),
        (lambda m, b: nn.functional.cross_entropy(m.layers(b[0]), b[1]).mean(), "one value per example"),
        (
            lambda m, b: nn.functional.cross_entropy(m.layers(b[0]).repeat(2, 1), b[1].repeat(2)),
            "one value per example",
        ),
    ],
)
def test_a_training_step_without_losses_of_examples_is_refused_before_the_charge(step, words, tmp_path, account):
    model = ordinary(step)
    with pytest.raises(InvalidArgument, match=words):
        trainer(tmp_path).fit(model, private_loader(model, small.plan(), small.data(), account=account, compile=False))
    assert small.charges(account) == []


def test_what_is_no_module_of_lightning_is_refused():
    with pytest.raises(InvalidArgument, match="LightningModule"):
        private_loader(nn.Linear(2, 2), small.plan(), small.data())
