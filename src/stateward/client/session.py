"""The session of a command with a server: the options that all commands share, the client, and the output of errors."""

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from stateward.client.arguments import ObjectRef, ObjectSelector, full_kind, is_kind_named
from stateward.client.errors import FORBIDDEN, NOT_FOUND, STANDARD, UNREACHABLE, ApiError, exit_code_for, none_if
from stateward.client.output import Json, clean, err, print_json, results
from stateward.client.output_formats import JSON, TABLE, WIDE, OutputFormat, parse_output, print_data, print_data_line
from stateward.client.target import (
    LocalFolder,
    RemoteServer,
    Secret,
    Target,
    TargetOptions,
    choose_namespace,
    choose_target,
    stored_token,
    target_notes,
)
from stateward.client.url_paths import check_part
from stateward.errors import BadInput, StatewardError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from stateward.client.api import ApiClient
    from stateward.client.transport import Transport
    from stateward.schemas.kind_info import KindInfo
    from stateward.schemas.objects import ObjectView

T = TypeVar("T")

INTERRUPTED = 130
MAX_COMPARED = 1000
"""Objects whose names are compared with a name that no object has."""

NO_SERVER = "No server runs on {}: this command reads and writes its database by itself."

_option = partial(typer.Option, rich_help_panel="Where")

Server = Annotated[str | None, _option("--server", metavar="URL", help="A server's address. (env: STATEWARD_SERVER)")]
Token = Annotated[
    str | None,
    _option(
        "--token",
        metavar="TEXT",
        help="An API token. Other users can see it in the process list: use --token-file. (env: STATEWARD_TOKEN)",
    ),
]
TokenFile = Annotated[Path | None, _option("--token-file", metavar="FILE", help="A file with an API token.")]
Data = Annotated[Path | None, _option("--data", metavar="DIR", help="A local data folder. (env: STATEWARD_DATA)")]
Namespace = Annotated[
    str | None,
    _option(
        "--namespace",
        "-n",
        metavar="NAME",
        envvar="STATEWARD_NAMESPACE",
        show_default="that of the context, that of a demo, or default",
        help="The namespace.",
    ),
]
Context = Annotated[
    str | None, _option("--context", metavar="NAME", help="A context of `stateward config`. (env: STATEWARD_CONTEXT)")
]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it has ended, and say how.")]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", min=0, metavar="SECONDS", help="Wait no longer than this; the work goes on."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a large or final action.")]


Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FORMAT", help="json, yaml, wide, name, or jsonpath=PATH such as [*].id."),
]


def _shared(
    server: Server = None,
    token: Token = None,
    token_file: TokenFile = None,
    data: Data = None,
    context: Context = None,
    namespace: Namespace = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Declare the options that all commands share; only its signature is used."""


def _waiting(wait: Wait = False, timeout: Timeout = None, yes: Yes = False) -> None:
    """Declare the options of commands that request actions; only its signature is used."""


SHARED = inspect.signature(_shared).parameters
WAITING = inspect.signature(_waiting).parameters
CONTEXT = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)

InProcessServer = Callable[[Path], AbstractContextManager["Transport"]]
"""Runs the server's application on a data folder, in this process; yields the transport to it.

The command line puts it into the context of its commands (`obj`), because this package knows no server.
"""


class NoWorker(StatewardError):
    """A command is to wait for work that nobody does."""

    exit_code = UNREACHABLE
    text = (
        "waiting would never end: no server runs on this data folder, so nobody does the work. `stateward serve` starts"
        " one; without --wait the request is accepted now, and done then"
    )


class Session:
    """The client, the namespace and the output format of a command, and whether it waits for what it requests."""

    wait = False
    timeout: float | None = None
    yes = False

    def __init__(
        self,
        client: "ApiClient",
        ns: str,
        *,
        json: bool = False,
        output: OutputFormat | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client, self.ns, self.pause = client, ns, pause
        self.output = output or OutputFormat(JSON if json else TABLE)

    @property
    def json(self) -> bool:
        """Whether a program reads the output, as JSON or in another format for programs."""
        return self.output.is_data

    @property
    def is_wide(self) -> bool:
        """Whether tables are to have all their columns."""
        return self.output.name == WIDE

    @cached_property
    def kinds(self) -> "dict[str, KindInfo]":
        """The kinds that the server knows; requested once."""
        return {info.kind: info for info in self.client.kinds()}

    @cached_property
    def _classes(self) -> dict[tuple[str, str], str]:
        return {(kind, state.state): state.state_class for kind, all_ in self.kinds.items() for state in all_.states}

    def state_class(self, kind: str, state: str) -> str:
        """Return the class of a state; empty where it is not known."""
        return self._classes.get((kind, state), "")

    def kind(self, name: str) -> str:
        """Return the full name of a kind."""
        return full_kind(name, list(self.kinds))

    def find(self, named: ObjectRef) -> "ObjectView":
        """Return the object of a reference; it must be of the kind that the reference names."""
        try:
            view = self.client.object(self.ns, named.id)
        except ApiError as problem:
            raise self._with_near_name(named, problem) from None
        if named.kind is not None and not is_kind_named(view.kind, named.kind):
            raise BadInput("object", str(named), f"named by its kind: {view.id} is of the kind {view.kind}")
        return view

    def _with_near_name(self, named: ObjectRef, problem: ApiError) -> ApiError:
        """Return a problem; if the object does not exist, with the nearest name of one that does."""
        if problem.code != "not_found":
            return problem
        full = next((kind for kind in self.kinds if named.kind is not None and is_kind_named(kind, named.kind)), None)
        listed = self.client.objects(self.ns, ObjectSelector(kind=full), MAX_COMPARED)
        near = get_close_matches(named.id, [view.id for view in none_if(NOT_FOUND, lambda: list(listed)) or []], n=1)
        if not near:
            return problem
        more = {name: value for name, value in problem.facts().items() if name not in STANDARD}
        return ApiError(problem.status, problem.code, f"{problem.detail}; did you mean {near[0]!r}?", more)

    def require_namespace(self) -> None:
        """Raise if the server does not know the namespace, with the nearest name."""
        next(iter(self.client.objects(self.ns, ObjectSelector(), 1)), None)

    def print_data(self, data: object) -> None:
        """Print a result for a program."""
        print_data(self.output, data)

    def print_data_line(self, data: object) -> None:
        """Print one of many results for a program, as soon as it is known."""
        print_data_line(self.output, data)

    def require_worker(self) -> None:
        """Raise if waiting would never end: no server runs on the data folder, and no worker is alive."""
        if self.client.has_worker or self.timeout is not None:
            return
        workers = none_if(FORBIDDEN, self.client.workers)
        if workers is not None and not any(worker.alive for worker in workers):
            raise NoWorker

    def show(self, data: T, view: "Callable[[T], RenderableType]", if_empty: Callable[[], str] | None = None) -> None:
        """Print a result: for a program in its format, otherwise as `view` renders it; of an empty list, a sentence."""
        if self.json:
            self.print_data(data)
        elif isinstance(data, list) and not data:
            said = view(data) if if_empty is None else if_empty()
            sentence = said if isinstance(said, str) else "Nothing found."  # and not a table without rows
            err().print(sentence, markup=False, highlight=False, soft_wrap=True)
        else:
            results().print(view(data), markup=False)


def on_server(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a session as its first argument, and the options that say with which server."""
    return _with_session(command, {})


def requests_action(command: Callable[..., None]) -> Callable[..., None]:
    """Do as `on_server`, and add `--wait` and `--timeout`, whose values are in the session."""
    return _with_session(command, WAITING)


def _with_session(command: Callable[..., None], of_session: Mapping[str, inspect.Parameter]) -> Callable[..., None]:
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "session"]

    def run(ctx: typer.Context, **given: Any) -> None:  # noqa: ANN401 - whatever the command takes
        shared = {name: given.pop(name) for name in SHARED}
        with open_session(ctx.obj, **shared) as session:
            for name in of_session:
                setattr(session, name, given.pop(name))
            if session.wait:
                session.require_worker()
            command(session, **given)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return with_options(run, [*own, *of_session.values()])


