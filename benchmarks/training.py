"""One private step against one ordinary step: `python -m benchmarks.training`.

Our step includes everything that a user runs: per-example gradients, clipping, noise from the operating system's key,
and the optimizer. It is compared with plain PyTorch (eager and compiled), which protects nobody, and with both modes of
Opacus. Ratios are ours over theirs, for seconds per step, for peak memory (CUDA only), and for the seconds until the
first step is done, as users run it: ours compiles in the background. Each contender runs alone and starts from a fresh
copy of the same model. The loss of a language model runs over flattened scores, [B·T, classes], as people write it. On
CUDA the share of noise in our step is measured apart, beside the tenth that it may take.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import _models as models
from benchmarks._table import Row, arguments, report
from discreet.learning.clipping import Flat
from discreet.learning.engine import Engine
from discreet.learning.engine.graph import replay
from discreet.learning.noise import GaussianNoise, Secret
from discreet.learning.step import EARLY_NOISE

Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A model, a batch for it, and the type it runs in."""

    name: str
    words: str
    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    dtype: torch.dtype | None = None
    adam: bool = False
    #: Too large for the peers, which keep a gradient of each parameter for each example.
    large: bool = False

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        trainable = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.AdamW(trainable, lr=1e-4) if self.adam else torch.optim.SGD(trainable, lr=0.01)


