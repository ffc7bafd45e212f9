"""Every training path passes the test of μ on its noisy sum, and 10% of missing noise is seen on each of them.

One step on everybody (rate 1), on two datasets that differ in one unit with a gradient longer than the clip norm. The
loss is linear, so that the direction in which the unit moves the sum is known (`one_release`).

False alarms: 1e-6 for each path. Noise × 0.9 is missed with a probability below 1e-6 (`one_release.missed`, asserted
here): t is 354 on average if the claim is true, 369 are needed, and the mutant's is 393 with a spread of 3.3.
"""

from __future__ import annotations

import importlib.util
from itertools import count

import numpy as np
import pytest
import torch
from torch import nn

import discreet as dp
from discreet.learning import Adaptive, Automatic, PadTo, PerLayer, Plan, PrivateGradients, train
from tests.auditing import one_release
from tests.auditing.one_release import COORDINATES, NOISE, OneRelease, judged, missed, quieter

SIDE, ROWS, C = 64, 8, 0.5
#: Each person has two rows.
PERSONS = [number // 2 for number in range(ROWS)]


class Pair(nn.Module):
    """Two linear maps of the same inputs: 2 · 64² parameters."""

    def __init__(self):
        super().__init__()
        self.left = nn.Linear(SIDE, SIDE, bias=False)
        self.right = nn.Linear(SIDE, SIDE, bias=False)

    def forward(self, inputs):
        return torch.cat([self.left(inputs), self.right(inputs)], dim=1)


def linear_loss(net, batch):
    """Its gradient is targetsᵀ inputs, whatever the parameters are."""
    inputs, targets = batch
    dtype = next(net.parameters()).dtype
    return (net(inputs.to(dtype)) * targets.to(dtype)).sum(1)


def rows(number, seed=5):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(2, (number, SIDE), generator=generator).float() * 2 - 1
    targets = torch.randint(2, (number, 2 * SIDE), generator=generator).float() * 2 - 1
    return inputs, targets


DATA, UNIT = rows(ROWS), rows(1, seed=6)
DIRECTION = (UNIT[1].T @ UNIT[0]).double().numpy()
assert DIRECTION.size == COORDINATES


def beside(extra):
    return tuple(torch.cat(parts) for parts in zip(DATA, extra, strict=True))


ADDED = DATA, beside(UNIT)
REPLACED = beside((UNIT[0], -UNIT[1])), beside(UNIT)
TWICE = DATA, beside(tuple(part.repeat(2, 1) for part in UNIT))


def plan_of(**changes):
    settings = {"delta": 1e-5, "examples": ROWS, "batch_size": ROWS, "steps": 1} | changes
    if "clipping" not in settings:
        settings.setdefault("clip_norm", C)
    return Plan.for_noise(NOISE, **settings)


def flat(tensors):
    return torch.cat([tensor.detach().double().reshape(-1) for tensor in tensors]).numpy()


def stepped(pair=ADDED, *, persons=(None, None), compile=False, autocast=None, dtype=torch.float32, **changes):
    """`Plan.step`, as one's own loop uses it."""

    def draw(side, folder):
        plan, net = plan_of(**changes), Pair().to(dtype)
        step = plan.step(net, linear_loss, compile=compile, autocast=autocast)
        for batch in plan.batches(pair[side], persons=persons[side]):
            step.fill(batch)
        return flat(parameter.grad for parameter in net.parameters())

    return draw


class Still(torch.optim.SGD):
    """An optimizer that keeps the gradients and moves nothing."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen = []

    def step(self, closure=None):
        if closure is not None:
            closure()
        self.seen.append(flat(p.grad for group in self.param_groups for p in group["params"]))


def looped(run):
    """A loop of this library or of a framework, which steps an optimizer once."""

    def draw(side, folder):
        net = Pair()
        still = Still(net.parameters())
        run(net, still, ADDED[side], plan_of(), folder)
        (seen,) = still.seen
        return seen

    return draw


def trained(net, still, data, plan, folder):
    train(net, linear_loss, data, plan, optimizer=still, compile=False, progress=False)


def filled(net, still, data, plan, folder):
    for _ in PrivateGradients(plan, net, linear_loss, data, compile=False):
        still.step()


def accelerated(net, still, data, plan, folder):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    from discreet.learning.integrations.accelerate import private_gradients

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, still)
    for _ in private_gradients(accelerator, plan, model, linear_loss, data, optimizer=optimizer, compile=False):
        still.step()


def lightning(net, still, data, plan, folder):
    import lightning as framework

    from discreet.learning.integrations.lightning import PrivateModule

    class Module(PrivateModule, framework.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = net

        def example_losses(self, batch):
            return linear_loss(self.layers, batch)

        def configure_optimizers(self):
            return still

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    fit = framework.Trainer(max_epochs=10, enable_model_summary=False, **quiet)
    fit.fit(module, module.private(plan, data, compile=False))


def hugging_face(net, still, data, plan, folder):
    examples = [{"inputs": inputs, "targets": targets} for inputs, targets in zip(*data, strict=True)]
    trained_by_trainer(
        net,
        still,
        examples,
        plan,
        folder,
        data_collator=lambda batch: {name: torch.stack([row[name] for row in batch]) for name in batch[0]},
        loss=lambda model, batch: linear_loss(model, (batch["inputs"], batch["targets"])),
    )


def trained_by_trainer(net, still, examples, plan, folder, **more):
    import transformers

    from discreet.learning.integrations.huggingface import private_trainer

    # max_grad_norm rescales what is noisy already, and here the gradients are looked at.
    settings = {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "max_grad_norm": 0.0}
    arguments = transformers.TrainingArguments(str(folder), remove_unused_columns=False, **settings)
    trainer = private_trainer(transformers.Trainer)(
        net, arguments, train_dataset=examples, optimizers=(still, None), plan=plan, compile=False, **more
    )
    trainer.train()


def needs(*names):
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    return [pytest.mark.skipif(bool(absent), reason=f"needs {absent}"), pytest.mark.slow]


ids = list(range(ROWS)), list(range(ROWS + 1))
twice = PERSONS, [*PERSONS, "new", "new"]
PATHS = [
    pytest.param(stepped(), id="flat"),
    pytest.param(stepped(clipping=PerLayer(C)), id="per layer"),
    pytest.param(stepped(clipping=Automatic(C)), id="automatic"),
    pytest.param(stepped(clipping=Adaptive(C, count_noise=10.0)), id="adaptive"),
    pytest.param(stepped(dtype=torch.float64), id="float64"),
    pytest.param(stepped(autocast=torch.bfloat16), id="autocast"),
    pytest.param(stepped(physical_batch_size=4), id="accumulation"),
    pytest.param(stepped(compile=True), id="compiled", marks=pytest.mark.slow),
    pytest.param(stepped(REPLACED, relation="replace_one"), id="replace one"),
    pytest.param(stepped(persons=ids, unit=dp.person("id", max_rows=1)), id="persons, examples"),
    pytest.param(stepped(TWICE, persons=twice, unit=dp.person("id", max_rows=2)), id="persons, two examples"),
    pytest.param(
        stepped(TWICE, persons=twice, unit=dp.person("id", max_rows=2), clip_persons="sum"), id="persons, sums"
    ),
    pytest.param(looped(trained), id="train"),
    pytest.param(looped(filled), id="private gradients"),
    pytest.param(looped(accelerated), id="accelerate", marks=needs("accelerate")),
    pytest.param(looped(lightning), id="lightning", marks=needs("lightning")),
    pytest.param(looped(hugging_face), id="trainer", marks=needs("transformers", "accelerate")),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("draw", PATHS)
def test_every_path_of_a_step_passes_the_test_of_mu_and_a_tenth_less_noise_does_not(draw, monkeypatch, tmp_path):
    folders = (tmp_path / str(number) for number in count())
    assert missed(0.9) < 1e-6
    for share, caught in ((1.0, False), (0.9, True)):
        with monkeypatch.context() as patch:
            quieter(patch, share)
            found = OneRelease.of(draw(0, next(folders)), draw(1, next(folders)), DIRECTION)
        assert judged(found) is caught, found
        # The unit reaches the claim, so that the power is what is stated: t is within six spreads of its mean.
        assert abs(found.statistic * share * np.sqrt(2) * NOISE - 1) < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate")
def test_a_language_model_in_the_trainer_passes_and_a_tenth_less_noise_does_not(monkeypatch, tmp_path):
    """GPT-2 with the loss of its own class. The unit is a text whose gradient is longer than the clip norm."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_embd=24, n_layer=1, n_head=2, vocab_size=31, n_positions=12, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    net = transformers.GPT2LMHeadModel(config)
    generator = torch.Generator().manual_seed(1)
    texts = [torch.randint(1, 31, (int(n),), generator=generator).tolist() for n in 3 + torch.arange(ROWS) % 7]
    unit = [7] * 10
    token_losses(net, unit).backward()
    direction = flat(parameter.grad for parameter in net.parameters())
    assert np.linalg.norm(direction) > 2 * C
    assert missed(0.9, freedom=len(direction) - 1) < 1e-6
    for share in (1.0, 0.9):
        with monkeypatch.context() as patch:
            quieter(patch, share)
            sums = []
            for number, rows_of_side in enumerate((texts, [*texts, unit])):
                still = Still(net.parameters())
                examples = [{"input_ids": row, "labels": row} for row in rows_of_side]
                folder = tmp_path / f"{share} {number}"
                trained_by_trainer(net, still, examples, plan_of(), folder, data_collator=PadTo(10))
                sums += still.seen
        found = OneRelease.of(*sums, direction)
        assert judged(found) is (share < 1), found
        assert abs(found.statistic * share * np.sqrt(2) * NOISE - 1) < 0.05


def token_losses(net, row):
    tokens = torch.tensor([row])
    return nn.functional.cross_entropy(net(input_ids=tokens).logits[0, :-1], tokens[0, 1:])


def test_noise_that_is_drawn_twice_alike_and_a_unit_that_moves_twice_as_far_are_seen():
    generator, moved = np.random.default_rng(4), DIRECTION.ravel() / np.linalg.norm(DIRECTION)
    first, second = generator.normal(0.0, NOISE, (2, COORDINATES))
    assert not judged(OneRelease.of(first, second + moved, DIRECTION))
    assert judged(OneRelease.of(first, first + moved, DIRECTION))
    assert judged(OneRelease.of(first, second + 2 * moved, DIRECTION))


def test_the_test_of_one_release_keeps_its_level_and_its_power():
    """2,000 claims that are true and reached, at a level of 5%: between 2% and 9% are refuted (six deviations).

    At noise × 0.97, `missed` is 50% within 10 points, of which the sampling takes four.
    """
    generator = np.random.default_rng(6)
    mu, freedom = 60.0, 999

    def statistics(share):
        along = mu / share / np.sqrt(2) + generator.normal(size=2_000)
        return along / np.sqrt(generator.chisquare(freedom, 2_000) / freedom)

    refuted = np.mean([OneRelease(t, freedom).p_value(mu) <= 0.05 for t in statistics(1.0)])
    assert 0.02 < refuted < 0.09
    seen = np.mean([OneRelease(t, freedom).p_value(mu) <= 0.05 for t in statistics(0.97)])
    assert abs(1 - seen - missed(0.97, mu=mu, freedom=freedom, alpha=0.05)) < 0.1
    assert one_release.missed(1.0, mu=mu, freedom=freedom, alpha=0.05) == pytest.approx(0.95, abs=0.01)
