"""What the server does, without HTTP: who may ask what of which dataset, at which price, and what comes back.

Everything here runs in a thread and may wait. Pages, agents and the HTTP interface call the same methods.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import codec
from discreet.analytics import Answer, Result
from discreet.apps.server.anchoring import Anchoring
from discreet.apps.server.config import Dataset, ServerLimits
from discreet.apps.server.dummy import DummyTables
from discreet.apps.server.oidc import SignIn
from discreet.apps.server.problems import Problem, not_found
from discreet.apps.server.state import ServerState
from discreet.apps.server.tables import Tables, Work, mentioned
from discreet.apps.wire.questions import Asked
from discreet.apps.wire.results import preview_json, result_json
from discreet.errors import AccessDenied, ApprovalNeeded, BudgetExceeded, EngineFailed, Exhausted
from discreet.events import Event
from discreet.ledger import Account, Ledger
from discreet.ledger.access import Access, Approval, Identity, Role
from discreet.ledger.access.access import OPERATOR
from discreet.ledger.access.policy import cost_of
from discreet.ledger.names import checked_text

if TYPE_CHECKING:
    from discreet.apps.server.jobs import Jobs

#: Idempotency keys are short texts; the user's name and a colon come before them in the ledger.
LONGEST_KEY = 100
#: Questions of one user that wait for a steward: each is recorded for good, and people read them.
MOST_WAITING = 50


class Curator:
    """The datasets, the ledger and the rules of one server. Safe to use from several threads.

    Guarantee:
        Every answer to `ask` was charged to the asker's own share, and to the accounts above, before the query ran.
        What `preview` and `trial` return depends on public facts, on dummy data and on what the ledger says, never
        on a row. Not protected: how long an answer takes, beyond the steps in which answers leave
        (docs/topics/threats.md).
    """

    def __init__(self, ledger: Ledger, limits: ServerLimits, folder: Path, webhook: str | None = None) -> None:
        self.ledger = ledger
        self.access = Access(ledger)
        self.sign_in = SignIn(self.access)
        self.anchoring: Anchoring | None = None
        self.state = ServerState(ledger)
        self.limits = limits
        self.folder = folder
        self.webhook = webhook
        self._tables = Tables()
        self._trials = DummyTables()
        self._schemas: dict[Dataset_key, dict[str, str]] = {}
        self.after_charge: Callable[[str], None] = lambda account: None

    @cached_property
    def jobs(self) -> Jobs:
        """Trainings. They are loaded when first needed: a server without models needs no torch."""
        from discreet.apps.server.jobs import Jobs

        return Jobs(self)

    def close(self) -> None:
        """Close the ledger and remove what trials left behind."""
        self._trials.close()
        self.ledger.close()

    # --- datasets

    def register(self, dataset: Dataset, by: Identity | str = OPERATOR) -> None:
        """Add a dataset, or replace what had its name. Its source must be readable, and its account must exist.

        Which account pays is recorded with who said so: another account is another budget for the same people.
        """
        account = self.ledger.account(dataset.account)
        self._tables.private(dataset, account, Work())  # refuses bounds and a person's column that it does not have
        tree = asdict(dataset) | {
            "bounds": {name: [low.hex(), high.hex()] for name, (low, high) in dataset.bounds.items()}
        }
        tree["values"] = {name: [_kept(value) for value in values] for name, values in dataset.values.items()}
        public = {name: tree[name] for name in ("account", "description", "person", "version")}
        self.access.record_dataset(dataset.name, public, by=by)  # not the source, which may hold a password
        self.state.put("dataset", dataset.name, tree)

    def datasets(self) -> dict[str, Dataset]:
        """All datasets by name."""
        return {name: _dataset(tree) for name, tree in self.state.items("dataset")}

    def dataset(self, name: str) -> Dataset:
        """The dataset of this name."""
        tree = self.state.item("dataset", name)
        if tree is None:
            raise not_found("dataset", name)
        return _dataset(tree)

    def described(self, dataset: Dataset) -> dict[str, Any]:
        """The public facts about a dataset."""
        key = (dataset.name, dataset.source, dataset.version)
        if key not in self._schemas:
            self._schemas[key] = self._tables.schema(dataset)
        account = self.ledger.account(self.access.current(dataset.account))
        return {
            "name": dataset.name,
            "description": dataset.description,
            "version": dataset.version,
            "account": account.name,
            "budget": str(account.budget),
            "protects": str(account.neighbors),
            "columns": [
                {
                    "name": name,
                    "type": kind,
                    **({"bounds": list(dataset.bounds[name])} if name in dataset.bounds else {}),
                    **({"values": [str(value) for value in dataset.values[name]]} if name in dataset.values else {}),
                }
                for name, kind in self._schemas[key].items()
            ],
        }

    # --- the three calls

    def preview(self, identity: Identity, name: str, body: Any, work: Work) -> dict[str, Any]:
        """What a question would cost and how good its answer would be. Spends nothing, reads no row."""
        dataset, asked = self.dataset(name), Asked.of(body)
        answer = self._answer(dataset, self._viewed(identity, dataset), asked, work)
        return preview_json(
            answer.preview(**asked.spending.planned(), error_target=asked.error_target, rows=asked.rows)
        )

    def trial(self, identity: Identity, name: str, body: Any, work: Work) -> dict[str, Any]:
        """The answer to a question about public dummy data. Spends nothing, reads no row."""
        dataset, asked = self.dataset(name), Asked.of(body)
        account = self._viewed(identity, dataset)
        others = mentioned(asked, self.datasets(), dataset)
        for _ in range(2):
            tables = {
                asked_dataset.name: self._trials.private(
                    self._tables.private(asked_dataset, account, work), asked_dataset, account
                )
                for asked_dataset in (dataset, *others)
            }
            answer = self._withholding(asked.answer(tables[dataset.name], tables), account)
            try:
                result = answer.release(**asdict(asked.spending), purpose="trial")
            except BudgetExceeded:
                self._trials.forget()
                continue
            return {"dummy": True, **result_json(result)}
        raise Problem(500, "internal", "a trial must fit its own budget: the server failed")

    def ask(self, identity: Identity, name: str, body: Any, key: str | None, work: Work) -> dict[str, Any]:
        """The answer to a question, charged to the asker's share before the query runs.

        With a `key`, the same question again gives the stored answer and no second charge; another question is refused.
        """
        dataset, asked = self.dataset(name), Asked.of(body)
        if key is not None:
            _checked_key(key)
        question = _digest(name, asked)
        if key is not None and (stored := self._stored(identity, key, question)) is not None:
            return {**stored, "replayed": True}
        used = key or uuid.uuid4().hex
        charged = f"{identity.user}:{used}"
        account = self.access.account(identity, dataset.account, approval=None)
        answer = self._withholding(self._answer(dataset, account, asked, work), account)
        purpose = checked_text("purpose", answer.description if asked.purpose is None else asked.purpose)
        try:
            result = answer.release(**asdict(asked.spending), purpose=purpose, key=charged)
        except EngineFailed:
            self.after_charge(account.name)  # it was charged all the same
            raise
        except ApprovalNeeded as needed:
            result = self._approved(identity, dataset, asked, work, purpose, question, charged, needed)
        except Exhausted:
            # Another request with this key was charged meanwhile: it may have stored its answer by now.
            if (stored := self._stored(identity, used, question)) is not None:
                return {**stored, "replayed": True}
            raise
        answered = self._kept(identity, used, question, result)
        self.after_charge(account.name)
        return answered

    def _kept(self, identity: Identity, key: str, question: str, result: Result) -> dict[str, Any]:
        """Store an answer before anybody sees it, so that a retry finds this one."""
        answered = {**result_json(result), "key": key}
        text = json.dumps(answered, ensure_ascii=False, allow_nan=False)
        self.state.keep_answer(identity.user, key, question, text)
        return answered

    def _stored(self, identity: Identity, key: str, question: str) -> dict[str, Any] | None:
        stored = self.state.answer(identity.user, key)
        if stored is None:
            return None
        if stored.question != question:
            message = "an idempotency key must name one question, and this one was answered for another: take a new key"
            raise Problem(409, "key_reused", message)
        answered: dict[str, Any] = json.loads(stored.body)
        return answered

    def _approved(
        self,
        identity: Identity,
        dataset: Dataset,
        asked: Asked,
        work: Work,
        purpose: str,
        question: str,
        charged: str,
        needed: ApprovalNeeded,
    ) -> Result:
        """Release what a steward has approved; otherwise ask for an approval, once, and say so.

        The purpose that is approved, and charged, holds a digest of the question: nothing else can use the approval.
        """
        what = f"{purpose[:1900]} [question {question[:32]}]"
        mine = [
            earlier for earlier in self.access.approvals() if earlier.user == identity.user and earlier.what == what
        ]
        for approval in mine:
            if approval.state != "approved":
                continue
            account = self.access.account(identity, dataset.account, approval=approval.id)
            if account.name == approval.account:
                answer = self._withholding(self._answer(dataset, account, asked, work), account)
                return answer.release(**asdict(asked.spending), purpose=what, key=charged)
        waiting = [earlier.id for earlier in mine if earlier.state == "pending"]
        if not waiting:
            self._check_waiting(identity)
            account = self.access.account(identity, dataset.account)
            event = self._answer(dataset, account, asked, work).event(**asked.spending.planned())
            cost = max(cost_of(terms, event) for terms in account.path)
            # Before the request, so that a steward never sees one without its question.
            self.state.put("question", question, {"dataset": dataset.name, "body": json.dumps(asked.body)})
            waiting = [self.access.request_approval(identity, account.name, what, cost)]
        raise Problem(
            403,
            "approval_needed",
            f"{needed}: a steward was asked; send the same question again once it is approved",
            approval=waiting[0],
        )

    def approval_for(self, identity: Identity, account: Account, what: str, event: Event) -> str:
        """The approval that a training may use, "" if it needs none; otherwise ask for one, once, and say so."""
        cost = max(cost_of(terms, event) for terms in account.path)
        if not any(self.access.policy(terms.name).needs_approval(cost) for terms in account.path):
            return ""
        asked = [
            approval
            for approval in self.access.approvals()
            if (approval.user, approval.account, approval.what) == (identity.user, account.name, what)
        ]
        for approval in asked:
            if approval.state == "approved":
                return approval.id
        waiting = [approval.id for approval in asked if approval.state == "pending"]
        if not waiting:
            self._check_waiting(identity)
            waiting = [self.access.request_approval(identity, account.name, what, cost)]
        message = "this training needs a steward's approval: one was asked for; send the same again once it is approved"
        raise Problem(403, "approval_needed", message, approval=waiting[0])

    def question_of(self, approval: Approval) -> dict[str, Any] | None:
        """The question that an approval is about, as it was sent; a purpose alone could say anything.

        None if it is not the one whose digest the approval holds, which is the one that can be asked. A training is
        nothing but a registered model and numbers, and the approval's own words say all of it.
        """
        match = _DIGEST.search(approval.what)
        if match is None:
            return {"training": approval.what}
        for digest, stored in self.state.items("question"):
            if not digest.startswith(match[1]):
                continue
            body = json.loads(stored["body"])
            if _digest(stored["dataset"], Asked.of(body)) == digest:
                return {"dataset": stored["dataset"], **body}
        return None

    def _check_waiting(self, identity: Identity) -> None:
        """Refuse to bother the steward with more questions than people read."""
        waiting = [
            approval
            for approval in self.access.approvals()
            if (approval.user, approval.state) == (identity.user, "pending")
        ]
        if len(waiting) >= MOST_WAITING:
            message = f"at most {MOST_WAITING} questions of one user may wait for an approval: wait for a decision"
            raise Problem(429, "too_many", message)

    # --- accounts

    def _viewed(self, identity: Identity, dataset: Dataset) -> Account:
        """The account whose room a preview shows: the analyst's share, or the dataset's own for a steward."""
        if identity.role is Role.ANALYST:  # also with a token that may only preview
            return self.access.account(identity, dataset.account, scope="preview")
        return self.ledger.account(self.access.current(dataset.account))

    def standing(self, account: Account) -> dict[str, Any]:
        """How an account stands, for people and for programs."""
        summary = account.summary()
        return {
            "account": account.name,
            "budget": str(account.budget),
            "terms": codec.encode_budget(account.budget),
            "protects": str(account.neighbors),
            "used": summary.used,
            "remaining": str(summary.remaining),
            "room": summary.room,
            "charges": summary.charges,
        }

    def shares(self, identity: Identity) -> list[dict[str, Any]]:
        """What an analyst may still spend, for each account that they have a part of."""
        names = dict.fromkeys(dataset.account for dataset in self.datasets().values())
        standings = []
        for name in names:
            try:
                standings.append(self.standing(self.access.account(identity, name, scope="preview")))
            except AccessDenied:
                continue  # no part of this account
        return standings

    # --- inside

    def _answer(self, dataset: Dataset, account: Account, asked: Asked, work: Work) -> Answer:
        others = mentioned(asked, self.datasets(), dataset)
        tables = {
            asked_dataset.name: self._tables.private(asked_dataset, account, work)
            for asked_dataset in (dataset, *others)
        }
        return asked.answer(tables[dataset.name], tables)

    def _withholding(self, answer: Answer, account: Account) -> Answer:
        """The answer without small groups, where a policy on the path says so."""
        policies = [self.access.policy(terms.name) for terms in account.path]
        least = max((policy.min_group_size or 0 for policy in policies), default=0)
        return answer.withholding(least) if least > 0 else answer


Dataset_key = tuple[str, str, str]

#: The digest of the question at the end of what a steward approves.
_DIGEST = re.compile(r"\[question ([0-9a-f]{32})\]$")


def _digest(dataset: str, asked: Asked) -> str:
    return sha256(f"{dataset}\n{asked.digest_text()}".encode()).hexdigest()


def _checked_key(key: str) -> None:
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        message = f"an idempotency key must have 1 to {LONGEST_KEY} printable ASCII characters: a UUID does"
        raise Problem(400, "invalid", message)


def _kept(value: Any) -> Any:
    """A public value as the state's JSON holds it, which has no floats."""
    return (
        {"float": value.hex()}
        if isinstance(value, float)
        else value
        if isinstance(value, int | str | bool)
        else str(value)
    )


def _dataset(tree: dict[str, Any]) -> Dataset:
    bounds = {name: (float.fromhex(low), float.fromhex(high)) for name, (low, high) in tree["bounds"].items()}
    values = {
        name: tuple(float.fromhex(value["float"]) if isinstance(value, dict) else value for value in listed)
        for name, listed in tree["values"].items()
    }
    return Dataset(**{**tree, "bounds": bounds, "values": values})
