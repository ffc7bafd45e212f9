"""Correlated noise in training: its covariance, its price, who is in which batch, and what a crash leaves."""

from __future__ import annotations

import itertools
import math
import os
import signal
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch import nn

import discreet as dp
from discreet import accounting, events
from discreet.accounting.prices.correlated import sensitivity
from discreet.errors import DiscreetError, InvalidArgument, NotACheckpoint
from discreet.learning import (
    Adaptive,
    BandedCorrelation,
    BufferedCorrelation,
    CancelingCorrelation,
    CyclicGroups,
    NoiseCorrelation,
    OrderedEpochs,
    Plan,
    PrivateGradients,
    SquareRootCorrelation,
    Step,
    TreeCorrelation,
)
from discreet.learning.data.patterns import PatternGuard
from discreet.learning.noise import GaussianNoise, Pending, Secret
from discreet.learning.pending import PendingFile, beside
from tests.learning import small
from tests.learning.test_checkpoint import ROOT, SCRIPT
from tests.learning.test_train import go, interrupt_after

STEPS = 12
CORRELATIONS = {
    "independent": BandedCorrelation((1.0,)),
    "banded": BandedCorrelation((1.0, 0.5, -0.25)),
    "square root": SquareRootCorrelation(bands=4),
    "all bands": SquareRootCorrelation(bands=STEPS),
    "buffered": BufferedCorrelation.for_steps(STEPS, buffers=3),
    "canceling": CancelingCorrelation(0.7),
    "tree": TreeCorrelation(),
}


def plan(**changes) -> Plan:
    settings = {
        "sampling": "ordered",
        "correlation": SquareRootCorrelation(bands=3),
        "steps": STEPS,
        "insecure_seed": None,
    }
    return small.plan(**{**settings, **changes})


