"""The file for a private key that a server has created and does not store.

Only the response to the request has the private key. The file is therefore created before the request is sent: a file
that cannot be written is an error while no key is lost. Only its owner can read the file, from the first byte on.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stateward.client.output import err
from stateward.domains.mci.shared_schemas import NewKeyPair
from stateward.errors import BadInput
from stateward.private_keys import has_private_key

Save = Callable[[NewKeyPair | None], None]


@contextmanager
def private_file(path: Path | None) -> Iterator[Save]:
    """Create a file for a private key, and yield the function that writes it; a file that stays empty is removed."""
    if path is None:
        yield _warn
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise BadInput("--key", str(path), f"a new file that can be written ({error.strerror})") from error
    try:
        with os.fdopen(handle, "w") as file:
            yield lambda pair: _write(file.write, pair)
    finally:
        if path.stat().st_size == 0:
            path.unlink()


def read_public_key(option: str, path: Path) -> str:
    """Return the text of a file with a public key; one with a private key is refused, before it leaves this host."""
    text = read_file(option, path)
    if has_private_key(text):
        raise BadInput(option, str(path), "the file of a public key, such as id_rsa.pub: this one has a private key")
    return text


def read_file(option: str, path: Path) -> str:
    """Return the text of a file that an option names."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise BadInput(option, str(path), f"a file that can be read ({why})") from error


def _write(write: Callable[[str], int], pair: NewKeyPair | None) -> None:
    if pair is None:
        err().print("No key was made: the file names the keys of its VMs.", style="yellow")
    else:
        write(pair.encrypted_private_key or pair.private_key)


def _warn(pair: NewKeyPair | None) -> None:
    if pair is not None:
        text = "The private key of its VMs is kept nowhere: give --key FILE, or a key or publicKey in the fleet file."
        err().print(text, style="yellow")
