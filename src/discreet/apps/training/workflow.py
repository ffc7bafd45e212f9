"""A training run from its configuration to a folder: charge, train, evaluate privately, write the files."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import _check, mechanisms, queries
from discreet.apps import report as pages
from discreet.apps.training.config import Budget, Config, Images
from discreet.apps.training.data import load
from discreet.errors import BudgetExceeded, InvalidArgument, MissingExtra
from discreet.ledger import Account, Ledger
from discreet.neighbors import Rows

if TYPE_CHECKING:
    from discreet.learning import Plan, Run


@dataclass(frozen=True)
class Outcome:
    """What a run may show. Its exact losses are not part of it, because they are not private."""

    training: pages.Training
    guarantee: str
    steps: int
    files: tuple[Path, ...]


def carry_out(config: Config, *, progress: bool = False, source: str = "config.toml") -> Outcome:
    """Train according to a configuration. The account is charged before the first step.

    Guarantee: that of the plan, for the account's unit and relation. The evaluation is a separate release with its own
    charge. The folder holds private outputs and public facts only.
    """
    try:
        from discreet.learning import zoo
    except ModuleNotFoundError as missing:
        raise MissingExtra("training needs torch: pip install 'discreet[learning]'") from missing
    if not Path(config.ledger).exists() and "://" not in config.ledger:
        raise InvalidArgument(
            f"file in [ledger] must exist, got {config.ledger!r}: create it with discreet ledger init"
        )
    with Ledger(config.ledger, create=False) as ledger:
        names = [account.name for account in ledger.accounts()]
        if config.account not in names:
            remedy = f"it has {', '.join(names)}" if names else "open it with discreet ledger init"
            raise _check.fail("account in [ledger]", "be an account of the ledger", config.account, remedy)
        account = ledger.account(config.account)
        held_out = None if config.evaluation is None else load(config.evaluation.data)
        folder = make_folder(config.folder)
        run = fit(config, account, progress=progress)
        # Saved at once: the training is paid for, whatever happens to the evaluation or the report.
        run.save(folder / "model.pt")
        scores = []
        if held_out is not None and config.evaluation is not None:
            guesses = zoo.predict(run.model, held_out[0])
            try:
                scores.append(evaluate(account, held_out[1], guesses, config.evaluation.epsilon))
            except BudgetExceeded as error:
                saved = folder / "model.pt"
                raise BudgetExceeded(
                    f"the model is trained, charged and saved in {saved}, but its evaluation is refused: {error}"
                ) from error
        training = training_of(run, config.purpose, scores)
        commands = [f"discreet train {shlex.quote(source)}"]
        page = pages.collect(
            account, title=f"Privacy report: {config.purpose}", trainings=[training], commands=commands
        )
    (folder / "report.html").write_text(pages.render(page), encoding="utf-8")
    (folder / "statement.json").write_text(page.to_json(), encoding="utf-8")
    files = tuple(folder / name for name in ("model.pt", "report.html", "statement.json"))
    return Outcome(training, str(run.guarantee), run.steps, files)


def plan_of(budget: Budget, account: Account) -> Plan:
    """The plan of a configuration, for an account that protects rows. Looks at no data."""
    from discreet.learning import Plan

    if not isinstance(account.neighbors.unit, Rows):
        remedy = "for an account that protects persons, train from Python with persons=…"
        raise _check.fail("account", "protect rows", str(account.neighbors), remedy)
    return Plan.for_epsilon(
        budget.epsilon,
        delta=budget.delta,
        examples=budget.examples,
        batch_size=budget.batch_size,
        epochs=budget.epochs,
        clip_norm=budget.clip_norm,
        sampling=budget.sampling,
        relation=account.neighbors.relation,
    )


def fit(
    config: Config,
    account: Account,
    *,
    progress: bool = False,
    key: str | None = None,
    checkpoint: Path | None = None,
    on_step: Callable[[int], None] | None = None,
) -> Run:
    """Train the model of a configuration. The account is charged for all steps before the first one.

    With a `key` and a `checkpoint`, a training that broke off is continued. `on_step` is called with the number of
    steps that this process has taken, and learns nothing else.

    Guarantee: that of the plan, for the account's unit and relation.
    """
    from discreet.learning import train, zoo

    plan = plan_of(config.budget, account)
    inputs, labels = load(config.data)
    classes = config.data.classes if isinstance(config.data, Images) else len(config.data.classes)
    model = zoo.build(config.model.kind, inputs.shape[1:], classes, config.model.hidden)
    optimizer = zoo.optimizer(config.model.optimizer, model, config.model.learning_rate)
    if on_step is not None:
        zoo.after_steps(optimizer, range(1, plan.steps + 1), on_step)
    with zoo.one_thread():
        return train(
            model,
            zoo.loss,
            (inputs, labels),
            plan,
            optimizer=optimizer,
            account=account,
            key=key,
            purpose=config.purpose,
            progress=progress,
            checkpoint=checkpoint,
            resume=checkpoint is not None,
            compile=False,
        )


def evaluate(
    account: Account, truth: Any, predicted: Any, epsilon: float, purpose: str = "accuracy on held-out people"
) -> pages.Evaluation:
    """The accuracy on people who were not trained on, with noise. The account is charged before the noise is drawn.

    Guarantee: ε-DP for one row under the account's relation. Only the accuracy is released.
    """
    bounded = queries.accuracy(truth, predicted, relation=account.neighbors.relation)
    noise = mechanisms.Laplace.for_epsilon(bounded, epsilon)
    account.spend(noise.event(bounded), purpose=purpose, neighbors=account.neighbors)
    released = noise.release(bounded)
    low, high = released.confidence_interval(0.95)
    value = float(released.value)
    return pages.Evaluation("Accuracy on held-out people", value, float(low), float(high), f"Cost: ε = {epsilon:g}")


def training_of(
    run: Any,
    title: str,
    evaluations: Sequence[pages.Evaluation],
    scores: Sequence[tuple[int, pages.Evaluation]] = (),
) -> pages.Training:
    """What a report may show of a run: the plan and ε by step. The losses are not private."""
    steps = tuple(int(steps) for steps, _ in run.history.epsilon)
    spent = tuple(float(epsilon) for _, epsilon in run.history.epsilon)
    return pages.Training(
        title=title[:1].upper() + title[1:],
        plan=" ".join(run.plan.explain().split("\n")[:3]),
        steps=steps,
        series=(("ε so far", spent),) if spent else (),
        guarantee=str(run.guarantee),
        evaluations=tuple(evaluations),
        scores=tuple(scores),
    )


def make_folder(path: Path) -> Path:
    """Make a folder to write to, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or "it cannot be made"
        raise InvalidArgument(f"folder must be writable, got {str(path)!r}: {reason}") from None
    return path
