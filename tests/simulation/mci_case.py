"""MCIs on simulated providers: machines are those of the records, or orphans that are reported."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, ClassVar

from msgspec.json import decode
from msgspec.structs import replace

from stateward.domains.mci.lifecycle import CONNECTION, MCI, VM
from stateward.domains.mci.model import MciSpec, SubGroup, mci_of, record_id, vm_of
from stateward.domains.mci.runtime import MciRuntime
from stateward.drivers import MachineState
from stateward.drivers.simulated import SimulatedCloud
from stateward.drivers.simulated.faults import FaultProfile
from stateward.drivers.simulated.machine import SimulatedMachine, state_at
from stateward.schemas.caller import Caller
from stateward.store.filters import JournalFilter
from stateward.store.records import Object
from tests.simulation.domain_case import NS, Action, DomainCase, Server

ANN = Caller("user", "ann")
ENDED = (MachineState.TERMINATED, MachineState.TERMINATING)
AT_REST = {"Running": MachineState.RUNNING, "Suspended": MachineState.SUSPENDED}
ELSEWHERE = "tmp"
PLACES = ("aws+ap-northeast-2+t3.nano", "gcp+asia-northeast3+e2-micro")
FAULTS = FaultProfile(transient=0.02, throttled=0.01, request_lost=0.02, answer_lost=0.02)


class MciCase(DomainCase):
    """Two MCIs, of up to two groups each."""

    name = "mci"
    pairs: ClassVar = [
        ("terminate by force", "scale out"),
        ("delete by force", "scale out"),
        ("create", "delete by force"),
    ]
    before: ClassVar = {"resume": ["suspend"], "resume by force": ["suspend"], "delete records": ["terminate"]}

    def __init__(self, clock: Any, chance: Any) -> None:
        super().__init__(clock, chance)
        self.late = chance("late").choice((0.0, (0.0, 3.0), (0.0, 12.0)))
        profile = replace(FAULTS, late=self.late)
        self.cloud = SimulatedCloud(profile=profile, chance=chance("cloud"), clock=clock, sleep=asyncio.sleep)

    def make_runtime(self, name: str) -> MciRuntime:
        return MciRuntime(self.context(name), cloud=self.cloud, tick=0.25, every=30.0)

    async def prepare(self, server: Server) -> None:
        await server.runtime.service.add_namespace(ELSEWHERE, "", ANN)
        made = await self._create(server, "m1", 2)
        await server.engine.wait_record(NS, made.op.id, 600.0)

    @property
    def actions(self) -> Mapping[str, Action]:
        control = ("suspend", "resume", "reboot", "terminate")
        return {
            "create again": lambda server, chance: self._create(server, chance.choice(("m1", "m2")), 2),
            "create": lambda server, chance: self._create(server, chance.choice(("m2", "m1")), chance.randint(1, 3)),
            **{one: partial(self._control, one, force=False) for one in control},
            **{f"{one} by force": partial(self._control, one, force=True) for one in control[1:]},
            "scale out": partial(self._scale, 2),
            "scale in": partial(self._scale, -1),
            "refine": lambda server, chance: server.runtime.service.refine(NS, self._mci(chance), ANN),
            "reconcile": lambda server, chance: server.runtime.service.reconcile(NS, self._mci(chance), ANN),
            "delete": partial(self._delete, "terminate"),
            "delete records": partial(self._delete, ""),
            "delete by force": partial(self._delete, "force"),
            "delete a VM by force": self._delete_vm,
            "move a connection": self._move_connection,
            "create elsewhere": lambda server, chance: self._create(server, "m9", 1, ELSEWHERE),
            "remove the namespace": lambda server, chance: server.runtime.service.remove_namespace(ELSEWHERE, ANN),
        }

    def _mci(self, chance: Random) -> str:
        return chance.choice(("m1", "m2"))

    async def _create(self, server: Server, name: str, size: int, ns: str = NS) -> Any:
        groups = (SubGroup("g1", size, PLACES[0], "ubuntu22.04"), SubGroup("g2", 1, PLACES[1], "ubuntu22.04"))
        spec = MciSpec(name, f"uid-{name}-{self.clock():.3f}", groups[: 1 + (name == "m2")])
        return await server.runtime.service.create(ns, spec, ANN)

    def _control(self, action: str, server: Server, chance: Random, *, force: bool) -> Any:
        return server.runtime.service.control(NS, self._mci(chance), action, ANN, force=force)

    def _scale(self, count: int, server: Server, chance: Random) -> Any:
        return server.runtime.service.scale(NS, self._mci(chance), "g1", count, ANN)

    async def _move_connection(self, server: Server, chance: Random) -> None:
        """Point the connection of the second group to another region, and back."""
        known = await server.runtime.catalogue.connection("gcp-asia-northeast3")
        region = "us-east1" if known.region == "asia-northeast3" else "asia-northeast3"
        await server.runtime.service.add_connection(replace(known, region=region), ANN)

    def _delete(self, option: str, server: Server, chance: Random) -> Any:
        return server.runtime.service.delete(NS, self._mci(chance), option, ANN)

    def _delete_vm(self, server: Server, chance: Random) -> Any:
        name = f"g1-{chance.randint(1, 4)}"
        return server.runtime.service.delete_vm(NS, self._mci(chance), name, ANN, force=True)

    def calm_down(self) -> None:
        for region in self.cloud._regions.values():
            region.profile = FaultProfile(late=self.late)

    # --- what must be true -------------------------------------------------------------------------------------------

    def broken(self, objects: Iterable[Object]) -> Iterator[str]:
        found = [one for one in objects if not one.removed]
        mcis = {one.id for one in found if one.kind == MCI.kind}
        if "m9" in mcis and record_id("ns", ELSEWHERE) not in {one.id for one in found}:
            yield f"m9 is in the namespace {ELSEWHERE}, which does not exist"
        connections = (decode(one.spec) for one in found if one.kind == CONNECTION.kind)
        regions = {one["name"]: one.get("region") for one in connections if "name" in one}
        for one in found:
            if one.kind == VM.kind and one.state != "Terminated":
                vm = vm_of(one)
                if regions.get(vm.connection, vm.region) != vm.region:
                    yield f"{one.id} is in {vm.region}, and its connection leads to {regions[vm.connection]}"
            if one.kind == VM.kind and one.parent not in mcis:
                yield f"{one.id} is in {one.parent}, which does not exist"

    def machines(self) -> Iterator[SimulatedMachine]:
        """Yield all machines that live."""
        for region in self.cloud._regions.values():
            yield from (one for one in region.machines.values() if state_at(one, self.clock()) not in ENDED)

    async def broken_at_rest(self, server: Server) -> list[str]:
        await asyncio.sleep(300.0)  # the reconciler has compared the records with the providers by then
        service, reader = server.runtime.service, server.engine.store.reader
        living = {one.key: one for one in self.machines()}
        mcis = [one for ns in (NS, ELSEWHERE) for one in await service.mcis(ns)]
        vms = {vm_of(one).uid: one for mci in mcis for one in await service.vms(mci.ns, mci.id)}
        reasons = " ".join(line.reason or "" for line in await reader.journal(0, 1_000_000, JournalFilter()))
        wrong = [
            f"machine {key} has no record, and the journal does not name it as left behind"
            for key in living
            if key not in vms and key not in reasons
        ]
        wrong += [problem for uid, vm in vms.items() for problem in self._untrue(vm, living.get(uid))]
        names = Counter(one.name for key, one in living.items() if key in vms)
        wrong += [f"{name} has two machines" for name, number in names.items() if number > 1]
        for mci in mcis:
            groups = {one.name for one in mci_of(mci).groups}
            used = {vm_of(one).group for one in await service.vms(mci.ns, mci.id)}
            wrong += [f"{mci.id} has VMs of {group}, which it has not" for group in used - groups]
        return wrong

    def _untrue(self, vm: Object, machine: SimulatedMachine | None) -> Iterator[str]:
        state = None if machine is None else state_at(machine, self.clock())
        if vm.state in AT_REST and state is not AT_REST[vm.state]:
            yield f"{vm.id} is {vm.state}, and its machine is {state}"
        if vm.state == "Terminated" and machine is not None:
            yield f"{vm.id} is Terminated, and its machine is {state}"
