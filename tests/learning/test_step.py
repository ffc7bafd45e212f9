"""A step adds clipped sums and one draw of noise of the right scale, over a public divisor. Mutants are caught."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import discreet as dp
from discreet.errors import Exhausted, InvalidArgument
from discreet.learning import Adaptive, Automatic, BandedCorrelation, Engine, Flat, PerLayer, Plan, Step
from discreet.learning.distributed import Team
from discreet.learning.engine import ClippedSum
from discreet.learning.engine.graph.replay import GraphReplay, Loans
from discreet.learning.engine.operations.memory_format import with_usual_strides
from discreet.learning.noise import GaussianNoise, Secret, split
from discreet.learning.step import _Totals
from tests.learning import small, triton_in_numpy
from tests.learning.engine import truth


def example_gradient(net: nn.Module, inputs: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    value = small.loss(net, (inputs[None], target[None]))[0]
    return [g.double() for g in torch.autograd.grad(value, list(net.parameters()))]


def by_hand(plan: Plan, net: nn.Module, batch: Any, data: Any, norm: float) -> torch.Tensor:
    """The gradient that one step must give to the optimizer, computed one example at a time."""
    inputs, targets = data
    total = torch.zeros(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    for row in batch._rows.tolist():
        gradient = torch.cat([g.reshape(-1) for g in example_gradient(net, inputs[row], targets[row])])
        weight = norm / float(torch.linalg.vector_norm(gradient, ord=plan.clipping.order)) * truth.shrunk()
        total += gradient * min(1.0, weight)
    secret = Secret(plan.insecure_seed).at("noise").at("step", batch.step)
    sensitivity = norm * (2 if plan.relation is dp.REPLACE_ONE else 1)
    noise = plan.noise.flat(len(total), plan.noise.noise_multiplier * sensitivity, secret)
    return (total + noise.double()) / plan.sampler.batch_size


def check_steps(make_step, **changes: Any) -> None:
    """Every step of a plan equals the one by hand. Used on `Step`, and on mutants, which must fail."""
    plan, net, data = small.plan(**changes), small.model(), small.data()
    step = make_step(plan, net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
    for batch in plan.batches(data):
        before = small.flat(net)
        expected = by_hand(plan, net, batch, data, plan.clip_norm(batch.step))
        step(batch)
        assert torch.allclose(small.gradients(net), expected, atol=2e-6)
        assert torch.allclose(small.flat(net), before - 0.5 * expected, atol=2e-6)
    assert step.position == step.updates == plan.steps


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"physical_batch_size": 3},
        {"batch_size": 60},
        {"batch_size": 1, "steps": 8},  # some of these draws are empty
        {"sampling": "without replacement"},
        {"sampling": "shuffle", "batch_size": 13, "steps": 10},  # 60 = 4·13 + 8
        {"noise": "laplace"},
        {"noise": "l2-laplace"},
        {"clip_schedule": ((0, 1.0), (3, 0.1))},
        {"relation": "zero-out"},
    ],
    ids=str,
)
def test_a_step_is_the_clipped_sum_plus_one_noise_over_the_expected_size(changes):
    check_steps(Step, **changes)


class Lending(Engine):
    """Writes each result where the last one was, as a CUDA graph does, and fails if someone still refers to that."""

    def _run(self, batch, mask, norm):
        clipped = super()._run(batch, mask, norm)
        fresh = [*clipped.sums.values(), clipped.norms, clipped.losses, clipped.finite]
        if not hasattr(self, "loans"):
            self.kept = [torch.empty_like(value) for value in fresh]
            self.loans = Loans(self.kept)
        assert self.loans.returned
        for kept, value in zip(self.kept, fresh, strict=True):
            kept.copy_(value)
        *sums, norms, losses, finite = self.loans.hand_out()
        return ClippedSum(dict(zip(clipped.sums, sums, strict=True)), norms, losses, finite, lent=True)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("size", [3, 60])
def test_what_the_engine_lends_is_given_back_before_it_is_written_over(monkeypatch, size, early):
    """Also where the noise is added to the very memory that the engine lent, as above 16 million parameters."""
    monkeypatch.setattr("discreet.learning.step.Engine", Lending)
    if not early:
        monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 0)
        added_in_place(monkeypatch)
    check_steps(Step, physical_batch_size=size)


@pytest.mark.parametrize("early", [True, False])
def test_lent_gradients_are_written_over_only_when_the_device_is_done_with_them(monkeypatch, early):
    """Another stream may still copy them, and would copy sums without noise."""
    log = []

    class Logged(Lending):
        def _run(self, *args):
            log.append("run")
            return super()._run(*args)

        def wait_for_readers(self):
            log.append("wait")

    monkeypatch.setattr("discreet.learning.step.Engine", Logged)
    if not early:
        monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 0)
        added_in_place(monkeypatch)
    check_steps(Step, physical_batch_size=60)
    runs = log.count("run")
    assert log == (["run"] * runs if early else ["run", "wait"] * runs)


#: The parameter of a replayed graph; its address is that which was captured.
WEIGHT = torch.ones(3)


def recorded_replay(monkeypatch):
    """A replay without a device, where nothing can be captured, and a list of what it does."""
    log, device = [], torch.device("cpu")

    def wait(waited_for):
        assert waited_for == device
        log.append("wait")

    monkeypatch.setattr(torch.cuda, "synchronize", wait)
    replay = GraphReplay.__new__(GraphReplay)
    replay._fixed, replay._addresses, replay._inputs = 1, [WEIGHT.data_ptr()], [torch.zeros(2, device=device)]
    replay._loans, replay._read_by_others, replay._warned = Loans([torch.zeros(2)]), False, True
    replay._graph = SimpleNamespace(replay=lambda: log.append("replay"))
    replay._function = lambda *arguments: log.append("function") or [torch.zeros(2)]
    return replay, log


def test_a_graph_whose_results_others_read_is_replayed_only_when_the_device_is_done(monkeypatch):
    replay, log = recorded_replay(monkeypatch)
    engine = Engine(nn.Linear(2, 2), nn.functional.cross_entropy, Flat(1.0))
    engine.wait_for_readers()  # nothing was lent yet
    engine._current = SimpleNamespace(function=replay)
    for read in (False, True, True, False, False):
        replay(WEIGHT, torch.ones(2))
        if read:
            engine.wait_for_readers()
    assert log == ["replay", "replay", "wait", "replay", "wait", "replay", "replay"]


@pytest.mark.parametrize("why", ["a gradient is kept", "a parameter moved"])
def test_what_runs_in_place_of_a_graph_waits_for_readers_too(why, monkeypatch):
    """It may be given memory that was that of gradients, which another stream still copies."""
    replay, log = recorded_replay(monkeypatch)
    kept = replay(WEIGHT, torch.ones(2))
    replay.wait_for_readers()
    if why == "a parameter moved":
        del kept
    replay(WEIGHT if why == "a gradient is kept" else WEIGHT.clone(), torch.ones(2))
    replay(WEIGHT, torch.ones(2))
    assert log == ["replay", "wait", "function", "function" if why == "a gradient is kept" else "replay"]


def test_an_interrupted_step_has_said_that_its_gradients_may_be_read(monkeypatch):
    log = []

    class Logged(Lending):
        def wait_for_readers(self):
            log.append("wait")

    def interrupted(step, noisy):
        assert log == ["wait"]
        raise KeyboardInterrupt

    monkeypatch.setattr("discreet.learning.step.Engine", Logged)
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 0)
    monkeypatch.setattr(Step, "_set_gradients", interrupted)
    added_in_place(monkeypatch)
    plan, net = small.plan(physical_batch_size=60), small.model()
    step = Step(plan, net, small.loss, None, compile=False)
    with pytest.raises(KeyboardInterrupt):
        step.fill(next(iter(plan.batches(small.data()))))


def test_strides_do_not_tell_which_operation_made_a_tensor():
    made = torch.randn(8, 64, 1, 1).as_strided((8, 64, 1, 1), (64, 1, 64, 64))
    usual = with_usual_strides(made)
    assert usual.stride() == torch.zeros(8, 64, 1, 1).stride()
    assert torch.equal(usual, made)
    last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert with_usual_strides(last) is last
    turned = torch.randn(3, 4).T
    assert with_usual_strides(turned) is turned


def added_in_place(monkeypatch):
    """Let noise be added to the sums in their own memory, as the CUDA kernel adds it."""

    def noisy(self, values, factor, scale, secret, *, overwrite=False):
        assert overwrite
        flat = self.flat(sum(value.numel() for value in values), scale, secret)
        for value, noise in zip(values, split(flat, [value.shape for value in values]), strict=True):
            value.mul_(factor).add_(noise)
        return values

    monkeypatch.setattr(GaussianNoise, "noisy", noisy)


def test_a_gradient_that_someone_keeps_is_not_lent_again():
    """Otherwise it would turn into the next step's sums, without noise."""
    loans = Loans([torch.arange(4.0), torch.zeros(2, 2)])
    net = nn.Linear(4, 1, bias=False)
    ways = (
        lambda grad: grad,
        lambda grad: grad.view(2, 2),
        lambda grad: grad[0, 1:],
        lambda grad: grad.numpy(),
        lambda grad: grad.untyped_storage(),
        torch.utils.dlpack.to_dlpack,
    )
    for keep in ways:
        net.weight.grad = loans.hand_out()[0].view(1, 4)
        assert not loans.returned
        kept = keep(net.weight.grad)
        net.weight.grad = None
        assert not loans.returned
        del kept
        assert loans.returned


