"""Routes to VMs over SSH: directly, or through a bastion where a VM has no public address.

The bastion is a running VM with a public address: the chosen one, or else one of the same network, or of the same MCI.
"""

from collections.abc import Iterable

from msgspec import Struct

from stateward.domains.mci.lifecycle import VmState
from stateward.domains.mci.model import vm_of, vm_seen
from stateward.domains.mci.remote.host_key_pins import chosen_bastion, known_host_key
from stateward.drivers.ssh.ssh_address import SshAddress
from stateward.store.records import Object


class SshRoute(Struct, frozen=True):
    """The address of a VM, and the VM through which it is reached, if it is not reached directly."""

    address: SshAddress
    bastion: Object | None = None


class NoRoute(ConnectionError):
    """A VM cannot be reached over SSH."""


def is_reachable(vm: Object) -> bool:
    """Tell whether a VM runs, has a public address and an SSH server."""
    seen = vm_seen(vm)
    return vm.state == VmState.RUNNING and bool(seen.public_ip) and seen.ssh_port > 0


def find_route(vm: Object, others: Iterable[Object], user: str = "", *, on_host: bool = False) -> SshRoute:
    """Return the route to a VM; raises `NoRoute`. A machine `on_host` is reached by its private address."""
    seen, login = vm_seen(vm), user or vm_of(vm).user
    if not seen.ssh_port:
        raise NoRoute("the machine has no SSH server")
    if not login and vm_of(vm).adopted:
        raise NoRoute("the machine was adopted, and no user of it is known: name one (userName, or --user)")
    host = seen.public_ip or (seen.private_ip if on_host else "")
    if host:
        return SshRoute(SshAddress(host, seen.ssh_port, login, known_host_key(vm)))
    if not seen.private_ip:
        raise NoRoute("the machine has no address")
    bastion = choose_bastion(vm, others)
    if bastion is None:
        raise NoRoute("the machine has no public address, and no running VM of its network or its MCI has one")
    return SshRoute(SshAddress(seen.private_ip, seen.ssh_port, login, known_host_key(vm)), bastion)


def choose_bastion(vm: Object, others: Iterable[Object]) -> Object | None:
    """Return the bastion of a VM: the chosen one, or else one of its network, or of its MCI."""
    chosen, spec = chosen_bastion(vm), vm_of(vm)
    candidates = [candidate for candidate in others if candidate.id != vm.id and is_reachable(candidate)]
    if chosen:
        return next((candidate for candidate in candidates if candidate.id == chosen), None)

    def distance(candidate: Object) -> tuple[bool, bool, str]:
        other = vm_of(candidate)
        is_near = bool(spec.network) and (other.network, other.connection) == (spec.network, spec.connection)
        return not is_near, other.connection != spec.connection, candidate.id

    near = [candidate for candidate in candidates if not distance(candidate)[0] or vm_of(candidate).mci == spec.mci]
    return min(near, key=distance, default=None)
