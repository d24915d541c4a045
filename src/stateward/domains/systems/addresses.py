"""The addresses of services: the ports that they may have, and the services that have one already.

An address is a port of a host, whichever namespace its service is in. A deploy that wants the port of another service
is refused when it is accepted, and fails when it starts if the port was taken meanwhile. Of two deploys that start at
the same moment, the operating system gives the port to one; the other one fails at its deadline, because only a proxy
that has the port counts as open.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from stateward.domains.systems.backends.names import NODES, SIMULATED
from stateward.domains.systems.definition import Service
from stateward.domains.systems.lifecycle import SERVICE
from stateward.domains.systems.model import DesiredService, DesiredTree, SystemLocation, seen_of, spec_of, system_spec
from stateward.domains.systems.object_ids import path_of, system_of
from stateward.errors import BadInput
from stateward.locks.paths import parse_path
from stateward.store.filters import Selector, SortedPage, SortOrder
from stateward.store.port import Reader
from stateward.store.records import Key, Object

BY_ADDRESS = SortOrder("spec", ("service", "address"), is_number=True)
PAGE_SIZE = 1_000

MaySee = Callable[[str], bool]
"""Tells whether the caller may read a namespace."""


class AddressHolder(Struct, frozen=True):
    """A service that has an address, and its system."""

    port: int
    service: Object
    system: Object

    def describe(self, may_see: MaySee) -> str:
        """Return the holder as text; nothing of a namespace that the caller may not read."""
        if not may_see(self.service.ns):
            return "another service"
        return f"service {path_of(self.service.id)} of system {self.system.id} in namespace {self.service.ns}"


def check_allowed_ports(allowed: str, wanted: DesiredTree) -> None:
    """Refuse addresses outside of the allowed ports; 0 takes any port that is free."""
    ranges = [range(int(first), int(last or first) + 1) for first, _, last in map(_parted, allowed.split(","))]
    for path, port in wanted_ports(wanted.services).items():
        if not any(port in one for one in ranges):
            known = f"0, or a port in {allowed} (setting systems_address_ports)"
            raise BadInput(f"{wanted.field_of(path)}.address", port, known)


def _parted(text: str) -> tuple[str, str, str]:
    return text.strip().partition("-")


def wanted_ports(services: Mapping[str, Service]) -> dict[str, int]:
    """Return the services that want a certain port, by path."""
    return {path: one.address for path, one in services.items() if one.address}


async def check_free_addresses(reader: Reader, system: Object, top: str, wanted: DesiredTree, may_see: MaySee) -> None:
    """Refuse addresses that services of the same hosts have, outside of the path that the deploy replaces."""
    ports = wanted_ports(wanted.services)
    if not ports or system_spec(system).backend == SIMULATED:
        return
    paths: dict[int, str] = {}
    for path, port in ports.items():
        if port in paths:
            raise _taken(wanted, path, port, f"service {paths[port]} of the same definition")
        paths[port] = path
    for one in await _holders(reader, ports.values()):
        is_replaced = one.system.key == system.key and path_of(one.service.id)[: len(parse_path(top))] == parse_path(
            top
        )
        if one.port in paths and not is_replaced and _share_hosts(system, one.system):
            raise _taken(wanted, paths[one.port], one.port, one.describe(may_see))


def _taken(wanted: DesiredTree, path: str, port: int, holder: str) -> BadInput:
    return BadInput(f"{wanted.field_of(path)}.address", port, f"a port that is free: {holder} has {port}")


async def _holders(reader: Reader, ports: Iterable[int]) -> Sequence[AddressHolder]:
    """Return the services of all namespaces with an address between the least and the greatest port."""
    wanted = set(ports)
    found: list[tuple[int, Object]] = []
    chosen = Selector(tuple(await reader.namespaces()), SERVICE.kind)
    after: tuple[str | float, str, str] | None = (min(wanted) - 0.5, "", "")
    while after is not None:
        page = await reader.list_sorted(chosen, SortedPage(BY_ADDRESS, after, PAGE_SIZE))
        found += [(int(port), one) for port, one in page if port in wanted]
        is_last = len(page) < PAGE_SIZE or float(page[-1][0]) > max(wanted)
        after = None if is_last else (page[-1][0], *page[-1][1].key)
    systems = await reader.objects({Key(one.ns, system_of(one.id)) for _, one in found})
    pairs = ((port, one, systems.get(Key(one.ns, system_of(one.id)))) for port, one in found)
    return [
        AddressHolder(port, one, system)
        for port, one, system in pairs
        if system is not None and system_spec(system).backend != SIMULATED and spec_of(one, DesiredService) is not None
    ]


def _share_hosts(one: Object, other: Object) -> bool:
    """Tell whether the proxies of two systems run on one host; those of systems on nodes run on every host."""
    if NODES in (system_spec(one).backend, system_spec(other).backend):
        return True
    return seen_of(one, SystemLocation).host == seen_of(other, SystemLocation).host