class Tagger(nn.Module):
    """Both biases of an LSTM have the same gradient, so the graph returns one tensor for the two sums."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.lstm, self.head = nn.LSTM(2, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.lstm(x.unflatten(1, (2, 2)))[0][:, -1])


@pytest.mark.parametrize("early", [True, False])
def test_equal_sums_are_added_up_once_over_several_pieces(early, monkeypatch):
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1 << 24 if early else 1)
    by_size = []
    for size in (3, 60):
        plan, net = small.plan(physical_batch_size=size, steps=2, batch_size=20), Tagger()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
        by_size.append([])
        for batch in plan.batches(small.data()):
            step(batch)
            by_size[-1].append(small.gradients(net))
    for pieces, whole in zip(*by_size, strict=True):
        assert torch.allclose(pieces, whole, atol=1e-5)


@pytest.mark.parametrize(("kind", "size"), [(Engine, 60), (Lending, 3), (Lending, 60)])
def test_noise_is_written_over_sums_that_have_memory_of_their_own(monkeypatch, kind, size):
    """Also over lent ones: the engine writes to that memory only when nobody refers to it any more."""
    monkeypatch.setattr("discreet.learning.step.Engine", kind)
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1)
    asked = []

    def noisy(self, values, factor, scale, secret, *, overwrite, original=GaussianNoise.noisy):
        asked.append(overwrite)
        return original(self, values, factor, scale, secret, overwrite=overwrite)

    monkeypatch.setattr(GaussianNoise, "noisy", noisy)
    check_steps(Step, physical_batch_size=size)
    assert asked == [True] * len(asked)
    assert asked


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 1, "steps": 8},  # some of these draws are empty
        {"noise": "laplace"},
        {"clipping": PerLayer(0.5)},
        {"clipping": PerLayer(0.5), "relation": "replace-one", "sampling": "without replacement"},
        {"clipping": Adaptive(5.0, count_noise=1.0)},
        {"correlation": BandedCorrelation((1.0, 0.5)), "sampling": "ordered"},
    ],
    ids=str,
)
def test_a_step_is_the_same_whether_its_noise_is_drawn_early_or_added_in_place(changes, monkeypatch):
    ways = []
    for early in (True, False):
        monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1 << 24 if early else 1)
        plan, net = small.plan(**changes), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
        ways.append([])
        for batch in plan.batches(small.data()):
            step(batch)
            ways[-1].append((small.gradients(net), step.clip_norm))
    for (gradients, norm), (others, other) in zip(*ways, strict=True):
        assert torch.allclose(gradients, others, atol=1e-6)
        assert norm == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("early", [True, False])
def test_the_memory_of_gradients_does_not_tell_that_a_draw_was_empty(early, monkeypatch):
    """SGD's momentum keeps the layout of the first gradient, and a checkpoint keeps the momentum."""
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1 << 24 if early else 1)
    emulated = triton_in_numpy.emulated(monkeypatch)
    monkeypatch.setattr("discreet.learning.noise.families.chacha_kernel", emulated)
    plan = small.plan(batch_size=1, steps=8)
    net = nn.Sequential(nn.Unflatten(1, (2, 2, 1)), nn.Conv2d(2, 3, (2, 1)), nn.Flatten(), nn.Linear(3, 2))
    net = net.to(memory_format=torch.channels_last)
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
    empty, layouts = [], []
    for batch in plan.batches(small.data()):
        step(batch)
        empty.append(not len(batch._rows))
        layouts.append([(p.grad.stride(), p.grad.untyped_storage().nbytes()) for p in net.parameters()])
    assert set(empty) == {True, False}
    assert layouts == layouts[:1] * len(layouts)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("early", [True, False])
