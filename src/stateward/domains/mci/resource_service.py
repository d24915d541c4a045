"""Networks change: subnets come and go, the network stays. Each change is one atomic step, on the latest record."""

from msgspec.structs import replace

from stateward.domains.mci.errors import InUse
from stateward.domains.mci.lifecycle import VM, VmState
from stateward.domains.mci.model import NetworkSpec, Subnet, network_of, to_builtins, vm_of
from stateward.domains.mci.provider.catalogue import objects
from stateward.domains.mci.service import Service, retry_on_change
from stateward.engine import Accepted, AlreadyExists, NotFound
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Object


async def add_subnet(service: Service, ns: str, network: str, subnet: Subnet, by: Caller) -> Accepted:
    """Give a network one more subnet; whether it fits is for the caller to say."""

    async def added() -> Accepted:
        found = await service.part(ns, "vNet", network)
        want = network_of(found)
        if any(one.name == subnet.name for one in want.subnets):
            raise AlreadyExists(ns, f"{network}/{subnet.name}", found.state)
        return await _reshape(service, found, replace(want, subnets=(*want.subnets, subnet)), by)

    return await retry_on_change(added)


async def remove_subnet(
    service: Service, ns: str, network: str, subnet: str, by: Caller, *, force: bool = False
) -> Accepted:
    """Take a subnet away from a network; one that VMs stand in only with force, and if the provider lets it go."""

    async def removed() -> Accepted:
        found = await service.part(ns, "vNet", network)
        want = network_of(found)
        left = tuple(one for one in want.subnets if one.name != subnet)
        if len(left) == len(want.subnets):
            raise NotFound(ns, f"{network}/{subnet}")
        users = [] if force else await _users(service, ns, network, subnet)
        if users:
            raise InUse(f"subnet {subnet!r} of vNet {network!r}", users)
        return await _reshape(service, found, replace(want, subnets=left), by)

    return await retry_on_change(removed)


async def _reshape(service: Service, found: Object, want: NetworkSpec, by: Caller) -> Accepted:
    return await service.engine.act(
        found.ns, found.id, "reshape", spec=to_builtins(want), version=found.version, actor=by.actor, who=by.who
    )


async def _users(service: Service, ns: str, network: str, subnet: str) -> list[str]:
    """Return the VMs that stand in a subnet; one that names none stands in the first."""
    first = next(iter(network_of(await service.part(ns, "vNet", network)).subnets)).name
    return [
        one.id
        async for one in objects(service.engine.store.reader, Selector(ns, VM.kind))
        if one.state != VmState.TERMINATED and vm_of(one).network == network and (vm_of(one).subnet or first) == subnet
    ]
