"""The settings of a region of Compute Engine (project, zone and options), and its credential by reference.

`env:PREFIX` means the variable PREFIX_SERVICE_ACCOUNT, with the path or the content of a service account's JSON file;
`file:PATH` means such a file. An empty reference means the credential that the library finds by itself.
"""

from os import environ
from pathlib import Path

import msgspec

from stateward.credential_fields import HIDDEN, CredentialMissing, read_text
from stateward.drivers.cloud.settings import (
    HiddenCredential,
    address_parts,
    flag_option,
    is_this_host,
    seconds_option,
)
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput
from stateward.naming import is_credential_reference

VARIABLE = "SERVICE_ACCOUNT"
REFERENCE_MEANS = "env:PREFIX or file:PATH"
SHORTEST_SECRET = 8
"""Shorter lines of a private key are no secret, but parts of words."""


class GceSettings(msgspec.Struct, frozen=True):
    """What the driver needs to know of its region."""

    region: str
    zone: str
    project: str = ""
    endpoint_url: str = ""
    is_anonymous: bool = False  # at a simulator, which needs no credential
    has_public_address: bool = True  # whether new machines get one
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    operation_timeout_s: float = 120.0


def read_settings(provider_region: ProviderRegion) -> GceSettings:
    """Read the settings of a region; raises `BadInput`."""
    options, zone = provider_region.options, provider_region.zone
    if not zone.startswith(f"{provider_region.region}-"):
        raise BadInput("zone", zone, f"a zone of {provider_region.region}, such as {provider_region.region}-b")
    endpoint, is_anonymous = options.get("endpoint_url", ""), flag_option(options, "anonymous", default=False)
    _check_endpoint(endpoint, is_anonymous=is_anonymous)
    return GceSettings(
        region=provider_region.region,
        zone=zone,
        project=options.get("project", ""),
        endpoint_url=endpoint,
        is_anonymous=is_anonymous,
        has_public_address=flag_option(options, "public_address", default=True),
        connect_timeout_s=seconds_option(options, "connect_timeout", 5.0),
        read_timeout_s=seconds_option(options, "read_timeout", 30.0),
        operation_timeout_s=seconds_option(options, "operation_timeout", 120.0),
    )


def _check_endpoint(endpoint: str, *, is_anonymous: bool) -> None:
    """Refuse to send a credential in clear over a network, and nothing at all to Google."""
    if not endpoint:
        if is_anonymous:
            raise BadInput("anonymous", "true", "used with an endpoint_url alone: Google needs a credential")
        return
    scheme, host = address_parts(endpoint)
    if not host or scheme not in ("http", "https"):
        raise BadInput("endpoint_url", endpoint, "an address that begins with https:// or http://")
    if scheme == "http" and not is_anonymous and not is_this_host(host):
        raise BadInput("endpoint_url", endpoint, "an https address: a credential is not sent in clear over a network")


class AccountFile(msgspec.Struct, frozen=True, tag="service_account", tag_field="type"):
    """The fields that a service account's file must have."""

    client_email: str
    private_key: str
    token_uri: str
    project_id: str = ""
    private_key_id: str = ""

    def __repr__(self) -> str:
        return f"AccountFile({HIDDEN})"


_FILE_DECODER = msgspec.json.Decoder(AccountFile)  # threads use it: see the one of `MachineRecord`


class ServiceAccount(HiddenCredential):
    """A service account; without a file, the library finds one by itself."""

    __slots__ = ("_content", "_file")

    def __init__(self, content: str = "", file: AccountFile | None = None) -> None:
        secrets = () if file is None else (file.private_key, *file.private_key.splitlines(), file.private_key_id)
        super().__init__(*(secret for secret in secrets if len(secret) >= SHORTEST_SECRET))
        self._content, self._file = content, file

    @property
    def project(self) -> str:
        """The project of the account, if its file names one."""
        return "" if self._file is None else self._file.project_id

    def fields(self) -> dict[str, object] | None:
        """Return the fields of the file for the library; None if it must find a credential by itself."""
        if self._file is None:
            return None
        decoded: dict[str, object] = msgspec.json.decode(self._content)
        return decoded


def read_service_account(reference: str) -> ServiceAccount:
    """Read the service account of a reference; raises `CredentialMissing`."""
    if not reference:
        return ServiceAccount()
    scheme, _, rest = reference.partition(":")
    if not is_credential_reference(reference):  # it may be the secret itself, so it is not shown
        raise CredentialMissing(HIDDEN, f"the reference must be {REFERENCE_MEANS}")
    if scheme == "env":
        name = f"{rest}_{VARIABLE}"
        value = environ.get(name, "").strip()
        if not value:
            raise CredentialMissing(reference, f"{name} is not set")
        return _account(reference, value if value.startswith("{") else read_text(reference, Path(value)))
    return _account(reference, read_text(reference, Path(rest)))


def _account(reference: str, content: str) -> ServiceAccount:
    try:
        return ServiceAccount(content, _FILE_DECODER.decode(content))
    except msgspec.DecodeError:  # its text may quote the content, so it is not shown
        raise CredentialMissing(reference, "the content is not the JSON file of a service account") from None