def test_only_the_first_process_adds_noise_and_all_sums_are_added_up(rank, early, monkeypatch):
    """Noise that every process added on its own would be another noise in each of them."""
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1 << 24 if early else 1)
    added_up = []

    class Pair(Team):
        def share_parameters(self, tensors):
            pass

        def add_up(self, flat):
            added_up.append(flat.clone())
            flat.fill_(7.0)  # what the other process would make of it

    plan, net = small.plan(steps=1), small.model()
    step = Step(plan, net, small.loss, None, compile=False, team=Pair(rank, 2))
    (batch,) = plan.batches(small.data())
    step.fill(batch)
    inputs, targets = small.data()
    total = torch.zeros(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    for row in batch._rows.tolist()[rank::2]:
        gradient = torch.cat([g.reshape(-1) for g in example_gradient(net, inputs[row], targets[row])])
        total += gradient * min(1.0, 0.5 / float(gradient.norm()))
    noise = plan.noise.flat(len(total), 0.5, Secret(1).at("noise").at("step", 0)).double() * (rank == 0)
    (sums,) = added_up
    assert torch.allclose(sums.double(), (total + noise) / 12, atol=2e-6)
    assert torch.equal(small.gradients(net), torch.full_like(total, 7.0))


def test_an_example_that_is_not_finite_is_left_out_of_lent_results_too():
    torch.manual_seed(0)
    net = small.model()
    inputs, targets = (value[:6].clone() for value in small.data())
    inputs[2] = math.inf
    mask = torch.ones(6, dtype=torch.bool)
    expected, lent = (
        kind(net, small.loss, Flat(0.5), compile=False, lend=lend)((inputs, targets), mask)
        for kind, lend in ((Engine, False), (Lending, True))
    )
    assert not lent.finite[2]
    assert torch.equal(lent.finite, expected.finite)
    assert torch.allclose(lent.norms, expected.norms, equal_nan=True)
    for name, value in expected.sums.items():
        assert torch.allclose(lent.sums[name], value)


def test_a_loss_that_clears_gradients_does_not_clear_the_noise():
    plan, net = small.plan(physical_batch_size=3, noise_multiplier=100.0), small.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)

    def loss(model, batch):
        optimizer.zero_grad(set_to_none=False)
        return small.loss(model, batch)

    step = plan.step(net, loss, optimizer, compile=False)
    for batch in plan.batches(small.data()):
        step(batch)
        assert float(small.gradients(net).square().mean().sqrt()) > 1.0


