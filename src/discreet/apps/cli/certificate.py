"""`discreet certificate`: signed statements about releases and models that others can check."""

from __future__ import annotations

import json
from pathlib import Path

import click

from discreet.apps.cli.command import Command, options, with_output
from discreet.apps.cli.printing import Output, printable, read_text
from discreet.apps.cli.shared_options import account_of, account_options, open_account, open_ledger
from discreet.errors import InvalidArgument, NotALedger
from discreet.ledger import Account
from discreet.ledger.evidence import Certificate, PublicKeys, SigningKey, certify
from discreet.ledger.evidence.certificate import file_blocks
from discreet.ledger.evidence.keys import append_line, rotate

_PUBLIC = click.option("--keys", "keys", required=True, metavar="FILE", help="The steward's list of public keys.")


@click.group("certificate")
def group() -> None:
    """Sign what a release or a model guarantees, and check what others signed."""


@group.command("key", cls=Command, example="discreet certificate key steward.key --keys steward.pub")
@click.argument("file", metavar="FILE")
@_PUBLIC
@with_output
def key(output: Output, file: str, keys: str) -> None:
    """Make a signing key in FILE (mode 0600), and the list of public keys that you give to others."""
    if Path(keys).exists():
        remedy = "discreet certificate rotate appends a successor to a list"
        raise InvalidArgument(f"--keys must be a new file, got {keys!r}: {remedy}")
    made = SigningKey.create(file)
    append_line(keys, made.first_line())
    _made(output, made, file, keys)


@group.command("rotate", cls=Command, example="discreet certificate rotate steward.key new.key --keys steward.pub")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@_PUBLIC
@with_output
def rotate_key(output: Output, old: str, new: str, keys: str) -> None:
    """Make a signing key in NEW that succeeds the one in OLD, and append it to the list of public keys.

    Give the longer list to others. Signatures of OLD stay valid; delete OLD, or keep it offline.
    """
    _made(output, rotate(SigningKey.load(old), new, keys), new, keys)


@group.command(
    "make",
    cls=Command,
    example="discreet certificate make census.ledger --key steward.key --dataset adult --version 1994 "
    "--out release.json",
)
@click.argument("ledger", metavar="LEDGER")
@options(account_options)
@click.option("--row", type=int, help="The charge's number in the account's statement.  [default: the last charge]")
@click.option("--key", "file", required=True, metavar="FILE", help="The steward's signing key.")
@click.option("--dataset", required=True, help="The name under which the data is registered.")
@click.option("--version", required=True, help="Which version of the data was used.")
@click.option("--data", metavar="FILE", help="The data, for a tag that only the key's holder can compute.")
@click.option("--of", "artifact", metavar="FILE", help="The file that was released, to bind the certificate to it.")
@click.option("--out", metavar="FILE", help="Write the certificate to FILE instead of printing it.")
@with_output
def make(
    output: Output,
    ledger: str,
    named: str | None,
    account: str | None,
    row: int | None,
    file: str,
    dataset: str,
    version: str,
    data: str | None,
    artifact: str | None,
    out: str | None,
) -> None:
    """Certify one charge of ACCOUNT: its event, its guarantee, and the data that it was about."""
    signing = SigningKey.load(file)
    charged = open_account(ledger, account_of(named, account))
    number = _last_charge(charged) if row is None else row
    content = () if data is None else file_blocks(data)
    text = certify(
        open_ledger(ledger),
        charged.name,
        number,
        signing,
        dataset=dataset,
        version=version,
        content=content,
        artifact=artifact,
    )
    if out is not None:
        output.write(out, text + "\n")
    if output.json:
        output.emit(json.loads(text))
    elif out is None:
        click.echo(text)
    else:
        output.say(f"Wrote {out}.")


@group.command("verify", cls=Command, example="discreet certificate verify release.json --keys steward.pub")
@click.argument("file", metavar="FILE")
@_PUBLIC
@click.option("--of", "artifact", metavar="FILE", help="The file that the certificate must be about.")
@click.option("--ledger", metavar="LEDGER", help="A ledger that must have the certified charge.")
@with_output
def verify(output: Output, file: str, keys: str, artifact: str | None, ledger: str | None) -> int:
    """Check a certificate. The exit code is 1 if it does not hold."""
    problem, certificate = "", None
    trusted = PublicKeys.of_file(keys)
    try:
        certificate = Certificate.of_text(read_text(file).strip(), trusted)
        problem = certificate.disagreement(artifact=artifact, ledger=None if ledger is None else open_ledger(ledger))
    except NotALedger as error:
        problem = str(error)
    if output.json:
        held = certificate is not None and not problem
        facts = {} if certificate is None else _facts(certificate)
        output.emit({"holds": held, "problem": problem, **facts})
    elif problem or certificate is None:
        click.echo(printable(f"error: the certificate does not hold: {problem}"), err=True)
    else:
        for name, value in _facts(certificate).items():
            output.say(f"{name:>10}  {value}")
    return 1 if problem else 0


def _last_charge(account: Account) -> int:
    charges = [entry.sequence for entry in account.history() if entry.event is not None]
    if not charges:
        raise InvalidArgument(f"ACCOUNT must have a charge, got {account.name!r}: nothing was released from it")
    return charges[-1]


def _facts(certificate: Certificate) -> dict[str, str]:
    anchor = certificate.anchor
    return {
        "event": str(certificate.event),
        "guarantee": certificate.guarantee,
        "altogether": certificate.budget,
        "dataset": " ".join(certificate.dataset),
        "purpose": certificate.purpose,
        "row": f"{anchor.account} #{anchor.sequence} {anchor.hash}",
        "signed by": certificate.key,
        "issued": certificate.issued,
    }


def _made(output: Output, made: SigningKey, file: str, keys: str) -> None:
    if output.json:
        output.emit({"key": made.id, "file": file, "keys": keys})
    else:
        output.say(f"Key {made.id} is in {file}; its public part is in {keys}.")
