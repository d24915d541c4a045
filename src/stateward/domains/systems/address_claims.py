"""The claims of services and open deploys on ports, of all namespaces.

A port is one of a host, and the transaction that accepts a deploy sees the objects of its own namespace. So each port
has a record in the namespace of the deployment, as quotas have. Whoever claims a port locks its record first: of two
deploys that ask for one free port at the same moment, the second one finds the claim of the first, whichever server
accepts it.

A claim holds while its deploy is open, or while its service has the port. Both are looked up when the port is asked
for. So nothing has to release a claim, and none outlives its holder, whatever is killed when; records of ports that
nobody has any more are removed from time to time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from stateward.access.tokens import SYSTEM as DEPLOYMENT
from stateward.domains.systems.lifecycle import ADDRESS, OPEN_DEPLOY
from stateward.domains.systems.model import DesiredService, seen_of, spec_of
from stateward.domains.systems.object_ids import service_id
from stateward.engine import Engine
from stateward.engine.transitions import absent_object, change_state
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import CONTROLLER, Move, decide
from stateward.locks.paths import parse_path
from stateward.store.filters import Page, Selector
from stateward.store.port import Reader, Tx
from stateward.store.records import Key, Object, to_json

MAX_PORTS = 65_536


class AddressClaim(Struct, frozen=True, order=True):
    """The claim of a deploy for a service; once the deploy has ended, of the service itself (`deploy` is empty)."""

    ns: str
    system: str
    path: str
    deploy: str = ""

    @property
    def keys(self) -> tuple[Key, Key, Key]:
        """The keys of its system, its service and its deploy."""
        service = service_id(self.system, parse_path(self.path))
        return Key(self.ns, self.system), Key(self.ns, service), Key(self.ns, self.deploy)


class AddressClaims(Struct, frozen=True):
    """The observations of an address: all claims on its port, some of which may have ended."""

    claims: tuple[AddressClaim, ...] = ()


class ClaimedPort(Struct, frozen=True):
    """A port, and a claim on it that holds."""

    port: int
    claim: AddressClaim
    system: Object


def address_key(port: int) -> Key:
    """Return the key of the record of a port."""
    return Key(DEPLOYMENT, f"address-{port}")


def _port_of(record: Object) -> int:
    return int(record.id.removeprefix(address_key(0).id[:-1]))


async def find_claims(reader: Reader, ports: Iterable[int]) -> list[ClaimedPort]:
    """Return the committed claims on some ports that hold."""
    records = (await reader.objects({address_key(port) for port in ports})).values()
    return _holding(records, await reader.objects(_claimed_keys(records)))


async def lock_claims(uow: UnitOfWork, ports: Collection[int]) -> list[ClaimedPort]:
    """Return the claims on some ports that hold, and lock the records of the ports."""
    await uow.load([address_key(port) for port in ports])
    return await peek_claims(uow, ports)


async def peek_claims(uow: UnitOfWork, ports: Collection[int]) -> list[ClaimedPort]:
    """Return the claims on some ports that hold, as they are before a lock; those of locked records are certain."""
    records = [record for record in await uow.peek([address_key(port) for port in ports]) if record is not None]
    wanted = list(_claimed_keys(records))
    holders = await uow.peek(wanted)
    return _holding(records, {key: holder for key, holder in zip(wanted, holders, strict=True) if holder is not None})


def write_claims(
    uow: UnitOfWork, known: Sequence[ClaimedPort], claimed: Iterable[tuple[int, AddressClaim]], who: str
) -> None:
    """Add claims to those that hold; the records of the ports must be locked."""
    wanted: dict[int, set[AddressClaim]] = {}
    for port, claim in claimed:
        wanted.setdefault(port, {claimed_port.claim for claimed_port in known if claimed_port.port == port}).add(claim)
    for port, claims in wanted.items():
        _write_record(uow, address_key(port), "hold", AddressClaims(tuple(sorted(claims))), who)


def _write_record(uow: UnitOfWork, key: Key, event: str, after: AddressClaims, who: str) -> None:
    former = uow.objects.get(key)
    before = absent_object(key, ADDRESS, uow.now) if former is None or former.removed else former
    if before is former and seen_of(former, AddressClaims) == after:
        return
    move = decide(ADDRESS, before.state, event, CONTROLLER)
    assert isinstance(move, Move), move
    change_state(uow, before, move, who, None, seen=to_json(after))


def _claimed_keys(records: Iterable[Object]) -> set[Key]:
    return {
        key
        for record in records
        if not record.removed
        for claim in seen_of(record, AddressClaims).claims
        for key in claim.keys
    }


def _holding(records: Iterable[Object], holders: Mapping[Key, Object]) -> list[ClaimedPort]:
    """Return the claims that hold, given the objects that they name."""
    present = {key: holder for key, holder in holders.items() if not holder.removed}
    claimed: list[ClaimedPort] = []
    for record in (stored for stored in records if not stored.removed):
        port = _port_of(record)
        for claim in seen_of(record, AddressClaims).claims:
            system, service, deploy = (present.get(key) for key in claim.keys)
            if system is None:
                continue
            if deploy is not None and deploy.state in OPEN_DEPLOY:
                claimed.append(ClaimedPort(port, claim, system))
            elif service is not None and _has_address(service, port):
                claimed.append(ClaimedPort(port, replace(claim, deploy=""), system))
    return claimed


def _has_address(service: Object, port: int) -> bool:
    wanted = spec_of(service, DesiredService)
    return wanted is not None and wanted.port == port


async def remove_unused_addresses(engine: Engine) -> None:
    """Remove the records of ports that nobody has any more."""
    records = await engine.store.reader.list_objects(Selector(DEPLOYMENT, ADDRESS.kind), Page(None, MAX_PORTS))
    ports = {_port_of(record) for record in records}
    used = {claimed_port.port for claimed_port in await find_claims(engine.store.reader, ports)}
    for port in sorted(ports - used):
        await engine.store.transact(partial(_remove_if_unused, port))


async def _remove_if_unused(port: int, tx: Tx) -> None:
    uow, key = UnitOfWork(tx), address_key(port)
    if not await lock_claims(uow, [port]) and not uow.objects[key].removed:
        _write_record(uow, key, "release", AddressClaims(), "")
        await uow.apply()
