"""One private step: add up the clipped sums of physical batches in fp32, add noise once, call the optimizer.

    Batch ── pieces of one size ──▶ Engine ── Σ clipped ──▶ + noise, once ──▶ / expected size ──▶ .grad ──▶ optimizer

The optimizer sees only `.grad`, so any torch optimizer can be used unchanged: what it does is post-processing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from discreet import _check
from discreet.errors import Exhausted
from discreet.learning import losses
from discreet.learning.clipping import LARGEST, SMALLEST, Adaptive, Clipping
from discreet.learning.data.batches import Batch, BatchStream
from discreet.learning.distributed import Team, device_of, inner_model
from discreet.learning.engine import ClippedSum, Engine
from discreet.learning.engine.operations.memory_format import in_format_of, with_usual_strides
from discreet.learning.noise import Pending, apart, split
from discreet.learning.optimizers import check_optimizer
from discreet.learning.plan import Plan
from discreet.learning.sharded import any_sharded, sharded_like

#: Up to this many numbers, noise is drawn while the device still computes the sums: 64 MiB in float32.
EARLY_NOISE = 1 << 24


@dataclass(frozen=True, eq=False)
class Observed:
    """Exact observations of a step: **not private**, for the screen of someone who may see the data.

    Attributes:
        loss: the mean loss of the batch's examples (of this process's share); NaN if there were none.
        clipped: the share of them whose gradient was longer than the clip norm.
        clip_norm: the norm that was used; this field is private.
    """

    loss: Tensor
    clipped: Tensor
    clip_norm: float


class Step:
    """Takes one private step with each batch of a plan. Made by `Plan.step`.

    Args:
        plan: decides everything that the price depends on.
        model: the model; its trainable parameters are trained, and all must be on one device.
        loss: `loss(model, batch)` with one value per example, or a torch loss.
        optimizer: over the model's parameters, with all trainable ones and no foreign ones. None if someone else steps:
            then only `fill` can be called.
        compile: None compiles the clipped sum in the background if the steps to come pay for it; True compiles before
            the first step; False never does.
        autocast: a narrower type for the model's own arithmetic, such as torch.bfloat16; norms, sums and noise stay in
            float32.
        team: the processes that share the work; by default those of `torch.distributed`.

    Guarantee:
        After k calls, everything that the model and the optimizer hold is the output of the first k steps of
        `plan.event`, in addition to what they held before: each call releases one noisy sum whose sensitivity the plan
        knows, of a batch that the plan's sampler drew, and divides it by a public number. What the forward passes wrote
        into buffers is put back, and torch's generators stay as they were: both would tell how many passes there were,
        and so the size of the batch. Examples whose loss or
        gradient is not finite contribute zero, and their number is not revealed. Calls beyond the plan's steps and
        batches that were used before are refused. What a call returns is exact and not private.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        loss: Callable[..., Any],
        optimizer: Optimizer | None,
        *,
        compile: bool | None = None,
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
                "model", "have trainable parameters", "none", "set requires_grad on the parameters to train"
            )
        self._names, self._parameters = list(named), list(named.values())
        if optimizer is not None:
            self._others = check_optimizer(optimizer, self._model, named)
        else:
            self._others = [p for p in self._model.parameters() if not p.requires_grad]
        self.device = device_of(self._parameters)
        has_float64 = any(p.dtype == torch.float64 for p in self._parameters)
        self._dtype = torch.float64 if has_float64 else torch.float32
        self._groups = max(plan.clipping.groups(self._names)) + 1
        pieces = math.ceil(plan.sampler.batch_size / (plan.physical_batch_size * self.team.size))
        if plan.sums_persons:
            loss = losses.of_persons(loss)  # a person is what the engine clips
        self._engine = Engine(
            self._model, loss, plan.clipping, compile=compile, dtype=autocast, lend=True, calls=plan.steps * pieces
        )
        self._secret = plan.secret("noise")
        self._pending = None if plan.correlation is None else Pending(plan.correlation)
        #: For dropout. A checkpoint keeps neither it nor the states of generators, which count passes.
        self._passes = plan.secret("passes").at(self.team.rank)
        self._source: BatchStream | None = None
        self._norm = float(plan.clipping.norm)
        self.position = 0
        self.updates = 0
        held = [*self._model.parameters(), *self._model.buffers()]
        self.team.share_parameters(tensor for tensor in held if not any_sharded([tensor]))
        self._buffers = _Buffers(self._model)

    @property
    def engine(self) -> Engine:
        """The engine that computes clipped sums; its `report` says how each parameter is handled."""
        return self._engine

    @property
    def clip_norm(self) -> float:
        """The clip norm of the next step. It is private, because it depends only on released numbers."""
        return self._norm if isinstance(self.plan.clipping, Adaptive) else self.plan.clip_norm(self.position)

    def rehearse(self, rows: Any) -> None:
        """Find a model or a loss that cannot be trained, on some rows. This releases nothing."""
        with self._buffers.put_back(), self._seeded("rehearsal"):
            self._engine.start(rows)

    def __call__(self, batch: Batch) -> Observed:
        """Take one step with `batch`, which comes from `plan.batches(data)`."""
        if self._optimizer is None:
            remedy = "give one to plan.step, or call fill(batch) and step your own"
            raise _check.fail("optimizer", "be given for a whole step", None, remedy)
        observed = self.fill(batch)
        self._optimizer.step()
        return observed

    def fill(self, batch: Batch) -> Observed:
        """Set `.grad` of all trainable parameters to the noisy mean of `batch`, and leave the rest to the caller.

        This is a step of the plan, whether an optimizer uses the gradients or not.
        """
        self._accept(batch)
        norm = self.clip_norm
        # From here on the step counts as taken, whatever happens.
        self.position = batch.step + 1
        self.updates += 1
        for parameter in self._parameters:
            parameter.grad = None  # frees the last step's gradients before this step needs the memory
        # Noise does not depend on the sums, so it is drawn (once for all pieces) while the device computes, unless it
        # takes much of the memory that the passes need.
        noise = functools.cache(lambda: self._with_views(self._noise(batch.step, norm)))
        early = sum(map(math.prod, self._shapes)) <= EARLY_NOISE
        with self._buffers.put_back(), self._seeded("step", batch.step), self._engine.gathered():
            # gathered by all processes, also by one whose share of the batch is empty
            sums, totals = self._clipped(batch, norm, noise if early else None)
        if not early and self._is_plain:
            # An empty draw takes the same way: else the memory layout of `.grad` would tell that it was empty.
            sums = sums or self._no_sums()
            noisy = self._made_noisy(batch.step, norm, sums)
            if sums.lent and sums.owned:  # they become the gradients, which others may read from then on
                self._engine.wait_for_readers()
            self._set_gradients(noisy)
        else:
            self._release(noise(), norm, sums, totals)
        return Observed(totals.loss / totals.count, totals.clipped / totals.count, norm)

    @contextmanager
    def _seeded(self, *path: str | int) -> Iterator[None]:
        """Draw from torch's generators under a seed of this place, and leave them as they were."""
        seed = int(self._passes.stream(*path).integers(1 << 62))
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if self.device.type == "cuda":
                with torch.cuda.device(self.device):
                    torch.cuda.manual_seed(seed)
            yield

    def _accept(self, batch: object) -> None:
        if not isinstance(batch, Batch):
            remedy = "batches come from plan.batches(data): a batch drawn in another way has another price"
            raise _check.fail("batch", "be a batch of the plan", type(batch).__name__, remedy)
        if batch.plan is not self.plan and batch.plan != self.plan:
            raise _check.fail("batch", "be a batch of this step's plan", batch, "use the same plan for both")
        if self.position >= self.plan.steps:
            raise Exhausted(
                f"all {self.plan.steps} steps of the plan are taken: plan.batches(data) yields all batches in one "
                "loop, over all epochs; for more, make a plan with more steps"
            )
        if batch.step < self.position:
            raise Exhausted(
                f"step {batch.step} of the plan is already taken: plan.batches(data) yields each batch once, in one "
                "loop over all epochs; a second loop needs another plan"
            )
        sampler = self.plan.sampler
        if self._source is not None and batch.source is not self._source and sampler.continues(batch.step):
            remedy = "a shuffled or allocated epoch, and batches for correlated noise, are one stream"
            raise _check.fail("batch", "come from the same plan.batches(data)", batch, remedy)
        self._source = batch.source

    def _clipped(
        self, batch: Batch, norm: float, meanwhile: Callable[[], object] | None
    ) -> tuple[_Sums | None, _Totals]:
        """The clipped sums over this process's share (None if it is empty), and exact observations."""
        limit = self.plan.example_norm(norm)
        sums: _Sums | None = None
        totals = _Totals.zero(self.device)
        for piece, mask in batch.pieces(self.device, (self.team.rank, self.team.size)):
            if sums is not None and (sums.lent or not sums.owned):
                sums = _Sums([total.clone() for total in sums.tensors], owned=True)
            clipped = self._engine(piece, mask, limit, meanwhile)
            piece_sums = [clipped.sums[name].to(self._dtype) for name in self._names]
            if sums is None:
                sums = _Sums(piece_sums, owned=apart(piece_sums), lent=clipped.lent)
            else:
                torch._foreach_add_(sums.tensors, piece_sums)
            totals.add(clipped, mask, limit, self.plan.clipping)
            del clipped, piece_sums  # the engine may want its memory back
        return sums, totals

    def _no_sums(self) -> _Sums:
        """The sums of an empty draw, in the memory formats that the engine gives to sums."""
        zeros = [torch.zeros(p.shape, device=self.device, dtype=self._dtype) for p in self._parameters]
        return _Sums([in_format_of(*pair) for pair in zip(zeros, self._parameters, strict=True)], owned=True)

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        """The shapes of all noisy values: a sum for each parameter and, with adaptive clipping, a count."""
        count = [(1,)] if isinstance(self.plan.clipping, Adaptive) else []
        return [*(tuple(p.shape) for p in self._parameters), *count]

    def _noise(self, step: int, norm: float) -> Tensor:
        """This step's one draw of noise over the expected size, as a flat tensor; zeros except in the first process."""
        size = sum(map(math.prod, self._shapes))
        if not self.team.leads:
            return torch.zeros(size, device=self.device, dtype=self._dtype)
        scale = self.plan.noise_scale(norm, self._groups) / self.plan.sampler.batch_size
        secret = self._secret.at("step", step)
        if self._pending is None:
            return self.plan.noise.flat(size, scale, secret, device=self.device, dtype=self._dtype)
        # In units of this step's norm: each unit moves the sum over that norm by at most 1, whatever the norm is.
        fresh = self.plan.noise.flat(size, 1.0, secret, device=self.device, dtype=self._dtype)
        return self._pending.noise(step, fresh) * scale

    @property
    def _is_plain(self) -> bool:
        """Whether noise is added to the sums of parameters alone, once, and nothing else is done to either."""
        return self._pending is None and self.team.size == 1 and not isinstance(self.plan.clipping, Adaptive)

    def _made_noisy(self, step: int, norm: float, sums: _Sums) -> list[Tensor]:
        """The sums plus this step's one draw of noise, over the expected size, without a tensor for the noise alone."""
        size = self.plan.sampler.batch_size
        scale = self.plan.noise_scale(norm, self._groups) / size
        secret = self._secret.at("step", step)
        return self.plan.noise.noisy(sums.tensors, 1.0 / size, scale, secret, overwrite=sums.owned)

    def _with_views(self, flat: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The flat noise, and views of it in the shapes of the noisy values. Nobody else refers to it yet."""
        return flat, split(flat, self._shapes)

    def _release(self, noise: tuple[Tensor, list[Tensor]], norm: float, sums: _Sums | None, totals: _Totals) -> None:
        """Add the sums over the expected size to the noise, add up over processes, and set `.grad`."""
        plan, adaptive = self.plan, isinstance(self.plan.clipping, Adaptive)
        scale = plan.noise_scale(norm, self._groups)
        flat, noisy = noise
        if sums is not None:
            torch._foreach_add_(noisy[: len(sums.tensors)], sums.tensors, alpha=1.0 / plan.sampler.batch_size)
        if adaptive:
            noisy[-1].mul_(plan.count_scale / scale).add_(totals.below / plan.sampler.batch_size)
        self.team.add_up(flat)
        self._set_gradients(noisy[: len(self._parameters)])
        if isinstance(plan.clipping, Adaptive):
            self._move_norm(plan.clipping, float(noisy[-1].item()))

    def _set_gradients(self, noisy: list[Tensor]) -> None:
        for parameter, gradient in zip(self._parameters, noisy, strict=True):
            # The strides must not tell how the gradient was made: an empty draw is made differently.
            parameter.grad = sharded_like(parameter, with_usual_strides(gradient).to(parameter.dtype))
        for untrained in self._others:
            untrained.grad = None

    def _move_norm(self, clipping: Adaptive, centered: float) -> None:
        """C ← C·exp(−η(share − γ)), from the noisy share alone (Andrew et al. 2021, Algorithm 1)."""
        share = min(max(centered + 0.5, 0.0), 1.0)
        moved = self._norm * math.exp(-clipping.learning_rate * (share - clipping.quantile))
        # If most gradients are zero, the norm would fall until its noise vanishes in float32.
        self._norm = min(max(moved, SMALLEST), LARGEST)

    def __reduce__(self) -> str:
        raise TypeError("a step cannot be copied or written to a file: the copy would draw the same noise again")

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint keeps."""
        return {"position": self.position, "updates": self.updates, "clip_norm": self._norm}

    @property
    def pending(self) -> Pending | None:
        """The noise that later steps take back; None if noise is independent. Secret."""
        return self._pending

    def restore(self, state: dict[str, Any], position: int) -> None:
        """Continue from `state` at step `position` of the plan, with noise from this process's fresh secret."""
        self.position, self.updates = position, int(state["updates"])
        self._norm = float(state["clip_norm"])


@dataclass
class _Sums:
    """Clipped sums, one per parameter.

    Attributes:
        tensors: the sums.
        owned: whether each has memory of its own.
        lent: whether the engine's next call wants that memory back.
    """

    tensors: list[Tensor]
    owned: bool
    lent: bool = False


class _Buffers:
    """The buffers of a model as they were before its forward passes, to put them back."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        #: By module and name: the tensor, its version, and a copy of its value.
        self._kept: dict[tuple[nn.Module, str], tuple[Tensor | None, int, Tensor | None]] = {}
        #: Those that a pass wrote. The replay of a captured graph writes them again without counting versions.
        self._written: set[tuple[nn.Module, str]] = set()
        self._keep()

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Undo what happens to buffers within. What the caller wrote before stays."""
        self._keep()
        try:
            yield
        finally:
            self._restore()

    def _held(self) -> dict[tuple[nn.Module, str], Tensor | None]:
        return {(module, name): own for module in self._model.modules() for name, own in module._buffers.items()}

    def _keep(self) -> None:
        held = self._held()
        for key in self._kept.keys() - held.keys():
            del self._kept[key]
        for key, tensor in held.items():
            kept = self._kept.get(key)
            if kept is None or kept[0] is not tensor or kept[1] != _version(tensor):
                self._kept[key] = tensor, _version(tensor), None if tensor is None else tensor.detach().clone()

    @torch.no_grad()
    def _restore(self) -> None:
        held = self._held()
        for module, name in held.keys() - self._kept.keys():  # made by a pass
            del module._buffers[name]
        for key, (tensor, version, value) in list(self._kept.items()):
            module, name = key
            if held.get(key) is not tensor or key not in held:
                module._buffers[name] = tensor
            if tensor is None or value is None:
                continue
            if key in self._written or _version(tensor) != version:
                self._written.add(key)
                tensor.copy_(value)
                self._kept[key] = tensor, _version(tensor), value


def _version(tensor: Tensor | None) -> int:
    """A number that changes when a tensor is written. Tensors of inference mode have none, and cannot be written."""
    return -1 if tensor is None or tensor.is_inference() else tensor._version


class _Totals:
    """Running totals of one step. They stay on the device, so that nothing waits for them."""

    def __init__(self, count: Tensor, loss: Tensor, clipped: Tensor, below: Tensor) -> None:
        self.count, self.loss, self.clipped, self.below = count, loss, clipped, below

    @classmethod
    def zero(cls, device: torch.device) -> _Totals:
        zero = torch.zeros((), device=device)
        return cls(zero, zero.clone(), zero.clone(), zero.clone())

    def add(self, clipped: ClippedSum, mask: Tensor, limit: float, clipping: Clipping) -> None:
        counted = mask & clipped.finite
        self.count = self.count + counted.sum()
        self.loss = self.loss + torch.where(counted, clipped.losses.detach(), 0.0).sum().to(self.loss.dtype)
        weights = clipping.weights(clipped.norms, torch.as_tensor(limit, dtype=clipped.norms.dtype, device=mask.device))
        self.clipped = self.clipped + ((weights < 1).any(dim=0) & counted).sum()
        if not isinstance(clipping, Adaptive):
            return
        long = (clipped.norms[0] > limit) & counted
        # An example counts +1/2 below the norm, −1/2 above it, and 0 if it is not finite: at most 1/2 each.
        self.below = self.below + 0.5 * counted.sum() - long.sum()
