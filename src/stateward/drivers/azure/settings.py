"""The options of a region of Azure, and its credential by reference: a service principal and its subscription.

`env:PREFIX` means the variables PREFIX_TENANT_ID, PREFIX_CLIENT_ID, PREFIX_CLIENT_SECRET and PREFIX_SUBSCRIPTION_ID; a
file has the same names in lowercase. An empty reference means the credential that azure-identity finds by itself, and
the subscription of AZURE_SUBSCRIPTION_ID.
"""

from os import environ

from msgspec import Struct

from stateward.credential_fields import CredentialField, CredentialMissing, read_fields
from stateward.drivers.cloud.settings import HiddenCredential, check_endpoint, flag_option, seconds_option
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

PUBLIC_CLOUD = "https://management.azure.com"
FIELDS = (
    CredentialField("tenant_id", "TENANT_ID"),
    CredentialField("client_id", "CLIENT_ID"),
    CredentialField("client_secret", "CLIENT_SECRET"),
    CredentialField("subscription_id", "SUBSCRIPTION_ID"),
)
DEFAULT_SUBSCRIPTION = "AZURE_SUBSCRIPTION_ID"


class ServicePrincipal(HiddenCredential):
    """A client of Azure with its secret."""

    __slots__ = ("client", "secret", "subscription", "tenant")

    def __init__(self, tenant: str, client: str, secret: str, subscription: str) -> None:
        super().__init__(secret)
        self.tenant, self.client, self.secret, self.subscription = tenant, client, secret, subscription

    @property
    def is_default(self) -> bool:
        """Whether the library must find the credential by itself."""
        return not self.secret


class AzureSettings(Struct, frozen=True):
    """What a region's record says about Azure."""

    location: str
    zone: str
    group: str
    subnet: str  # of machines that name none
    has_public_address: bool
    endpoint_url: str
    connect_timeout: float
    read_timeout: float
    poll_interval: float

    @property
    def is_simulator(self) -> bool:
        """Whether the endpoint is a simulator."""
        return self.endpoint_url.startswith("http:")


def read_principal(reference: str) -> ServicePrincipal:
    """Read the credential of a reference; raises `CredentialMissing`."""
    if reference:
        return ServicePrincipal(*read_fields(reference, FIELDS).values())
    subscription = environ.get(DEFAULT_SUBSCRIPTION, "")
    if not subscription:
        raise CredentialMissing(reference, f"{DEFAULT_SUBSCRIPTION} is not set")
    return ServicePrincipal("", "", "", subscription)


def read_settings(provider_region: ProviderRegion) -> AzureSettings:
    """Check the options of a region; raises `BadInput`."""
    options = provider_region.options
    if not options.get("resource_group"):
        raise BadInput("resource_group", "", "the name of a resource group that exists")
    return AzureSettings(
        location=provider_region.region,
        zone=provider_region.zone,
        group=options["resource_group"],
        subnet=options.get("subnet", ""),
        has_public_address=flag_option(options, "public_address", default=False),
        endpoint_url=check_endpoint(options.get("endpoint_url") or PUBLIC_CLOUD),
        connect_timeout=seconds_option(options, "connect_timeout", 5.0),
        read_timeout=seconds_option(options, "read_timeout", 30.0),
        poll_interval=seconds_option(options, "poll_interval", 1.0),
    )
