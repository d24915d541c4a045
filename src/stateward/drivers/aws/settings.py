"""The options of a region of EC2, and its credential by reference.

`env:PREFIX` means the variables PREFIX_ACCESS_KEY_ID, PREFIX_SECRET_ACCESS_KEY and, if set, PREFIX_SESSION_TOKEN; a
file has the field names of AWS's own credentials file. An empty reference means the credential that boto3 finds by
itself.
"""

from msgspec import Struct

from stateward.credential_fields import CredentialField, read_fields
from stateward.drivers.cloud.settings import (
    HiddenCredential,
    address_parts,
    check_endpoint,
    is_this_host,
    seconds_option,
)
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

FIELDS = (
    CredentialField("aws_access_key_id", "ACCESS_KEY_ID"),
    CredentialField("aws_secret_access_key", "SECRET_ACCESS_KEY"),
    CredentialField("aws_session_token", "SESSION_TOKEN", is_required=False),
)
OWN_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")


class Credential(HiddenCredential):
    """An access key of AWS."""

    __slots__ = ("_access", "_secret", "_session")

    def __init__(self, access: str = "", secret: str = "", session: str = "") -> None:
        super().__init__(secret, session, access)
        self._access, self._secret, self._session = access, secret, session

    def keywords(self) -> dict[str, str]:
        """Return the arguments of the SDK; empty if the SDK must find a credential by itself."""
        values = (self._access, self._secret, self._session)
        return {field.name: value for field, value in zip(FIELDS, values, strict=True) if value}


class Ec2Settings(Struct, frozen=True):
    """What a region's record says about EC2."""

    region: str
    endpoint_url: str | None
    connect_timeout: float
    read_timeout: float


def read_credential(reference: str) -> Credential:
    """Read the credential of a reference; raises `CredentialMissing`."""
    return Credential(*read_fields(reference, FIELDS).values()) if reference else Credential()


def read_settings(provider_region: ProviderRegion) -> Ec2Settings:
    """Check the options of a region; raises `BadInput`."""
    options = provider_region.options
    return Ec2Settings(
        region=provider_region.region,
        endpoint_url=_endpoint(provider_region),
        connect_timeout=seconds_option(options, "connect_timeout", 5.0),
        read_timeout=seconds_option(options, "read_timeout", 30.0),
    )


def _endpoint(provider_region: ProviderRegion) -> str | None:
    """Return the address in place of Amazon's own; the server's own credential goes only to Amazon or to this host."""
    if not (given := provider_region.options.get("endpoint_url")):
        return None
    url = check_endpoint(given)
    _, host = address_parts(url)
    if not provider_region.credential and not is_this_host(host) and not host.endswith(OWN_DOMAINS):
        allowed = "an address of AWS, unless the connection names a credential: the server's own is not sent elsewhere"
        raise BadInput("endpoint_url", url, allowed)
    return url
