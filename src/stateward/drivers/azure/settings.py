"""The settings of the driver: the options of a region, checked."""

from collections.abc import Mapping

from msgspec import Struct

from stateward.drivers.endpoint_urls import check_endpoint
from stateward.drivers.port import ProviderRegion
from stateward.errors import BadInput

PUBLIC_CLOUD = "https://management.azure.com"
FLAGS = {"true": True, "false": False}


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


def read_settings(provider_region: ProviderRegion) -> AzureSettings:
    """Check the options of a region; raises `BadInput`."""
    options = provider_region.options
    if not options.get("resource_group"):
        raise BadInput("resource_group", "", "the name of a resource group that exists")
    public = options.get("public_address", "false")
    if public not in FLAGS:
        raise BadInput("public_address", public, "true or false")
    return AzureSettings(
        location=provider_region.region,
        zone=provider_region.zone,
        group=options["resource_group"],
        subnet=options.get("subnet", ""),
        has_public_address=FLAGS[public],
        endpoint_url=check_endpoint(options.get("endpoint_url") or PUBLIC_CLOUD),
        connect_timeout=_seconds(options, "connect_timeout", 5.0),
        read_timeout=_seconds(options, "read_timeout", 30.0),
        poll_interval=_seconds(options, "poll_interval", 1.0),
    )


def _seconds(options: Mapping[str, str], name: str, default: float) -> float:
    try:
        seconds = float(options.get(name, default))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise BadInput(name, options[name], "a number of seconds")
    return seconds