def encoder(event: events.Event) -> np.ndarray:
    """C of an event, written down from its definition."""
    match event:
        case events.ToeplitzNoise(_, coefficients, steps):
            column = np.array(coefficients, dtype=float)
        case events.SquareRootNoise(_, bands, steps):
            column = np.array([math.comb(2 * j, j) / 4**j for j in range(bands)])
        case events.BufferedNoise(_, scales, decays, steps):
            later = [sum(w * d ** (j - 1) for w, d in zip(scales, decays, strict=True)) for j in range(1, steps)]
            column = np.array([1.0, *later])
        case events.TreeNoise(_, 2, steps):
            nodes = [(start, width) for width in (1, 2, 4, 8, 16) for start in range(0, steps, width)]
            return np.array([[float(start <= i < start + width) for i in range(steps)] for start, width in nodes])
    padded = np.zeros(steps)
    padded[: len(column)] = column[:steps]
    return np.array([[padded[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


# --- the noise


def covariance(correlation: NoiseCorrelation, steps: int) -> np.ndarray:
    """The covariance of the noise of each step, for fresh noise of variance 1: C⁻¹C⁻ᵀ, or that of a tree's differences.

    >>> covariance(CancelingCorrelation(0.5), 2).tolist()
    [[1.0, -0.5], [-0.5, 1.25]]
    """
    pending, rows = Pending(correlation), []
    for step in range(steps):
        fresh = torch.zeros(steps, dtype=torch.float64)
        fresh[step] = 1.0
        rows.append(pending.noise(step, fresh))
    factor = torch.stack(rows).numpy()
    return factor @ factor.T


@pytest.mark.parametrize("name", [name for name in CORRELATIONS if name != "tree"])
def test_the_noise_of_the_steps_is_that_of_the_inverse_encoder(name):
    inverse = np.linalg.inv(encoder(CORRELATIONS[name].event(1.0, STEPS, 1, 1)))
    np.testing.assert_allclose(covariance(CORRELATIONS[name], STEPS), inverse @ inverse.T, atol=1e-9)


def test_the_noise_of_a_sum_over_a_tree_is_that_of_its_nodes():
    sums = np.tril(np.ones((STEPS, STEPS)))
    variances = np.diag(sums @ covariance(TreeCorrelation(), STEPS) @ sums.T)
    np.testing.assert_allclose(variances, [(t + 1).bit_count() for t in range(STEPS)])


def test_correlated_noise_cancels_in_sums():
    """For the same price of one epoch, the sum over all steps has less noise."""
    sums = np.tril(np.ones((64, 64)))
    errors = {}
    for name, correlation in (("independent", BandedCorrelation((1.0,))), ("root", SquareRootCorrelation(bands=64)),
                              ("buffered", BufferedCorrelation.for_steps(64))):  # fmt: skip
        moved = sensitivity(correlation.event(1.0, 64, 1, 64))[1]
        errors[name] = float(np.trace(sums @ covariance(correlation, 64) @ sums.T)) * moved**2 / 64
    assert errors["root"] < 0.2 * errors["independent"]
    assert errors["buffered"] < 1.05 * errors["root"]


@pytest.mark.parametrize("name", CORRELATIONS)
def test_drawn_noise_has_the_stated_covariance(name):
    """20,000 coordinates. An entry of the sample covariance has a standard error of √((Σᵢᵢ Σⱼⱼ + Σᵢⱼ²)/n).

    False alarm: 21 entries beyond 6.5 standard errors each, below 1e-8 together. Power: noise that is used twice or not
    correlated moves an entry by 0.2 or more, 25 standard errors.
    """
    pending, size, steps = Pending(CORRELATIONS[name]), 20_000, 6
    secret = Secret()
    rows = [
        pending.noise(step, GaussianNoise(1.0).flat(size, 1.0, secret.at("step", step), dtype=torch.float64))
        for step in range(steps)
    ]
    drawn = torch.stack(rows).numpy()
    exact = covariance(CORRELATIONS[name], steps)
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / size)
    assert (np.abs(drawn @ drawn.T / size - exact) < 6.5 * error).all()


def test_the_steps_of_a_training_add_that_noise():
    """The gradients of an empty group are noise: σ·C over the batch size, correlated as the plan says.

    The bounds are those of the test above, for 5,010 coordinates: false alarm below 1e-8.
    """
    schedule = ((0, 1.0), (5, 0.25))
    made = plan(
        sampling="cyclic", correlation=CancelingCorrelation(0.7), steps=6, clip_norm=1.0, clip_schedule=schedule
    )
    net = nn.Linear(500, 10)
    step = made.step(net, nn.functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1), compile=False)
    empty = (torch.zeros(0, 500), torch.zeros(0, dtype=torch.long))
    rows = []
    for batch in made.batches(empty):
        step(batch)
        rows.append(small.gradients(net) * 12 / made.clip_norm(batch.step))
    drawn, exact = torch.stack(rows).numpy(), covariance(CancelingCorrelation(0.7), 6)
    error = np.sqrt((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / drawn.shape[1])
    assert (np.abs(drawn @ drawn.T / drawn.shape[1] - exact) < 6.5 * error).all()


# --- the price


def test_the_price_is_that_of_the_event():
    made = plan(noise_multiplier=3.0)  # 60 examples in batches of 12: 5 steps in an epoch, 3 epochs
    event = events.SquareRootNoise(3.0, 3, steps=12, participations=3, separation=5)
    assert made.event == event
    assert made.relation is dp.REPLACE_ONE
    # By hand: the columns (1, 1/2, 3/8) of steps 0, 5 and 10, the last of which is cut; twice for a replaced unit.
    norm = 2 * math.sqrt(3 * (1 + 1 / 4) + 2 * 9 / 64)
    by_hand = accounting.epsilon(events.Gaussian(3.0 / norm), 1e-5).upper
    assert made.guarantee.epsilon == pytest.approx(by_hand, rel=1e-9)
    assert made.noise_scale(0.5, 1) == 3.0 * 0.5  # the event's σ is over one unit's own part


def test_overlapping_columns_cost_more():
    apart, near = (plan(correlation=SquareRootCorrelation(bands=bands)).guarantee.epsilon for bands in (5, 12))
    assert near > 1.05 * apart


def test_least_noise_is_found_for_an_epsilon():
    for name, correlation in CORRELATIONS.items():
        made = Plan.for_epsilon(
            2.0, delta=1e-6, examples=60, batch_size=12, steps=12, clip_norm=1.0, sampling="ordered",
            correlation=correlation,
        )  # fmt: skip
        moved = 2 * sensitivity(made.event)[1]
        assert made.guarantee.epsilon == 2.0, name
        expected = accounting.calibrate(events.Gaussian, dp.ApproxDP(2.0, 1e-6))
        assert made.noise.noise_multiplier == pytest.approx(expected * moved, rel=1e-5)


def test_independent_noise_in_a_fixed_order_costs_one_release_for_each_epoch():
    made = plan(correlation=None, noise_multiplier=4.0)
    assert made.correlation == BandedCorrelation((1.0,))
    by_hand = accounting.epsilon(events.Repeated(events.Gaussian(2.0), 3), 1e-5).upper
    assert made.guarantee.epsilon == pytest.approx(by_hand, rel=1e-6)


def test_cyclic_samples_have_the_price_of_poisson_steps():
    made = plan(
        sampling="cyclic", groups=4, batch_size=6, correlation=SquareRootCorrelation(bands=4), noise_multiplier=3.0
    )
    inner = events.SquareRootNoise(3.0, 4, steps=12, participations=3, separation=4)
    assert made.event == events.CyclicSampled(0.4, 4, inner)
    norm = math.sqrt(1 + 1 / 4 + 9 / 64 + 25 / 256)
    step = events.PoissonSampled(0.4, events.Gaussian(3.0 / norm))
    by_hand = accounting.epsilon(events.Repeated(step, 3), 1e-5).upper
    assert made.guarantee.epsilon == pytest.approx(by_hand, rel=1e-6)
    assert made.relation is dp.ADD_REMOVE


def test_the_first_steps_cost_less():
    made = plan()
    costs = [made.guarantee_after(steps).epsilon for steps in (1, 5, 6, 12)]
    assert costs[0] < costs[1] < costs[2] < costs[3] == made.guarantee.epsilon


def test_plans_without_a_price_are_refused():
    for changes, words in (
        ({"relation": dp.ADD_REMOVE}, "one row more would move the others"),
        ({"sampling": "poisson"}, "sampling='ordered'"),
        ({"noise": "laplace"}, "gaussian"),
        ({"clipping": Adaptive(1.0, count_noise=3.0)}, "not be adaptive"),
        ({"correlation": "sorted"}, "banded"),
        ({"groups": 3}, "unless sampling is 'cyclic'"),
        ({"sampling": "cyclic", "batch_size": 6, "groups": 4, "correlation": CancelingCorrelation(0.5)}, "be banded"),
        (
            {"sampling": "cyclic", "batch_size": 6, "groups": 4, "correlation": SquareRootCorrelation(bands=5)},
            "at most 4 bands",
        ),
        ({"sampling": "cyclic", "groups": 6}, "groups must be"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            plan(**changes)
    for kind, arguments in (
        (BandedCorrelation, ((2.0,),)), (BandedCorrelation, ((),)),
        (CancelingCorrelation, (1.0,)), (CancelingCorrelation, (math.nan,)),
        (SquareRootCorrelation, ((), 0)), (SquareRootCorrelation, ((1.0,), 3)),
        (BufferedCorrelation, ((1.0,), (1.0,))), (BufferedCorrelation, ((1.0,), ())),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            kind(*arguments)


def test_a_plan_says_how_its_noise_is_correlated():
    assert "minus shares of the noise of the last 2 steps" in plan().explain()
    for correlation in CORRELATIONS.values():
        assert "The noise of a step is " in plan(correlation=correlation).explain()
    for name in ("banded", "buffered", "canceling", "tree", "independent"):
        assert plan(correlation=name).correlation is not None


# --- who is in which batch


def test_units_come_back_after_a_whole_epoch_and_no_sooner():
    sampler, secret = OrderedEpochs(7, 20), Secret()
    batches = [sampler.draw(step, 20, secret) for step in range(9)]
    assert sampler.separation == 3
    for step in range(6):
        assert (batches[step] == batches[step + 3]).all()
    assert sorted(np.concatenate(batches[:3]).tolist()) == list(range(20))


def test_groups_take_turns_and_their_units_join_independently():
    """Of 3,000 units in 3 groups half join: numbers beyond 7 standard deviations happen less than once in 1e11."""
    sampler, secret = CyclicGroups(500, 3000, 3), Secret()
    batches = [sampler.draw(step, 3000, secret) for step in range(6)]
    assert sampler.rate == 0.5
    members = {unit: {step % 3 for step, batch in enumerate(batches) if unit in batch} for unit in range(0, 3000, 50)}
    assert all(len(groups) <= 1 for groups in members.values())
    assert all(abs(len(batch) - 500) < 7 * math.sqrt(3000 / 6 * 5 / 6) for batch in batches)
    both = len(np.intersect1d(batches[0], batches[3]))
    assert abs(both - 250) < 7 * math.sqrt(3000 / 12 * 11 / 12)
    everyone = CyclicGroups(1000, 3000, 3)
    assert sum(len(everyone.draw(step, 3000, secret)) for step in range(3)) == 3000


@pytest.mark.parametrize("sampling", ["ordered", "cyclic"])
def test_an_order_that_breaks_the_pattern_is_refused(sampling, monkeypatch):
    made = plan(sampling=sampling)
    list(made.batches(small.data()))
    real = type(made.sampler).draw
    monkeypatch.setattr(
        type(made.sampler), "draw", lambda self, step, *rest: real(self, 3 if step == 4 else step, *rest)
    )
    with pytest.raises(DiscreetError, match="comes too often or too soon"):
        list(made.batches(small.data()))


def test_a_unit_that_comes_too_often_is_refused():
    guard = PatternGuard(OrderedEpochs(5, 10), 4, 10)  # 2 steps in an epoch, 2 epochs
    for step in (0, 2):
        guard.admit(step, np.array([1, 2]))
    with pytest.raises(DiscreetError, match="at most 2 batches"):
        guard.admit(4, np.array([2]))
    with pytest.raises(DiscreetError, match="comes too often or too soon"):
        PatternGuard(OrderedEpochs(5, 10), 4, 10).admit(0, np.array([3, 3]))


def test_a_second_stream_is_refused():
    made = plan(sampling="cyclic")
    step, data = small.step(made), small.data()
    first, second = iter(made.batches(data)), iter(made.batches(data))
    step(next(first))
    next(second)
    with pytest.raises(InvalidArgument, match=r"same plan\.batches"):
        step(next(second))


# --- crashes


@pytest.mark.parametrize("name", CORRELATIONS)
@pytest.mark.parametrize(("known", "lost"), [(0, 3), (4, 1), (5, 4), (3, 8)])
def test_a_crash_does_not_make_the_releases_more_sensitive(name, known, lost):
    """Section 5 of the proof, by brute force: all releases of both processes, for all patterns and signs.

    A release is x_i + n_i with n = A·(all fresh noise of both processes). For a shift u of x the privacy is that of
    u·(A Aᵀ)⁻¹·u, which must not exceed the squared sensitivity of the event.
    """
    participations, separation = 3, 4
    correlation = CORRELATIONS[name]
    first, second = Pending(correlation), Pending(correlation)
    unit = iter(torch.eye(2 * STEPS, dtype=torch.float64))
    rows = [first.noise(step, next(unit)) for step in range(known)]
    second.restore(first.state(), known, torch.device("cpu"))
    rows += [first.noise(step, next(unit)) for step in range(known, known + lost)]
    rows += [second.noise(step, next(unit)) for step in range(known + lost, STEPS)]
    factor = torch.stack(rows).numpy()
    precision = np.linalg.inv(factor @ factor.T)
    worst = 0.0
    for count in range(1, participations + 1):
        for steps in itertools.combinations(range(STEPS), count):
            if all(b - a >= separation for a, b in itertools.pairwise(steps)):
                for signs in itertools.product((1.0, -1.0), repeat=count):
                    shift = np.zeros(STEPS)
                    shift[list(steps)] = signs
                    worst = max(worst, float(shift @ precision @ shift))
    assert math.sqrt(worst) <= sensitivity(correlation.event(1.0, STEPS, participations, separation))[1] * (1 + 1e-9)


def test_noise_that_is_taken_back_twice_would_be_more_sensitive():
    """The mutant: a lost step runs again with its known past, so that two rows have the same data."""
    correlation = SquareRootCorrelation(bands=STEPS)
    first, second = Pending(correlation), Pending(correlation)
    unit = iter(torch.eye(4, dtype=torch.float64))
    rows = [first.noise(0, next(unit))]
    second.restore(first.state(), 1, torch.device("cpu"))
    rows += [first.noise(1, next(unit)), second.noise(1, next(unit))]
    factor = torch.stack(rows).numpy()
    shift = np.array([1.0, 0.0, 0.0])
    worst = float(shift @ np.linalg.inv(factor @ factor.T) @ shift)
    assert math.sqrt(worst) > 1.05 * sensitivity(correlation.event(1.0, 2, 1, 2))[1]


@pytest.mark.parametrize(
    "changes", [{"sampling": "cyclic"}, pytest.param({"correlation": "buffered"}, marks=pytest.mark.slow)]
)
def test_a_run_that_was_stopped_and_resumed_equals_one_that_was_not(changes, tmp_path, monkeypatch):
    made = plan(insecure_seed=1, **changes)
    whole, stopped, resumed = small.model(), small.model(), small.model()
    go(made, net=whole)
    path = tmp_path / "c.pt"
    with monkeypatch.context() as patch:
        interrupt_after(7, patch)
        go(made, net=stopped, checkpoint=path, every=4)
    secret = beside(path)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    run = go(made, net=resumed, checkpoint=path, resume=True)
    assert run.steps == STEPS
    assert torch.equal(small.flat(whole), small.flat(resumed))
    assert not secret.exists()


def test_only_the_secret_file_holds_pending_noise(tmp_path, monkeypatch):
    made, path = plan(sampling="cyclic"), tmp_path / "c.pt"
    with monkeypatch.context() as patch:
        interrupt_after(7, patch)
        run = go(made, checkpoint=path, every=7)
    found = torch.load(beside(path), weights_only=True)
    assert found["at"] == 7
    assert set(found["kept"]) == {1, 2}
    run.save(tmp_path / "model.pt")
    for row in found["kept"].values():
        hidden = row.numpy().tobytes()[:32]
        assert hidden in beside(path).read_bytes()
        assert hidden not in path.read_bytes()
        assert hidden not in (tmp_path / "model.pt").read_bytes()
    assert found["sampling"] not in path.read_bytes()
    noise_key = run._loop.step._secret.reveal()
    assert noise_key not in beside(path).read_bytes() + path.read_bytes()
    run.close()
    assert not beside(path).exists()


def test_noise_after_crashes_is_fresh_and_lost_steps_are_skipped(tmp_path, monkeypatch):
    """All gradients of all processes on no data, with the encoder applied: independent draws of the right size.

    2,010 coordinates and 12 rows: 78 sample covariances, each beyond 6.5 standard errors: false alarm below 1e-8.
    """
    drawn: dict[int, torch.Tensor] = {}
    cuts, real = [4, 9], Step.__call__

    def watched(self, batch):
        assert batch.step not in drawn
        observed = real(self, batch)
        drawn[batch.step] = small.gradients(self._model) * 12 / 0.5
        if cuts and batch.step >= cuts[0]:
            cuts.pop(0)
            raise RuntimeError("power cut")
        return observed

    monkeypatch.setattr(Step, "__call__", watched)
    empty = (torch.zeros(0, 200), torch.zeros(0, dtype=torch.long))
    made, path = plan(sampling="cyclic", correlation=SquareRootCorrelation(bands=5), steps=15), tmp_path / "c.pt"
    starts = [0]
    for _ in range(3):
        net = nn.Linear(200, 10)
        try:
            go(made, net=net, data=empty, checkpoint=path, every=3, resume=True)
        except RuntimeError:
            starts.append(torch.load(beside(path), weights_only=True)["at"])
    assert list(drawn) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 13, 14]
    assert starts == [0, 3, 9]
    column = encoder(events.SquareRootNoise(1.0, 5, 15, 1, 1))[:, 0]
    lost = [range(3, 6), range(9, 12)]  # allowed before each cut, and not in the file
    fresh = []
    for step in drawn:
        past = [other for other in drawn if step - 5 < other <= step]
        past = [o for o in past if not any(o in gone and step >= gone.stop for gone in lost)]
        fresh.append(sum(column[step - other] * drawn[other] for other in past))
    values = torch.stack(fresh).numpy()
    error = 1 / math.sqrt(values.shape[1])
    sample = values @ values.T / values.shape[1]
    assert (np.abs(sample - np.eye(len(values))) < 6.5 * math.sqrt(2) * error).all()


def test_a_training_does_not_resume_without_its_own_noise(tmp_path, monkeypatch):
    made = plan()
    paths = [tmp_path / "a.pt", tmp_path / "b.pt"]
    for path in paths:
        with monkeypatch.context() as patch:
            interrupt_after(4, patch)
            go(made, checkpoint=path)
    content = beside(paths[0]).read_bytes()
    beside(paths[0]).write_bytes(beside(paths[1]).read_bytes())
    with pytest.raises(NotACheckpoint, match="belongs to another training"):
        go(made, checkpoint=paths[0], resume=True)
    beside(paths[0]).write_bytes(b"broken")
    with pytest.raises(NotACheckpoint, match="damaged"):
        go(made, checkpoint=paths[0], resume=True)
    beside(paths[0]).unlink()
    with pytest.raises(NotACheckpoint, match="beside the checkpoint"):
        go(made, checkpoint=paths[0], resume=True)
    beside(paths[0]).write_bytes(content)
    assert go(made, checkpoint=paths[0], resume=True).finished


def test_the_ledger_counts_the_steps_of_one_event(tmp_path, monkeypatch):
    account = dp.Ledger(tmp_path / "x.ledger").account("x", budget=dp.ApproxDP(50.0, 1e-4), relation=dp.REPLACE_ONE)
    made, path, ran = plan(noise_multiplier=4.0), tmp_path / "c.pt", []
    real = Step.__call__

    def watched(self, batch):
        ran.append(batch.step)
        if len(ran) in (4, 8):
            raise RuntimeError("power cut")
        return real(self, batch)

    monkeypatch.setattr(Step, "__call__", watched)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            go(made, account=account, checkpoint=path, every=2, resume=True)
    run = go(made, account=account, checkpoint=path, every=2, resume=True)
    assert run.finished
    assert ran == list(range(STEPS))
    assert small.charges(account) == [made.event]
    assert [entry.kind for entry in account.history()].count("close") == 0
    assert not beside(path).exists()


@pytest.mark.slow
def test_a_training_killed_at_random_points_takes_no_noise_back_twice(tmp_path):
    """SIGKILL in the middle of a step, three times: each step runs once, the event is charged once, no file is left."""
    changed = "secure(steps=150, sampling='cyclic', correlation='banded', noise_multiplier=6.0)"
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.replace("secure(steps=150)", changed)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    for target in (7, 23, 12, 10**9):
        command = [sys.executable, str(script), str(tmp_path), str(target)]
        done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=False)
        assert done.returncode == (0 if target == 10**9 else -signal.SIGKILL)
        assert beside(tmp_path / "c.pt").exists() == (target != 10**9)
    ran = [int(line) for line in (tmp_path / "ran").read_text().split()]
    assert len(ran) == len(set(ran))
    account = dp.Ledger(tmp_path / "x.ledger").account("x")
    assert [entry.kind for entry in account.history()].count("reserve") == 1
    assert dp.Ledger(tmp_path / "x.ledger").verify()


def test_frameworks_resume_with_their_own_checkpoints(tmp_path):
    made, record = plan(sampling="cyclic"), tmp_path / "steps.json"
    net = small.model()
    gradients = PrivateGradients(made, net, small.loss, small.data(), record=record, compile=False)
    for _, step in zip(range(5), gradients, strict=False):
        assert step < 5
    assert stat.S_IMODE(beside(record).stat().st_mode) == 0o600
    again = PrivateGradients(made, small.model(), small.loss, small.data(), record=record, resume=True, compile=False)
    assert again.position >= 5
    assert len(list(again)) == again.plan.steps - 5
    assert not beside(record).exists()


def test_pending_noise_is_not_copied_or_shown():
    pending = Pending(CancelingCorrelation(0.5))
    with pytest.raises(TypeError, match="secret file"):
        pending.__reduce__()
    file = PendingFile.of(plan(), "a", pending, b"x")
    assert repr(file) == "<pending noise after step 0: content hidden>"


@pytest.mark.slow
@pytest.mark.parametrize("clip_persons", ["examples", "sum"])
def test_persons_follow_the_pattern_with_all_their_rows(clip_persons):
    persons = {"unit": dp.person("id", max_rows=2), "examples": 20, "batch_size": 4, "clip_persons": clip_persons}
    with pytest.raises(InvalidArgument, match="another person's id"):
        plan(**persons)
    made = plan(sampling="cyclic", **persons)
    assert made.event == events.SquareRootNoise(1.0, 3, 12, 3, 5)
    run = go(made, persons=np.arange(60) % 20)
    assert run.finished
