"""`stateward token ...`: create, list and revoke API tokens."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from stateward.client.formatting import filled_table, utc_text
from stateward.client.output import err
from stateward.client.session import Session, on_server


class RoleName(StrEnum):
    """The roles of tokens: those of `stateward.access.roles`, whose import would load the engine."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    AGENT = "agent"


app = typer.Typer(no_args_is_help=True, help="Create, list and revoke API tokens.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The person or program that it is for.")]
As = Annotated[RoleName, typer.Option("--role", help="Its role: what it may do.")]
Spaces = Annotated[
    list[str],
    typer.Option(
        "--ns",
        metavar="NAMESPACE",
        help="A namespace that the token gives access to; * is all. For agents NAMESPACE:CLOUDLET. Repeatable.",
    ),
]
Days = Annotated[
    float | None, typer.Option("--days", min=0.0001, max=36_500, help="Days after which it expires; without it, never.")
]
Id = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `token list` shows it.")]


@on_server
def create(session: Session, name: Name, ns: Spaces, role: As = RoleName.VIEWER, days: Days = None) -> None:
    """Create a token; its text is shown once.

    stateward token create ci --role operator --ns shop --days 90
    """
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    body = {"name": name, "role": role, "namespaces": ns, **({} if expires is None else {"expires": expires})}
    made = session.client.issue_token(body)
    if session.json:
        session.print_data(made)
        return
    info = made.info
    err().print(f"Token {info.id} for {info.name} ({info.role}); copy it now, it is shown only once:", markup=False)
    typer.echo(made.token)


@on_server
def list_(session: Session) -> None:
    """List the tokens, without their texts."""
    tokens = session.client.tokens()
    rows = (
        (
            token.id,
            token.name,
            token.role,
            " ".join(token.namespaces),
            token.state,
            utc_text(token.created),
            utc_text(token.expires),
        )
        for token in tokens
    )
    titles = ("id", "name", "role", "namespaces", "state", "created", "expires")
    session.show(tokens, lambda _: filled_table(titles, rows))


@on_server
def revoke(session: Session, id_: Id) -> None:
    """Revoke a token: from now on it is refused."""
    token = session.client.revoke_token(id_)
    session.show(token, lambda _: f"Token {id_} is revoked.")


app.command("create")(create)
app.command("list")(list_)
app.command("revoke")(revoke)
