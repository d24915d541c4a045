"""Grants: the namespaces that may make things at a connection.

A driver that acts on the server's own host gives its user a process there. An administrator therefore names the
namespaces that may use such a connection; all others may use connections to clouds only.

Nothing is made at a connection, no command is run there, and no spec or image of it is registered, unless its record
grants it to the namespace. That is checked in the transaction that accepts a request, and again by the worker before it
calls the driver. What runs at a connection whose grant was revoked can still be suspended, resumed, rebooted and
terminated.
"""

from collections.abc import Iterable

import msgspec

from stateward.domains.mci.errors import NotGranted
from stateward.domains.mci.guards.spec_validation import decode_spec
from stateward.domains.mci.lifecycle import MCI, SPEC
from stateward.domains.mci.model import DEPLOYMENT_NS, CloudConnection, MciSpec, Scale, SpecRecord, SubGroup, record_id
from stateward.domains.mci.provider.catalogue import Catalogue, find_known_spec
from stateward.engine import Request
from stateward.engine.kinds import Guard
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName
from stateward.store.records import Key, Object

ALL_NAMESPACES = "*"
"""Stands for every namespace."""

CREATING_ACTIONS = ("create", "repair", "reshape", "scale out")
"""The actions that make something at a provider which was not there before."""

RENAMING_ACTION = "change"
"""The action by which a record of a namespace, such as a spec, may name another connection."""


def is_granted(connection: CloudConnection, ns: str) -> bool:
    """Tell whether a namespace may use a connection."""
    granted = connection.namespaces or ()
    return connection.enabled and (ALL_NAMESPACES in granted or ns in granted)


def check_grant(connection: CloudConnection, ns: str) -> None:
    """Refuse a namespace that may not use a connection."""
    if not is_granted(connection, ns):
        raise NotGranted(connection.name, ns, enabled=connection.enabled)


def unknown_connection(field: str, name: str, granted: Iterable[str]) -> BadInput:
    """Return the error of a name that no connection has; its hint names none that the caller may not use."""
    nearest = UnknownName("connection", name, granted).nearest
    return BadInput(field, name, "a known connection" + (f" ({nearest}?)" if nearest else ""))


def with_granted(connection: CloudConnection, namespaces: Iterable[str]) -> tuple[str, ...]:
    """Return the namespaces of a connection and further ones."""
    found = {*(connection.namespaces or ()), *namespaces}
    return (ALL_NAMESPACES,) if ALL_NAMESPACES in found else tuple(sorted(found))


def without_revoked(connection: CloudConnection, namespaces: Iterable[str]) -> tuple[str, ...]:
    """Return the namespaces of a connection without some."""
    granted, leaving = set(connection.namespaces or ()), set(namespaces)
    if ALL_NAMESPACES in granted and ALL_NAMESPACES not in leaving:
        allowed = f"{ALL_NAMESPACES!r}: {connection.name!r} is granted to all namespaces, and not to one by one"
        raise BadInput("namespaces", sorted(leaving), allowed)
    return () if ALL_NAMESPACES in leaving else tuple(sorted(granted - leaving))


class GrantGuard:
    """Checks grants in the transaction that accepts a request."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def wrap(self, guard: Guard) -> Guard:
        """Return a guard that checks grants too, on the request as the other guard has completed it."""

        async def both(uow: UnitOfWork, request: Request, found: Object) -> Request | None:
            completed = await guard(uow, request, found)
            if request.creates is not None or request.action in (*CREATING_ACTIONS, RENAMING_ACTION):
                await self._check(uow, completed or request, found)
            return completed

        return both

    async def _check(self, uow: UnitOfWork, request: Request, found: Object) -> None:
        wanted = decode_spec(found.kind, request.spec or found.spec)
        names = await self._used(uow, request, wanted) if found.kind == MCI.kind else [wanted.connection]
        keys = [Key(DEPLOYMENT_NS, record_id("connection", name)) for name in names]
        for name, record in zip(names, await uow.peek(keys), strict=True):
            connection = self._catalogue.read_connection(name, record)
            if connection is not None:  # nothing can be made at one that nobody knows
                check_grant(connection, request.ns)

    async def _used(self, uow: UnitOfWork, request: Request, mci: MciSpec) -> list[str]:
        """Return the connections at which an MCI is to get VMs by a request."""
        groups = mci.groups
        if request.creates is None:
            scale = msgspec.json.decode(request.args, type=Scale)
            groups = tuple(one for one in groups if one.name == scale.group)
        unnamed = [one.spec for one in groups if not one.connection]
        records = await uow.peek([Key(request.ns, record_id("spec", id_)) for id_ in unnamed])
        homes = {id_: _home_of(id_, record) for id_, record in zip(unnamed, records, strict=True)}
        return list(dict.fromkeys(filter(None, (_connection_of(one, homes) for one in groups))))


def _connection_of(group: SubGroup, homes: dict[str, str]) -> str:
    return group.connection or homes.get(group.spec, "")


def _home_of(id_: str, record: Object | None) -> str:
    """Return the connection of a spec: one that is registered, or one that is known from the start."""
    if record is not None and not record.removed and record.kind == SPEC.kind:
        return msgspec.json.decode(record.spec, type=SpecRecord).connection
    known = find_known_spec(id_)
    return "" if known is None else known.connection
