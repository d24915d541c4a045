"""The session of a command with a server: the options that all commands share, the client, and the output of errors."""

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from stateward.client.arguments import ObjectRef, full_kind, is_kind_named
from stateward.client.errors import ApiError, exit_code_for
from stateward.client.output import Json, clean, err, print_json, results
from stateward.client.target import RemoteServer, Secret, Target, TargetOptions, choose_target, stored_token
from stateward.client.url_paths import check_part
from stateward.errors import BadInput, StatewardError

if TYPE_CHECKING:
    import httpx
    from rich.console import RenderableType

    from stateward.client.api import ApiClient
    from stateward.schemas.kind_info import KindInfo
    from stateward.schemas.objects import ObjectView

T = TypeVar("T")

INTERRUPTED = 130

_option = partial(typer.Option, rich_help_panel="Where")

Server = Annotated[str | None, _option("--server", metavar="URL", help="A server's address. (env: STATEWARD_SERVER)")]
Token = Annotated[str | None, _option("--token", metavar="TEXT", help="An API token. (env: STATEWARD_TOKEN)")]
TokenFile = Annotated[Path | None, _option("--token-file", metavar="FILE", help="A file with an API token.")]
Data = Annotated[Path | None, _option("--data", metavar="DIR", help="A local data folder. (env: STATEWARD_DATA)")]
Namespace = Annotated[str, _option("--namespace", "-n", envvar="STATEWARD_NAMESPACE", help="The namespace.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended, and say how.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer than this; the work goes on."),
]


def _shared(
    server: Server = None,
    token: Token = None,
    token_file: TokenFile = None,
    data: Data = None,
    namespace: Namespace = "default",
    json: Json = False,
) -> None:
    """Declare the options that all commands share; only its signature is used."""


def _waiting(wait: Wait = False, timeout: Timeout = None) -> None:
    """Declare the options of commands that request actions; only its signature is used."""


SHARED = inspect.signature(_shared).parameters
WAITING = inspect.signature(_waiting).parameters
CONTEXT = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

InProcessServer = Callable[[Path], AbstractContextManager["httpx.BaseTransport"]]
"""Runs the server's application on a data folder, in this process; yields the transport to it.

The command line puts it into the context of its commands (`obj`), because this package knows no server.
"""


class Session:
    """The client, the namespace and the output format of a command, and whether it waits for what it requests."""

    wait = False
    timeout: float | None = None

    def __init__(
        self, client: "ApiClient", ns: str, *, json: bool, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.client, self.ns, self.json, self.pause = client, ns, json, pause

    @cached_property
    def kinds(self) -> "dict[str, KindInfo]":
        """The kinds that the server knows; requested once."""
        return {one.kind: one for one in self.client.kinds()}

    @cached_property
    def _classes(self) -> dict[tuple[str, str], str]:
        return {(kind, one.state): one.state_class for kind, all_ in self.kinds.items() for one in all_.states}

    def state_class(self, kind: str, state: str) -> str:
        """Return the class of a state; empty where it is not known."""
        return self._classes.get((kind, state), "")

    def kind(self, name: str) -> str:
        """Return the full name of a kind."""
        return full_kind(name, list(self.kinds))

    def find(self, named: ObjectRef) -> "ObjectView":
        """Return the object of a reference; it must be of the kind that the reference names."""
        found = self.client.object(self.ns, named.id)
        if named.kind is not None and not is_kind_named(found.kind, named.kind):
            raise BadInput("object", str(named), f"named by its kind: {found.id} is of the kind {found.kind}")
        return found

    def show(self, found: T, view: "Callable[[T], RenderableType]") -> None:
        """Print a result: with `--json` as JSON, otherwise as `view` renders it."""
        if self.json:
            print_json(found)
        else:
            results().print(view(found), markup=False)


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a session as its first argument, and the options that say with which server."""
    return _with_session(command, {})


def requests_action(command: Callable[..., None]) -> Callable[..., None]:
    """Do as `on_server`, and add `--wait` and `--timeout`, whose values are in the session."""
    return _with_session(command, WAITING)


def _with_session(command: Callable[..., None], of_session: Mapping[str, inspect.Parameter]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = [one for name, one in signature.parameters.items() if name != "session"]

    def run(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - whatever the command takes
        shared = {name: given.pop(name) for name in SHARED}
        with open_session(ctx.obj, **shared) as session:
            for name in of_session:
                setattr(session, name, given.pop(name))
            command(session, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return with_options(run, [*own, *of_session.values()])


def with_options(run: Callable[..., None], own: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Set the signature of a function: the context, its own parameters, and the options that all commands share."""
    shown = [CONTEXT, *own, *SHARED.values()]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run


@contextmanager
def connect(place: Target, in_process: InProcessServer | None) -> Iterator["ApiClient"]:
    """Open a client to a server or to a data folder whose server does not run, and close it after use."""
    from stateward.client.api import ApiClient  # only commands that speak HTTP load an HTTP library
    from stateward.client.http import HttpConnection

    if isinstance(place, RemoteServer):
        connection = HttpConnection(place.url, place.token, direct=place.direct)
        try:
            yield ApiClient(connection)
        finally:
            connection.close()
        return
    if in_process is None:
        raise BadInput("data", str(place.path), "the folder of a running server: this program cannot start one")
    with in_process(place.path) as transport:
        connection = HttpConnection("http://local", place.token or stored_token(place.path), transport, direct=True)
        yield ApiClient(connection, has_worker=False)


@contextmanager
def open_session(
    in_process: InProcessServer | None,
    server: str | None,
    token: str | None,
    token_file: Path | None,
    data: Path | None,
    namespace: str,
    json: bool,
) -> Iterator[Session]:
    """Open a session; an error in it becomes one line, or JSON, and an exit code."""
    given = TargetOptions(server, None if token is None else Secret(token), token_file, data)
    used = [given.token or Secret("")]
    try:
        check_part("namespace", namespace)
        with connect(choose_target(given, os.environ), in_process) as client:
            used.append(client.http.token)
            yield Session(client, namespace, json=json)
    except StatewardError as error:
        raise typer.Exit(print_error(error, used, json=json)) from None
    except UnicodeError as error:
        unreadable = BadInput("input", ascii(error.object) if isinstance(error, UnicodeEncodeError) else "", "text")
        raise typer.Exit(print_error(unreadable, used, json=json)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def print_error(error: StatewardError, secrets: list[Secret], *, json: bool) -> int:
    """Print an error, without any secret, and return its exit code."""
    if json:
        name = error.code if isinstance(error, ApiError) and error.code else type(error).__name__
        record = msgspec.json.encode({"error": name, "message": str(error), **error.facts()}, enc_hook=str)
        print_json(msgspec.Raw(_without(secrets, record.decode()).encode()))
    else:
        line = _without(secrets, clean(f"error: {error}"))
        sys.stdout.flush()
        err().print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return exit_code_for(error)


def _without(secrets: list[Secret], line: str) -> str:
    for secret in secrets:
        line = secret.hidden_in(line)
    return line