def images(batch: int, size: int, classes: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Random images and classes."""
    return lambda: (torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,)))


def tokens(batch: int, length: int, words: int, classes: int | None = None) -> Callable[[], tuple[Tensor, Tensor]]:
    """Random texts, with the next words or a class as targets."""
    shape = (batch, length) if classes is None else (batch,)
    return lambda: (torch.randint(0, words, (batch, length)), torch.randint(0, classes or words, shape))


def cases(cuda: bool, quick: bool) -> list[Case]:
    """The cases of the design: full size on CUDA, scaled down elsewhere."""
    if cuda and not quick:
        half = torch.bfloat16
        return [
            Case("mlp", "MLP 784-512-512-10, B=1024, fp32", models.mlp, lambda: flat_images(1024)),
            Case("wrn", "WRN-16-4 GroupNorm, 32×32, B=512, tf32", models.WideResNet, images(512, 32, 10)),
            Case("vit", "ViT-B, T=196, B=64, bf16", models.VisionTransformer, images(64, 224, 1000), half, True),
            Case("gpt2", "GPT-2 small, T=256, B=16, bf16", models.LanguageModel, tokens(16, 256, 50257), half, True),
            Case(
                "gpt2-long", "GPT-2 small, T=1024, B=8, bf16", models.LanguageModel, tokens(8, 1024, 50257), half, True
            ),
            Case("lstm", "LSTM 256, T=128, B=256, fp32", models.Recurrent, tokens(256, 128, 10_000, 10)),
            Case("llama", "Llama 1.1B, T=512, B=8, bf16", models.llama, tokens(8, 512, 32_000), half, True, large=True),
            Case(
                "lora",
                "LoRA on Llama 5.9B, T=512, B=8, bf16 base",
                models.llama_with_adapters,
                tokens(8, 512, 32_000),
                half,
                True,
                large=True,
            ),
        ]
    small = 2 if quick else 1
    words = 4000

    def vit() -> nn.Module:
        return models.VisionTransformer(64, 8, 192, 4 // small, 6)

    def gpt2() -> nn.Module:
        return models.LanguageModel(192, 4 // small, 6, words, 256)

    return [
        Case("mlp", f"MLP 784-512-512-10, B={512 // small}, fp32", models.mlp, lambda: flat_images(512 // small)),
        Case(
            "wrn",
            f"WRN-10-2 GroupNorm, 32×32, B={32 // small}, fp32",
            lambda: models.WideResNet(10, 2),
            images(32 // small, 32, 10),
        ),
        Case(
            "vit", f"ViT 192×{4 // small}, T=64, B={16 // small}, fp32", vit, images(16 // small, 64, 1000), adam=True
        ),
        Case(
            "gpt2",
            f"GPT-2 192×{4 // small}, T=64, B={8 // small}, fp32",
            gpt2,
            tokens(8 // small, 64, words),
            adam=True,
        ),
        Case(
            "gpt2-long",
            f"GPT-2 192×{4 // small}, T=256, B={4 // small}, fp32",
            gpt2,
            tokens(4 // small, 256, words),
            adam=True,
        ),
        Case(
            "lstm",
            f"LSTM 128, T=32, B={64 // small}, fp32",
            lambda: models.Recurrent(2000, 128),
            tokens(64 // small, 32, 2000, 10),
        ),
    ]


def flat_images(batch: int) -> tuple[Tensor, Tensor]:
    """Random images of 784 numbers."""
    return torch.randn(batch, 784), torch.randint(0, 10, (batch,))


def autocast(case: Case, device: str) -> Any:
    """A context in which a case runs in its type."""
    return torch.autocast(device, case.dtype) if case.dtype else contextlib.nullcontext()


def ours(case: Case, model: nn.Module, batch: tuple[Tensor, Tensor], *, compiled: bool | None) -> Step:
    """Clipped sum, noise, optimizer. `compiled=None` compiles in the background, as in a long training."""
    optimizer = case.optimizer(model)
    engine = Engine(model, F.cross_entropy, Flat(1.0), compile=compiled, dtype=case.dtype, lend=True, calls=1 << 40)
    noise, secret = GaussianNoise(1.0), Secret()
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    shapes = [p.shape for p in parameters.values()]
    examples = batch[0].shape[0]
    early = sum(p.numel() for p in parameters.values()) <= EARLY_NOISE  # as a private step does
    device = batch[0].device
    mask = torch.ones(examples, dtype=torch.bool, device=device)
    clip_norm = torch.tensor(1.0, device=device)
    count = iter(range(1 << 40))
    engine(batch, mask, clip_norm)
    if compiled and "\nnot compiled" in engine.report:
        raise RuntimeError("our step was not compiled (see the warning): use --eager to measure it anyway")

    def step() -> None:
        for parameter in parameters.values():
            parameter.grad = None
        for parameter, gradient in zip(parameters.values(), gradients(), strict=True):
            parameter.grad = gradient
        optimizer.step()

    def gradients() -> list[Tensor]:
        """Noisy means, as `Step.fill` makes them."""
        drawn_from, share = secret.at(next(count)), 1.0 / examples
        if not early:
            result = engine(batch, mask, clip_norm)
            if result.lent:
                engine.wait_for_readers()
            sums = [result.sums[name] for name in parameters]
            return noise.noisy(sums, share, share, drawn_from, overwrite=True)
        draw = functools.cache(lambda: noise.draw(shapes, share, drawn_from, device=device))
        result = engine(batch, mask, clip_norm, draw)
        torch._foreach_add_(draw(), [result.sums[name] for name in parameters], alpha=share)
        return draw()

    return step


def flattened(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Scores [B, classes, T] of a language model as [B·T, classes], without a copy; others as they are."""
    return (scores.transpose(1, 2).flatten(0, 1), targets.flatten()) if scores.dim() == 3 else (scores, targets)


def plain(case: Case, model: nn.Module, batch: tuple[Tensor, Tensor], *, compiled: bool) -> Step:
    """An ordinary step, without privacy."""
    optimizer = case.optimizer(model)
    inputs, targets = batch

    def loss_of() -> Tensor:
        with autocast(case, inputs.device.type):
            return F.cross_entropy(*flattened(model(inputs), targets))

    forward = torch.compile(loss_of, dynamic=False) if compiled else loss_of

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        forward().backward()  # type: ignore[no-untyped-call]  # torch's own
        optimizer.step()

    return step


def opacus(case: Case, model: nn.Module, batch: tuple[Tensor, Tensor], *, ghost: bool) -> Step:
    """Opacus, with hooks or with ghost clipping."""
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator
    from torch.utils.data import DataLoader, TensorDataset

    inputs, targets = batch
    model = ModuleValidator.fix(model).to(inputs.device).train()
    loader = DataLoader(TensorDataset(inputs.cpu(), targets.cpu()), batch_size=inputs.shape[0])
    criterion = nn.CrossEntropyLoss(reduction="mean")
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=case.optimizer(model),
        criterion=criterion,
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode="ghost" if ghost else "hooks",
    )
    private, optimizer = made[0], made[1]
    loss_function: Any = made[2] if ghost else criterion

    def step() -> None:
        optimizer.zero_grad()
        with autocast(case, inputs.device.type):
            scores = private(inputs)
            if scores.dim() == 3 and ghost:
                flat = scores.transpose(1, 2).flatten(0, 1)
                loss = loss_function(flat, targets.flatten(), shape=(*targets.shape, flat.shape[1]))
            else:
                loss = loss_function(*flattened(scores, targets))
        loss.backward()
        optimizer.step()

    return step


def noise_seconds(model: nn.Module, device: str, quick: bool) -> float:
    """The seconds that the noise of one step takes by itself: many draws, then one wait for the device."""
    size = sum(p.numel() for p in model.parameters() if p.requires_grad)
    noise, secret, times = GaussianNoise(1.0), Secret(), []
    draws = 2 if quick else 20
    for block in range(3 if quick else 9):
        start = time.perf_counter()
        for number in range(draws):
            noise.flat(size, 1.0, secret.at(block * draws + number), device=device)
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / draws)
    return statistics.median(times)


@dataclass(frozen=True)
class Measured:
    """Seconds per step, peak bytes and seconds until the first step was done, or the reason why there are none."""

    seconds: float | None
    bytes: float | None = None
    note: str = ""
    first: float | None = None


def first_step(
    case: Case, model: nn.Module, batch: tuple[Tensor, Tensor], make: Callable[..., Step], **how: Any
) -> float:
    """The seconds from a model on its device to the end of its first step."""
    fresh = copy.deepcopy(model).to(batch[0].device).train()
    start = time.perf_counter()
    make(case, fresh, batch, **how)()
    if batch[0].is_cuda:
        torch.cuda.synchronize()
    taken = time.perf_counter() - start
    gc.collect()
    return taken


