"""Host keys of SSH servers: their fingerprints, and the refusal of a changed one."""

import binascii
from base64 import b64decode, b64encode
from hashlib import sha256


class HostKeyChanged(ConnectionError):
    """An SSH server shows another host key than before: it is another machine, or somebody in between."""

    def __init__(self, host: str, known: str, shown: str) -> None:
        super().__init__(
            f"the host key of {host} has changed: {fingerprint(known)} is known, and it shows {fingerprint(shown)}"
        )
        self.known, self.shown = known, shown


def bare_key(public_key: str) -> str:
    """Return a public key in OpenSSH format without its comment."""
    return " ".join(public_key.split()[:2])


def fingerprint(public_key: str) -> str:
    """Return the fingerprint of a public key, as `ssh-keygen -l` prints it; empty for no key."""
    parts = public_key.split()
    try:
        blob = b64decode(parts[1], validate=True)
    except (IndexError, binascii.Error):
        return ""
    return f"SHA256:{b64encode(sha256(blob).digest()).decode().rstrip('=')}"
