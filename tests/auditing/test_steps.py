"""Every path of a private step passes the test of μ on its noisy sum.

A batch of everybody (rate 1), so the step is a Gaussian with μ = 1 for one unit. The two datasets differ in three units
with gradients longer than the clip norm. Each path is run 500 times on each of them.

False alarms: 1e-6 for each audit. The same sums are held against a claim of four times the noise, along the direction
of the exact difference, which stands for a mutant with a quarter of its noise. Student's t is then above 30 (above 23
for clipping by layers, where the units are long in one layer of two), the claim's is 12, and the spread is below 1.4:
more than seven standard deviations above the critical value, so this fails with a probability below 1e-10.
"""

from __future__ import annotations

import importlib.util

import pytest
import torch

import discreet as dp
from discreet import events
from discreet.auditing import audit
from discreet.auditing.training import noisy_sum
from discreet.errors import InvalidArgument
from discreet.learning import Adaptive, Automatic, PerLayer, Plan, PrivateGradients, train
from discreet.learning.canaries import noisy_sums
from tests.learning import small

C, ROWS, GROUP, RUNS = 0.5, 12, 3, 500
INPUTS, TARGETS = small.data(ROWS)
LONG = 50 * torch.ones(GROUP, 4), torch.zeros(GROUP, dtype=torch.long)
MORE = torch.cat([INPUTS, LONG[0]]), torch.cat([TARGETS, LONG[1]])
#: The last rows replaced, for plans that protect against a replacement.
OTHER = torch.cat([INPUTS[GROUP:], LONG[0]]), torch.cat([TARGETS[GROUP:], LONG[1]])
SAME = torch.cat([INPUTS[GROUP:], -LONG[0]]), torch.cat([TARGETS[GROUP:], 1 - LONG[1]])
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
    sums = draw(0, RUNS), draw(1, RUNS)
    settings = {"estimator": "mu", "vectorized": True, "max_samples": RUNS, "distance": GROUP}
    honest = audit(lambda side, runs: sums[side][:runs], events.Gaussian(1.0), [(0, 1)], **settings)
    assert not honest.violated, str(honest)
    # By symmetry of noise, the difference of the means is as good a direction as the exact difference: it was made from
    # other steps than those that are counted.
    fresh = draw(0, RUNS // 5), draw(1, RUNS // 5)
    direction = fresh[1].mean(axis=0) - fresh[0].mean(axis=0)
    along = [side @ direction for side in sums]
    weak = audit(lambda side, runs: along[side][:runs], events.Gaussian(4.0), [(0, 1)], **settings)
    assert weak.violated, str(weak)


@pytest.mark.slow
def test_a_step_is_audited_by_one_call_and_a_coordinate_without_noise_is_seen(monkeypatch):
    """A coordinate without noise tells the datasets apart in every run."""
    from discreet.learning.step import Step

    honest = noisy_sum(plan(), small.model(), small.loss, ADDED, distance=GROUP, max_samples=RUNS)
    assert not honest.violated, str(honest)
    draw = Step._noise

    def quiet(step, number, norm):
        noise = draw(step, number, norm)
        noise[-1] = 0.0
        return noise

    monkeypatch.setattr(Step, "_noise", quiet)
    assert noisy_sum(plan(), small.model(), small.loss, ADDED, distance=GROUP, max_samples=RUNS).violated


def test_the_test_of_mu_is_for_gaussian_noise_on_unguarded_data():
    with pytest.raises(InvalidArgument, match=r"plan\.noise must be Gaussian"):
        noisy_sum(plan(noise="laplace"), small.model(), small.loss, ADDED)
