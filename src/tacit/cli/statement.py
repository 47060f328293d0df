"""`tacit statement`: the signed privacy statement of a run, a search or a fit.

`tacit check`: whether a privacy statement holds, recomputed here from the file alone.

`tacit key`: the key that signs this user's statements, and the keys of others that this user trusts.
"""

import datetime
from pathlib import Path
from typing import Any

import typer

from tacit.cli.console import CommandGroup, screen
from tacit.errors import InvalidInput
from tacit.serialization import json_text, write_bytes, write_text
from tacit.signing import configuration_folder
from tacit.statement import TrustStore, Verdict, author_key, check_statement, keys, open_envelope, sealed
from tacit.statement.checking import note_seen, statement_page
from tacit.statement.document import REVOCATION, read_bounded
from tacit.statement.forms import public_form


def about(**given: Any) -> dict[str, Any]:
    """What was given of a subject, by the names of `tacit.statement.Subject`."""
    named = {"data_version": "version", "one_record": "unit", "fact": "facts"}
    return {named.get(name, name): tuple(each) if name == "fact" else each for name, each in given.items() if each}


def statement_command(
    source: Path,
    *,
    out: Path | None = None,
    dataset: str = "",
    data_version: str = "",
    one_record: str = "",
    fact: list[str] | None = None,
    owner: str = "",
    contact: str = "",
    purpose: str = "",
    date: str = "",
    delta: list[float] | None = None,
    model: Path | None = None,
    form: str | None = None,
) -> None:
    """Write the statement of a run, a search, or the ledger of a fit: numbers, evidence and digests in one signed file.

    The key of this user signs it and is made where there is none. A later statement about the same subject takes the
    next number. Check it with `tacit check`. The ledger of an estimator is saved by model.ledger_.save("ledger.json");
    with --format the file may be a statement of anybody.

    Args:
        source (RUN|LEDGER): Folder of a finished run or search, or a saved ledger.
        out: File to write (default statement.json in the run's folder or beside LEDGER).
        dataset: Name of the data; needed for a ledger.
        data_version: Of the data, such as a date or a digest.
        one_record: What one record is, such as 'one patient'.
        fact: What is public about the data (repeatable).
        owner: Who answers for the data.
        contact: How to reach them.
        purpose: What the release is for.
        date: Of the release, as YYYY-MM-DD; today by default.
        delta: Bound epsilon at this delta too (repeatable).
        model: Of a ledger: file of the model, whose digest is stated.
        form (--format): Print the claims of NIST SP 800-226 (nist) or the deployments registry's fields.
    """
    from tacit.runs.folders import write_statement

    if form is not None and source.is_file():
        print_form(read_bounded(source), form)
        return
    given = {"dataset": dataset, "data_version": data_version, "one_record": one_record, "fact": fact}
    given |= {"owner": owner, "contact": contact, "purpose": purpose, "date": date}
    path = write_statement(source, out, about=about(**given), deltas=delta or (), model=model)
    if form is None:
        screen().print(f"{path}: check it with tacit check {path}")
    else:
        print_form(read_bounded(path), form)


def print_form(content: bytes, form: str) -> None:
    """Print a statement in a public form; raises `InvalidInput` where it is contradicted."""
    payload, findings = check_statement(content)
    wrong = [finding for finding in findings if finding.verdict is Verdict.CONTRADICTED]
    if wrong:
        raise InvalidInput(f"statement must hold; {wrong[0].field} is contradicted: {wrong[0].says}")
    print(json_text(public_form(payload, form)))


