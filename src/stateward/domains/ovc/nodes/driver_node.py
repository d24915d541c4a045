"""A node on top of any machine driver: each start of a VM is a new machine of the driver.

Actions that drivers do not offer are made from those that they do. To move, a machine starts on the other node before
it stops here, so it boots again; only QEMU machines move while they run. Disks are records without files.
"""

import asyncio
import time
from collections.abc import Collection

from stateward import drivers
from stateward.domains.ovc.nodes.port import (
    AttachedDisk,
    Hypervisor,
    NodeInventory,
    NodeMachine,
    Power,
    ProgressCallback,
)
from stateward.engine import Permanent, Temporary
from stateward.engine.job import finish_call
from stateward.plugin.outcomes import raise_for_outcome

POLL_MIN_S = 0.02
POLL_MAX_S = 0.5

POWERS = {
    drivers.MachineState.RUNNING:    Power.ON,
    drivers.MachineState.SUSPENDED:  Power.FROZEN,
    drivers.MachineState.TERMINATED: Power.OFF,
    drivers.MachineState.FAILED:     Power.OFF,
    drivers.MachineState.OTHER:      Power.UNKNOWN,
}  # fmt: skip


class DriverNode:
    """A node whose machines are a driver's; all start from `image`, and have `size` if it is given."""

    def __init__(self, driver: drivers.Driver, image: str, size: str = "") -> None:
        self._driver, self._image, self._size = driver, image, size

    @property
    def lag(self) -> float:
        """How many seconds old its listings may be."""
        return self._driver.caps.listing_lag_s

    async def check(self) -> str:
        """Return why the node cannot run machines."""
        refused = await self._driver.check("tiny", self._image)
        return "" if refused is None else refused.message

    async def start(self, machine: NodeMachine) -> None:
        """Start a machine."""
        raise_for_outcome(await self._create(machine))
        await self._wait_for_power(machine.key, Power.ON, Power.FROZEN)

    async def _create(self, machine: NodeMachine) -> drivers.Outcome:
        (outcome,) = await finish_call(self._driver.create([self._machine_spec(machine)]))
        return outcome

    def _machine_spec(self, machine: NodeMachine) -> drivers.MachineSpec:
        return drivers.MachineSpec(machine.key, machine.name, self._size or machine.size, self._image)

    async def stop(self, key: str) -> None:
        """Stop a machine."""
        await self._act(key, drivers.MachineAction.TERMINATE, "", Power.OFF)

    async def pause(self, key: str) -> None:
        """Freeze a machine."""
        await self._act(key, drivers.MachineAction.SUSPEND, "", Power.FROZEN)

    async def resume(self, key: str) -> None:
        """Resume a frozen machine."""
        await self._act(key, drivers.MachineAction.RESUME, "", Power.ON)

    async def reset(self, key: str, token: str) -> None:
        """Boot a machine again."""
        await self._act(key, drivers.MachineAction.REBOOT, token, Power.ON)

    async def _act(self, key: str, deed: drivers.MachineAction, token: str, wanted: Power) -> None:
        (outcome,) = await finish_call(self._driver.act(deed, [drivers.MachineHandle(key, None, token)]))
        gone = (
            isinstance(outcome, drivers.CallRefused)
            and outcome.why is drivers.RefusalReason.NOT_FOUND
            and wanted is Power.OFF
        )
        if not gone:
            await self._raise_unless_reached(key, outcome, wanted)
            await self._wait_for_power(key, wanted)

    async def _raise_unless_reached(self, key: str, outcome: drivers.Outcome, wanted: Power) -> None:
        """Raise for a refused call, unless the machine already has the wanted power; Temporary while it is changing."""
        if isinstance(outcome, drivers.CallRefused) and outcome.why is drivers.RefusalReason.CONFLICT:
            power = await self.get_power(key)
            if power is Power.CHANGING:
                raise Temporary(outcome.message)
            if power is wanted:
                return
        raise_for_outcome(outcome)

    async def _wait_for_power(self, key: str, *wanted: Power) -> None:
        """Wait until a machine has the wanted power; raises if it ended, once the listing is younger than the call."""
        pause, began, why = POLL_MIN_S, time.monotonic(), "it has ended"
        while True:
            listing = await self._driver.observe([key])
            power = _powers_in(listing, [key])[key]
            if power in wanted:
                return
            shown = next((machine for machine in listing.machines if machine.key == key), None)
            if power is Power.OFF and shown is not None:  # a later listing may not show the machine any more
                why = shown.details.get("complaint", shown.native_state)
            if power is Power.OFF and time.monotonic() - began > self.lag:
                raise Permanent(f"machine {key} is not there: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_MAX_S)

    async def get_power(self, key: str) -> Power:
        """Return the power of a machine; only a complete listing proves that there is none."""
        return (await self.get_powers([key]))[key]

    async def get_settled_power(self, key: str, seconds: float) -> Power:
        """Return the power of a machine; wait while it is changing."""
        deadline = time.monotonic() + seconds
        while (power := await self.get_power(key)) is Power.CHANGING and time.monotonic() < deadline:
            await asyncio.sleep(POLL_MIN_S)
        return power

    async def was_reset(self, key: str, token: str) -> bool | None:
        """Tell whether a reset was done, by the tokens that the driver shows."""
        shown = next((machine for machine in (await self._driver.observe([key])).machines if machine.key == key), None)
        if shown is None:
            return None
        if token in shown.reboot_tokens:
            return True
        return False if self._driver.caps.lists_reboot_tokens and shown.unconfirmed_reboot != token else None

    async def get_powers(self, keys: Collection[str]) -> dict[str, Power]:
        """Return the power of machines, by one listing; a missing one is OFF only if the listing is complete."""
        return _powers_in(await self._driver.observe(keys), keys)

    async def list_machines(self) -> NodeInventory:
        """Return the machines on the node, without those that have ended."""
        listing = await self._driver.observe()
        there = (machine.key for machine in listing.machines if POWERS.get(machine.state) is not Power.OFF)
        return NodeInventory(frozenset(there), listing.complete)

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        """Do nothing: the disks of these machines are only records."""

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        """Do nothing."""

    async def has_disk(self, key: str, disk: AttachedDisk) -> bool:  # noqa: ARG002 - the same for all
        """Return False: to repeat an attach that does nothing is harmless."""
        return False

    async def move(self, key: str, to: Hypervisor, machine: NodeMachine, on_progress: ProgressCallback) -> None:
        """Start the machine on the other node, and stop it here."""
        frozen = await self.get_power(key) is Power.FROZEN or await to.get_power(machine.key) is Power.FROZEN
        await to.start(machine)
        if frozen:
            await to.pause(machine.key)
        await on_progress(1, 1)
        await self.stop(key)

    async def has_moved(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """Tell whether the machine runs on the other node, and has ended here."""
        return await self.get_power(key) is Power.OFF and await to.get_power(machine.key) in (Power.ON, Power.FROZEN)

    async def stop_moving(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """Stop the machine on the other node, as long as it still runs here."""
        if await self.get_power(key) is Power.OFF:
            return True
        await to.stop(machine.key)
        return False

    async def close(self) -> None:
        """Close the driver."""
        await self._driver.close()


def _powers_in(listing: drivers.MachineListing, keys: Collection[str]) -> dict[str, Power]:
    shown = {machine.key: POWERS.get(machine.state, Power.CHANGING) for machine in listing.machines}
    return {key: shown.get(key, Power.OFF if listing.complete else Power.UNKNOWN) for key in keys}
