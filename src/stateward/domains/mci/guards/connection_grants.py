"""Grants: the namespaces that may create VMs and resources at a connection.

A driver that runs machines on the server's own host gives its users processes there. An administrator therefore names
the namespaces that may use such a connection.

Without a grant a namespace can create nothing at a connection, run no command there, and register no spec or image of
it. The grant is checked in the transaction that accepts a request, and again by the worker before it calls the driver.
VMs at a connection whose grant was revoked can still be suspended, resumed, rebooted and terminated.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from stateward import naming
from stateward.domains.mci import model
from stateward.domains.mci.errors import ConnectionMoved, NotAdopting, NotGranted
from stateward.domains.mci.guards.spec_validation import decode_spec
from stateward.domains.mci.lifecycle import MCI, SPEC
from stateward.domains.mci.provider.catalogue import Catalogue, find_known_spec
from stateward.engine import Request
from stateward.engine.kinds import Guard
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput, UnknownName
from stateward.store.records import Key, Object

ALL_NAMESPACES = "*"
"""Stands for all namespaces."""

ADOPT_OPTION = "adopt"
"""The option of every connection that names the namespaces which may adopt the machines of others there."""

CREATING_ACTIONS = ("adopt", "create", "repair", "reshape", "scale out")
"""The actions that create something at a provider, or adopt it there."""

RENAMING_ACTION = "change"
"""The action that may move a record of a namespace, such as a spec, to another connection."""


def is_granted(connection: model.CloudConnection, ns: str) -> bool:
    """Tell whether a namespace may use a connection."""
    granted = connection.namespaces or ()
    return connection.enabled and (ALL_NAMESPACES in granted or ns in granted)


def check_grant(connection: model.CloudConnection, ns: str) -> None:
    """Refuse a namespace that may not use a connection."""
    if not is_granted(connection, ns):
        raise NotGranted(connection.name, ns, enabled=connection.enabled)


def check_adoption(connection: model.CloudConnection, ns: str) -> None:
    """Refuse a namespace that may not adopt machines at a connection; none may unless the connection names it."""
    check_grant(connection, ns)
    named = adopting_namespaces(connection.options)
    if ALL_NAMESPACES not in named and ns not in named:
        raise NotAdopting(connection.name, ns)


def adopting_namespaces(options: Mapping[str, str]) -> frozenset[str]:
    """Return the namespaces that the options of a connection let adopt machines; `*` stands for all."""
    named = frozenset(name.strip() for name in options.get(ADOPT_OPTION, "").split(",")) - {""}
    for name in named:
        if name != ALL_NAMESPACES and re.match(naming.NAME, name) is None:
            raise BadInput(ADOPT_OPTION, name, f"names of namespaces with commas between them, or {ALL_NAMESPACES!r}")
    return named


def unknown_connection(field: str, name: str, granted: Iterable[str]) -> BadInput:
    """Return the error for an unknown connection; its hint names only connections that the caller may use."""
    nearest = UnknownName("connection", name, granted).nearest
    return BadInput(field, name, "a known connection" + (f" ({nearest}?)" if nearest else ""))


def with_granted(connection: model.CloudConnection, namespaces: Iterable[str]) -> tuple[str, ...]:
    """Return the namespaces of a connection with some added."""
    granted = {*(connection.namespaces or ()), *namespaces}
    return (ALL_NAMESPACES,) if ALL_NAMESPACES in granted else tuple(sorted(granted))


def without_revoked(connection: model.CloudConnection, namespaces: Iterable[str]) -> tuple[str, ...]:
    """Return the namespaces of a connection with some removed."""
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
        """Return a guard that also checks grants, on the request that the wrapped guard has completed."""

        async def both(uow: UnitOfWork, request: Request, target: Object) -> Request | None:
            completed = await guard(uow, request, target)
            if request.creates is not None or request.action in (*CREATING_ACTIONS, RENAMING_ACTION):
                await self._check(uow, completed or request, target)
            return completed

        return both

    async def _check(self, uow: UnitOfWork, request: Request, target: Object) -> None:
        wanted = decode_spec(target.kind, request.spec or target.spec)
        names = await self._used(uow, request, wanted) if target.kind == MCI.kind else [wanted.connection]
        keys = [Key(model.DEPLOYMENT_NS, model.record_id("connection", name)) for name in names]
        is_new = request.creates is not None and isinstance(wanted, model.VmSpec | model.ResourceIdentity)
        if is_new:
            await uow.share(keys)  # the connection leads there until the new object, which keeps it there, is stored
        for name, record in zip(names, await uow.peek(keys), strict=True):
            connection = self._catalogue.read_connection(name, record)
            if connection is not None:  # nothing can be created at an unknown connection
                (check_adoption if request.action == "adopt" else check_grant)(connection, request.ns)
            if is_new and (connection is None or connection.lane != wanted.lane):
                raise ConnectionMoved(name, wanted.lane)

    async def _used(self, uow: UnitOfWork, request: Request, mci: model.MciSpec) -> list[str]:
        """Return the connections at which a request adds VMs to an MCI."""
        if request.action == "adopt":
            adoption = msgspec.json.decode(request.args, type=model.Adoption)
            return list(dict.fromkeys(machine.connection for machine in adoption.machines))
        groups = mci.groups
        if request.creates is None:
            scale = msgspec.json.decode(request.args, type=model.Scale)
            groups = tuple(group for group in groups if group.name == scale.group)
        homes = await homes_of(uow, request.ns, groups)
        used = (group.connection or homes.get(group.spec, "") for group in groups)
        return list(dict.fromkeys(filter(None, used)))


async def homes_of(uow: UnitOfWork, ns: str, groups: Iterable[model.SubGroup]) -> dict[str, str]:
    """Return the connections of the specs of subgroups that name no connection; empty for unknown specs."""
    specs = [group.spec for group in groups if not group.connection]
    records = await uow.peek([Key(ns, model.record_id("spec", id_)) for id_ in specs])
    return {id_: _home_of(id_, record) for id_, record in zip(specs, records, strict=True)}


def _home_of(id_: str, record: Object | None) -> str:
    """Return the connection of a spec, registered or built-in."""
    if record is not None and not record.removed and record.kind == SPEC.kind:
        return model.spec_record(record).connection
    known = find_known_spec(id_)
    return "" if known is None else known.connection
