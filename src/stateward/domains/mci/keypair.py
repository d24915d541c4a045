"""Key pairs: made where they are asked for, so that the private half never leaves the process that answers.

The provider is given the public half only. A private half that a provider made would have to travel from the worker to
whoever asked, over a store that others read, and would be lost for good with a worker that dies in between.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from msgspec import Struct


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
