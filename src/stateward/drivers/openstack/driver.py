"""The driver for OpenStack: one region and project, through openstacksdk.

A machine is a server of Nova. The option `suspend` says how it is suspended: `suspend` (its memory is written to disk),
`pause` (it stays in memory) or `stop`, because not every hypervisor can do all three. Nova has no client tokens: a key
is looked for before each create (`server_creation`). It has no tokens for reboots either: if the answer to a reboot is
lost, a retry reboots again.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from errno import ENOTSUP

from stateward.drivers.openstack.cloud_client import OpenStackClient
from stateward.drivers.openstack.flavors import FlavorLookup, check_flavor
from stateward.drivers.openstack.neutron_resources import NeutronResources
from stateward.drivers.openstack.server_actions import ServerActions, SuspendWay
from stateward.drivers.openstack.server_creation import SETTLE_S, CreationSettings, ServerCreation
from stateward.drivers.openstack.server_listing import PAGE_SIZE, ServerLister
from stateward.drivers.port import (
    CallRefused,
    Capabilities,
    CloudResource,
    Idempotency,
    Inconclusive,
    MachineAction,
    MachineHandle,
    MachineListing,
    MachineSpec,
    Meter,
    Outcome,
    ProviderRegion,
    ResourceListing,
)
from stateward.errors import BadInput

MAX_BULK = 20
"""How many servers share one search for their keys; each is created by a call of its own."""

LISTING_LAG_S = 1.0
"""Nova lists what it has accepted; replicas of its databases may be a moment behind."""


class OpenStackDriver:
    """Nova, Neutron and Glance in one region.

    Options of the region: `suspend` (`suspend`, `pause` or `stop`), `config_drive` (true or false), `connect_timeout`,
    `read_timeout`, and `settle_time`, the time after which a create without an answer may be repeated (all in seconds).
    """

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        options = provider_region.options
        way = suspend_way(options)
        self._provider_region = provider_region
        self._caps = Capabilities(
            way.suspension,
            Idempotency.TAG,
            max_bulk=MAX_BULK,
            page_size=PAGE_SIZE,
            listing_lag_s=LISTING_LAG_S,
        )
        settings = CreationSettings(
            provider_region.region, provider_region.zone, settle_time(options), has_config_drive(options)
        )
        self._calls = OpenStackClient(provider_region, meter)
        self._lister = ServerLister(self._calls)
        self._flavors = FlavorLookup(self._calls)
        self._resources = NeutronResources(self._calls)
        self._actions = ServerActions(self._calls, self._lister, way)
        self._creation = ServerCreation(self._calls, self._lister, self._flavors, self._resources, settings)

    def __repr__(self) -> str:
        return f"OpenStackDriver({self._provider_region.region})"

    @property
    def caps(self) -> Capabilities:
        """The capabilities of Nova, with the chosen way to suspend."""
        return self._caps

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created here, or that nobody answered; else None."""
        return await check_flavor(self._flavors, spec, image)

    async def ensure(self, resource: CloudResource) -> Outcome:
        """Find a resource by its key, or create it. A private key whose answer was lost cannot be fetched again."""
        return await self._resources.ensure(resource)

    async def remove(self, resource: CloudResource) -> Outcome:
        """Remove what carries a resource's key."""
        return await self._resources.remove(resource)

    async def list_resources(self) -> ResourceListing:
        """List all our resources here."""
        return await self._resources.listing()

    async def create(self, machine_specs: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Create machines, after a search for their keys."""
        return await self._creation.create(machine_specs)

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        return await self._actions.act(action, handles)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys."""
        return (await self._lister.list_servers(keys)).listing()

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through Nova."""
        raise OSError(ENOTSUP, "Nova itself runs no commands", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._calls.close()


def suspend_way(options: Mapping[str, str]) -> SuspendWay:
    """Return how machines are suspended; raises `BadInput` for another way."""
    written = options.get("suspend", SuspendWay.SUSPEND.value)
    try:
        return SuspendWay(written)
    except ValueError:
        raise BadInput("suspend", written, " or ".join(SuspendWay)) from None


def has_config_drive(options: Mapping[str, str]) -> bool:
    """Return whether new machines get a drive with their user data; raises `BadInput` for another word."""
    written = options.get("config_drive", "false")
    if written not in ("true", "false"):
        raise BadInput("config_drive", written, "true or false")
    return written == "true"


def settle_time(options: Mapping[str, str]) -> float:
    """Return how long a create without an answer is not repeated; raises `BadInput` for what is no time."""
    try:
        seconds = float(options.get("settle_time", SETTLE_S))
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise BadInput("settle_time", options["settle_time"], "a number of seconds")
    return seconds