class DividesByTheDraw(Step):
    def _release(self, flat, norm, sums, seen):
        super()._release(flat, norm, sums, seen)
        for parameter in self._parameters:
            parameter.grad *= self.plan.sampler.batch_size / max(float(seen.count), 1.0)


class SkipsEmptyDraws(Step):
    def _release(self, flat, norm, sums, seen):
        if sums is None:
            self.updates -= 1
            self._optimizer.zero_grad()
        else:
            super()._release(flat, norm, sums, seen)


class NoiseForEachPiece(Step):
    def _release(self, flat, norm, sums, seen):
        super()._release(flat, norm, sums, seen)
        extra = self.plan.noise.draw([p.shape for p in self._parameters], self.plan.noise_scale(norm, 1), Secret())
        for parameter, noise in zip(self._parameters, extra, strict=True):
            parameter.grad += noise / self.plan.sampler.batch_size


class NoNoise(Step):
    def _noise(self, step, norm):
        return super()._noise(step, 1e-9)


class ReusesNoise(Step):
    def _noise(self, step, norm):
        return super()._noise(0, norm)


class ClipsTooLate(Step):
    def _clipped(self, batch, norm, meanwhile):
        return super()._clipped(batch, 2 * norm, meanwhile)


@pytest.mark.parametrize(
    "mutant", [DividesByTheDraw, SkipsEmptyDraws, NoiseForEachPiece, NoNoise, ReusesNoise, ClipsTooLate]
)
def test_a_mutant_is_caught(mutant):
    with pytest.raises(AssertionError):
        check_steps(mutant, batch_size=1, steps=12, physical_batch_size=3)


