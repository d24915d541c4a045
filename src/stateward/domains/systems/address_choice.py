"""The choice of a port for a service with `address: 0`, in the transaction that accepts its deploy.

A port that the kernel chose when the proxy starts could be outside of the allowed ones, and nobody but the proxy would
know it. So it is chosen with the deploy, from the ports that services may name, and is claimed as a named one is. A
service keeps its port while its definition says 0.

Ports that the kernel gives to connections and to instances (32768 to 60999, where nothing else is set) are chosen
last: while a proxy restarts, another program could get its port.
"""

from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stateward.domains.systems.address_claims import lock_claims, peek_claims
from stateward.domains.systems.addresses import held_ports
from stateward.domains.systems.backends.names import SIMULATED
from stateward.domains.systems.lifecycle import DEPLOY
from stateward.domains.systems.model import ChangeSpec, DesiredService, DesiredTree, spec_of, system_spec
from stateward.domains.systems.object_ids import service_id
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.locks.paths import parse_path
from stateward.naming import port_ranges
from stateward.store.records import Key, Object
from stateward.workloads.host_ports import is_port_taken

KERNEL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
BATCH_SIZE = 64


class AllowedPorts:
    """The ports that services may have, and a random order of them."""

    def __init__(self, setting: str, random: Random, server_port: int = 0) -> None:
        self.setting, self._random, self._server_port = setting, random, server_port
        self._ranges = port_ranges(setting)

    def __contains__(self, port: int) -> bool:
        return port != self._server_port and any(port in port_range for port_range in self._ranges)

    @cached_property
    def ports(self) -> list[int]:
        """All of them; that of the server is one, though no service gets it."""
        return sorted({*chain(*self._ranges)} - {0})

    @cached_property
    def _orders(self) -> tuple[list[int], list[int]]:
        """The ports that the kernel gives to nobody, and the others; most processes never need them."""
        usable, kernels = [port for port in self.ports if port != self._server_port], _kernel_ports()
        return [port for port in usable if port not in kernels], [port for port in usable if port in kernels]

    def check(self, wanted: DesiredTree) -> None:
        """Refuse addresses that name other ports; for 0 one of these is chosen."""
        for path, service in wanted.services.items():
            port = service.address
            if port and port not in self:
                known = f"0, or a port in {self.setting} (setting systems_address_ports)"
                own = f"another port: the Stateward server itself listens on {port}"
                raise BadInput(f"{wanted.field_of(path)}.address", port, own if port == self._server_port else known)

    def shuffled(self) -> Iterator[int]:
        """Return all ports from a random one on: one that was given back a moment ago is hardly ever the next."""
        for ports in self._orders:
            start = self._random.randrange(len(ports)) if ports else 0
            yield from chain(ports[start:], ports[:start])


def _kernel_ports() -> range:
    try:
        first, last = map(int, KERNEL_PORTS.read_text().split())
    except (OSError, ValueError):
        return range(0)
    return range(first, last + 1)


async def assign_ports(uow: UnitOfWork, system: Object, change: ChangeSpec, allowed: AllowedPorts) -> ChangeSpec:
    """Return a deploy with a port for each service that has address 0: its present one, or a free one."""
    wanted = change.picture
    paths = [path for path, service in wanted.services.items() if service.address == 0]
    if not paths or system_spec(system).backend == SIMULATED:
        return change
    taken = {service.address for service in wanted.services.values() if service.address}
    assigned: dict[str, int] = {}
    for path, present in (await _present_ports(uow, system, paths)).items():
        kept = next((port for port in present if port in allowed and port not in taken), 0)
        if kept:
            assigned[path] = kept
            taken.add(kept)
    free = _free_ports(uow, system, change, allowed, taken)
    for path in paths:
        if path not in assigned:
            assigned[path] = await anext(free, 0)
            if not assigned[path]:
                raise await _none_free(uow, system, _with_ports(change, assigned), allowed, path)
    return _with_ports(change, assigned)


def _with_ports(change: ChangeSpec, assigned: dict[str, int]) -> ChangeSpec:
    return replace(change, picture=replace(change.picture, assigned_ports=assigned))


async def _present_ports(uow: UnitOfWork, system: Object, paths: Sequence[str]) -> dict[str, list[int]]:
    """Return the ports that services have by open deploys, the newest first, and those that they have now."""
    locks = uow.locks(system.key)
    waiting = {uow.operations[Key(lock.ns, lock.op)].object for lock in locks}
    deploys = [
        record for record in await uow.peek([Key(system.ns, id_) for id_ in sorted(waiting)]) if record is not None
    ]
    changes = [
        spec_of(deploy, ChangeSpec)
        for deploy in sorted(deploys, key=lambda deploy: deploy.created, reverse=True)
        if deploy.kind == DEPLOY.kind
    ]
    ports = {
        path: [change.picture.assigned_ports.get(path, 0) for change in changes if change is not None] for path in paths
    }
    keys = [Key(system.ns, service_id(system.id, parse_path(path))) for path in paths]
    for path, service in zip(paths, await uow.peek(keys), strict=True):
        wanted = None if service is None or service.removed else spec_of(service, DesiredService)
        ports[path].append(0 if wanted is None else wanted.assigned_port)
    return ports


async def _free_ports(
    uow: UnitOfWork, system: Object, change: ChangeSpec, allowed: AllowedPorts, taken: Collection[int]
) -> AsyncIterator[int]:
    """Yield ports that nobody has; their records are locked."""
    untaken = (port for port in allowed.shuffled() if port not in taken)
    while batch := list(islice(untaken, BATCH_SIZE)):
        held = held_ports(system, change, await peek_claims(uow, batch))
        for port in batch:
            if port in held or is_port_taken(port):
                continue
            if not held_ports(system, change, await lock_claims(uow, [port])):
                yield port


async def _none_free(uow: UnitOfWork, system: Object, change: ChangeSpec, allowed: AllowedPorts, path: str) -> BadInput:
    held = held_ports(system, change, await peek_claims(uow, allowed.ports))
    own = sum(port in allowed for port in {*change.picture.ports.values()} - held)
    services, wanted = len(held) + own, change.picture
    known = (
        f"0 while a port in {allowed.setting} (setting systems_address_ports) is free: of these {len(allowed.ports)},"
        f" services have {services}, and other programs {len(allowed.ports) - services}"
    )
    return BadInput(f"{wanted.field_of(path)}.address", 0, known)
