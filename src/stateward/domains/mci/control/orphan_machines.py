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
from stateward.domains.mci.provider.evidence import Evidence, Existence
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.drivers import MachineState
from stateward.engine import Request
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.store.records import Object

PROVIDER_TIMEOUT_S = 5.0
"""How many seconds a provider has to say what it shows, when records are removed by force."""


class PossibleOrphan(Struct, frozen=True, rename="camel"):
    """A machine that may be left; `shown` is what the provider shows of it, or why nobody knows."""

    vm: str
    connection: str
    key: str
    native_id: str
    shown: str


def known_gone_fact(uid: str) -> str:
    """Return the fact of a removal that the machine of this uid is known to be gone."""
    return f"gone: {uid}"


async def possible_orphans(clients: ProviderClients, vms: Iterable[Object]) -> list[PossibleOrphan]:
    """Return the machines of VMs that are not known to be gone; each connection is asked once, all at the same time."""
    places: dict[str, list[Object]] = defaultdict(list)
    for one in vms:
        if one.state != VmState.TERMINATED:
            places[vm_of(one).connection].append(one)
    found = await asyncio.gather(*(_possible_orphans_at(clients, name, known) for name, known in places.items()))
    return [one for part in found for one in part]


async def _possible_orphans_at(
    clients: ProviderClients, connection: str, vms: Sequence[Object]
) -> list[PossibleOrphan]:
    try:
        async with asyncio.timeout(PROVIDER_TIMEOUT_S):
            looks = await (await clients.by_name(connection)).observe_all([vm_of(one).uid for one in vms])
    except (StatewardError, TimeoutError) as error:
        unknown = Evidence(Existence.UNKNOWN, problem=str(error) or f"no answer within {PROVIDER_TIMEOUT_S:g} s")
        looks = {vm_of(one).uid: unknown for one in vms}
    named = [(vm_of(one), vm_seen(one), looks[vm_of(one).uid]) for one in vms]
    return [
        PossibleOrphan(
            vm.name,
            connection,
            vm.uid,
            seen.native_id,
            str(look.observation.state) if look.observation else look.problem,
        )
        for vm, seen, look in named
        if not _is_gone(look)
    ]


def _is_gone(look: Evidence) -> bool:
    return look.existence is Existence.ABSENT or (
        look.observation is not None and look.observation.state is MachineState.TERMINATED
    )


def journal_possible_orphan(uow: UnitOfWork, request: Request, found: Object) -> None:
    """Write into the journal what a removed VM may leave at its provider, unless that is known to be gone."""
    vm, seen = vm_of(found), vm_seen(found)
    if found.state != VmState.TERMINATED and known_gone_fact(vm.uid) not in request.facts:
        machine = f"key {vm.uid}, native id {seen.native_id or 'not known'}"
        reason = f"a machine may be left at {vm.connection}: {machine}; the VM was {found.state}"
        journal(uow, found, None, request.actor, request.who, "left behind", reason=reason)
