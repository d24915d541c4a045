"""The addresses of services: the ports that they may have, and the services that have one already.

An address is a port of a host, whichever namespace its service is in. A deploy that wants the port of another service,
or of a deploy that was accepted before, is refused when it is accepted. It claims its ports in the transaction that
accepts it, and when it starts also those of the definition that it replaces, which it may have to restore.
"""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from stateward.domains.systems.address_claims import (
    AddressClaim,
    ClaimedPort,
    address_key,
    find_claims,
    lock_claims,
    write_claims,
)
from stateward.domains.systems.backends.names import NODES, SIMULATED
from stateward.domains.systems.lifecycle import SERVICE
from stateward.domains.systems.model import (
    ChangeSpec,
    DesiredService,
    DesiredTree,
    SystemLocation,
    seen_of,
    spec_of,
    system_spec,
)
from stateward.domains.systems.object_ids import path_of, system_of
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.locks.paths import Path, parse_path
from stateward.store.filters import Selector, SortedPage, SortOrder
from stateward.store.port import Reader
from stateward.store.records import Key, Object

BY_ADDRESS = SortOrder("spec", ("service", "address"), is_number=True)
PAGE_SIZE = 1_000

MaySee = Callable[[str], bool]
"""Tells whether the caller may read a namespace."""


class AddressHolder(Struct, frozen=True):
    """A service that has an address, or is to get it by an open deploy, and its system."""

    port: int
    path: Path
    system: Object

    def describe(self, may_see: MaySee) -> str:
        """Return the holder as text; nothing of a namespace that the caller may not read."""
        if not may_see(self.system.ns):
            return "another service"
        return f"service {self.path} of system {self.system.id} in namespace {self.system.ns}"


async def check_free_addresses(reader: Reader, system: Object, change: ChangeSpec, may_see: MaySee) -> None:
    """Refuse addresses that services of the same hosts have, outside of the path that the deploy replaces."""
    ports = change.picture.ports.values()
    if ports and system_spec(system).backend != SIMULATED:
        claimed = await find_claims(reader, ports)
        _require_free(system, change, [*await _holders(reader, ports), *_as_holders(claimed)], may_see)


def address_keys(change: ChangeSpec) -> list[Key]:
    """Return the records of the ports that a deploy wants, for the lock set of the transaction that accepts it."""
    return [address_key(port) for port in sorted({*change.picture.ports.values()})]


async def hold_addresses(
    uow: UnitOfWork, system: Object, deploy: str, who: str, change: ChangeSpec, before: DesiredTree
) -> None:
    """Claim the ports that a deploy wants, and those of the services before it; refuse ports that others have."""
    if system_spec(system).backend == SIMULATED:
        return
    wanted = [*change.picture.ports.items(), *before.ports.items()]
    if wanted:
        known = await lock_claims(uow, {port for _, port in wanted})
        _require_free(system, change, _as_holders(known), system.ns.__eq__)
        claims = ((port, AddressClaim(system.ns, system.id, path, deploy)) for path, port in wanted)
        write_claims(uow, known, claims, who)


def _as_holders(claimed: Iterable[ClaimedPort]) -> list[AddressHolder]:
    return [
        AddressHolder(claimed_port.port, parse_path(claimed_port.claim.path), claimed_port.system)
        for claimed_port in claimed
    ]


def _require_free(system: Object, change: ChangeSpec, holders: Iterable[AddressHolder], may_see: MaySee) -> None:
    wanted, paths = change.picture, dict[int, str]()
    for path, port in wanted.ports.items():
        if port in paths:
            raise _taken(wanted, path, port, f"service {paths[port]} of the same definition")
        paths[port] = path
    for holder in holders:
        if holder.port in paths and _is_in_the_way(system, change, holder):
            raise _taken(wanted, paths[holder.port], holder.port, holder.describe(may_see))


def held_ports(system: Object, change: ChangeSpec, claimed: Iterable[ClaimedPort]) -> set[int]:
    """Return the claimed ports that a deploy cannot have."""
    return {holder.port for holder in _as_holders(claimed) if _is_in_the_way(system, change, holder)}


def _is_in_the_way(system: Object, change: ChangeSpec, holder: AddressHolder) -> bool:
    """Tell whether a service keeps its port: it is on the same hosts, and the deploy does not replace it."""
    top = parse_path(change.path)
    is_replaced = holder.system.key == system.key and holder.path[: len(top)] == top
    return not is_replaced and _share_hosts(system, holder.system)


def _taken(wanted: DesiredTree, path: str, port: int, holder: str) -> BadInput:
    return BadInput(f"{wanted.field_of(path)}.address", port, f"a port that is free: {holder} has {port}")


async def _holders(reader: Reader, ports: Iterable[int]) -> Sequence[AddressHolder]:
    """Return the services of all namespaces with an address between the least and the greatest port."""
    wanted = set(ports)
    held: list[tuple[int, Object]] = []
    chosen = Selector(tuple(await reader.namespaces()), SERVICE.kind)
    after: tuple[str | float, str, str] | None = (min(wanted) - 0.5, "", "")
    while after is not None:
        page = await reader.list_sorted(chosen, SortedPage(BY_ADDRESS, after, PAGE_SIZE))
        held += [(int(port), service) for port, service in page if port in wanted]
        is_last = len(page) < PAGE_SIZE or float(page[-1][0]) > max(wanted)
        after = None if is_last else (page[-1][0], *page[-1][1].key)
    systems = await reader.objects({Key(service.ns, system_of(service.id)) for _, service in held})
    pairs = ((port, service, systems.get(Key(service.ns, system_of(service.id)))) for port, service in held)
    return [
        AddressHolder(port, path_of(service.id), system)
        for port, service, system in pairs
        if system is not None
        and system_spec(system).backend != SIMULATED
        and spec_of(service, DesiredService) is not None
    ]


def _share_hosts(system: Object, other: Object) -> bool:
    """Tell whether the proxies of two systems run on one host; those of systems on nodes run on every host."""
    if NODES in (system_spec(system).backend, system_spec(other).backend):
        return True
    return seen_of(system, SystemLocation).host == seen_of(other, SystemLocation).host
