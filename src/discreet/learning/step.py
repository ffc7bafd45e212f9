"""One private step: clipped sums of physical batches, added up in fp32; one draw of noise; an ordinary optimizer.

    Batch ── pieces of one size ──▶ Engine ── Σ clipped ──▶ + noise, once ──▶ / expected size ──▶ .grad ──▶ optimizer

The optimizer sees `.grad` and nothing else, so any optimizer of torch can be used as it is: what it does is
post-processing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet import _check
from discreet.errors import Exhausted, InvalidArgument
from discreet.learning.clipping import LARGEST, SMALLEST, Adaptive, Clipping
from discreet.learning.data.batches import Batch, BatchStream
from discreet.learning.distributed import Team, device_of, inner_model
from discreet.learning.engine import ClippedSum, Engine
from discreet.learning.noise import split
from discreet.learning.plan import Plan


@dataclass(frozen=True, eq=False)
class Observed:
    """What a step saw, exactly: **not private**. It is for the screen of someone who may see the data.

    Attributes:
        loss: the mean loss of the batch's examples (of this process's share); NaN where there were none.
        clipped: the share of them whose gradient was longer than the clip norm.
        clip_norm: the norm that was used; this one is private.
    """

    loss: Tensor
    clipped: Tensor
    clip_norm: float


class Step:
    """Takes one private step with each batch of a plan. Made by `Plan.step`.

    Args:
        plan: decides all that the price depends on.
        model: whose trainable parameters are trained; all on one device.
        loss: `loss(model, batch)` with one value for each example, or one of torch's losses.
        optimizer: over the model's trainable parameters, and no others.
        compile: whether to compile the clipped sum, where a compiler exists.
        autocast: a narrower type for the model's own arithmetic, such as torch.bfloat16; norms, sums and noise stay in
            float32.
        team: the processes that share the work; those of `torch.distributed` unless given.

    Guarantee:
        After k calls everything that the model and the optimizer hold is the output of the first k steps of
        `plan.event`, on top of what they held before: each call releases one noisy sum whose sensitivity the plan
        knows, of a batch that the plan's sampler drew, and divides it by a public number. Examples whose loss or
        gradient is not finite contribute zero, and how many there are is not said. No call beyond the plan's steps is
        made, and no batch is taken twice. What a call returns is exact and not private.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Callable[..., Any],
        optimizer: Optimizer,
        *,
        compile: bool = True,
        autocast: torch.dtype | None = None,
        team: Team | None = None,
    ) -> None:
        self.plan = plan
        self.team = Team.here() if team is None else team
        self._model = inner_model(model)
        self._optimizer = optimizer
        named = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        if not named:
            raise _check.fail(
                "model", "have trainable parameters", "none", "set requires_grad on what is to be trained"
            )
        self._names, self._parameters = list(named), list(named.values())
        self._others = _check_optimizer(optimizer, self._model, named)
        self.device = device_of(self._parameters)
        wide = any(p.dtype == torch.float64 for p in self._parameters)
        self._dtype = torch.float64 if wide else torch.float32
        self._groups = max(plan.clipping.groups(self._names)) + 1
        self._engine = Engine(self._model, loss, plan.clipping, compile=compile, dtype=autocast, lend=True)
        self._secret = plan.secret("noise")
        self._source: BatchStream | None = None
        self._norm = float(plan.clipping.norm)
        self.position = 0
        self.updates = 0
        self.team.share_parameters([*self._model.parameters(), *self._model.buffers()])

    @property
    def engine(self) -> Engine:
        """The engine that computes clipped sums; its `report` says how each parameter is handled."""
        return self._engine

    @property
    def clip_norm(self) -> float:
        """The clip norm of the next step. It is private: it moves by released numbers alone."""
        return self._norm if isinstance(self.plan.clipping, Adaptive) else self.plan.clip_norm(self.position)

    def __call__(self, batch: Batch) -> Observed:
        """Take one step with `batch`, which comes from `plan.batches(data)`."""
        self._accept(batch)
        norm = self.clip_norm
        # From here on the step counts as taken, whatever happens.
        self.position = batch.step + 1
        self.updates += 1
        # Noise needs no sums: it is drawn, once for all pieces, while the device computes.
        noise = functools.cache(lambda: self._in_parts(self._noise(batch.step, norm)))
        sums, seen = self._clipped(batch, norm, noise)
        self._release(noise(), norm, sums, seen)
        self._optimizer.step()
        return Observed(seen.loss / seen.count, seen.clipped / seen.count, norm)

    def _accept(self, batch: object) -> None:
        if not isinstance(batch, Batch):
            remedy = "batches come from plan.batches(data): a batch that was drawn otherwise has another price"
            raise _check.fail("batch", "be a batch of the plan", type(batch).__name__, remedy)
        if batch.plan is not self.plan and batch.plan != self.plan:
            raise _check.fail("batch", "be a batch of this step's plan", batch, "use the same plan for both")
        if self.position >= self.plan.steps:
            raise Exhausted(
                f"all {self.plan.steps} steps of the plan were taken: plan.batches(data) yields them all in one loop, "
                "over all epochs; make a plan with more steps for more"
            )
        if batch.step < self.position:
            raise Exhausted(
                f"step {batch.step} of the plan was taken before: plan.batches(data) yields each batch once, in one "
                "loop over all epochs; a second loop needs a plan of its own"
            )
        if self._source is not None and batch.source is not self._source and not self.plan.sampler.secret_order:
            raise _check.fail("batch", "come from the same plan.batches(data)", batch, "a shuffled epoch is one stream")
        self._source = batch.source

    def _clipped(self, batch: Batch, norm: float, meanwhile: Callable[[], object]) -> tuple[list[Tensor] | None, _Seen]:
        """The clipped sums over this process's share, None where it is empty, and what was seen on the way."""
        limit = self.plan.example_norm(norm)
        sums: list[Tensor] | None = None
        seen = _Seen.nothing(self.device)
        for number, (piece, mask) in enumerate(batch.pieces(self.device, (self.team.rank, self.team.size))):
            if number == 1:  # the engine lends its sums until its next call
                sums = [part.clone() for part in sums or ()]
            found = self._engine(piece, mask, limit, meanwhile)
            parts = [found.sums[name].to(self._dtype) for name in self._names]
            if sums is None:
                sums = parts
            else:
                torch._foreach_add_(sums, parts)
            seen.add(found, mask, limit, self.plan.clipping)
        return sums, seen

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """What is noised: a sum for each parameter, and the count of an adaptive norm."""
        count = [(1,)] if isinstance(self.plan.clipping, Adaptive) else []
        return [*(tuple(p.shape) for p in self._parameters), *count]

    def _noise(self, step: int, norm: float) -> Tensor:
        """The one draw of this step over the expected size, all in one row; zeros in processes that do not lead."""
        size = sum(map(math.prod, self._shapes))
        if not self.team.leads:
            return torch.zeros(size, device=self.device, dtype=self._dtype)
        scale = self.plan.noise_scale(norm, self._groups) / self.plan.sampler.batch_size
        secret = self._secret.at("step", step)
        return self.plan.noise.flat(size, scale, secret, device=self.device, dtype=self._dtype)

    def _in_parts(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Noise as it is, and in the shapes of what is noised. Nobody else holds it before the sums are added."""
        return flat, split(flat, self._shapes)

    def _release(self, noise: tuple[Tensor, list[Tensor]], norm: float, sums: list[Tensor] | None, seen: _Seen) -> None:
        """Add the sums over the expected size to the noise; add up over processes; hand to the optimizer as `.grad`."""
        plan, adaptive = self.plan, isinstance(self.plan.clipping, Adaptive)
        scale = plan.noise_scale(norm, self._groups)
        flat, noisy = noise
        if sums is not None:
            torch._foreach_add_(noisy[: len(sums)], sums, alpha=1.0 / plan.sampler.batch_size)
        if adaptive:
            noisy[-1].mul_(plan.count_scale / scale).add_(seen.below / plan.sampler.batch_size)
        self.team.add_up(flat)
        for parameter, gradient in zip(self._parameters, noisy, strict=False):
            parameter.grad = gradient.to(parameter.dtype)
        for other in self._others:
            other.grad = None
        if isinstance(plan.clipping, Adaptive):
            self._move_norm(plan.clipping, float(noisy[-1].item()))

    def _move_norm(self, clipping: Adaptive, centered: float) -> None:
        """C ← C·exp(−η(share − γ)), from the noisy share alone (Andrew et al. 2021, Algorithm 1)."""
        share = min(max(centered + 0.5, 0.0), 1.0)
        moved = self._norm * math.exp(-clipping.learning_rate * (share - clipping.quantile))
        # Where most gradients are zero the norm would fall for ever, until its noise vanishes in float32.
        self._norm = min(max(moved, SMALLEST), LARGEST)

    def __reduce__(self) -> str:
        raise TypeError("a step is not copied or written to a file: its copy would draw the same noise again")

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of the step itself."""
        return {"position": self.position, "updates": self.updates, "clip_norm": self._norm}

    def restore(self, state: dict[str, Any], position: int) -> None:
        """Go on from `state`, with the step `position` of the plan; noise comes from this process's fresh secret."""
        self.position, self.updates = position, int(state["updates"])
        self._norm = float(state["clip_norm"])


class _Seen:
    """Running totals of one step, on the device, so that nothing waits for them."""

    def __init__(self, count: Tensor, loss: Tensor, clipped: Tensor, below: Tensor) -> None:
        self.count, self.loss, self.clipped, self.below = count, loss, clipped, below

    @classmethod
    def nothing(cls, device: torch.device) -> _Seen:
        zero = torch.zeros((), device=device)
        return cls(zero, zero.clone(), zero.clone(), zero.clone())

    def add(self, found: ClippedSum, mask: Tensor, limit: float, clipping: Clipping) -> None:
        counted = mask & found.finite
        self.count = self.count + counted.sum()
        self.loss = self.loss + torch.where(counted, found.losses.detach(), 0.0).sum().to(self.loss.dtype)
        weights = clipping.weights(found.norms, torch.as_tensor(limit, dtype=found.norms.dtype, device=mask.device))
        self.clipped = self.clipped + ((weights < 1).any(dim=0) & counted).sum()
        if not isinstance(clipping, Adaptive):
            return
        long = (found.norms[0] > limit) & counted
        # Each example counts +1/2 below the norm and −1/2 above it, one that is not finite nothing: at most 1/2 each.
        self.below = self.below + 0.5 * counted.sum() - long.sum()


def _check_optimizer(optimizer: object, model: nn.Module, named: dict[str, nn.Parameter]) -> list[Tensor]:
    """The optimizer's parameters that are frozen, after a check that it has all that train and nothing foreign."""
    if not isinstance(optimizer, Optimizer):
        remedy = "for example torch.optim.SGD(model.parameters(), lr=0.1)"
        raise _check.fail("optimizer", "be one of torch's optimizers", type(optimizer).__name__, remedy)
    held: list[Tensor] = [p for group in optimizer.param_groups for p in group["params"]]
    mine = {id(p) for p in model.parameters()}
    if any(id(p) not in mine for p in held):
        raise InvalidArgument(
            "optimizer must hold parameters of the model alone: others would be trained without clipping or noise"
        )
    known = {id(p) for p in held}
    for name, parameter in named.items():
        if id(parameter) not in known:
            remedy = "give it to the optimizer, or freeze it with requires_grad_(False): its gradient would be clipped "
            raise _check.fail("optimizer", f"hold the trainable parameter {name!r}", "without it", remedy + "in vain")
    trained = {id(p) for p in named.values()}
    return [p for p in held if id(p) not in trained]
