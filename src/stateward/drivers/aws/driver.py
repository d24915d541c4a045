"""The driver for Amazon EC2: one region, asked through boto3.

A machine is suspended by stopping it. A key is EC2's client token and a tag. EC2 keeps a machine `running` while it
reboots, and has no tokens for reboots: one whose answer was lost, and that is asked for again, is done twice.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from errno import ENOTSUP

from stateward.drivers.aws.describe import PAGE, look
from stateward.drivers.aws.ec2_client import Calls
from stateward.drivers.aws.ec2_resources import Parts
from stateward.drivers.aws.errors import CallFailed
from stateward.drivers.aws.images import Image, Images, check
from stateward.drivers.aws.instance_actions import BULK, Acting
from stateward.drivers.aws.machines import GONE, launch
from stateward.drivers.port import (
    AlreadyDone,
    CallAccepted,
    CallRefused,
    Capabilities,
    CloudResource,
    Idempotency,
    Inconclusive,
    MachineAction,
    MachineListing,
    MachineRef,
    MachineSpec,
    Meter,
    Observation,
    Outcome,
    ProviderRegion,
    RefusalReason,
    ResourceListing,
    Suspension,
)

LAG = 3.0
"""EC2 promises nothing, but what it shows is seldom older than this many seconds."""

CAPABILITIES = Capabilities(Suspension.BY_STOPPING, Idempotency.TOKEN, max_bulk=BULK, page_size=PAGE, listing_lag_s=LAG)


class AwsDriver:
    """EC2 in one region. Options of the place: `endpoint_url`, `connect_timeout`, `read_timeout` (seconds)."""

    def __init__(self, place: ProviderRegion, meter: Meter = lambda _: None) -> None:
        self._place = place
        self._calls = Calls(place, meter)
        self._images = Images(self._calls)
        self._acting = Acting(self._calls)
        self._parts = Parts(self._calls, place)

    def __repr__(self) -> str:
        return f"AwsDriver({self._place.region})"

    @property
    def caps(self) -> Capabilities:
        """What can be done there."""
        return CAPABILITIES

    async def check(self, spec: str, image: str) -> CallRefused | Inconclusive | None:
        """Say why a machine of this size from this image cannot be made here, or that EC2 does not say."""
        return await check(self._calls, self._images, spec, image)

    async def ensure(self, part: CloudResource) -> Outcome:
        """Find a part by its key, or make it; a private key whose answer was lost needs a new part."""
        return await self._parts.ensure(part)

    async def remove(self, part: CloudResource) -> Outcome:
        """Remove what carries a part's key."""
        return await self._parts.remove(part)

    async def list_resources(self) -> ResourceListing:
        """List all parts of ours here."""
        return await self._parts.listing()

    async def create(self, wants: Sequence[MachineSpec]) -> Sequence[Outcome]:
        """Make machines: look for their keys first, for tokens are forgotten after a while and tags are not."""
        different = {want.key: want for want in reversed(wants)}
        seen = await look(self._calls, different)
        if seen.failed is not None:
            return [seen.failed.to(want.key) for want in wants]
        present = {one.key: one for one in sorted(seen.seen, key=lambda one: one.state not in GONE)}
        absent = [want for key, want in different.items() if key not in present]
        made = await asyncio.gather(*(self._make(want) for want in absent))
        outcomes = {key: known(one) for key, one in present.items()} | {outcome.key: outcome for outcome in made}
        return [outcomes[want.key] for want in wants]

    async def act(self, deed: MachineAction, refs: Sequence[MachineRef]) -> Sequence[Outcome]:
        """Do something to machines; one outcome for each, in order."""
        return await self._acting.act(deed, refs)

    async def observe(self, keys: Collection[str] | None = None) -> MachineListing:
        """List all machines of ours here, or those with these keys."""
        return (await look(self._calls, keys)).listing()

    async def run(self, ref: MachineRef, command: str, user: str, seconds: float) -> str:  # noqa: ARG002
        """Refuse: the way into a machine is its own SSH, not EC2."""
        raise OSError(ENOTSUP, "EC2 itself runs no commands", ref.key)

    async def watch(self) -> AsyncIterator[str]:
        """Yield nothing: there are no events."""
        nothing: tuple[str, ...] = ()
        for key in nothing:
            yield key

    async def close(self) -> None:
        """Let go of connections; the machines stay as they are."""
        await self._calls.close()

    async def _make(self, want: MachineSpec) -> Outcome:
        try:
            image = await self._image(want)
            asked = launch(want, image.native_id, image.root_device, self._place.zone)
            made = await self._calls.call("run_instances", **asked)
        except CallFailed as failed:
            return failed.to(want.key)
        return CallAccepted(want.key, made["Instances"][0]["InstanceId"])

    async def _image(self, want: MachineSpec) -> Image:
        """Look an image up only where more than its id is needed."""
        if want.image.startswith("ami-") and want.disk_gib is None:
            return Image(want.image, "", "")
        return await self._images.find(want.image)


def known(one: Observation) -> Outcome:
    """Say what it means to ask for a machine whose key is known."""
    if one.state in GONE:
        return CallRefused(
            one.key, RefusalReason.CONFLICT, f"the machine of this key, {one.native_id}, is {one.native_state}"
        )
    return AlreadyDone(one.key, one.native_id)
