"""The target of a command: a server at an address, or a local data folder.

The command line takes precedence over the environment, and both over the default folder. If the server of a folder
runs, commands go through it. Otherwise the same application runs in this process, without a worker: accepted
operations wait until a server starts.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from stateward.config import DATABASE_FILE, PREFIX, SERVER_FILE, TOKEN_FILE, Config, ServerFile
from stateward.errors import BadInput, StatewardError


class Secret:
    """A text that is masked when it is printed, formatted or shown in a traceback."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

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


class RemoteServer(Struct, frozen=True):
    """A server at an address."""

    url: str
    token: Secret
    direct: bool = False  # on this machine: no proxy is asked


class LocalFolder(Struct, frozen=True):
    """A data folder whose server does not run."""

    path: Path
    token: Secret | None


Target = RemoteServer | LocalFolder


class Nowhere(StatewardError):
    """Neither an option nor the environment names a server, and there is no default folder."""

    folder: str

    def __str__(self) -> str:
        return (
            f"no server is named (--server, {PREFIX}SERVER) and there is no data folder {self.folder!r} here (--data)"
        )


def choose_target(given: TargetOptions, environ: Mapping[str, str]) -> Target:
    """Choose the target by the options, then the environment, then the default folder."""
    if given.server is not None and given.data is not None:
        raise BadInput("--data", str(given.data), "left out where --server is given")
    token = _token(given, environ)
    if given.server is not None:
        return RemoteServer(check_address(given.server), token or Secret(""))
    if given.data is not None:
        return _folder(given.data, token)
    if environ.get(PREFIX + "SERVER"):
        return RemoteServer(check_address(environ[PREFIX + "SERVER"]), token or Secret(""))
    return _default_folder(environ, token)


def _default_folder(environ: Mapping[str, str], token: Secret | None) -> Target:
    named = environ.get(PREFIX + "DATA")
    path = Path(named or Config().data)
    if not named and not path.is_dir():
        raise Nowhere(str(path))
    return _folder(path, token)


def _folder(path: Path, token: Secret | None) -> Target:
    if not path.is_dir():
        raise BadInput("data", str(path), "a folder")
    url = running_server_url(path)
    if url is not None:
        return RemoteServer(url, token or stored_token(path), direct=True)
    if not (path / DATABASE_FILE).exists():
        raise BadInput("data", str(path), "a data folder of Stateward: it holds no database, and no server runs there")
    return LocalFolder(path, token)


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


def running_server_url(folder: Path) -> str | None:
    """Return the address of the server of a data folder, if it runs; its file may be left over from a crash."""
    try:
        url = msgspec.json.decode((folder / SERVER_FILE).read_bytes(), type=ServerFile).url
        parts = urlsplit(url)
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=1.0):
            return url.rstrip("/")
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _token(given: TargetOptions, environ: Mapping[str, str]) -> Secret | None:
    if given.token is not None and given.token_file is not None:
        raise BadInput("--token-file", str(given.token_file), "left out where --token is given")
    if given.token is not None:
        return _checked("--token", given.token.text)
    if given.token_file is not None:
        return read_token_file(given.token_file)
    found = environ.get(PREFIX + "TOKEN")
    return _checked(PREFIX + "TOKEN", found) if found else None


def stored_token(folder: Path) -> Secret:
    """Return the administrator's token of a data folder; empty if it cannot be read."""
    try:
        return _checked(str(folder / TOKEN_FILE), (folder / TOKEN_FILE).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        return Secret("")


def read_token_file(file: Path) -> Secret:
    """Read the token that `--token-file` names."""
    try:
        return _checked("--token-file", file.read_text("utf-8"))
    except OSError as error:
        raise BadInput("--token-file", str(file), f"a file that can be read ({error.strerror})") from error
    except (UnicodeDecodeError, BadInput) as error:
        raise BadInput("--token-file", str(file), "a file with a token") from error


def _checked(field: str, text: str) -> Secret:
    found = text.strip()
    if not found or not found.isascii() or not found.isprintable() or " " in found:
        raise BadInput(field, "***", "a token")
    return Secret(found)
