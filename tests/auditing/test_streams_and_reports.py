"""Counters over time, and local reports with a random seed, pass their audits; a fraction of the noise is seen.

False alarms: 1e-6 for each audit. Audits are repeated with a claim of a quarter of the ε (or μ) that was paid for, and
of a twentieth for RAPPOR, whose reports tell little. It is refuted by more than ten standard errors on average, of
which about five are needed: it passes with a probability below 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest

import discreet as dp
from discreet.auditing import Pair, audit
from discreet.mechanisms import Gaussian, local
from discreet.mechanisms import continual as dc
from tests.mechanisms.continual.kinds import answers, counters, named

STEPS, GROUP = 4, 10
KINDS = {(type(counter), type(counter.noise)): counter for counter in counters(dc.Stream(STEPS), delta=1e-2)}


@pytest.mark.slow
@pytest.mark.parametrize("counter", KINDS.values(), ids=named)
def test_every_counter_passes_an_audit_of_all_its_answers(counter):
    """Ten units arrive in the first step, or in no step. All running answers together are the output."""
    pair = [Pair([0] * STEPS, [GROUP, 0, 0, 0], grows=True)]
    normal = isinstance(counter.noise, Gaussian)
    settings = {"distance": GROUP, "max_samples": 1_200 if normal else 3_000, "estimator": "mu" if normal else "auto"}

    def run(stream):
        return answers(counter, stream)

    report = audit(run, counter.event, pair, **settings)
    assert not report.violated, str(report)
    promise = counter.guarantee
    quarter = dp.GDP(promise.mu / 4) if normal else dp.PureDP(promise.epsilon / 4)
    assert audit(run, quarter, pair, **settings).violated


@pytest.mark.slow
def test_reports_of_unit_vectors_pass_their_audit():
    """What is read from a report is how far its direction leans to the second vector."""
    protocol = local.UnitVectors(2, 3)
    ends = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])

    def leaning(vector, runs):
        payloads = protocol.simulate(np.tile(vector, (runs, 1))).payloads
        return protocol.directions(payloads) @ (ends[1] - ends[0])

    settings = {"vectorized": True, "relation": dp.REPLACE_ONE, "max_samples": 6_000}
    report = audit(leaning, protocol.event, [tuple(ends)], **settings)
    assert not report.violated, str(report)
    assert audit(leaning, dp.PureDP(0.5), [tuple(ends)], **settings).violated


@pytest.mark.slow
def test_a_prefix_tree_passes_its_audit():
    tree = local.PrefixTree(1, alphabet="az", depths=(1, 2))
    report = audit(
        lambda word, runs: tree.simulate([word] * runs).payloads,
        tree.event,
        [("aa", "zz")],
        vectorized=True,
        relation=dp.REPLACE_ONE,
    )
    assert not report.violated, str(report)


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 12])
def test_reports_of_rappor_pass_their_audits(together):
    """One report keeps the instantaneous ε; twelve of one device, whose fresh coins average out, the permanent one."""
    protocol = local.Rappor(bits=8, hashes=1, cohorts=1)

    def bits(value):
        client = protocol.client()
        reports = np.array([np.frombuffer(client(value), dtype=np.uint8) for _ in range(together)])
        return np.unpackbits(reports[:, -1:], axis=1).sum(axis=0).astype(np.float64)

    promise = protocol.instantaneous if together == 1 else protocol.permanent
    settings = {"relation": dp.REPLACE_ONE, "max_samples": 20_000 if together == 1 else 4_000}
    report = audit(bits, dp.PureDP(promise.epsilon), [("a", "c")], **settings)
    assert not report.violated, str(report)
    assert audit(bits, dp.PureDP(promise.epsilon / 20), [("a", "c")], **settings).violated
