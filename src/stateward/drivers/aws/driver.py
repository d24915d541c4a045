"""The driver for Amazon EC2: one region, through boto3.

A machine is suspended by stopping it. A key is sent as EC2's client token and as a tag. EC2 shows a machine as
`running` while it reboots, and has no tokens for reboots: if the answer to a reboot is lost, a retry reboots again.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from errno import ENOTSUP

from stateward.drivers.aws.ec2_client import Ec2Client
from stateward.drivers.aws.ec2_resources import Ec2Resources
from stateward.drivers.aws.images import Ec2Image, ImageLookup, check_spec
from stateward.drivers.aws.instance_adoption import adopt_instance, release_instance
from stateward.drivers.aws.instances import MAX_BULK, PAGE_SIZE, InstanceActions, describe_instances, describe_unmarked
from stateward.drivers.aws.machines import GONE, launch_parameters
from stateward.drivers.cloud.errors import CloudCallFailed
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
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
    Observation,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceListing,
    Suspension,
)
from stateward.errors import BadInput

LISTING_LAG_S = 3.0
"""EC2 guarantees no limit, but its listings are seldom older."""

CAPABILITIES = Capabilities(
    Suspension.BY_STOPPING, Idempotency.TOKEN, max_bulk=MAX_BULK, page_size=PAGE_SIZE, listing_lag_s=LISTING_LAG_S
)


class AwsDriver:
    """EC2 in one region. Options of the region: `endpoint_url`, `connect_timeout`, `read_timeout` (seconds)."""

    def __init__(self, provider_region: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._provider_region = provider_region
        self._calls = Ec2Client(provider_region, meter)
        self._images = ImageLookup(self._calls)
        self._actions = InstanceActions(self._calls)
        self._resources = Ec2Resources(self._calls, provider_region)

    def __repr__(self) -> str:
        return f"AwsDriver({self._provider_region.region})"

    @property
    def caps(self) -> Capabilities:
        """The capabilities of EC2."""
        return CAPABILITIES

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Return why a machine of this size and image cannot be created here, or that EC2 did not answer; else None."""
        return await check_spec(self._calls, self._images, spec, image)

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
        """Create machines, after a search for their keys: EC2 forgets client tokens after a while, but not tags."""
        different = {machine_spec.key: machine_spec for machine_spec in reversed(machine_specs)}
        seen = await describe_instances(self._calls, different)
        if seen.failed is not None:
            return [seen.failed.outcome_for(machine_spec.key) for machine_spec in machine_specs]
        present = {one.key: one for one in sorted(seen.machines, key=lambda one: one.state not in GONE)}
        absent = [machine_spec for key, machine_spec in different.items() if key not in present]
        made = await asyncio.gather(*(self._make(machine_spec) for machine_spec in absent))
        outcomes = {key: existing_outcome(one) for key, one in present.items()} | {
            outcome.key: outcome for outcome in made
        }
        return [outcomes[machine_spec.key] for machine_spec in machine_specs]

    async def act(self, action: MachineAction, handles: Sequence[MachineHandle]) -> Sequence[Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        return await self._actions.act(action, handles)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all our machines here, or those with these keys."""
        return (await describe_instances(self._calls, keys)).listing()

    async def list_unmarked(self) -> MachineListing:
        """List the machines here that others have created."""
        return (await describe_unmarked(self._calls)).listing()

    async def adopt(self, handle: MachineHandle) -> Outcome:
        """Put a key on an instance that carries none, as a tag."""
        return await adopt_instance(self._calls, handle)

    async def release(self, handle: MachineHandle) -> Outcome:
        """Take the tag with a key off."""
        return await release_instance(self._calls, handle)

    async def run(self, handle: MachineHandle, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: commands run over a machine's SSH, not through EC2."""
        raise OSError(ENOTSUP, "EC2 itself runs no commands", handle.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key

    async def close(self) -> None:
        """Close the connections; the machines stay as they are."""
        await self._calls.close()

    async def _make(self, machine_spec: MachineSpec) -> Outcome:
        try:
            image = await self._image(machine_spec)
            parameters = launch_parameters(machine_spec, image.native_id, image.root_device, self._provider_region.zone)
            made = await self._calls.call("run_instances", **parameters)
        except CloudCallFailed as failed:
            return failed.outcome_for(machine_spec.key)
        except BadInput as error:
            return CallRefused(machine_spec.key, RefusalReason.INVALID, str(error))
        return CallAccepted(machine_spec.key, made["Instances"][0]["InstanceId"])

    async def _image(self, machine_spec: MachineSpec) -> Ec2Image:
        """Return the image; it is looked up only if more than its id is needed."""
        if machine_spec.image.startswith("ami-") and machine_spec.disk_gib is None:
            return Ec2Image(machine_spec.image, "", "")
        return await self._images.find(machine_spec.image)


def existing_outcome(found: Observation) -> Outcome:
    """Return the outcome of a create whose key exists already."""
    if found.state in GONE:
        return CallRefused(
            found.key,
            RefusalReason.CONFLICT,
            f"the machine of this key, {found.native_id}, is {found.native_state}",
        )
    return AlreadyDone(found.key, found.native_id)
