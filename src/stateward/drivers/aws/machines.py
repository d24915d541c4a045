"""EC2 instances: creation, actions in bulk, and adoption.

EC2 carries out an action on all instances of a call or on none: one missing instance fails the call for all. Mostly the
message names the bad ones, and the call is repeated without them. Otherwise the portion is halved.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence

from stateward.drivers import port
from stateward.drivers.aws.client import Ec2Client
from stateward.drivers.aws.images import Ec2Image, Ec2Images
from stateward.drivers.aws.listing import describe_instances
from stateward.drivers.aws.states import ACTION_CALLS, already_done_ids, launch_parameters, observation
from stateward.drivers.cloud.errors import CloudCallFailed, found_or_none
from stateward.drivers.cloud.machines import GONE, KEY_TAG, CloudMachines, Remembered, each_outcome, existing_outcome

MAX_BULK = 100


class Ec2Machines(CloudMachines):
    """Creates instances and acts on them; remembers the tokens of reboots, because EC2 would repeat a reboot."""

    def __init__(self, calls: Ec2Client, images: Ec2Images, zone: str) -> None:
        self._calls, self._images, self._zone = calls, images, zone
        self._rebooted = Remembered[str]()

    async def create(self, wanted: Mapping[str, port.MachineSpec]) -> Mapping[str, port.Outcome]:
        """Create machines, after a search for their keys: EC2 forgets client tokens after a while, but not tags."""
        seen = await describe_instances(self._calls, wanted)
        if seen.failed is not None:
            raise seen.failed
        present = seen.by_key()
        made = await each_outcome(
            {key: machine_spec for key, machine_spec in wanted.items() if key not in present}, self._create
        )
        return {**made, **{key: existing_outcome(machine) for key, machine in present.items()}}

    async def _create(self, machine_spec: port.MachineSpec) -> port.Outcome:
        image = await self._image(machine_spec)
        parameters = launch_parameters(machine_spec, image.native_id, image.root_device, self._zone)
        made = await self._calls.call("run_instances", **parameters)
        return port.CallAccepted(machine_spec.key, made["Instances"][0]["InstanceId"])

    async def _image(self, machine_spec: port.MachineSpec) -> Ec2Image:
        """Return the image; it is looked up only if more than its id is needed."""
        if machine_spec.image.startswith("ami-") and machine_spec.disk_gib is None:
            return Ec2Image(machine_spec.image, "", "")
        return await self._images.image(machine_spec.image)

    async def act(self, action: port.MachineAction, handles: Sequence[port.MachineHandle]) -> Sequence[port.Outcome]:
        """Carry out an action on machines; one outcome for each, in order."""
        unknown = [handle.key for handle in handles if not handle.native_id]
        natives = (await describe_instances(self._calls, unknown)).native_ids(unknown)
        known = {handle: handle.native_id or natives.get(handle.key) for handle in handles}
        todo = [
            native
            for handle, native in known.items()
            if isinstance(native, str) and not self._is_repeated_reboot(action, handle, native)
        ]
        ids = list(dict.fromkeys(todo))
        portions = [ids[start : start + MAX_BULK] for start in range(0, len(ids), MAX_BULK)]
        done = await asyncio.gather(*(self._portion(action, portion) for portion in portions))
        ends = {native: end for each in done for native, end in each.items()}
        return [self._outcome(action, handle, known[handle], ends) for handle in handles]

    async def _portion(self, action: port.MachineAction, ids: Sequence[str]) -> dict[str, bool | CloudCallFailed]:
        """Carry out an action on some instances; returns for each whether it was done already, or the failure."""
        if not ids:
            return {}
        try:
            answer = await self._calls.call(ACTION_CALLS[action].call, InstanceIds=list(ids))
        except CloudCallFailed as failed:
            if len(ids) == 1 or failed.why in (None, port.RefusalReason.AUTH):
                return dict.fromkeys(ids, failed)
            bad = ids_in_text(failed.outcome.message, ids)
            if bad:
                others = await self._portion(action, [id_ for id_ in ids if id_ not in bad])
                return {**others, **dict.fromkeys(bad, failed)}
            half = len(ids) // 2
            first, second = await asyncio.gather(self._portion(action, ids[:half]), self._portion(action, ids[half:]))
            return {**first, **second}
        before = already_done_ids(action, answer)
        return {id_: id_ in before for id_ in ids}

    def _outcome(
        self,
        action: port.MachineAction,
        handle: port.MachineHandle,
        native: str | CloudCallFailed | None,
        ends: dict[str, bool | CloudCallFailed],
    ) -> port.Outcome:
        if native is None:
            return port.CallRefused(
                handle.key, port.RefusalReason.NOT_FOUND, f"no machine carries the key {handle.key!r}"
            )
        end = native if isinstance(native, CloudCallFailed) else ends.get(native, True)
        if isinstance(end, CloudCallFailed):
            return end.outcome_for(handle.key)
        assert isinstance(native, str)
        if action is port.MachineAction.REBOOT:
            self._rebooted[native] = handle.token
        return port.AlreadyDone(handle.key, native) if end else port.CallAccepted(handle.key, native)

    def _is_repeated_reboot(self, action: port.MachineAction, handle: port.MachineHandle, native: str) -> bool:
        return action is port.MachineAction.REBOOT and bool(handle.token) and self._rebooted.get(native) == handle.token


def ids_in_text(message: str, ids: Sequence[str]) -> set[str]:
    """Return the instances that a message names."""
    return set(re.findall(r"[\w-]+", message)) & set(ids)


# --- adoption ---------------------------------------------------------------------------------------------------------


async def adopt_instance(calls: Ec2Client, handle: port.MachineHandle) -> port.Outcome:
    """Put a key on an instance that carries none; raises `CloudCallFailed`."""
    native = handle.native_id or ""
    shown = await _describe(calls, native)
    if shown is None or shown.state in GONE:
        state = "there is no machine" if shown is None else f"{shown.native_state}:"
        return port.CallRefused(handle.key, port.RefusalReason.NOT_FOUND, f"{state} {native}")
    if shown.key:
        if shown.key == handle.key:
            return port.AlreadyDone(handle.key, shown.native_id)
        return port.CallRefused(
            handle.key, port.RefusalReason.CONFLICT, f"{shown.native_id} carries another key, {shown.key!r}"
        )
    await calls.call("create_tags", Resources=[native], Tags=[{"Key": KEY_TAG, "Value": handle.key}])
    return port.CallAccepted(handle.key, native)


async def release_instance(calls: Ec2Client, handle: port.MachineHandle) -> port.Outcome:
    """Take a key off the instance that carries it; raises `CloudCallFailed`.

    EC2 removes a tag only if its value is the one of the call, so a known instance needs no listing: the listing may
    be older than the tag.
    """
    native = handle.native_id
    if not native:
        seen = await describe_instances(calls, [handle.key])
        if seen.failed is not None:
            raise seen.failed
        native = next((machine.native_id for machine in seen.machines if machine.state not in GONE), None)
    if native is None:
        return port.AlreadyDone(handle.key)
    call = calls.call("delete_tags", Resources=[native], Tags=[{"Key": KEY_TAG, "Value": handle.key}])
    return (port.AlreadyDone if await found_or_none(call) is None else port.CallAccepted)(handle.key, native)


async def _describe(calls: Ec2Client, native: str) -> port.Observation | None:
    answer = await calls.call("describe_instances", InstanceIds=[native])
    shown = [instance for reservation in answer.get("Reservations", ()) for instance in reservation["Instances"]]
    return observation(shown[0]) if shown else None
