"""Every path of a private step passes the test of μ on its noisy sum.

A batch of everybody (rate 1), so the step is a Gaussian with μ = 1 for one unit. The two datasets differ in three units
with gradients longer than the clip norm. Some steps on each choose a direction, and 250 others are tested along it.

False alarms: 1e-6 for each path. The same sums are held against a claim of five times the noise, which stands for a
mutant with a fifth of it. Student's t is then 30 on average (21 for clipping by layers, where the units are long in one
layer of two), the claim's is 6.7, the spread is below 1.4, and 4.8 deviations are needed: the mutant passes with a
probability below 1e-10.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

import discreet as dp
from discreet.auditing.normal import Separation
from discreet.auditing.training import noisy_sum
from discreet.errors import InvalidArgument
from discreet.learning import Adaptive, Automatic, PerLayer, Plan, PrivateGradients, train
from discreet.learning.canaries import noisy_sums
from tests.learning import small

ALPHA = 1e-6
C, ROWS, GROUP, PILOT, RUNS = 0.5, 12, 3, 60, 250
INPUTS, TARGETS = small.data(ROWS)
LONG = 50 * torch.ones(GROUP, 4), torch.zeros(GROUP, dtype=torch.long)
MORE = torch.cat([INPUTS, LONG[0]]), torch.cat([TARGETS, LONG[1]])
#: Rows with the same inputs and another label, for plans that protect against a replacement: opposite gradients.
OTHER = torch.cat([INPUTS[GROUP:], LONG[0]]), torch.cat([TARGETS[GROUP:], LONG[1]])
SAME = torch.cat([INPUTS[GROUP:], LONG[0]]), torch.cat([TARGETS[GROUP:], 1 - LONG[1]])
ADDED, REPLACED = ((INPUTS, TARGETS), MORE), (SAME, OTHER)
PERSONS = [i // 2 for i in range(ROWS)]


def plan(**changes):
    settings = {"delta": 1e-5, "examples": ROWS, "batch_size": ROWS, "steps": 1} | changes
    if "clipping" not in settings:
        settings.setdefault("clip_norm", C)
    return Plan.for_noise(1.0, **settings)


def stepped(pair=ADDED, *, persons=(None, None), compile=False, autocast=None, dtype=torch.float32, **changes):
    """`Plan.step`, as one's own loop uses it."""
    return noisy_sums(
        plan(**changes), small.model(dtype), small.loss, pair, persons=persons, compile=compile, autocast=autocast
    )