def test_a_microbatch_is_only_a_way_to_fit_memory():
    parameters = []
    for size in (1, 4, 100):
        plan, net = small.plan(physical_batch_size=size, batch_size=20), small.model(torch.float64)
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.1), compile=False)
        for batch in plan.batches(small.data()):
            step(batch)
        parameters.append(small.flat(net))
    assert torch.allclose(parameters[0], parameters[1], atol=1e-12)
    assert torch.allclose(parameters[0], parameters[2], atol=1e-12)


@pytest.mark.parametrize("clipping", [Flat(0.5), PerLayer(0.5), Automatic(0.5), Flat(0.5, order=1)], ids=repr)
def test_one_example_moves_the_sum_by_at_most_the_sensitivity(clipping):
    """The same seed on neighbors: only the clipped gradient of one example differs."""
    noise = "gaussian" if clipping.order == 2 else "laplace"
    inputs, targets = small.data()
    moved = []
    for rows in (60, 59):
        plan, net = small.plan(clipping=clipping, batch_size=60, steps=1, noise=noise), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.1), compile=False)
        data = (inputs[:rows] * torch.where(torch.arange(rows) == 59, 1e3, 1.0)[:, None], targets[:rows])
        for batch in plan.batches(data):
            step(batch)
        moved.append(small.gradients(net) * 60)
    length = float(torch.linalg.vector_norm(moved[0] - moved[1], ord=clipping.order))
    assert 0.3 < length < 0.5 + 1e-5


def test_a_person_with_many_rows_moves_the_sum_by_at_most_the_norm():
    inputs, targets = small.data()
    ids = np.where(np.arange(60) < 50, np.arange(60), 50)  # the last person has ten rows
    moved = []
    for rows in (60, 50):
        plan = small.plan(unit=dp.person("who", max_rows=4), examples=51, batch_size=51, steps=1, clip_norm=0.5)
        net = small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.1), compile=False)
        for batch in plan.batches((inputs[:rows] * 30, targets[:rows]), persons=ids[:rows]):
            step(batch)
        moved.append(small.gradients(net) * 51)
    length = float(torch.linalg.vector_norm(moved[0] - moved[1]))
    assert 0.05 < length < 0.5 + 1e-5


