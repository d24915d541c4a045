"""Contexts of the command line: named servers, each with a token reference and a namespace, in a file of the user.

The file never holds a token, only where it is: `file:PATH`, `env:NAME`, or `command:COMMAND LINE` that prints it. A
context is used as a whole: its token never goes to a server that an option or the environment names.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from stateward.data_folder import PREFIX
from stateward.errors import BadInput, UnknownName

CONTEXT_VARIABLE = f"{PREFIX}CONTEXT"
FILE_VARIABLE = f"{PREFIX}CLIENT_FILE"
FILE, ENV, COMMAND = "file", "env", "command"
REFERENCE_RULE = f"{FILE}:PATH, {ENV}:NAME or {COMMAND}:COMMAND LINE"
OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
COMMAND_LIMIT_S = 30


class ClientContext(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server, where its token is, and the namespace of commands."""

    server: str = ""
    token: str = ""  # a reference
    namespace: str = ""


class ClientFile(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All contexts by their names, and the name of the one in use."""

    current: str = ""
    contexts: dict[str, ClientContext] = {}

    def find(self, name: str) -> ClientContext:
        """Return a context; raises with the nearest name if there is none."""
        if name not in self.contexts:
            raise UnknownName("context", name, self.contexts)
        return self.contexts[name]


def client_file_path(environ: Mapping[str, str]) -> Path:
    """Return where the file of the user is."""
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    folder = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/nonexistent") / ".config"
    return Path(folder) / "stateward" / "client.json"


def read_client_file(path: Path) -> ClientFile:
    """Read the contexts; a file that is not there has none."""
    try:
        status = path.stat()
        if status.st_mode & OTHERS_MAY_WRITE or status.st_uid not in (0, os.geteuid()):
            raise BadInput(
                "client file", str(path), "your own, and writable only by you: it names commands to run (chmod 600)"
            )
        return msgspec.json.decode(path.read_bytes(), type=ClientFile)
    except (FileNotFoundError, NotADirectoryError):
        return ClientFile()
    except OSError as error:
        raise BadInput("client file", str(path), f"a file that can be read ({error.strerror})") from error
    except msgspec.MsgspecError as error:
        raise BadInput("client file", str(path), f"contexts as JSON ({error})") from error


def write_client_file(path: Path, content: ClientFile) -> None:
    """Replace the contexts."""
    write_private(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def write_private(path: Path, content: bytes) -> None:
    """Replace a file that only its owner can read, in one step: a crash leaves the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")  # a name that nobody can prepare a link at
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(content)
    new.replace(path)


def check_reference(text: str) -> str:
    """Return a token reference; a token in its place is refused, and not repeated."""
    how, colon, where = text.partition(":")
    if not colon or not where or how not in (FILE, ENV, COMMAND):
        raise BadInput("--token-ref", None, REFERENCE_RULE)
    return text


def reference_file(reference: str) -> Path | None:
    """Return the file that a token reference names, if it names one."""
    how, _, where = reference.partition(":")
    return Path(where).expanduser() if how == FILE else None


def read_reference(reference: str, environ: Mapping[str, str]) -> str:
    """Return the text that a token reference leads to."""
    how, _, where = check_reference(reference).partition(":")
    if (file := reference_file(reference)) is not None:
        try:
            return file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput("token", reference, f"a file that can be read ({error})") from error
    if how == ENV:
        if not environ.get(where):
            raise BadInput("token", reference, "a variable of the environment that is set")
        return environ[where]
    import shlex
    import subprocess

    try:
        words = shlex.split(where)
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=COMMAND_LIMIT_S, check=True, text=True)  # noqa: S603 - the user's own
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise BadInput("token", reference, f"a command that prints a token ({error})") from error
    return done.stdout