def measure(
    case: Case, model: nn.Module, batch: tuple[Tensor, Tensor], make: Callable[..., Step], quick: bool, **how: bool
) -> Measured:
    """The median over blocks of steps, after warm-up steps."""
    cuda = batch[0].is_cuda

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    step: Step | None = None
    try:
        fresh = copy.deepcopy(model).to(batch[0].device).train()
        start = time.perf_counter()
        step = make(case, fresh, batch, **how)
        step()
        wait()
        first = time.perf_counter() - start
        for _ in range(0 if quick else 3):
            step()
        wait()
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        step()
        wait()
        once = time.perf_counter() - start
        block = max(1, min(20, int((0.05 if quick else 0.2) / max(once, 1e-4))))
        times = []
        for _ in range(3 if quick else 7):
            start = time.perf_counter()
            for _ in range(block):
                step()
            wait()
            times.append((time.perf_counter() - start) / block)
        peak = float(torch.cuda.max_memory_reserved()) if cuda else None  # includes the memory that CUDA graphs keep
        return Measured(statistics.median(times), peak, first=first)
    except Exception as error:  # peers fail in many ways; the row gives the reason
        return Measured(None, note=f"{type(error).__name__}: {str(error).splitlines()[0][:80] if str(error) else ''}")
    finally:
        del step
        gc.collect()
        torch._dynamo.reset()
        if cuda:
            torch.cuda.empty_cache()


def compare(case: Case, device: str, *, quick: bool, peers: bool, compiled: bool) -> list[Row]:
    """All rows of one case."""
    torch.manual_seed(0)
    with torch.device(device if case.large else "cpu"):  # billions of random weights take minutes on a CPU
        model = case.model()
    inputs, targets = case.batch()
    batch = (inputs.to(device), targets.to(device))
    first = first_step(case, model, batch, ours, compiled=None)
    our_result = measure(case, model, batch, ours, quick, compiled=compiled)
    if our_result.seconds is None:
        raise RuntimeError(f"{case.words}: {our_result.note}")
    references: list[tuple[str, Measured]] = [
        ("plain PyTorch, eager", measure(case, model, batch, plain, quick, compiled=False))
    ]
    if compiled:
        references.append(("plain PyTorch, compiled", measure(case, model, batch, plain, quick, compiled=True)))
    else:
        references.append(("plain PyTorch, compiled", Measured(None, note="compilation was skipped")))
    if peers and not case.large:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, ghost in (("Opacus, hooks", False), ("Opacus, ghost", True)):
                references.append((name, measure(case, model, batch, opacus, quick, ghost=ghost)))
    words = case.words if compiled else f"{case.words}, ours eager"
    rows = []
    for name, theirs in references:
        rows.append(Row(words, "seconds per step", our_result.seconds, name, theirs.seconds, "lower", theirs.note))
        if our_result.bytes is not None:
            rows.append(Row(words, "peak bytes", our_result.bytes, name, theirs.bytes, "lower", theirs.note))
        if "compiled" in name:
            rows.append(Row(words, "first-step seconds", first, name, theirs.first, "lower", theirs.note))
    if device == "cuda":
        share = noise_seconds(model, device, quick) / our_result.seconds
        rows.append(Row(words, "share of noise in a step", share, "a tenth of the step", 0.1, "lower"))
    return rows


def device_name(device: str) -> str:
    """What a device beside the processor is called."""
    return torch.cuda.get_device_name() if device == "cuda" else ""


def main() -> None:
    """Run the cases and print the table."""
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", default="", help="names separated by commas; all by default")
    parser.add_argument("--no-peers", action="store_true", help="skip Opacus")
    parser.add_argument("--eager", action="store_true", help="do not compile; implied by --quick on a CPU")
    shown = (
        f"capture a CUDA graph where launching takes more than this share of the time; {replay.LAUNCH_BOUND} by default"
    )
    parser.add_argument("--launch-bound", type=float, default=replay.LAUNCH_BOUND, metavar="SHARE", help=shown)
    args = parser.parse_args()
    replay.LAUNCH_BOUND = args.launch_bound
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if args.device == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    available = cases(args.device == "cuda", args.quick)
    chosen = [name for name in args.cases.split(",") if name] or [case.name for case in available]
    if unknown := set(chosen) - {case.name for case in available}:
        names = ", ".join(case.name for case in available)
        parser.error(f"--cases must be among {names}, got {', '.join(sorted(unknown))}")
    compiled = not (args.eager or (args.quick and args.device == "cpu"))
    rows: list[Row] = []
    for case in available:
        if case.name in chosen:
            rows += compare(case, args.device, quick=args.quick, peers=not args.no_peers, compiled=compiled)
    report(args, "training", rows, ("torch", "opacus", "transformers"), device_name(args.device))


if __name__ == "__main__":
    main()
