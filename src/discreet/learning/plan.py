"""`Plan`: a training, fixed in advance. It says how batches are drawn and examples clipped, which noise, and how often.

Everything that decides the price is in the plan, so the whole plan is one event, and its guarantee is known before any
data is seen. The code that runs it (`Step`, `train`) takes its numbers from the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from discreet import _check, events
from discreet.errors import InvalidArgument
from discreet.events import Event
from discreet.guarantees import ApproxDP, Guarantee, PureDP
from discreet.learning import pricing
from discreet.learning.clipping import Adaptive, Clipping, Flat, checked_norm
from discreet.learning.data.batches import Batch, BatchStream
from discreet.learning.data.patterns import CyclicGroups, PatternedSampler
from discreet.learning.data.registry import make_sampler, usual_size
from discreet.learning.data.sampling import AllocatedEpochs, PoissonSampler, Sampler
from discreet.learning.explanation import explain
from discreet.learning.noise import FAMILIES, GaussianNoise, Noise, NoiseCorrelation, Secret
from discreet.learning.noise.correlation import CORRELATIONS
from discreet.learning.schedule import Schedule, checked_schedule, norm_at
from discreet.neighbors import ADD_REMOVE, REPLACE_ONE, Client, Neighbors, Person, Relation, Rows, Unit
from discreet.neighbors import relation as as_relation

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.optim import Optimizer

    from discreet.learning.federated import FederatedPlan, Registry
    from discreet.learning.step import Step


@dataclass(frozen=True)
class Plan:
    """A training as one event. Make it with `Plan.for_epsilon` or `Plan.for_noise`.

    Attributes:
        sampler: how batches are drawn; its expected batch size is what sums are divided by.
        clipping: how the gradient of one example is bounded.
        noise: the noise on the sum; its multiplier is relative to the sensitivity under `relation`.
        steps: the number of steps.
        relation: which datasets count as neighbors.
        unit: whom the plan protects: one example, or a person with several.
        delta: the δ at which the guarantee is stated; 0 for pure DP.
        clip_schedule: (step, clip norm) pairs with straight lines between them; None keeps the clipping's norm.
        clip_persons: what is clipped if the unit is a person: "examples", each to its share of the norm, or their
            "sum" to the whole norm.
        physical_batch_size: how many examples go through the model at once; it affects only memory and time.
        insecure_seed: makes noise and batches repeatable, for tests; the event then guarantees nothing.
        correlation: how the noise of the steps depends on each other; None for samplers without a pattern.

    >>> plan = Plan.for_noise(1.0, delta=1e-5, examples=60_000, batch_size=600, steps=1000, clip_norm=1.0)
    >>> plan.event
    Repeated(event=PoissonSampled(rate=0.01, event=Gaussian(noise_multiplier=1.0)), count=1000)
    >>> print(plan.guarantee)
    (1.82824, 1e-05)-DP, add or remove one row
    """

    sampler: Sampler
    clipping: Clipping
    noise: Noise
    steps: int
    relation: Relation = ADD_REMOVE
    unit: Unit = Rows()
    delta: float = 1e-6
    clip_schedule: Schedule | None = None
    physical_batch_size: int = 0
    clip_persons: str = "examples"
    insecure_seed: int | None = field(default=None, repr=False)
    correlation: NoiseCorrelation | None = None
    _target: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _check.settle_integers(self, "steps", remedy="it is the number of noisy gradients that are released")
        if self.delta > 0:
            _check.delta(self.delta)
        if self.insecure_seed is not None:
            _check.integer("insecure_seed", self.insecure_seed, "it makes noise repeatable", at_least=0)
        if not isinstance(self.clipping, Clipping):
            raise _check.fail("clipping", "be a Clipping", self.clipping, "for example Flat(1.0)")
        _ = self.neighbors  # checks relation and unit
        if isinstance(self.unit, Client):
            raise _check.fail("unit", "be dp.rows() or dp.person(…)", self.unit, "Plan.federated protects clients")
        _check.one_of("clip_persons", self.clip_persons, ("examples", "sum"), "both bound a person's part of a batch")
        if self.clip_persons == "sum" and not isinstance(self.unit, Person):
            raise _check.fail(
                "clip_persons", "be 'examples' unless the unit is a person", "sum", "give unit=dp.person(…)"
            )
        if self.noise.order != self.clipping.order:
            raise _check.fail(
                "clipping",
                f"bound the L{self.noise.order} norm for noise={self.noise.name!r}",
                self.clipping,
                f"use Flat(norm, order={self.noise.order})",
            )
        if isinstance(self.clipping, Adaptive):
            self._check_adaptive(self.clipping)
        if self.correlation is not None or isinstance(self.sampler, PatternedSampler):
            self._check_correlated()
        if self.clip_schedule is not None:
            object.__setattr__(self, "clip_schedule", checked_schedule(self.clip_schedule))
        if self.physical_batch_size == 0:
            object.__setattr__(self, "physical_batch_size", usual_size(self.sampler))
        remedy = "it is the number of examples that go through the model at once"
        _check.settle_integers(self, "physical_batch_size", remedy=remedy)

    # --- making one

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        *,
        delta: float,
        examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        clip_norm: float | None = None,
        clipping: Clipping | None = None,
        noise: str = "gaussian",
        sampling: str = "poisson",
        largest_batch: int | None = None,
        correlation: NoiseCorrelation | str | None = None,
        groups: int | None = None,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        clip_schedule: Schedule | None = None,
        clip_persons: str = "examples",
        physical_batch_size: int = 0,
        insecure_seed: int | None = None,
    ) -> Plan:
        """The plan with the least noise whose cost is at most (ε, δ).

        Args:
            epsilon: the ε of the whole training.
            delta: the δ; 0 asks for pure DP, which needs noise="laplace".
            examples: the public number of examples (of persons, with `unit`). It sets the sampling rate. Under
                add/remove, where the true number is private, it is not compared with the data.
            batch_size: the expected number of examples (persons) in a batch.
            epochs: the number of passes over the data. Give this or
            steps: the number of steps.
            clip_norm: the largest norm of one example's gradient: L2, or L1 for noise="laplace". Give this or
            clipping: another way to clip, such as `PerLayer`, `Automatic` or `Adaptive`.
            noise: "gaussian", "laplace" (L1 clipping, pure DP) or "l2-laplace".
            sampling: "poisson", "allocation", "without replacement", "shuffle", "ordered" or "cyclic".
            largest_batch: cut Poisson batches to this size, for hardware that takes no larger ones; then the data may
                hold at most `examples` units.
            correlation: for "ordered" and "cyclic" batches, how the noise of the steps depends on each other: a
                `NoiseCorrelation`, or "banded", "buffered", "canceling", "tree" or "independent" (the default).
            groups: the number of groups of "cyclic" batches; by default as many as batches in an epoch.
            relation: which neighbors to protect; by default add/remove for Poisson and allocated batches, and
                else replace-one.
            unit: whom to protect: `dp.rows()`, or `dp.person("column", max_rows=…)`.
            clip_schedule: (step, clip norm) pairs, such as ((0, 1.0), (500, 0.1)).
            clip_persons: with a person as the unit: "examples" clips each of a person's examples to clip_norm/max_rows,
                "sum" clips the sum of their gradients to clip_norm. Both have the same price.
            physical_batch_size: how many examples go through the model at once; 0 derives it from the batch size.
            insecure_seed: repeatable noise, for tests only; it guarantees nothing.

        >>> plan = Plan.for_epsilon(2.0, delta=1e-6, examples=30_000, batch_size=1024, epochs=15, clip_norm=1.0)
        >>> print(plan.guarantee, round(plan.noise.noise_multiplier, 3), plan.steps)
        (2, 1e-06)-DP, add or remove one row 1.824 439
        """
        wanted = float(_check.epsilon(epsilon))
        at = float(_check.probability("delta", delta, "everything may leak with this probability"))
        make = _maker(
            noise, sampling, largest_batch, examples, batch_size, epochs, steps, clip_norm, clipping, relation, unit,
            correlation, groups,
            delta=at, clip_schedule=clip_schedule, clip_persons=clip_persons, physical_batch_size=physical_batch_size,
            _target=wanted,
        )  # fmt: skip
        secure = make(1.0, None)
        multiplier = pricing.least_noise(
            lambda z: secure.event_with(FAMILIES[noise](z), secure.steps), wanted, at, secure.relation
        )
        return make(multiplier, insecure_seed)

    @classmethod
    def for_noise(
        cls,
        noise_multiplier: float,
        *,
        delta: float,
        examples: int,
        batch_size: int,
        epochs: float | None = None,
        steps: int | None = None,
        clip_norm: float | None = None,
        clipping: Clipping | None = None,
        noise: str = "gaussian",
        sampling: str = "poisson",
        largest_batch: int | None = None,
        correlation: NoiseCorrelation | str | None = None,
        groups: int | None = None,
        relation: Relation | str | None = None,
        unit: Unit | None = None,
        clip_schedule: Schedule | None = None,
        clip_persons: str = "examples",
        physical_batch_size: int = 0,
        insecure_seed: int | None = None,
    ) -> Plan:
        """The plan with a given noise multiplier: the noise's scale over the sensitivity under `relation`.

        The other arguments are those of `for_epsilon`; `guarantee` is stated at `delta`.
        """
        at = float(_check.probability("delta", delta, "everything may leak with this probability"))
        make = _maker(
            noise, sampling, largest_batch, examples, batch_size, epochs, steps, clip_norm, clipping, relation, unit,
            correlation, groups,
            delta=at, clip_schedule=clip_schedule, clip_persons=clip_persons, physical_batch_size=physical_batch_size,
        )  # fmt: skip
        multiplier = _check.positive("noise_multiplier", noise_multiplier, "without noise there is no guarantee")
        return make(float(multiplier), insecure_seed)

    @staticmethod
    def federated(clients: Registry | int, **arguments: Any) -> FederatedPlan:
        """A training whose data stay with clients: `FederatedPlan.make(clients, …)` with the same arguments."""
        from discreet.learning.federated import FederatedPlan

        return FederatedPlan.make(clients, **arguments)

    # --- what it costs

    @property
    def event(self) -> Event:
        """The whole training as one event, which a ledger is charged."""
        return self.event_of(self.steps)

    def event_of(self, steps: int) -> Event:
        """The first `steps` steps as one event."""
        whole = self.event_with(self.noise, steps)
        return whole if self.insecure_seed is None else events.Insecure(whole)

    def event_with(self, noise: Noise, steps: int) -> Event:
        """The first `steps` steps as one event, with other noise."""
        if self.correlation is not None and isinstance(self.sampler, PatternedSampler):
            return self.sampler.correlated(self.correlation, noise.noise_multiplier, steps)
        return self.sampler.whole(noise.event, steps)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the whole training, and whom it protects."""
        certified = self.guarantee_after(self.steps)
        if self._target is not None and isinstance(certified, PureDP | ApproxDP) and certified.epsilon <= self._target:
            # The noise was calibrated to this ε. A changed copy of the plan may cost more, hence the comparison.
            return self._stated(self._target)
        return certified

    def guarantee_after(self, steps: int) -> Guarantee:
        """The guarantee of the first `steps` steps."""
        if steps == 0:
            return self._stated(0.0)
        return self._stated(pricing.price(self.event_of(steps), self.delta, self.relation).epsilon)

    def _stated(self, epsilon: float) -> Guarantee:
        pure = self.delta <= 0 or math.isinf(epsilon)
        guarantee = PureDP(epsilon) if pure else ApproxDP(epsilon, self.delta)
        return guarantee.protecting(self.neighbors)

    @property
    def neighbors(self) -> Neighbors:
        """Whom the plan protects, and under which relation."""
        return Neighbors(self.relation, self.unit)

    # --- what runs

    def clip_norm(self, step: int) -> float:
        """The clip norm of a step, for a unit's whole contribution. For plans whose norm is fixed in advance."""
        if self.clip_schedule is None:
            return float(self.clipping.norm)
        return norm_at(self.clip_schedule, step)

    def example_norm(self, unit_norm: float) -> float:
        """The norm to clip one example to, so that a unit's examples together stay within `unit_norm`.

        A person has at most max_rows examples in a batch. Each is clipped to unit_norm/max_rows, so by the triangle
        inequality their sum has a norm of at most unit_norm, in L1 and in L2, in each group and in total. If their sum
        is what is clipped, it is clipped to unit_norm itself.
        """
        if isinstance(self.unit, Person) and not self.sums_persons:
            return unit_norm / self.unit.max_rows
        return unit_norm

    @property
    def sums_persons(self) -> bool:
        """Whether the sum of a person's gradients is clipped, and not each of them."""
        return self.clip_persons == "sum"

    def noise_scale(self, unit_norm: float, groups: int) -> float:
        """The scale of the noise on the sum in a step whose units are clipped to `unit_norm`.

        The sensitivity is the clipping's own if a unit is added or removed, and twice that if it is replaced. Events of
        correlated noise are about a unit's own part, and accountants double it for a replaced one.
        """
        doubled = self.relation is REPLACE_ONE and self.correlation is None
        sensitivity = self.clipping.sensitivity(unit_norm, groups) * (2 if doubled else 1)
        return self.sum_multiplier * sensitivity

    @property
    def sum_multiplier(self) -> float:
        """The noise multiplier of the sum alone.

        Adaptive clipping also releases the count of unclipped examples. Sum and count together are one Gaussian
        release with the plan's multiplier z, if the multiplier of the sum is z_Δ = (z⁻² − (2σ_b)⁻²)^{-1/2} (Andrew et
        al. 2021, Theorem 1): scaled by their noise, the sum moves by 1/z_Δ and the centered count by (1/2)/σ_b, so both
        together move by √(z_Δ⁻² + (2σ_b)⁻²) = 1/z. Under replace-one both move twice as far, and both get twice the
        noise.
        """
        z = self.noise.noise_multiplier
        if not isinstance(self.clipping, Adaptive):
            return z
        return 1 / math.sqrt(z**-2 - (2 * self.clipping.count_noise) ** -2)

    @property
    def count_scale(self) -> float:
        """The standard deviation of the noise on the centered count, for adaptive clipping."""
        assert isinstance(self.clipping, Adaptive)
        return self.clipping.count_noise * (2 if self.relation is REPLACE_ONE else 1)

    def step(
        self,
        model: nn.Module,
        loss: Callable[..., Any],
        optimizer: Optimizer | None = None,
        *,
        compile: bool | None = None,
        autocast: torch.dtype | None = None,
    ) -> Step:
        """A callable that takes one private step with each batch of `batches`, for a training loop of your own.

        Without an optimizer, `step.fill(batch)` sets `.grad` and leaves the rest to you.
        """
        from discreet.learning.step import Step

        return Step(self, model, loss, optimizer, compile=compile, autocast=autocast)

    def batches(
        self, data: Any, *, persons: Any = None, collate: Callable[[list[Any]], Any] | None = None
    ) -> Iterator[Batch]:
        """All batches of the plan, drawn as its event says, one per step.

        Args:
            data: tensors, numpy arrays, tuples or dicts of them, or a torch Dataset with random access.
            persons: with `unit=dp.person(...)`, one id per example; not needed if `data` is a dict that holds the
                unit's column, which is then removed from the data.
            collate: makes tensors of an example, such as `PadTo(128)` or another library's collate function. It is
                called with one example at a time, in a list, so that it cannot mix them.

        Guarantee:
            Batches are drawn with the operating system's randomness. An empty batch counts as a step.
        """
        yield from BatchStream(self, data, persons, collate)

    def secret(self, purpose: str) -> Secret:
        """A new secret for "noise" or "sampling"; derived from `insecure_seed` if the plan has one."""
        return Secret(self.insecure_seed).at(purpose)

    def explain(self) -> str:
        """The plan in words: what is drawn, clipped and added, what it costs, and whom it protects."""
        return explain(self)

    def _check_correlated(self) -> None:
        sampler, remedy = self.sampler, "use sampling='ordered' or sampling='cyclic'"
        if not isinstance(sampler, PatternedSampler):
            raise _check.fail("correlation", f"be None for sampling={sampler.name!r}", self.correlation, remedy)
        if not isinstance(self.correlation, NoiseCorrelation):
            raise _check.fail(
                "correlation", "be a NoiseCorrelation", self.correlation, "such as SquareRootCorrelation(bands=8)"
            )
        if not isinstance(self.noise, GaussianNoise):
            raise _check.fail("noise", "be 'gaussian' for correlated noise", self.noise.name, "others have no price")
        if isinstance(self.clipping, Adaptive):
            remedy = "clip to a fixed norm, or by a schedule"
            raise _check.fail("clipping", "not be adaptive for correlated noise", self.clipping, remedy)
        sampler.check_neighbors(self.neighbors)
        _ = self.event_with(self.noise, self.steps)

    def _check_adaptive(self, clipping: Adaptive) -> None:
        if not isinstance(self.noise, GaussianNoise):
            raise _check.fail(
                "noise", "be 'gaussian' for adaptive clipping", self.noise.name, "its proof needs Gaussian noise"
            )
        if self.clip_schedule is not None:
            raise _check.fail(
                "clip_schedule", "be None for adaptive clipping", self.clip_schedule, "the norm adapts by itself"
            )
        if isinstance(self.unit, Person):
            raise _check.fail("unit", "be dp.rows() for adaptive clipping", self.unit, "clip persons to a fixed norm")
        if 2 * clipping.count_noise <= self.noise.noise_multiplier:
            raise InvalidArgument(
                f"clipping.count_noise must be more than half of the plan's {self.noise.noise_multiplier:.4g}, got "
                f"{clipping.count_noise}: otherwise the count alone would cost more than the whole step; a "
                "twentieth of the batch size is usual"
            )


