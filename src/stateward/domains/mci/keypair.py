"""Key pairs: made where they are asked for, so that the private half never leaves the process that answers.

The provider is given the public half only. A private half that a provider made would have to travel from the worker to
whoever asked, over a store that others read, and would be lost for good with a worker that dies in between.
"""

import re

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from msgspec import Struct

from stateward.errors import BadInput

PUBLIC_KEY = "an OpenSSH public key in one line, such as `ssh-ed25519 AAAA... name`"
ALGORITHM = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[a-z0-9-]+@openssh\.com) ")
ONE_LINE = re.compile(r"[^\x00-\x1f\x7f]{1,16384}\Z")

SMALLEST_RSA = 1024
"""How many bits an RSA key has at least: OpenSSH itself takes no smaller one."""


class KeyPair(Struct, frozen=True):
    """Both halves, as OpenSSH reads them."""

    public: str
    private: str

    def __repr__(self) -> str:
        """Show the public half only."""
        return f"KeyPair(public={self.public!r})"


def new_pair(comment: str = "") -> KeyPair:
    """Make a key pair."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(f"{public.decode()} {comment}".strip(), private.decode())


def check_public_key(field: str, text: str) -> str:
    """Return a public key that OpenSSH can read, or raise; a private key that was sent instead is not repeated."""
    if not ONE_LINE.match(text) or not ALGORITHM.match(text) or not _is_loadable(text):
        raise BadInput(field, f"a text of {len(text)} characters", PUBLIC_KEY)
    return text


def _is_loadable(text: str) -> bool:
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return False
    return not isinstance(key, RSAPublicKey) or key.key_size >= SMALLEST_RSA