def test_the_normalizer_does_not_depend_on_the_number_of_examples():
    """Two dataset sizes with all gradients clipped to nothing: only the divisor could reveal the size."""
    gradients = []
    for rows in (60, 61, 600):
        plan, net = small.plan(clip_norm=1e-6, noise_multiplier=1e6), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.1), compile=False)
        for batch in plan.batches(small.data(rows)):
            step(batch)
        gradients.append(small.gradients(net))
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5)
    assert torch.allclose(gradients[0], gradients[2], atol=1e-5)


def test_an_empty_draw_is_a_step_of_pure_noise():
    plan, net = small.plan(steps=2), small.model()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
    seen = [step(batch) for batch in plan.batches((torch.zeros(0, 4), torch.zeros(0, dtype=torch.long)))]
    assert step.updates == 2
    assert float(small.gradients(net).abs().min()) > 0
    assert math.isnan(float(seen[0].loss))


def test_an_example_that_is_not_finite_contributes_nothing_and_is_not_mentioned(caplog, recwarn):
    inputs, targets = small.data()
    gradients = []
    for poison in (None, math.nan, math.inf, 1e30):
        spoilt = inputs.clone()
        if poison is not None:
            spoilt[7, 0] = poison
        rows = torch.arange(60) != 7 if poison is None else torch.arange(60) >= 0
        plan, net = small.plan(batch_size=60, steps=1), small.model()
        step = plan.step(net, lambda m, b: small.loss(m, b) + b[0].pow(8).mean(1), torch.optim.SGD(net.parameters()),
                         compile=False)  # fmt: skip
        for batch in plan.batches((spoilt[rows], targets[rows])):
            seen = step(batch)
        assert math.isfinite(float(seen.loss))
        gradients.append(small.gradients(net))
    for other in gradients[1:]:
        assert torch.allclose(gradients[0], other, atol=1e-6)
    assert not [record for record in caplog.records if record.name.startswith("discreet")]
    assert not recwarn.list


def test_no_more_steps_than_the_plan_has():
    plan, net = small.plan(steps=2), small.model()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
    batches = list(plan.batches(small.data()))
    assert len(batches) == 2
    step(batches[0])
    with pytest.raises(Exhausted, match="already taken"):
        step(batches[0])
    step(batches[1])
    with pytest.raises(Exhausted, match="all 2 steps"):
        step(next(iter(plan.batches(small.data()))))
    assert step.updates == 2


def test_a_batch_that_the_plan_did_not_draw_is_refused():
    plan, net = small.plan(), small.model()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
    with pytest.raises(InvalidArgument, match="plan"):
        step(small.data())
    with pytest.raises(InvalidArgument, match="plan"):
        step(next(iter(small.plan(steps=9).batches(small.data()))))


def test_a_shuffled_epoch_is_not_begun_twice():
    plan, net = small.plan(sampling="shuffle"), small.model()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
    step(next(iter(plan.batches(small.data()))))
    others = iter(plan.batches(small.data()))
    next(others)
    with pytest.raises(InvalidArgument, match="one stream"):
        step(next(others))


def test_adaptive_clipping_follows_the_quantile_and_noises_with_the_norm_of_before():
    plan = small.plan(clipping=Adaptive(5.0, quantile=0.5, learning_rate=0.5, count_noise=1.0),
                      noise_multiplier=0.2, batch_size=60, steps=40)  # fmt: skip
    net = small.model()
    used = []

    class Watched(type(plan.noise)):
        def flat(self, size, scale, secret, **where):
            used.append(scale)
            return super().flat(size, scale, secret, **where)

    object.__setattr__(plan, "noise", Watched(0.2))
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1e-6), compile=False)
    norms = [step(batch).clip_norm for batch in plan.batches(small.data())]
    assert norms[0] == 5.0
    assert norms[1] < norms[0]  # all gradients are shorter, so the norm must fall
    assert used == pytest.approx([plan.noise_scale(norm, 1) / 60 for norm in norms])
    inputs, targets = small.data()
    lengths = [
        float(torch.cat([g.reshape(-1) for g in example_gradient(net, x, y)]).norm())
        for x, y in zip(inputs, targets, strict=True)
    ]
    assert np.quantile(lengths, 0.35) < norms[-1] < np.quantile(lengths, 0.65)


