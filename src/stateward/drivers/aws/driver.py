"""The driver for Amazon EC2: one region, through boto3.

A machine is suspended by stopping it. A key is sent as EC2's client token and as a tag. EC2 shows a machine as
`running` while it reboots, and has no tokens for reboots: if the answer to a reboot is lost, a retry reboots again.
"""

from collections.abc import Collection

from stateward.drivers import port
from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.aws.images import Ec2Images
from stateward.drivers.aws.listing import PAGE_SIZE, describe_instances, describe_unmarked
from stateward.drivers.aws.machines import MAX_BULK, Ec2Machines, adopt_instance, release_instance
from stateward.drivers.aws.networks import Ec2Resources
from stateward.drivers.cloud.driver import CloudDriver
from stateward.drivers.cloud.errors import outcome_of

LISTING_LAG_S = 3.0
"""EC2 guarantees no limit, but its listings are seldom older."""


class AwsDriver(CloudDriver):
    """EC2 in one region. Options of the region: `endpoint_url`, `connect_timeout`, `read_timeout` (seconds)."""

    caps = port.Capabilities(
        port.Suspension.BY_STOPPING,
        port.Idempotency.TOKEN,
        max_bulk=MAX_BULK,
        page_size=PAGE_SIZE,
        listing_lag_s=LISTING_LAG_S,
    )

    def __init__(self, provider_region: port.ProviderRegion, meter: port.Meter = lambda _: None) -> None:
        self._calls = Ec2Client(provider_region, meter)
        images, zone = Ec2Images(self._calls), provider_region.zone
        machines = Ec2Machines(self._calls, images, zone)
        super().__init__(provider_region, self._calls, machines, Ec2Resources(self._calls, zone), images)

    async def observe(self, keys: Collection[str] | None = None) -> port.MachineListing:
        """List all our machines here, or those with these keys."""
        return (await describe_instances(self._calls, keys)).listing()

    async def list_unmarked(self) -> port.MachineListing:
        """List the machines here that others have created."""
        return (await describe_unmarked(self._calls)).listing()

    async def adopt(self, handle: port.MachineHandle) -> port.Outcome:
        """Put a key on an instance that carries none, as a tag."""
        return await outcome_of(handle.key, adopt_instance(self._calls, handle))

    async def release(self, handle: port.MachineHandle) -> port.Outcome:
        """Take the tag with a key off."""
        return await outcome_of(handle.key, release_instance(self._calls, handle))
