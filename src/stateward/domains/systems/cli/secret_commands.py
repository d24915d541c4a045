"""`stateward system secret ...`: set, list and delete secrets, and rotate their keys. No command shows a value."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stateward.client.action_requests import RequestOutcome, finish_requests, read_outcome
from stateward.client.confirmation import confirm_removal
from stateward.client.formatting import age_text, filled_table
from stateward.client.http import idempotency_headers
from stateward.client.session import Session, on_server, requests_action
from stateward.client.shared_options import Everywhere
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.systems.views import AskedView, SecretView
from stateward.errors import BadInput

KIND = "systems.secret"

secret_app = typer.Typer(no_args_is_help=True, help="Set, list and delete secrets, which only instances can read.")

Secret = Annotated[str, typer.Argument(metavar="SECRET", help="The secret's name.")]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file",
        metavar="FILE",
        help="Read the value from FILE, as it is; without it, from standard input, or by a question at a terminal.",
    ),
]


@secret_app.command()
@on_server
def create(session: Session, secret: Secret, from_file: FromFile = None) -> None:
    """Create a secret of the namespace; the value is never an argument, where other users could see it."""
    _set(session, "POST", _at(session), {"name": secret, "value": _read_value(from_file)})


@secret_app.command()
@on_server
def update(session: Session, secret: Secret, from_file: FromFile = None) -> None:
    """Give a secret a new value."""
    _set(session, "PUT", _at(session, ("SECRET", secret)), {"value": _read_value(from_file)})


@secret_app.command("list")
@on_server
def list_(session: Session) -> None:
    """List the secrets of the namespace, without their values."""
    session.show(session.client.http.call(list[SecretView], "GET", _at(session)), secret_table)


@secret_app.command()
@on_server
def show(session: Session, secret: Secret) -> None:
    """Show a secret without its value, and the services that use it."""
    shown = session.client.http.call(SecretView, "GET", _at(session, ("SECRET", secret)))
    session.show(shown, lambda view: secret_table([view]))


@secret_app.command()
@on_server
def delete(session: Session, secret: Secret) -> None:
    """Delete a secret that no service uses."""
    confirm_removal(session, f"Delete secret {session.ns}/{secret}?")
    where = _at(session, ("SECRET", secret))
    former = session.client.http.call(SecretView, "DELETE", where, headers=idempotency_headers())
    session.show(former, lambda view: secret_table([view]))


@secret_app.command()
@requests_action
def rotate(session: Session, everywhere: Everywhere = False) -> None:
    """Encrypt all secrets of the namespace with the first key of the key file."""
    namespaces = (
        [namespace.ns for namespace in session.client.namespaces() if KIND in namespace.counts]
        if everywhere
        else [session.ns]
    )
    failed = 0
    for ns in namespaces:
        session.ns = ns
        try:
            finish_requests(session, [_rotate(session)])
        except typer.Exit as ended:  # the secrets of other namespaces have keys of their own
            failed = max(failed, ended.exit_code)
    if failed:
        raise typer.Exit(failed)


def _rotate(session: Session) -> RequestOutcome:
    where = url_path("systems", ("namespace", session.ns), "-", "secret-rotation")
    asked = session.client.http.call(AskedView, "POST", where, headers=idempotency_headers())
    return read_outcome(session, asked.id, asked.operation)


def secret_table(secrets: Sequence[SecretView]) -> Table:
    """Return secrets as a table."""
    rows = (
        (secret.name, str(secret.version), age_text(secret.changed), secret.key, ", ".join(secret.used_by))
        for secret in secrets
    )
    return filled_table(("secret", "version", "changed", "key", "used by"), rows)


def _set(session: Session, method: str, where: UrlPath, body: dict[str, str]) -> None:
    shown = session.client.http.call(SecretView, method, where, body=body, headers=idempotency_headers())
    session.show(shown, lambda view: secret_table([view]))


def _read_value(file: Path | None) -> str:
    """Return the value from a file, from standard input, or from a person; an error never has it."""
    try:
        if file is not None:
            return file.read_bytes().decode()
        if not sys.stdin.isatty():
            return sys.stdin.buffer.read().decode().removesuffix("\n")  # `echo` ends the line
    except OSError as error:
        raise BadInput("--from-file", str(file), f"a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise BadInput("value", None, "a text in UTF-8; encode other data, for example in base64") from None
    return str(typer.prompt("Value", hide_input=True, confirmation_prompt=True, err=True))


def _at(session: Session, *parts: str | NamedPart) -> UrlPath:
    return url_path("systems", ("namespace", session.ns), "-", "secrets", *parts)