def with_options(run: Callable[..., None], own: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """Set the signature of a function: the context, its own parameters, and the options that all commands share."""
    shown = [CONTEXT, *own, *SHARED.values()]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


@contextmanager
def connect(place: Target, in_process: InProcessServer | None, timeout: float = 30.0) -> Iterator["ApiClient"]:
    """Open a client to a server or to a data folder whose server does not run, and close it after use."""
    from stateward.client.api import ApiClient  # only commands that speak HTTP load an HTTP library
    from stateward.client.http import HttpConnection

    if isinstance(place, RemoteServer):
        connection = HttpConnection(place.url, place.token, timeout=timeout, direct=place.direct)
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
    context: str | None,
    namespace: str | None,
    output: str | None,
    json: bool,
) -> Iterator[Session]:
    """Open a session; an error in it becomes one line, or JSON, and an exit code."""
    given = TargetOptions(server, None if token is None else Secret(token), token_file, data, context)
    used = [given.token or Secret("")]
    as_json = json or output == JSON
    try:
        form = parse_output(output, as_json=json)
        target = choose_target(given, os.environ)
        ns = check_part("namespace", choose_namespace(namespace, given, os.environ, target))
        for note in target_notes(target):
            err().print(note, style="yellow", markup=False, highlight=False, soft_wrap=True)
        if isinstance(target, LocalFolder):
            err().print(NO_SERVER.format(target.path), style="yellow", highlight=False, soft_wrap=True)
        with connect(target, in_process) as client:
            used.append(client.http.token)
            yield Session(client, ns, output=form)
    except StatewardError as error:
        raise typer.Exit(print_error(error, used, json=as_json)) from None
    except UnicodeError as error:
        unreadable = BadInput("input", ascii(error.object) if isinstance(error, UnicodeEncodeError) else "", "text")
        raise typer.Exit(print_error(unreadable, used, json=as_json)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def print_error(error: StatewardError, secrets: list[Secret], *, json: bool) -> int:
    """Print an error, without any secret, and return its exit code."""
    if json:
        name = error.code if isinstance(error, ApiError) and error.code else type(error).__name__
        record = {"error": name, "message": str(error), **error.facts()}
        print_json(_texts_without(secrets, msgspec.to_builtins(record, enc_hook=str)))
    else:
        line = _without(secrets, clean(f"error: {error}"))
        sys.stdout.flush()
        err().print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return exit_code_for(error)


def _texts_without(secrets: list[Secret], value: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Return plain JSON in whose texts secrets are masked; a token may be a part of a number, which stays one."""
    match value:
        case str():
            return _without(secrets, value)
        case dict():
            return {name: _texts_without(secrets, part) for name, part in value.items()}
        case list():
            return [_texts_without(secrets, part) for part in value]
        case _:
            return value


def _without(secrets: list[Secret], line: str) -> str:
    for secret in secrets:
        line = secret.hidden_in(line)
    return line
