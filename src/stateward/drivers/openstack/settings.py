"""The options of a region of OpenStack, and its login to Keystone by reference.

`env:PREFIX` means the variables PREFIX_AUTH_URL, PREFIX_USERNAME, PREFIX_PASSWORD, PREFIX_PROJECT_NAME and so on: the
names of OpenStack's own variables, with the prefix in place of `OS`. `file:PATH#CLOUD` means a cloud in a file in the
format of `clouds.yaml`; the name may be omitted if the file has one cloud. An empty reference means OpenStack's own
variables, as `env:OS` does.

The address of Keystone is part of the login: if an option could change it, the password could be sent to any host.
"""

from collections.abc import Mapping
from enum import StrEnum
from os import environ
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from stateward.credential_fields import HIDDEN, CredentialMissing, read_text
from stateward.drivers.cloud.settings import HiddenCredential, flag_option, seconds_option
from stateward.drivers.port import ProviderRegion, Suspension
from stateward.errors import BadInput
from stateward.naming import CREDENTIAL_REFERENCE_MEANS, is_credential_reference

PASSWORD_FIELDS = frozenset(
    {
        "username",
        "user_id",
        "password",
        "user_domain_id",
        "user_domain_name",
        "project_id",
        "project_name",
        "project_domain_id",
        "project_domain_name",
    }
)
APPLICATION_FIELDS = frozenset(
    {
        "application_credential_id",
        "application_credential_name",
        "application_credential_secret",
        "username",
        "user_id",
        "user_domain_id",
        "user_domain_name",
    }
)
SECRET_FIELDS = ("password", "application_credential_secret")
SETTLE_S = 60.0
"""How long a create without an answer may take until a listing shows its server: Nova's own time-out of messages."""

AUTH_TYPES = frozenset({"", "password", "v3password", "v3applicationcredential"})


class KeystoneLogin(HiddenCredential):
    """A login, the address that it is sent to, and how that is verified."""

    __slots__ = ("_fields", "interface", "verify")

    def __init__(
        self, fields: Mapping[str, str] | None = None, verify: bool | str = True, interface: str = "public"
    ) -> None:
        self._fields, self.verify, self.interface = dict(fields or {}), verify, interface
        super().__init__(*(self._fields.get(name, "") for name in SECRET_FIELDS))

    @property
    def is_application(self) -> bool:
        """Whether it is an application credential and not a password."""
        return "application_credential_secret" in self._fields

    def keywords(self) -> dict[str, str]:
        """Return the arguments of the SDK's authentication plug-in."""
        known = APPLICATION_FIELDS if self.is_application else PASSWORD_FIELDS
        return {name: value for name, value in self._fields.items() if name in known or name == "auth_url"}


class SuspendWay(StrEnum):
    """How the driver suspends servers: Nova has three ways, and a hypervisor may lack one."""

    SUSPEND = "suspend"
    PAUSE = "pause"
    STOP = "stop"

    @property
    def suspension(self) -> Suspension:
        """The capability that it is."""
        return Suspension.BY_STOPPING if self is SuspendWay.STOP else Suspension.NATIVE


class OpenStackSettings(Struct, frozen=True):
    """What a region's record says about OpenStack; the timeouts are read when the client connects."""

    region: str
    zone: str
    suspend: SuspendWay
    has_config_drive: bool  # whether user data is on a drive, too: for networks without a metadata service
    settle_s: float  # the time in which no create of a key is repeated


def read_settings(provider_region: ProviderRegion) -> OpenStackSettings:
    """Check the options of a region; raises `BadInput`."""
    options = provider_region.options
    written = options.get("suspend", SuspendWay.SUSPEND.value)
    if written not in set(SuspendWay):
        raise BadInput("suspend", written, " or ".join(SuspendWay))
    return OpenStackSettings(
        provider_region.region,
        provider_region.zone,
        SuspendWay(written),
        flag_option(options, "config_drive", default=False),
        seconds_option(options, "settle_time", SETTLE_S, least=0.0),
    )


def read_login(reference: str) -> KeystoneLogin:
    """Read the login of a reference; raises `CredentialMissing`."""
    reference = reference or "env:OS"
    if not is_credential_reference(reference):  # it may be the secret itself, so it is not shown
        raise CredentialMissing(HIDDEN, f"the reference must be {CREDENTIAL_REFERENCE_MEANS}")
    scheme, _, rest = reference.partition(":")
    return _from_environment(reference, rest) if scheme == "env" else _from_file(reference, rest)


def _from_environment(reference: str, prefix: str) -> KeystoneLogin:
    start = f"{prefix}_"
    variables = {name.removeprefix(start).lower(): value for name, value in environ.items() if name.startswith(start)}
    return _login(reference, variables, variables, lambda name: f"{start}{name.upper()} is not set")


def _from_file(reference: str, rest: str) -> KeystoneLogin:
    path, _, name = rest.partition("#")
    text = read_text(reference, Path(path))
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:  # its text quotes the file, so it is not shown
        raise CredentialMissing(reference, "the file is not YAML") from None
    clouds = document.get("clouds") if isinstance(document, dict) else None
    if not isinstance(clouds, dict) or not clouds:
        raise CredentialMissing(reference, "the file has no clouds")
    if not name and len(clouds) > 1:
        raise CredentialMissing(reference, "the file has several clouds; name one: file:PATH#CLOUD")
    cloud = clouds.get(name or next(iter(clouds)))
    if not isinstance(cloud, dict) or not isinstance(cloud.get("auth"), dict):
        raise CredentialMissing(reference, "there is no such cloud in the file, or it has no `auth`")
    return _login(reference, cloud["auth"], cloud, lambda field: f"{field} is missing in the cloud's `auth`")


def _login(reference: str, auth: Mapping[str, Any], settings: Mapping[str, Any], problem: Any) -> KeystoneLogin:  # noqa: ANN401
    """Return the login in some fields; settings say how its address is verified."""
    if (kind := str(settings.get("auth_type") or "")) not in AUTH_TYPES:
        raise CredentialMissing(reference, f"auth_type must be password or v3applicationcredential, not {kind!r}")
    fields = {name: str(value) for name, value in auth.items() if value not in (None, "")}
    known = {name: value for name, value in fields.items() if name in PASSWORD_FIELDS | APPLICATION_FIELDS}
    if "auth_url" not in fields:
        raise CredentialMissing(reference, problem("auth_url"))
    if "application_credential_secret" not in known and "password" not in known:
        raise CredentialMissing(reference, problem("password"))
    verify: bool | str = settings.get("cacert") or settings.get("verify") is not False
    return KeystoneLogin({**known, "auth_url": fields["auth_url"]}, verify, str(settings.get("interface") or "public"))
