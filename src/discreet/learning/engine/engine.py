"""The engine: turns a model, a loss and a clipping into one function from a batch to its clipped sum."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from discreet import _check
from discreet.errors import InvalidArgument
from discreet.learning import losses as losses_of
from discreet.learning.clipping import LARGEST, Clipping
from discreet.learning.compatibility import check
from discreet.learning.engine.clipped import ClippedSum, Coverage, clip, clip_alone
from discreet.learning.engine.dry_run.search import find_coverage
from discreet.learning.engine.fallback import private
from discreet.learning.engine.flat import FlatCall
from discreet.learning.engine.graph.compilation import Compiled, NotCompiled, compile_flat, run_flat, trace_flat
from discreet.learning.engine.graph.replay import GraphReplay
from discreet.learning.engine.independence import Outside, Unproved, Watch, general_position, prove
from discreet.learning.engine.isolation import Isolation, attributes_restored
from discreet.learning.engine.model_tensors import ModelTensors, everywhere
from discreet.learning.engine.nonfinite import without_nonfinite, without_sums
from discreet.learning.engine.operations.registry import HANDLERS
from discreet.learning.engine.proving import CoverageSearch, Found, prove_and_cover
from discreet.learning.engine.restoring import for_writing, put_back, unwritten
from discreet.learning.engine.trace.checkpointing import without_checkpointing
from discreet.learning.engine.trace.compiling import as_compiled
from discreet.learning.engine.trace.recorder import ForwardRecorder
from discreet.learning.engine.trace.recurrent_layers import recurrent_layers_unchanged
from discreet.learning.engine.trace.scripted import as_python, scripted_functions
from discreet.learning.sharded import own_part, without_hooks

_log = logging.getLogger("discreet.learning")


class _ModelWithLoss(nn.Module):
    """The model and its loss as one module, so that `functional_call` replaces the parameters for both."""

    def __init__(self, model: nn.Module, loss: losses_of.LossFunction) -> None:
        super().__init__()
        self.model = model
        self._loss = loss

    def forward(self, batch: Any) -> Tensor:
        return self._loss(self.model, batch)


def batch_size(batch: Any) -> int:
    """The number of examples in a batch: the first dimension of all its tensors."""
    leaves = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    sizes = {leaf.shape[0] if leaf.dim() else None for leaf in leaves}
    if len(sizes) != 1 or None in sizes or 0 in sizes:
        shapes = [tuple(leaf.shape) for leaf in leaves]
        raise InvalidArgument(
            f"batch must hold tensors whose first dimension is the number of examples, got shapes {shapes}: put one "
            "example in each row of every tensor"
        )
    return int(leaves[0].shape[0])


class Engine:
    """From a batch to its clipped sum.

    Args:
        model: any torch module. Its parameters are read at each call; nothing is attached to it.
        loss: `loss(model, batch)` with one value per example, or a torch loss (see `discreet.learning.losses`).
        clipping: how each example's gradient is bounded.
        compile: None starts without compiling, and compiles in the background if the calls to come pay for it; True
            compiles before the first call; False never does. If the compiler fails, the engine logs one warning and
            continues without it.
        dtype: run the model under autocast to this type (`torch.bfloat16`); norms and sums stay in float32.
        lend: let the next call overwrite what a call returned, which saves a copy of all sums. Whoever hands it on
            (with noise) calls `wait_for_readers`.
        calls: how many calls there will be, where that is known; it decides whether compiling pays.

    Guarantee:
        As `clip`: neighbors add/remove or zero-out one example, sensitivity `clipping.sensitivity(clip_norm, groups)`
        in the clipping's norm. That the loss of an example depends on that example alone is proved for each shape of a
        batch (docs/proofs/independence.md); what is not proved runs example by example, or is refused. There, Python
        code must not carry numbers from one example to the next in global variables, closures and default arguments, or
        the other places that `Isolation` names; what it keeps in the model, in a loss that is an object, in what these
        hold, and in their classes is put back, or the model is refused. The model's buffers (running statistics) are
        not protected; `check` refuses the usual ones, and what a pass writes to them is put back after it. Examples
        whose loss or gradient is not finite have weight zero; if there are any, the batch is computed again without
        them, which takes longer: time is not protected. (In float32, "not finite" includes norms above 1e19, whose
        squares overflow.) The bound includes what products round in float32, bfloat16 and TF32, also where the terms of
        a gradient cancel (docs/proofs/clipping-in-floats.md).

    The model's code runs a few times for each shape of a batch and each mode (training, evaluation). Anything else that
    it reads besides parameters and buffers, such as a number in an attribute, keeps the value from that run.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        clipping: Clipping,
        *,
        compile: bool | None = None,
        dtype: torch.dtype | None = None,
        lend: bool = False,
        calls: int | None = None,
    ) -> None:
        if not isinstance(clipping, Clipping):
            raise _check.fail("clipping", "be a Clipping", clipping, "for example Flat(1.0)")
        check(model)
        self.model, self.clipping, self.dtype = model, clipping, dtype
        self._with_loss = _ModelWithLoss(model, losses_of.per_example(loss))
        self._compile, self._lend, self._python_only = compile, lend, False
        self._calls_left = calls
        self._current: Compiled | None = None
        #: The graph that was traced for the proof, for the first call.
        self._first: tuple[Hashable, GraphModule] | None = None
        self._coverage: Coverage | None = None
        self._reasons: dict[str, str] = {}
        self._compiled: dict[Any, Compiled] = {}
        self._model_tensors = ModelTensors(model)
        self._scripted = scripted_functions(model, loss)
        self._modes: tuple[bool, ...] = ()
        self._outside = Outside([own_part(p) for p in model.parameters() if p.requires_grad])
        self._seconds, self._warned_of_autocast = 0.0, False
        trainable = [name for name, p in model.named_parameters() if p.requires_grad]
        if not trainable:
            raise _check.fail("model", "have a trainable parameter", type(model).__name__, "set requires_grad")
        self.names = tuple(trainable)
        self.groups = max(clipping.groups(self.names)) + 1

    @property
    def seconds(self) -> float:
        """How long the start took: the dry run, and compilation if there was one."""
        return self._seconds

    @property
    def report(self) -> str:
        """How each parameter is handled, and why, in words."""
        if self._coverage is None:
            return "No batch was seen yet."
        rules: dict[str, list[str]] = {}
        for operation, *names in self._coverage.signatures:
            for name in names:
                rules.setdefault(name, []).append(operation)
        lines = []
        for name in self.names:
            if name in self._coverage.unused:
                lines.append(f"{name}: not used by the loss; its gradient is zero")
            elif self._coverage.in_turn:
                lines.append(f"{name}: each example in turn, because of {self._reasons.get(name, 'other parameters')}")
            elif name in self._coverage.fallback:
                lines.append(f"{name}: fallback (vmap), because of {self._reasons[name]}")
            else:
                lines.append(f"{name}: {' + '.join(rules.get(name, []))}")
        how = "compiled" if any(traced.compiled for traced in self._compiled.values()) else "not compiled"
        return "\n".join([*lines, f"{how}; the start took {self._seconds:.1f} s"])

    def __call__(
        self,
        batch: Any,
        mask: Tensor,
        clip_norm: float | Tensor | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> ClippedSum:
        """The clipped sum of one physical batch.

        Args:
            batch: whatever the loss takes, with one example in each row.
            mask: which of its rows are examples.
            clip_norm: the clip norm for this batch, instead of the clipping's own.
            meanwhile: called while the device computes and this process would only wait for it.
        """
        examples = batch_size(batch)
        if mask.shape != (examples,) or mask.dtype != torch.bool:
            raise _check.fail("mask", f"be {examples} booleans", (tuple(mask.shape), mask.dtype), "one for each row")
        norm = self._clip_norm(clip_norm)
        with self._own_precision(norm.device):
            return self._clipped(batch, mask.to(norm.device), norm, meanwhile)

    def _own_precision(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        """Keep the caller's autocast away from norms and sums; the model runs in the engine's own `dtype`."""
        if not torch.is_autocast_enabled(device.type):
            return contextlib.nullcontext()
        if self.dtype is None and not self._warned_of_autocast:
            self._warned_of_autocast = True
            _log.warning("autocast around a private step has no effect: give its type as autocast=")
        return torch.autocast(device.type, enabled=False)

    def _clipped(self, batch: Any, mask: Tensor, norm: Tensor, meanwhile: Callable[[], object] | None) -> ClippedSum:
        self._start(batch, mask, norm)
        started = time.perf_counter()
        result = self._run(batch, mask, norm)
        if meanwhile is not None:
            meanwhile()
        finite = self._all_finite(result)
        if self._current is not None:
            self._current.note(time.perf_counter() - started)
        if self._calls_left is not None:
            self._calls_left = max(0, self._calls_left - 1)
        if finite:
            return result
        result = without_sums(result)
        return without_nonfinite(lambda rows, among: self._run(rows, among, norm), result, batch, mask)

    def _all_finite(self, result: ClippedSum) -> bool:
        """Whether all examples of the last call are finite. Waits for the device, no longer than it has to."""
        if self._coverage is not None and self._coverage.in_turn:  # then only finite gradients were added
            return True
        announcement = None if self._current is None else self._current.announcement
        return (announcement is not None and announcement.wait()) or bool(result.finite.all())

    def wait_for_readers(self) -> None:
        """Others may read what the last call lent, on any stream: its next replay waits until the device is done."""
        if self._current is not None and isinstance(self._current.function, GraphReplay):
            self._current.function.wait_for_readers()

    def gathered(self) -> contextlib.AbstractContextManager[None]:
        """Gather a model that is spread over processes once for several calls; all processes enter it together."""
        return self._model_tensors.gathered()

    def _tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trainable parameters, and everything else (frozen parameters, buffers), by their names in the model."""
        trainable, rest = self._model_tensors.tensors()
        if tuple(trainable) != self.names:
            raise _check.fail(
                "model", "keep its trainable parameters", len(trainable), "make a new engine after a change"
            )
        return trainable, rest

    def _forward(self, tensors: Mapping[str, Tensor], batch: Any) -> Tensor:
        replaced = everywhere(self._with_loss, self.model, tensors)
        device = next(iter(tensors.values())).device.type
        wide = any(t.dtype == torch.float64 for t in tensors.values())
        cast = torch.autocast(device, self.dtype) if self.dtype and not wide else contextlib.nullcontext()
        hooks = without_hooks(self.model) if self._model_tensors.sharded else contextlib.nullcontext()
        covered = self._coverage is not None and self._coverage.as_compiled
        way = as_compiled() if covered else contextlib.nullcontext()
        python = as_python(self._scripted)
        with cast, hooks, way, python, recurrent_layers_unchanged(self.model), without_checkpointing():
            losses = torch.func.functional_call(self._with_loss, replaced, (batch,), tie_weights=False)
        return losses_of.checked(losses, batch_size(batch))

    def _clip_norm(self, clip_norm: float | Tensor | None) -> Tensor:
        """A clip norm, or the clipping's own, on the model's device."""
        device = next(self.model.parameters()).device
        norm = self.clipping.norm if clip_norm is None else clip_norm
        if isinstance(norm, Tensor):
            if norm.numel() != 1:
                raise _check.fail("clip_norm", "be one number", tuple(norm.shape), "it bounds each example alike")
            return norm.reshape(()).to(device).nan_to_num(0.0, LARGEST, 0.0).clamp(0.0, LARGEST)
        _check.positive("clip_norm", norm, "it is the largest norm that one example's gradient may have")
        return torch.tensor(float(norm), dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)

    def start(self, batch: Any) -> None:
        """Do the dry run if this is the first batch, or if a module changed between training and evaluation mode."""
        norm = self._clip_norm(None)
        with self._own_precision(norm.device):
            self._start(batch, torch.ones(batch_size(batch), dtype=torch.bool, device=norm.device), norm)

    def _start(self, batch: Any, mask: Tensor, norm: Tensor) -> None:
        trainable, rest = self._tensors()
        modes = self._model_tensors.modes()
        if self._coverage is not None and modes == self._modes:
            return
        started = time.perf_counter()
        find = partial(self._find_coverage, trainable, rest, batch)
        call = FlatCall(trainable, rest, batch, mask, norm)

        def trace(coverage: Coverage | CoverageSearch) -> GraphModule:
            self._coverage = coverage if isinstance(coverage, Coverage) else None
            try:
                return trace_flat(call.function(self._forward, self.clipping, coverage, self._outside), call.arguments)
            finally:
                self._coverage = None

        found, why, graph = prove_and_cover(trace, find, self._outside)
        self._first = None if graph is None else (call.key, graph)
        if found is None:
            # Passes that are not proved could leave examples behind; those of the dry run must not.
            isolation = Isolation(batch)
            with attributes_restored(self._with_loss), isolation:
                found = find(why=why)
            isolation.finish()
        coverage, self._reasons = found
        self._coverage, self._modes, self._compiled = coverage, modes, {}
        self._seconds += time.perf_counter() - started
        if coverage.alone:
            kind = "in a pass of its own, much slower" if coverage.in_turn else "slower"
            reason = f"it is not proved that they don't mix: {why}" if why else coverage.alone
            _log.warning("each example runs alone (%s), because %s", kind, reason)
        elif coverage.fallback:
            _log.warning("fallback (slower) for %s", ", ".join(coverage.fallback))
        if coverage.unused:
            _log.warning("not used by the loss, so never trained: %s", ", ".join(coverage.unused))

    def _find_coverage(
        self,
        trainable: Mapping[str, Tensor],
        rest: Mapping[str, Tensor],
        batch: Any,
        free: frozenset[str] = frozenset(),
        doubted: frozenset[str] = frozenset(),
        why: str = "",
    ) -> Found:
        """The dry run. Modules get back the attributes that they had before: rows of the batch must not stay there."""
        modules = list(self._with_loss.modules())
        holders = [h for m in modules for h in (vars(m), m._parameters, m._buffers, m._modules)]
        saved = [dict(holder) for holder in holders]
        try:
            return find_coverage(self._forward, trainable, rest, batch, why, free, doubted)
        finally:
            for holder, attributes in zip(holders, saved, strict=True):
                holder.clear()
                holder.update(attributes)

    def _unproved(self, trainable: Mapping[str, Tensor], rest: Mapping[str, Tensor], batch: Any) -> str:
        """Why the examples of this batch could not be proved not to mix; empty if they were."""
        try:
            examples = batch_size(batch)
            record = partial(ForwardRecorder, handlers=HANDLERS, examples=examples, layouts=())
            prove(self._forward, general_position(trainable), rest, batch, self._outside, record)
        except Unproved as reason:
            return str(reason)
        finally:
            self._outside.closed = True
        return ""

    def _isolated(self, batch: Any, work: Callable[[Any], ClippedSum]) -> ClippedSum:
        """Run a pass that is not proved, so that it leaves nothing for the next one."""
        in_turn = self._coverage is not None and self._coverage.in_turn
        isolation = Isolation(batch, writes=not in_turn)
        with attributes_restored(self.model), put_back(list(self.model.buffers())), isolation:
            result = work(batch)
        isolation.finish([*result.sums.values(), result.norms, result.losses, result.finite])
        return result

    def _run(self, batch: Any, mask: Tensor, norm: Tensor) -> ClippedSum:
        trainable, rest = self._tensors()
        coverage, self._current = self._coverage, None
        assert coverage is not None
        if coverage.alone:
            return clip_alone(
                self._forward, trainable, rest, batch, mask, norm, self.clipping, coverage, self._isolated
            )
        call = FlatCall(trainable, rest, batch, mask, norm)
        if self._python_only:
            # The model's code runs again, so what it does now is proved now: without data, and as it runs.
            def followed(rows: Any) -> ClippedSum:
                watch = Watch(FlatCall(trainable, rest, rows, mask, norm).rows, mask.shape[0])
                return clip(self._forward, trainable, rest, rows, mask, norm, self.clipping, coverage, watch)

            reason = self._unproved(trainable, rest, batch)
            try:
                with put_back(list(self.model.buffers())), unwritten(list(self.model.parameters())):
                    if not reason and coverage.fallback:
                        return self._isolated(batch, lambda rows: followed(private(rows)))
                    if not reason:
                        return followed(private(batch))
            except Unproved as error:
                reason = str(error)
            raise InvalidArgument(f"examples must not affect each other, but it is no longer proved: {reason}")
        function = None if call.key is None else self._compiled.get(call.key)
        if function is None:
            try:
                function = self._traced(call, coverage)
            except InvalidArgument:
                raise
            except Unproved as reason:
                raise InvalidArgument(
                    f"examples must not affect each other, but in a batch of this shape it is not proved: {reason}; "
                    "give all batches the shape of the first one"
                ) from None
            except Exception as error:  # the compiler may raise anything; the model itself ran in the dry run
                why = error if isinstance(error, NotCompiled) else f"torch.compile failed ({type(error).__name__})"
                _log.warning("%s; continuing without it, slower", why)
                self._python_only, self._compile = not self._compile, False  # the next simpler way
                return self._run(batch, mask, norm)
            if call.key is not None:
                self._compiled[call.key] = function
            self._seconds += function.seconds
        else:
            function.advance(call.arguments, self._calls_left)
        self._current = function
        if function.announcement is not None:
            function.announcement.expect()
        # What a pass writes must not tell how many came before it: a batch may run in pieces, or again without rows
        # that are not finite. The batch is the caller's.
        arguments = for_writing(call.arguments, function.written, call.fixed)
        with torch.no_grad(), put_back([arguments[i] for i in function.written if i < call.fixed]):
            norms, values, finite, *sums = function.function(*arguments)
        lent = isinstance(function.function, GraphReplay) and self._lend
        return ClippedSum(dict(zip(trainable, sums, strict=True)), norms, values, finite, lent)

    def _traced(self, call: FlatCall, coverage: Coverage) -> Compiled:
        """The clipped sum for this shape of a batch, compiled if the engine was asked to."""

        def trace() -> GraphModule:
            first, self._first = self._first, None
            if first is not None and call.key is not None and first[0] == call.key:
                return first[1]
            return trace_flat(call.function(self._forward, self.clipping, coverage, self._outside), call.arguments)

        reused = call.key is not None
        if self._compile and reused:
            return compile_flat(trace(), call.arguments, call.fixed, self._lend)
        try:
            return run_flat(
                trace(), call.arguments, call.fixed, lend=self._lend, later=self._compile is None and reused
            )
        except MemoryError:
            return compile_flat(trace(), call.arguments, call.fixed, self._lend)


def clipped_sum(
    model: nn.Module,
    loss: Any,
    batch: Any,
    *,
    clipping: Clipping,
    clip_norm: float | None = None,
    mask: Tensor | None = None,
    compile: bool = False,
) -> ClippedSum:
    """The clipped sum of one batch: the building block, in one call.

    Args:
        model: as for `Engine`.
        loss: as for `Engine`.
        batch: whatever the loss takes; each tensor in it has one row per example.
        clipping: as for `Engine`.
        clip_norm: the clip norm for this batch, instead of the clipping's own.
        mask: which rows are examples; all of them by default.
        compile: worth it only for many calls, and an `Engine` is better for those.

    Guarantee:
        As `Engine`. Nothing in the result is noised: it is input to a mechanism, not a release.
    """
    examples = torch.ones(batch_size(batch), dtype=torch.bool) if mask is None else mask
    return Engine(model, loss, clipping, compile=compile)(batch, examples, clip_norm)
