"""Access keys: the SSH keys by which the server itself logs in to VMs, one for each namespace.

A caller's private key is never stored. So the server has keys of its own, and nothing is stored for them but one secret
of the deployment: the key of a namespace is derived from it (HKDF-SHA256, RFC 5869). The secret is a file that only its
owner can read. With the embedded database, it is created in the data folder at the first need. On PostgreSQL, all
processes must be given the same file. Without it, VMs get no access key, and commands are refused.
"""

import secrets
from functools import cached_property
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from stateward.access.private_files import UnusableFile, create_private_file, read_private_file
from stateward.domains.mci.errors import NoAccessSecret
from stateward.domains.mci.provider.key_pairs import KeyPair, pair_of

SECRET_FILE = "mci-access-secret"  # noqa: S105 - the name of a file
SECRET_BYTES = 32
KEY_PURPOSE = b"stateward mci access key 1 "
"""The beginning of HKDF's `info`; the namespace follows."""


MAX_PAIRS = 1_000
"""How many key pairs are kept."""


class AccessKeys:
    """The access keys of all namespaces, from the secret of the deployment."""

    def __init__(self, folder: Path, file: str = "", *, is_embedded: bool = True) -> None:
        self._path = Path(file) if file else folder / SECRET_FILE if is_embedded else None
        self._creates = not file
        self._pairs: dict[str, KeyPair] = {}

    @cached_property
    def _secret(self) -> bytes:
        if self._path is None:
            raise NoAccessSecret("this deployment has no such secret")
        if self._creates:
            create_secret(self._path)
        return read_secret(self._path)

    def pair(self, ns: str) -> KeyPair:
        """Return the key pair of a namespace; raises `NoAccessSecret` if the deployment has no secret."""
        if ns not in self._pairs:
            if len(self._pairs) >= MAX_PAIRS:
                self._pairs.clear()  # they are computed again
            seed = HKDF(SHA256(), 32, None, KEY_PURPOSE + ns.encode()).derive(self._secret)
            self._pairs[ns] = pair_of(Ed25519PrivateKey.from_private_bytes(seed), f"stateward-{ns}")
        return self._pairs[ns]

    def public_key(self, ns: str) -> str:
        """Return the public key of a namespace for a new VM; empty if the deployment has no secret."""
        try:
            return self.pair(ns).public
        except NoAccessSecret:
            return ""


def create_secret(path: Path) -> None:
    """Create the file of a secret, unless it exists."""
    create_private_file(path, secrets.token_hex(SECRET_BYTES) + "\n")


def read_secret(path: Path) -> bytes:
    """Return the secret of a file; raises `NoAccessSecret` if others can read the file, or if it is too short."""
    try:
        secret = read_private_file(path).strip()
    except UnusableFile as error:
        raise NoAccessSecret(error.why) from error
    if len(secret) < SECRET_BYTES:
        raise NoAccessSecret(f"{path} must have at least {SECRET_BYTES} bytes")
    return secret
