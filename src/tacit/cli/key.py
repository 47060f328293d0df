"""`tacit key`: the key that signs this user's statements, and the keys of others that this user trusts."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import screen

app = typer.Typer(help="Make, show, trust, revoke and list the keys that sign statements.", no_args_is_help=True)
_File = Annotated[Path | None, typer.Option("--out", help="Write the public key to FILE.")]


@app.command()
def new(out: _File = None) -> None:
    """Make the key of this user, once."""
    from tacit.signing import configuration_folder
    from tacit.statement.keys import AUTHOR, AuthorKey

    key = AuthorKey.new()
    key.save(configuration_folder() / AUTHOR)
    _show(key.public, out)


@app.command()
def show(out: _File = None) -> None:
    """Show the public key of this user and its fingerprint, for others to trust."""
    from tacit.statement import author_key

    _show(author_key().public, out)


@app.command()
def trust(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A public key, as tacit key show --out writes it.")],
    name: Annotated[str, typer.Option(help="The name under which its owner is shown.")],
) -> None:
    """Trust a public key; compare its fingerprint with its owner first, over another way than the file came."""
    from tacit.statement import TrustStore
    from tacit.statement.keys import read_public

    key = TrustStore().trust(name, read_public(file))
    screen().print(f"{key.name}: {key.fingerprint}", markup=False)


@app.command()
def revoke(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A revocation that the owner of a trusted key signed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Revoke this user's own key: write the revocation to FILE.")] = None,
) -> None:
    """Take a revocation of a trusted key, or write that of one's own for others to take.

    A revocation states the time of its signature and nothing more; that time is its signer's word.
    """
    from tacit.errors import InvalidInput
    from tacit.serialization import write_bytes
    from tacit.statement import TrustStore, author_key, open_envelope, sealed
    from tacit.statement.envelope import REVOCATION

    if (file is None) == (out is None):
        raise InvalidInput("revoke must be given a FILE to take, or --out FILE to write; got both or neither.")
    if out is not None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        write_bytes(out, sealed({"revoked": now}, author_key(), REVOCATION))
        screen().print("Send the file to whoever trusts this key.")
        return
    assert file is not None
    revocation = open_envelope(_content(file), REVOCATION)
    time = revocation.payload.get("revoked")
    if not (revocation.is_signed and revocation.is_canonical and isinstance(time, str)):
        raise InvalidInput("file must be a revocation signed by the key that it revokes; its signature fails.")
    key = TrustStore().revoke(revocation.key, time)
    screen().print(f"{key.name}: revoked; the revocation states {key.revoked}, its signer's word.", markup=False)


@app.command("list")
def listed() -> None:
    """List the trusted keys."""
    from tacit.statement import TrustStore

    for key in TrustStore().keys:
        end = f"  revoked {key.revoked} (its signer's word)" if key.revoked else ""
        screen().print(f"{key.fingerprint}  {key.name}{end}", markup=False)


def _show(public: bytes, out: Path | None) -> None:
    from tacit.serialization import write_text
    from tacit.statement.keys import fingerprint, public_pem

    screen().print(f"fingerprint {fingerprint(public)}")
    print(public_pem(public), end="")
    if out is not None:
        write_text(out, public_pem(public))


def _content(file: Path) -> bytes:
    from tacit.statement.envelope import read_bounded

    return read_bounded(file)
