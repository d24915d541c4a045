"""Addresses of SSH servers; this module imports no SSH library, so that anybody can name an address."""

from msgspec import Struct


class SshAddress(Struct, frozen=True):
    """Where an SSH server listens, the user to log in as, and its host key, if it is known."""

    host: str
    port: int
    user: str
    host_key: str = ""


class LoginRefused(PermissionError):
    """An SSH server does not accept the user or the key."""
