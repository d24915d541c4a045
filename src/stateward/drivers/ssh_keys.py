"""SSH keys as drivers need them: new key pairs, and the public keys that may log in to a machine.

A line of an `authorized_keys` file may have options before the key and a comment after it; a text with a line break is
two lines. A driver writes public keys into such files and into cloud-init documents, so only the type and the key
itself are taken over.
"""

from collections.abc import Iterable

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from msgspec import Struct

from stateward.drivers.port import MachineSpec, ResourceKind
from stateward.errors import BadInput


class SshKeyPair(Struct, frozen=True):
    """A public key, and its private key in OpenSSH's format."""

    public: str
    private: str

    def __repr__(self) -> str:
        """Show the public key only."""
        return f"SshKeyPair(public={self.public!r})"


def new_ssh_key_pair() -> SshKeyPair:
    """Create a key pair, for a user or for an SSH server."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return SshKeyPair(public.decode(), private.decode())


def authorized_keys_of(machine_spec: MachineSpec) -> tuple[str, ...]:
    """Return the public keys that may log in to a machine besides the one that its provider knows; each once."""
    return _checked(machine_spec.authorized_keys)


def login_keys_of(machine_spec: MachineSpec) -> tuple[str, ...]:
    """Return all public keys that may log in to a machine, for a driver whose provider knows no keys.

    There the id of a key is the public key itself; an older one may be a name, which opens nothing.
    """
    own = machine_spec.resources.get(ResourceKind.SSH_KEY, "")
    return _checked((*([own] if _is_public_key(own) else []), *machine_spec.authorized_keys))


def _checked(keys: Iterable[str]) -> tuple[str, ...]:
    checked: dict[str, None] = {}
    for text in keys:
        if not _is_public_key(text):
            allowed = "public keys in OpenSSH's format, such as ssh-ed25519 AAAA..."
            raise BadInput("authorized_keys", f"a text of {len(text)} characters", allowed)
        checked[" ".join(text.split()[:2])] = None
    return tuple(checked)


def _is_public_key(text: str) -> bool:
    """Tell whether a text is one line with a public key that can be read."""
    if len(text.splitlines()) != 1:
        return False
    try:
        load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return True
