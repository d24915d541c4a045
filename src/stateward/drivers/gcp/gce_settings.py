"""The settings of a region of Compute Engine: project, zone and the driver's options, read and checked in one place."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from stateward.drivers.endpoint_urls import is_this_host
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

FLAGS = {"true": True, "false": False}


class GceSettings(Struct, frozen=True):
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
    endpoint, is_anonymous = options.get("endpoint_url", ""), _flag(options, "anonymous", default=False)
    _check_endpoint(endpoint, is_anonymous=is_anonymous)
    return GceSettings(
        region=provider_region.region,
        zone=zone,
        project=options.get("project", ""),
        endpoint_url=endpoint,
        is_anonymous=is_anonymous,
        has_public_address=_flag(options, "public_address", default=True),
        connect_timeout_s=_seconds(options, "connect_timeout", 5.0),
        read_timeout_s=_seconds(options, "read_timeout", 30.0),
        operation_timeout_s=_seconds(options, "operation_timeout", 120.0),
    )


def _check_endpoint(endpoint: str, *, is_anonymous: bool) -> None:
    """Refuse to send a credential in clear over a network, and nothing at all to Google."""
    if not endpoint:
        if is_anonymous:
            raise BadInput("anonymous", "true", "used with an endpoint_url alone: Google needs a credential")
        return
    try:
        parts = urlsplit(endpoint)
        host, scheme = parts.hostname or "", parts.scheme
    except ValueError:
        host, scheme = "", ""
    if not host or scheme not in ("http", "https"):
        raise BadInput("endpoint_url", endpoint, "an address that begins with https:// or http://")
    if scheme == "http" and not is_anonymous and not is_this_host(host):
        raise BadInput("endpoint_url", endpoint, "an https address: a credential is not sent in clear over a network")


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    written = options.get(name, str(default).lower())
    if written not in FLAGS:
        raise BadInput(name, written, "true or false")
    return FLAGS[written]


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadInput(name, options[name], "a number of seconds")
    return seconds