def check_command(
    file: Path,
    *,
    key: str = "",
    model: Path | None = None,
    slow: bool = False,
    json: bool = False,
    html: Path | None = None,
) -> None:
    """Recompute every number of a statement and answer field by field: valid, not checkable or contradicted.

    Exit code 0 where all is valid, 3 where a field is contradicted, 4 where one is not checkable or the author unknown.

    Args:
        file (FILE): statement.json of anybody.
        key: Whose key must have signed: a file, a trusted name or a fingerprint.
        model: The file of the model, to compare with its digest.
        slow: Recompute numbers that take more than seconds too.
        html: Write the statement and its verdicts as a page to FILE.
        json: Print JSON.
    """
    wanted = TrustStore().fingerprint_of(key) if key else ""
    payload, findings = check_statement(read_bounded(file), key=wanted, model=model, slow=slow)
    note_seen(payload, findings)
    worst = max((finding.verdict for finding in findings), default=Verdict.VALID)
    if html is not None:
        write_text(html, statement_page(payload, findings))
    if json:
        print(json_text({"verdict": worst.words, "findings": [finding.row() for finding in findings]}))
    else:
        for finding in findings:
            style = ("green", "yellow", "yellow", "bold red")[finding.verdict]
            screen().print(f"{finding.verdict.words:16} {finding.field}: {finding.says}", style=style, markup=False)
        for fact in payload.get("facts", []) if worst is not Verdict.CONTRADICTED else []:
            if fact["how"] in ("declared", "assumed"):
                screen().print(f"{fact['how']:16} {fact['says'] or fact['id']}")
        screen().print(f"{worst.words}", style="bold")
    raise typer.Exit(worst.exit_code)


key_app = CommandGroup("Make, show, trust, revoke and list the keys that sign statements.")


@key_app.command()
def new(*, out: Path | None = None) -> None:
    """Make the key of this user, once.

    Args:
        out: Write the public key to FILE.
    """
    key = keys.AuthorKey.new()
    key.save(configuration_folder() / keys.AUTHOR)
    _show(key.public, out)


@key_app.command()
def show(*, out: Path | None = None) -> None:
    """Show the public key of this user and its fingerprint, for others to trust.

    Args:
        out: Write the public key to FILE.
    """
    _show(author_key().public, out)


@key_app.command()
def trust(file: Path, *, name: str) -> None:
    """Trust a public key; compare its fingerprint with its owner first, over another way than the file came.

    Args:
        file (FILE): A public key, as tacit key show --out writes it.
        name: The name under which its owner is shown.
    """
    key = TrustStore().trust(name, keys.read_public(file))
    screen().print(f"{key.name}: {key.fingerprint}")


@key_app.command()
def revoke(file: Path | None = None, *, out: Path | None = None) -> None:
    """Take a revocation of a trusted key, or write that of one's own for others to take.

    A revocation states the time of its signature and nothing more; that time is its signer's word.

    Args:
        file ([FILE]): A revocation that the owner of a trusted key signed.
        out: Revoke this user's own key: write the revocation to FILE.
    """
    if (file is None) == (out is None):
        raise InvalidInput("revoke must be given a FILE to take, or --out FILE to write; got both or neither.")
    if out is not None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        write_bytes(out, sealed({"revoked": now}, author_key(), REVOCATION))
        screen().print("Send the file to whoever trusts this key.")
        return
    assert file is not None
    revocation = open_envelope(read_bounded(file), REVOCATION)
    time = revocation.payload.get("revoked")
    if not (revocation.is_signed and revocation.is_canonical and isinstance(time, str)):
        raise InvalidInput("file must be a revocation signed by the key that it revokes; its signature fails.")
    key = TrustStore().revoke(revocation.key, time)
    screen().print(f"{key.name}: revoked; the revocation states {key.revoked}, its signer's word.")


@key_app.command("list")
def listed() -> None:
    """List the trusted keys."""
    for key in TrustStore().keys:
        end = f"  revoked {key.revoked} (its signer's word)" if key.revoked else ""
        screen().print(f"{key.fingerprint}  {key.name}{end}")


def _show(public: bytes, out: Path | None) -> None:
    screen().print(f"fingerprint {keys.fingerprint(public)}")
    print(keys.public_pem(public), end="")
    if out is not None:
        write_text(out, keys.public_pem(public))
