"""Demo: two MCIs on simulated clouds, one of real processes on this host, and a simulated user who controls them.

The MCIs are created in a namespace of their own at the first start with the demo, and found again later. The user
repairs failed VMs by refine and by scaling back. Processes outlive a server, as machines do; a server that stops
terminates those of the demo.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from msgspec.structs import replace

from stateward.domains.mci.lifecycle import MCI, MciState, VmState
from stateward.domains.mci.model import MciSpec, SubGroup, mci_of, vm_of
from stateward.domains.mci.provider.catalogue import LOCAL
from stateward.domains.mci.service import Service
from stateward.errors import StatewardError, UnknownName
from stateward.lifecycle import TRANSITIONAL, USER
from stateward.naming import new_id
from stateward.schemas.caller import Caller
from stateward.store.errors import StoreError
from stateward.store.records import Key, Object

log = logging.getLogger("stateward.demo")

NS = "demo"
BY = Caller(USER, "the demo's user")
PAUSE = 2.5
"""Average time between two actions of the user."""

SPARE = 2
"""How many VMs a subgroup may grow beyond its initial size."""

GOODBYE = 5.0
"""Time limit for the processes to end when the demo stops."""

HERE = "edge-box"
FLEET = (
    MciSpec(
        "shop",
        "",
        (
            SubGroup("web", 2, "aws+ap-northeast-2+t3.micro", "ubuntu22.04"),
            SubGroup("web-us", 1, "aws+us-east-1+t3.micro", "ubuntu22.04"),
            SubGroup("db", 1, "gcp+europe-west1+e2-small", "debian12"),
        ),
        label={"fleet": "demo"},
        description="a shop on two clouds",
    ),
    MciSpec(
        "lab",
        "",
        (SubGroup("bench", 3, "azure+westeurope+Standard_B1s", "ubuntu22.04"),),
        label={"fleet": "demo"},
        description="a laboratory on one cloud",
    ),
    MciSpec(
        HERE,
        "",
        (SubGroup("box", 3, "local+here+tiny", "sh"),),
        label={"fleet": "demo"},
        description="real processes on this host",
    ),
)
BAD = (VmState.FAILED, VmState.UNDEFINED)
OVER = (MciState.TERMINATED, MciState.FAILED)


class MciDemo:
    """Creates the MCIs and keeps them in motion."""

    def __init__(
        self,
        service: Service,
        chance: Random,
        *,
        pause: float = PAUSE,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._service, self._chance, self._pause, self._sleep = service, chance, pause, sleep

    async def run(self) -> None:
        """Run until cancelled; wait while the store is unavailable."""
        try:
            while True:
                try:
                    await self._live()
                except StoreError as error:
                    log.warning("demo of mci: waiting for the store: %s", error)
                    await self._sleep(5.0)
        finally:
            await self.tidy_up()

    async def _live(self) -> None:
        await self._service.ensure_namespaces([NS])
        with suppress(UnknownName):  # `local` is disabled or removed: the MCI on this host will not be created
            await self._service.grant(LOCAL.name, [NS], BY)
        for wanted in FLEET:
            await self.look_after(wanted)
        while True:
            await self._sleep(self._chance.uniform(0.5, 1.5) * self._pause)
            await self.look_after(self._chance.choice(FLEET))

    async def look_after(self, wanted: MciSpec) -> None:
        """Create a missing MCI, repair a broken one, use a healthy one."""
        with suppress(StatewardError):  # another request was first, or it is not possible now: there is a next round
            record = await self._service.engine.store.reader.object(Key(NS, wanted.name))
            if record is None or record.removed:
                await self._service.create(NS, replace(wanted, uid=new_id(), policy="refine"), BY)
            elif MCI.state(record.state).state_class is not TRANSITIONAL:
                vms = await self._service.vms(NS, record.id)
                if record.state in OVER:
                    await self._service.delete(NS, record.id, "terminate", BY)
                elif any(vm.state in BAD for vm in vms):
                    await self._service.refine(NS, record.id, BY)
                elif not await self._to_size(wanted, record, vms):
                    await self._play(record, vms)

    async def _to_size(self, wanted: MciSpec, mci: Object, vms: Sequence[Object]) -> bool:
        """Scale a subgroup back that is too small or too large."""
        sizes = Counter(vm_of(vm).group for vm in vms)
        for group in wanted.groups:
            short, known = group.size - sizes[group.name], any(other.name == group.name for other in mci_of(mci).groups)
            if known and (short > 0 or short < -SPARE):
                await self._service.scale(NS, mci.id, group.name, short, BY)
                return True
        return False

    async def _play(self, mci: Object, vms: Sequence[Object]) -> None:
        """Run a random action on a healthy MCI."""
        some = self._chance.choice(vms)
        if any(vm.state == VmState.SUSPENDED for vm in vms):
            await self._service.control(NS, mci.id, "resume", BY)
            return
        match self._chance.choice(("suspend", "reboot", "suspend one", "reboot one", "grow", "shrink")):
            case "grow":
                await self._service.scale(NS, mci.id, vm_of(some).group, 1, BY)
            case "shrink" if len(vms) > len(mci_of(mci).groups):
                await self._service.scale(NS, mci.id, vm_of(some).group, -1, BY)
            case "suspend one" | "reboot one" as action:
                await self._service.control_vm(NS, mci.id, vm_of(some).name, action.split()[0], BY)
            case "suspend" | "reboot" as action:
                await self._service.control(NS, mci.id, action, BY)

    async def tidy_up(self) -> None:
        """Terminate the processes on this host; a killed server leaves them and finds them at its next start."""
        with suppress(StatewardError, TimeoutError):
            verdict = await self._service.control(NS, HERE, "terminate", BY, force=True)
            if verdict.whole is not None:
                await self._service.engine.wait_record(NS, verdict.whole.op.id, GOODBYE)