def _maker(
    noise: str,
    sampling: str,
    largest_batch: int | None,
    examples: int,
    batch_size: int,
    epochs: float | None,
    steps: int | None,
    clip_norm: float | None,
    clipping: Clipping | None,
    relation: Relation | str | None,
    unit: Unit | None,
    correlation: NoiseCorrelation | str | None,
    groups: int | None,
    **rest: Any,
) -> Callable[[float, int | None], Plan]:
    """A function from a noise multiplier and a seed to the plan; all other arguments are checked here."""
    family = FAMILIES[_check.one_of("noise", noise, FAMILIES, "each has its own price")]
    sampler = make_sampler(sampling, batch_size, examples, largest_batch, groups)
    _check.exactly_one(steps=steps, epochs=epochs)
    _check.exactly_one(clip_norm=clip_norm, clipping=clipping)
    if clip_norm is not None:
        clip_norm = checked_norm("clip_norm", clip_norm)
    if steps is None:
        steps = sampler.steps(float(_check.positive("epochs", epochs, "it is the number of passes over the data")))
    if isinstance(sampler, PatternedSampler) and (correlation is None or isinstance(correlation, str)):
        name = _check.one_of("correlation", correlation or "independent", CORRELATIONS, "or give a NoiseCorrelation")
        correlation = CORRELATIONS[name](steps, sampler.separation)
    order = family(1.0).order
    default = ADD_REMOVE if isinstance(sampler, PoissonSampler | AllocatedEpochs | CyclicGroups) else REPLACE_ONE
    settled = as_relation(default if relation is None else relation)

    def make(multiplier: float, insecure_seed: int | None) -> Plan:
        return Plan(
            sampler=sampler,
            clipping=Flat(clip_norm, order=order) if clipping is None and clip_norm is not None else clipping,  # type: ignore[arg-type] # one of them is given
            noise=family(multiplier),
            steps=steps,
            relation=settled,
            unit=Rows() if unit is None else unit,
            insecure_seed=insecure_seed,
            correlation=correlation,  # type: ignore[arg-type] # a foreign string is refused by the plan
            **rest,
        )

    return make