def test_one_example_moves_the_centered_count_by_at_most_a_half():
    norms = torch.tensor([[0.2, 1.0, 1.5, 0.1, 9.0]])
    finite = torch.tensor([True, True, True, True, False])

    def centered(mask: torch.Tensor) -> float:
        totals = _Totals.zero(torch.device("cpu"))
        totals.add(ClippedSum({}, norms, torch.zeros(5), finite), mask, 1.0, Adaptive(1.0))
        return float(totals.below)

    everyone = torch.tensor([True, True, True, False, True])
    assert centered(everyone) == 0.5  # two below the norm and one above it; the others are absent or not finite
    for i in range(5):
        without = everyone.clone()
        without[i] = False
        assert abs(centered(everyone) - centered(without)) <= 0.5


def test_the_noise_of_the_count_is_its_own():
    """With a learning rate of 1 and no data, ln C moves by −(noise/B + 1/2 − γ), clamped; 2000 steps, 6σ bounds."""
    plan = small.plan(
        clipping=Adaptive(1.0, quantile=0.5, learning_rate=1.0, count_noise=3.0), batch_size=60, steps=2000
    )
    net = small.model()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.0), compile=False)
    empty = (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    norms = [step(batch).clip_norm for batch in plan.batches(empty)]
    moves = np.diff(np.log(norms)) * 60
    assert abs(moves.mean()) < 6 * 3.0 / math.sqrt(2000)
    assert 3.0 * (1 - 6 / math.sqrt(4000)) < moves.std() < 3.0 * (1 + 6 / math.sqrt(4000))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_parameters_of_any_float_get_gradients_of_their_type(dtype):
    plan, net = small.plan(), small.model(dtype)
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.1), compile=False)
    for batch in plan.batches(small.data()):
        step(batch)
    assert all(p.grad.dtype == dtype and bool(torch.isfinite(p).all()) for p in net.parameters())


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax"])
def test_any_optimizer_of_torch_is_taken_as_it_is(kind):
    plan, net = small.plan(), small.model()
    before = small.flat(net)
    step = plan.step(net, small.loss, getattr(torch.optim, kind)(net.parameters(), lr=0.01), compile=False)
    for batch in plan.batches(small.data()):
        step(batch)
    assert not torch.equal(before, small.flat(net))


def test_an_optimizer_must_hold_the_models_parameters_and_no_others():
    plan, net = small.plan(), small.model()
    with pytest.raises(InvalidArgument, match="only parameters of the model"):
        plan.step(net, small.loss, torch.optim.SGD([*net.parameters(), nn.Parameter(torch.zeros(1))]))
    with pytest.raises(InvalidArgument, match=r"'0\.bias'"):
        plan.step(net, small.loss, torch.optim.SGD([p for n, p in net.named_parameters() if n != "0.bias"]))


def test_a_frozen_parameter_with_an_old_gradient_stays_as_it_is():
    plan, net = small.plan(), small.model()
    net[0].weight.requires_grad_(False)
    net[0].weight.grad = torch.ones_like(net[0].weight)
    before = net[0].weight.clone()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
    for batch in plan.batches(small.data()):
        step(batch)
    assert torch.equal(before, net[0].weight)
    assert net[0].weight.grad is None


def test_seeds_of_torch_do_not_touch_a_run():
    parameters = []
    for _ in range(2):
        torch.manual_seed(0)
        plan, net = small.plan(insecure_seed=None, batch_size=60), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=False)
        for batch in plan.batches(small.data()):
            step(batch)
        parameters.append(small.flat(net))
    assert not torch.isclose(parameters[0], parameters[1]).any()


