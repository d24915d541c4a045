"""A node behind any driver of machines: a machine of the driver is one life of a VM, from power on to power off.

What no driver offers is done with what they all do: a machine moves by coming up on the other node before it ends here
(so it boots anew: only machines that can be sent while they run go on with what they had), and disks are a matter of
the books alone.
"""

import asyncio
import time
from collections.abc import Collection

from stateward.domains.outcomes import raise_for_outcome
from stateward.domains.ovc.nodes.port import (
    AttachedDisk,
    Hypervisor,
    NodeInventory,
    NodeMachine,
    Power,
    ProgressCallback,
)
from stateward.drivers import (
    CallRefused,
    Driver,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Outcome,
    RefusalReason,
)
from stateward.engine import Permanent, Temporary
from stateward.engine.handlers import finish_call

POLL_MIN_S = 0.02
POLL_MAX_S = 0.5

POWERS = {
    MachineState.RUNNING:    Power.ON,
    MachineState.SUSPENDED:  Power.FROZEN,
    MachineState.TERMINATED: Power.OFF,
    MachineState.FAILED:     Power.OFF,
    MachineState.OTHER:      Power.UNKNOWN,
}  # fmt: skip


class DriverNode:
    """A node whose machines are a driver's; `image` is what they start from there, and `size` the only one there is."""

    def __init__(self, driver: Driver, image: str, size: str = "") -> None:
        self._driver, self._image, self._size = driver, image, size
        self._troubles: dict[str, str] = {}

    @property
    def lag(self) -> float:
        """How many seconds old what it shows may be."""
        return self._driver.caps.listing_lag_s

    async def check(self) -> str:
        """Say why the node cannot carry machines."""
        refused = await self._driver.check("tiny", self._image)
        return "" if refused is None else refused.message

    async def start(self, machine: NodeMachine) -> None:
        """Give a machine power."""
        raise_for_outcome(await self._create(machine))
        await self._wait_for_power(machine.key, Power.ON, Power.FROZEN)

    async def _create(self, machine: NodeMachine) -> Outcome:
        (outcome,) = await finish_call(self._driver.create([self._machine_spec(machine)]))
        return outcome

    def _machine_spec(self, machine: NodeMachine) -> MachineSpec:
        return MachineSpec(machine.key, machine.name, self._size or machine.size, self._image)

    async def stop(self, key: str) -> None:
        """Take a machine's power."""
        await self._act(key, MachineAction.TERMINATE, "", Power.OFF)

    async def pause(self, key: str) -> None:
        """Freeze a machine."""
        await self._act(key, MachineAction.SUSPEND, "", Power.FROZEN)

    async def resume(self, key: str) -> None:
        """Let a frozen machine go on."""
        await self._act(key, MachineAction.RESUME, "", Power.ON)

    async def reset(self, key: str, token: str) -> None:
        """Boot a machine anew."""
        await self._act(key, MachineAction.REBOOT, token, Power.ON)

    async def _act(self, key: str, deed: MachineAction, token: str, wanted: Power) -> None:
        (outcome,) = await finish_call(self._driver.act(deed, [MachineHandle(key, None, token)]))
        gone = isinstance(outcome, CallRefused) and outcome.why is RefusalReason.NOT_FOUND and wanted is Power.OFF
        if not gone:
            await self._raise_unless_reached(key, outcome, wanted)
            await self._wait_for_power(key, wanted)

    async def _raise_unless_reached(self, key: str, outcome: Outcome, wanted: Power) -> None:
        """Look whether what was refused is so already, or may be allowed in a moment."""
        if isinstance(outcome, CallRefused) and outcome.why is RefusalReason.CONFLICT:
            power = await self.get_power(key)
            if power is Power.CHANGING:
                raise Temporary(outcome.message)
            if power is wanted:
                return
        raise_for_outcome(outcome)

    async def _wait_for_power(self, key: str, *wanted: Power) -> None:
        """Wait until a machine is as wanted; one that ended for good never will be, once what is shown is not older."""
        pause, began = POLL_MIN_S, time.monotonic()
        while (power := await self.get_power(key)) not in wanted:
            if power is Power.OFF and time.monotonic() - began > self.lag:
                raise Permanent(f"machine {key} is not there: {self._troubles.get(key, 'it has ended')}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_MAX_S)

    async def get_power(self, key: str) -> Power:
        """Say what a machine is; only a complete listing tells that there is none."""
        return (await self.get_powers([key]))[key]

    async def get_settled_power(self, key: str, seconds: float) -> Power:
        """Say what a machine is; one that is changing is waited for."""
        deadline = time.monotonic() + seconds
        while (power := await self.get_power(key)) is Power.CHANGING and time.monotonic() < deadline:
            await asyncio.sleep(POLL_MIN_S)
        return power

    async def was_reset(self, key: str, token: str) -> bool | None:
        """Tell whether a reset was done, by the tokens that the driver shows."""
        shown = next((one for one in (await self._driver.observe([key])).machines if one.key == key), None)
        if shown is None:
            return None
        if token in shown.reboot_tokens:
            return True
        return False if self._driver.caps.lists_reboot_tokens and shown.unconfirmed_reboot != token else None

    async def get_powers(self, keys: Collection[str]) -> dict[str, Power]:
        """Say what machines are, by one listing; who is not in it has ended only where it is complete."""
        listing = await self._driver.observe(keys)
        shown = {one.key: POWERS.get(one.state, Power.CHANGING) for one in listing.machines}
        ended = [one for one in listing.machines if shown[one.key] is Power.OFF]
        self._troubles.update((one.key, one.details.get("complaint", one.native_state)) for one in ended)
        return {key: shown.get(key, Power.OFF if listing.complete else Power.UNKNOWN) for key in keys}

    async def list_machines(self) -> NodeInventory:
        """Say which machines are there; those that have ended are not."""
        listing = await self._driver.observe()
        there = (one.key for one in listing.machines if POWERS.get(one.state) is not Power.OFF)
        return NodeInventory(frozenset(there), listing.complete)

    async def attach(self, key: str, disk: AttachedDisk) -> None:
        """Do nothing: these machines have no disks but in the books."""

    async def detach(self, key: str, disk: AttachedDisk) -> None:
        """Do nothing."""

    async def has_disk(self, key: str, disk: AttachedDisk) -> bool:  # noqa: ARG002 - nobody can tell
        """Say no: it does no harm to do nothing once more."""
        return False

    async def move(self, key: str, to: Hypervisor, machine: NodeMachine, told: ProgressCallback) -> None:
        """Bring a machine up on the other node, and end it here."""
        frozen = await self.get_power(key) is Power.FROZEN or await to.get_power(machine.key) is Power.FROZEN
        await to.start(machine)
        if frozen:
            await to.pause(machine.key)
        await told(1, 1)
        await self.stop(key)

    async def has_moved(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """Tell whether a machine is up on the other node, and ended here."""
        return await self.get_power(key) is Power.OFF and await to.get_power(machine.key) in (Power.ON, Power.FROZEN)

    async def stop_moving(self, key: str, to: Hypervisor, machine: NodeMachine) -> bool:
        """End what came up on the other node, as long as it is still here."""
        if await self.get_power(key) is Power.OFF:
            return True
        await to.stop(machine.key)
        return False

    async def close(self) -> None:
        """Let go of the driver."""
        await self._driver.close()
