"""Machines that a removal of records may leave at their providers.

Nobody looks after a machine whose record is gone: it runs on, and costs money. So a record goes without a word only if
its machine is known to be gone. Otherwise the answer and the journal name the machine: its connection, its key, and the
provider's id of it. It is then found among the orphans.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import vm_of, vm_seen
from stateward.domains.mci.provider.evidence import Look, Sight
from stateward.domains.mci.provider.provider_pool import Clouds
from stateward.drivers import MachineState
from stateward.engine import Request
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.store.records import Object

LOOK_WITHIN = 5.0
"""How many seconds a provider has to say what it shows, when records are removed by force."""


class Remain(Struct, frozen=True, rename="camel"):
    """A machine that may be left; `shown` is what the provider shows of it, or why nobody knows."""

    vm: str
    connection: str
    key: str
    native_id: str
    shown: str


def gone_fact(uid: str) -> str:
    """Return the fact of a removal that the machine of this uid is known to be gone."""
    return f"gone: {uid}"


async def remains_of(clouds: Clouds, vms: Iterable[Object]) -> list[Remain]:
    """Return the machines of VMs that are not known to be gone; each connection is asked once, all at the same time."""
    places: dict[str, list[Object]] = defaultdict(list)
    for one in vms:
        if one.state != VmState.TERMINATED:
            places[vm_of(one).connection].append(one)
    found = await asyncio.gather(*(_remains_at(clouds, name, known) for name, known in places.items()))
    return [one for part in found for one in part]


async def _remains_at(clouds: Clouds, connection: str, vms: Sequence[Object]) -> list[Remain]:
    try:
        async with asyncio.timeout(LOOK_WITHIN):
            looks = await (await clouds.of(connection)).looks([vm_of(one).uid for one in vms])
    except (StatewardError, TimeoutError) as error:
        unknown = Look(Sight.UNKNOWN, trouble=str(error) or f"no answer within {LOOK_WITHIN:g} s")
        looks = {vm_of(one).uid: unknown for one in vms}
    named = [(vm_of(one), vm_seen(one), looks[vm_of(one).uid]) for one in vms]
    return [
        Remain(vm.name, connection, vm.uid, seen.native_id, str(look.shown.state) if look.shown else look.trouble)
        for vm, seen, look in named
        if not _is_gone(look)
    ]


def _is_gone(look: Look) -> bool:
    return look.sight is Sight.ABSENT or (look.shown is not None and look.shown.state is MachineState.TERMINATED)


def note_remains(uow: UnitOfWork, request: Request, found: Object) -> None:
    """Write into the journal what a removed VM may leave at its provider, unless that is known to be gone."""
    vm, seen = vm_of(found), vm_seen(found)
    if found.state != VmState.TERMINATED and gone_fact(vm.uid) not in request.facts:
        machine = f"key {vm.uid}, native id {seen.native_id or 'not known'}"
        reason = f"a machine may be left at {vm.connection}: {machine}; the VM was {found.state}"
        journal(uow, found, None, request.actor, request.who, "left behind", reason=reason)
