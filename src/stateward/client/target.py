"""The target of a command: a server at an address, or a local data folder.

The command line takes precedence over the environment, both over the context in use, and all over the default folder.
If the server of a folder runs, commands go through it. Otherwise the same application runs in this process, without a
worker: accepted operations wait until a server starts.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from stateward.client import contexts
from stateward.data_folder import DATABASE_FILE, DEFAULT_FOLDER, PREFIX, SERVER_FILE, TOKEN_FILE, ServerFile
from stateward.errors import BadInput, StatewardError
from stateward.naming import DEFAULT_NAMESPACE


class Secret:
    """A text that is masked when it is printed, formatted or shown in a traceback; `file` is where it comes from."""

    __slots__ = ("file", "text")

    def __init__(self, text: str, file: Path | None = None) -> None:
        self.text, self.file = text, file

    def hidden_in(self, line: str) -> str:
        """Return a line with the secret masked."""
        return line.replace(self.text, "(token)") if self.text else line

    def __repr__(self) -> str:
        return "(token)"


class TargetOptions(Struct, frozen=True):
    """The options of a command that name its target."""

    server: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    data: Path | None = None
    context: str | None = None


class RemoteServer(Struct, frozen=True):
    """A server at an address."""

    url: str
    token: Secret
    direct: bool = False  # on this machine: no proxy is asked
    namespace: str | None = None  # of commands that name none


class LocalFolder(Struct, frozen=True):
    """A data folder whose server does not run."""

    path: Path
    token: Secret | None
    namespace: str | None = None  # of commands that name none; known if the server was killed


Target = RemoteServer | LocalFolder


class Nowhere(StatewardError):
    """Neither an option nor the environment names a server, and there is no default folder."""

    folder: str

    def __str__(self) -> str:
        return (
            f"no server is named (--server, {PREFIX}SERVER, stateward login) and there is no data folder "
            f"{self.folder!r} here (--data)"
        )


def choose_target(given: TargetOptions, environ: Mapping[str, str]) -> Target:
    """Choose the target by the options, then the environment, then the context, then the default folder."""
    if given.server is not None and given.data is not None:
        raise BadInput("--data", str(given.data), "left out where --server is given")
    token = _token(given, environ)
    if given.server is not None:
        return RemoteServer(check_address(given.server), token or Secret(""))
    if given.data is not None:
        return _folder(given.data, token, is_named=True)
    if (chosen := find_context(given, environ)) is not None:
        name, context = chosen
        if token is None and context.token:
            text, file = contexts.read_reference(context.token, environ), contexts.reference_file(context.token)
            token = checked_token(f"token of the context {name}", text, file)
        return RemoteServer(check_address(context.server), token or Secret(""))
    if environ.get(PREFIX + "SERVER"):
        return RemoteServer(check_address(environ[PREFIX + "SERVER"]), token or Secret(""))
    named = environ.get(PREFIX + "DATA")
    path = Path(named or DEFAULT_FOLDER)
    if not named and not path.is_dir():
        raise Nowhere(str(path))
    return _folder(path, token, is_named=bool(named))


def find_context(given: TargetOptions, environ: Mapping[str, str]) -> tuple[str, contexts.ClientContext] | None:
    """Return the context that a command uses; None if an option or the environment names a target, or there is none."""
    if given.server is not None or given.data is not None:
        if given.context is not None:
            raise BadInput("--context", given.context, "left out where --server or --data is given")
        return None
    if given.context is None and (environ.get(PREFIX + "SERVER") or environ.get(PREFIX + "DATA")):
        return None
    file = contexts.read_client_file(contexts.client_file_path(environ))
    name = given.context or environ.get(contexts.CONTEXT_VARIABLE) or file.current
    return (name, file.find(name)) if name else None


def choose_namespace(
    given: str | None, options: TargetOptions, environ: Mapping[str, str], target: Target | None = None
) -> str:
    """Choose the namespace by the option, then the environment, then the context, then the server of the folder."""
    named = given if given is not None else environ.get(PREFIX + "NAMESPACE")
    if named is not None:
        return named
    chosen = find_context(options, environ)
    of_server = None if target is None else target.namespace
    return (None if chosen is None else chosen[1].namespace) or of_server or DEFAULT_NAMESPACE


def _folder(path: Path, token: Secret | None, *, is_named: bool) -> Target:
    if not path.is_dir():
        raise BadInput("data", str(path), "a folder")
    _require_own(path, is_named=is_named)
    server = running_server(path)
    if server is not None:
        return RemoteServer(
            server.url.rstrip("/"), token or stored_token(path), direct=True, namespace=server.namespace
        )
    if not (path / DATABASE_FILE).exists():
        raise BadInput("data", str(path), "a data folder of Stateward: it holds no database, and no server runs there")
    left_over = _server_file(path)
    return LocalFolder(path, token, None if left_over is None else left_over.namespace)


def _require_own(folder: Path, *, is_named: bool) -> None:
    """Refuse a data folder of another user, who could lead the caller's token to any server.

    Root may name a folder of any user, such as that of a server with an account of its own.
    """
    trusted = {0, os.geteuid()}
    for path in (folder, folder / SERVER_FILE):
        with suppress(FileNotFoundError):
            owner = path.stat().st_uid
            if owner not in trusted and not (is_named and os.geteuid() == 0):
                raise BadInput("data", str(folder), f"a folder of your own: {path} belongs to the user {owner}")


def target_notes(target: Target) -> Iterator[str]:
    """Yield what exposes the token of a command: a file that others can read, or a connection without encryption."""
    token = target.token or Secret("")
    if token.file is not None and token.file.stat().st_mode & contexts.READABLE_BY_OTHERS:
        yield f"Other users can read the token in {token.file} (chmod 600)."
    if token.text and isinstance(target, RemoteServer) and target.url.startswith("http:") and not _is_here(target.url):
        yield f"The token is sent to {target.url} without encryption: use https."


def _is_here(url: str) -> bool:
    """Tell whether a URL leads to this machine: by its address, because a name could lead elsewhere."""
    try:
        host = urlsplit(url).hostname or ""
        if host == "localhost" or ip_address(host).is_loopback:
            return True
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((host, 0))  # only an address of this machine can be bound
    except (OSError, ValueError):
        return False
    return True


def check_address(text: str) -> str:
    """Check the address of a server; a password in it would be shown in messages, so it is refused."""
    shown = text.rpartition("@")[2]
    if not _is_address(text):
        raise BadInput("server", shown, "an address such as http://127.0.0.1:8420")
    if "@" in urlsplit(text).netloc:
        raise BadInput("server", shown, "an address without a password: use --token-file")
    return text.rstrip("/")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        plain = text.isascii() and text.isprintable() and " " not in text and not parts.query and not parts.fragment
        return plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, an unfinished [::1]
        return False


def running_server(folder: Path) -> ServerFile | None:
    """Return the server of a data folder, if it runs; its file may be left over from a crash."""
    server = _server_file(folder)
    if server is None or not server.url:
        return None
    try:
        parts = urlsplit(server.url)
        if not _is_here(server.url):
            where = f"its {SERVER_FILE} names {server.url} (use --server)"
            raise BadInput("data", str(folder), f"the folder of a server on this machine: {where}")
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=1.0):
            return server
    except (OSError, ValueError):
        return None


def _server_file(folder: Path) -> ServerFile | None:
    try:
        return msgspec.json.decode((folder / SERVER_FILE).read_bytes(), type=ServerFile)
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _token(given: TargetOptions, environ: Mapping[str, str]) -> Secret | None:
    if given.token is not None and given.token_file is not None:
        raise BadInput("--token-file", str(given.token_file), "left out where --token is given")
    if given.token is not None:
        return checked_token("--token", given.token.text)
    if given.token_file is not None:
        return read_token_file(given.token_file)
    token = environ.get(PREFIX + "TOKEN")
    return checked_token(PREFIX + "TOKEN", token) if token else None


def stored_token(folder: Path) -> Secret:
    """Return the administrator's token of a data folder; empty if it cannot be read."""
    try:
        return checked_token(str(folder / TOKEN_FILE), (folder / TOKEN_FILE).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return Secret("")


def read_token_file(file: Path) -> Secret:
    """Read the token that `--token-file` names."""
    try:
        return checked_token("--token-file", file.read_text("utf-8"), file)
    except OSError as error:
        raise BadInput("--token-file", str(file), f"a file that can be read ({error.strerror})") from error
    except (UnicodeDecodeError, BadInput) as error:
        raise BadInput("--token-file", str(file), "a file with a token") from error


def checked_token(field: str, text: str, file: Path | None = None) -> Secret:
    """Return a token without the white space around it; raises if it cannot be one."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInput(field, "***", "a token")
    return Secret(token, file)