@pytest.mark.slow
def test_a_compiled_step_is_the_same_step():
    parameters = []
    for compile in (False, True):
        plan, net = small.plan(physical_batch_size=8), small.model()
        step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=1.0), compile=compile)
        for batch in plan.batches(small.data()):
            step(batch)
        parameters.append(small.flat(net))
    assert torch.allclose(parameters[0], parameters[1], atol=1e-5)


def test_in_float16_a_clipped_gradient_is_no_longer_than_the_norm():
    """Scaled entries are far below the smallest normal number of the type."""
    model = nn.Linear(256, 512, bias=False)
    engine = Engine(
        model, lambda net, x: (net(x) * 8.3e3).sum(1).float(), Flat(0.1), compile=False, dtype=torch.float16
    )
    clipped = engine(torch.full((2, 256), 0.3), torch.tensor([True, False]))
    assert clipped.finite[0]
    assert float(clipped.sums["weight"].norm()) <= 0.1 * (1 + 2e-3)


def test_a_share_for_a_layer_that_is_not_there_is_refused_before_anything_runs():
    with pytest.raises(InvalidArgument, match="layers"):
        small.step(small.plan(clipping=PerLayer(1.0, {"0": 1.0, "2": 1.0, "4": 1.0})))


def test_an_adaptive_norm_does_not_fall_until_its_noise_vanishes():
    step = small.step(small.plan(insecure_seed=None, clipping=Adaptive(1e-29, learning_rate=30.0, count_noise=0.6)))
    for _ in range(20):
        step._move_norm(step.plan.clipping, 0.5)
    noise = step._noise(0, step.clip_norm)
    assert (noise.abs() > torch.finfo(torch.float32).tiny).all()


class _Counting(nn.Module):
    """Writes buffers in three ways: in place, by another tensor, and where there was none."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small.model()
        self.register_buffer("calls", torch.full((), 7))
        self.register_buffer("replaced", torch.full((), 7))
        self.register_buffer("made", None)

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + 1
        self.made = torch.ones(())
        return self.inner(x)


class _InPlace(_Counting):
    def forward(self, x):
        self.calls += 1
        return self.inner(x)


@pytest.mark.parametrize("kind", [_InPlace, _Counting])
def test_no_buffer_counts_the_passes(kind):
    """The number of physical batches would tell the size of a secret batch."""
    plan, net = small.plan(physical_batch_size=1), kind()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
    for batch in plan.batches(small.data()):
        step(batch)
        assert (int(net.calls), int(net.replaced), net.made) == (7, 7, None)


def test_what_the_caller_writes_to_a_buffer_between_steps_stays():
    plan, net = small.plan(), _InPlace()
    step = plan.step(net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
    for batch in plan.batches(small.data()):
        net.calls.fill_(batch.step)
        step(batch)
        assert int(net.calls) == batch.step


@pytest.mark.parametrize("early", [True, False])
def test_the_last_gradients_and_large_noise_take_no_memory_while_the_sums_are_computed(early, monkeypatch):
    monkeypatch.setattr("discreet.learning.step.EARLY_NOISE", 1 << 24 if early else 1)
    check_steps(Step)
    plan, net = small.plan(), small.model()
    step = Step(plan, net, small.loss, torch.optim.SGD(net.parameters(), lr=0.5), compile=False)
    seen = []

    def engine(batch, mask, norm, meanwhile, original=step._engine.__call__):
        seen.append((meanwhile is not None, [p.grad for p in net.parameters()]))
        return original(batch, mask, norm, meanwhile)

    monkeypatch.setattr(Engine, "__call__", lambda self, *given: engine(*given))
    for batch in plan.batches(small.data()):
        step(batch)
    assert len(seen) > 1
    assert all(drawn is early and gradients == [None] * len(gradients) for drawn, gradients in seen)
