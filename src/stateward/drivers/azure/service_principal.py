"""Credentials of Azure by reference: a service principal and the subscription that it works in.

`env:PREFIX` means the variables PREFIX_TENANT_ID, PREFIX_CLIENT_ID, PREFIX_CLIENT_SECRET and PREFIX_SUBSCRIPTION_ID; a
file has the same names in small letters. An empty reference means the credential that azure-identity finds by itself,
and the subscription of AZURE_SUBSCRIPTION_ID. A reference is read when a client is created, and again after Azure has
rejected the credential.
"""

from os import environ

from stateward.drivers.credential_fields import HIDDEN, CredentialField, CredentialMissing, read_fields

FIELDS = (
    CredentialField("tenant_id", "TENANT_ID"),
    CredentialField("client_id", "CLIENT_ID"),
    CredentialField("client_secret", "CLIENT_SECRET"),
    CredentialField("subscription_id", "SUBSCRIPTION_ID"),
)
DEFAULT_SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"


class ServicePrincipal:
    """A client of Azure with its secret, which only the library gets to see."""

    __slots__ = ("client", "secret", "subscription", "tenant")

    def __init__(self, tenant: str, client: str, secret: str, subscription: str) -> None:
        self.tenant, self.client, self.secret, self.subscription = tenant, client, secret, subscription

    def __repr__(self) -> str:
        return f"ServicePrincipal({HIDDEN})"

    @property
    def is_default(self) -> bool:
        """Whether the library must find the credential by itself."""
        return not self.secret

    def hide(self, text: str) -> str:
        """Return a text without the secret: an error message of the library may contain it."""
        return text.replace(self.secret, HIDDEN) if self.secret else text


def read_principal(reference: str) -> ServicePrincipal:
    """Read the credential of a reference; raises `CredentialMissing`."""
    if reference:
        return ServicePrincipal(*read_fields(reference, FIELDS).values())
    subscription = environ.get(DEFAULT_SUBSCRIPTION, "")
    if not subscription:
        raise CredentialMissing(reference, f"{DEFAULT_SUBSCRIPTION} is not set")
    return ServicePrincipal("", "", "", subscription)