class Still(torch.optim.SGD):
    """An optimizer that keeps the gradients and moves nothing."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen = []

    def step(self, closure=None):
        if closure is not None:
            closure()
        self.seen.append(torch.cat([p.grad.reshape(-1) for g in self.param_groups for p in g["params"]]).double())


def by_loop(run):
    """The sums of a loop that belongs to this library or to a framework, which steps an optimizer `RUNS` times."""

    def draw(side, runs):
        own = Plan.for_noise(1.0, delta=1e-5, examples=ROWS, batch_size=ROWS, steps=runs, clip_norm=C)
        net = small.model()
        still = Still(net.parameters())
        run(net, still, ADDED[side], own)
        return torch.stack(still.seen).numpy() * ROWS

    return draw


def trained(net, still, data, own):
    train(net, small.loss, data, own, optimizer=still, compile=False, progress=False)


def filled(net, still, data, own):
    for _ in PrivateGradients(own, net, small.loss, data, compile=False):
        still.step()


def accelerated(net, still, data, own):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    from discreet.learning.integrations.accelerate import private_gradients

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, still)
    for _ in private_gradients(accelerator, own, model, small.loss, data, optimizer=optimizer, compile=False):
        still.step()


def lightning(net, still, data, own):
    import lightning as framework

    from discreet.learning.integrations.lightning import PrivateModule

    class Module(PrivateModule, framework.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = net

        def example_losses(self, batch):
            return small.loss(self.layers, batch)

        def configure_optimizers(self):
            return still

    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    fit = framework.Trainer(max_epochs=10_000, enable_model_summary=False, **quiet)
    fit.fit(module, module.private(own, data, compile=False))


def needs(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"needs {name}")


ids = PERSONS, [*PERSONS, *[f"new{i}" for i in range(GROUP)]]
PATHS = [
    pytest.param(stepped, id="flat"),
    pytest.param(lambda: stepped(clipping=PerLayer(C)), id="per layer"),
    pytest.param(lambda: stepped(clipping=Automatic(C)), id="automatic"),
    pytest.param(lambda: stepped(clipping=Adaptive(C, count_noise=10.0)), id="adaptive"),
    pytest.param(lambda: stepped(dtype=torch.float64), id="float64"),
    pytest.param(lambda: stepped(autocast=torch.bfloat16), id="autocast"),
    pytest.param(lambda: stepped(physical_batch_size=4), id="accumulation"),
    pytest.param(lambda: stepped(compile=True), id="compiled"),
    pytest.param(lambda: stepped(REPLACED, relation="replace_one"), id="replace one"),
    pytest.param(lambda: stepped(persons=ids, unit=dp.person("id", max_rows=1)), id="persons, examples"),
    pytest.param(
        lambda: stepped(persons=ids, unit=dp.person("id", max_rows=2), clip_persons="sum"), id="persons, sums"
    ),
    pytest.param(lambda: by_loop(trained), id="train"),
    pytest.param(lambda: by_loop(filled), id="private gradients"),
    pytest.param(lambda: by_loop(accelerated), id="accelerate", marks=needs("accelerate")),
    pytest.param(lambda: by_loop(lightning), id="lightning", marks=needs("lightning")),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", PATHS)
def test_every_path_of_a_step_passes_the_test_of_mu(path):
    draw = path()
    sums = draw(0, PILOT + RUNS), draw(1, PILOT + RUNS)
    direction = sums[1][:PILOT].mean(axis=0) - sums[0][:PILOT].mean(axis=0)
    found = Separation.of(*(side[PILOT:] @ direction for side in sums))
    assert found.p_value(GROUP / 1.0) > ALPHA
    assert found.p_value(GROUP / 5.0) <= ALPHA


@pytest.mark.slow
def test_a_step_is_audited_by_one_call_and_a_coordinate_without_noise_is_seen(monkeypatch):
    """A coordinate without noise tells the datasets apart in every run."""
    from discreet.learning.step import Step

    honest = noisy_sum(plan(), small.model(), small.loss, ADDED, distance=GROUP, max_samples=500)
    assert not honest.violated, str(honest)
    draw = Step._noise

    def quiet(step, number, norm):
        noise = draw(step, number, norm)
        noise[-1] = 0.0
        return noise

    monkeypatch.setattr(Step, "_noise", quiet)
    assert noisy_sum(plan(), small.model(), small.loss, ADDED, distance=GROUP, max_samples=500).violated


@pytest.mark.slow
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_noise_of_the_clip_norm_after_the_update_is_seen(share, monkeypatch):
    """An adaptive clip norm that falls by a fifth, and noise that already uses the new one.

    Student's t is 81 on average where the claim's is 65. Its spread is 1.7, and 4.8 deviations of the claim's spread of
    1.5 are needed: the mutant passes with a probability below 1e-6.
    """
    from discreet.learning.step import Step

    draw = Step._noise
    monkeypatch.setattr(Step, "_noise", lambda step, number, norm: draw(step, number, share * norm))
    adaptive = plan(clipping=Adaptive(C, count_noise=10.0))
    report = noisy_sum(adaptive, small.model(), small.loss, ADDED, distance=GROUP, max_samples=1_000)
    assert report.violated is (share < 1), str(report)


def test_the_test_of_mu_is_for_gaussian_noise_on_unguarded_data():
    with pytest.raises(InvalidArgument, match=r"plan\.noise must be Gaussian"):
        noisy_sum(plan(noise="laplace"), small.model(), small.loss, ADDED)
