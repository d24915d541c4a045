"""Schemas that the API of the domain answers with and its commands read: new key pairs and machines without records."""

from msgspec import Struct

STDERR_MARK = " (stderr)"
"""The mark behind the name of a VM in lines of progress that its command has written to stderr."""


class NewKeyPair(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A key pair that a request has created for VMs; only the response to that request has the private key.

    If the request names a public key to encrypt for, the response has the private key in that form only (CMS in PEM).
    """

    public_key: str
    private_key: str = ""
    encrypted_private_key: str = ""

    def __repr__(self) -> str:
        """Show the public key only: responses may be logged."""
        return f"NewKeyPair(public_key={self.public_key!r})"


class OrphanMachine(Struct, frozen=True):
    """A machine of ours at a provider that no record names."""

    connection: str
    key: str
    native_id: str
    state: str
    name: str


class OrphanMachines(Struct, frozen=True):
    """The orphans found, and the connections whose listing was not complete, with the reason."""

    orphans: list[OrphanMachine]
    trouble: dict[str, str]


class OrphanTermination(Struct, frozen=True, omit_defaults=True):
    """The reply to a request that terminates orphans: why some are left, by their keys."""

    message: str = ""
    left: dict[str, str] = {}


class PossibleOrphan(Struct, frozen=True, rename="camel"):
    """A machine that may be left at its provider; `shown` is its state there, or why the state is not known."""

    vm: str
    connection: str
    key: str
    native_id: str
    shown: str


class UnmarkedMachine(Struct, frozen=True):
    """A machine at a connection that carries no key of any server of ours."""

    connection: str
    native_id: str
    name: str
    state: str
    public_ip: str
    private_ip: str
