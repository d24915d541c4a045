"""Guard of the deployment's records: connections in use lead where they led, and only empty namespaces are removed.

Without its connection a VM could be neither observed nor terminated, and in a namespace that was removed nobody would
see it. New objects share the record of their connection and of their namespace. A change or removal of these records
excludes them while it counts its users, so none is overlooked.
"""

from stateward.domains.mci.errors import InUse, NoNamespace
from stateward.domains.mci.guards.spec_validation import check_spec, decode_spec
from stateward.domains.mci.lifecycle import COMMAND, MCI
from stateward.domains.mci.model import DEPLOYMENT_NS, CloudConnection, connection_record, record_id
from stateward.domains.mci.provider.catalogue import BUILT_IN
from stateward.domains.mci.remote.command_retention import ENDED_STATES
from stateward.domains.mci.resource_usage import objects_at_connection
from stateward.engine import Request
from stateward.engine.errors import Protected
from stateward.engine.kinds import Guard
from stateward.engine.protection import flag_key, namespace_flag_in
from stateward.engine.unit_of_work import UnitOfWork
from stateward.store.filters import Selector
from stateward.store.records import Key, Object

GROWTH_ACTIONS = ("scale out", "continue")
"""The actions after which an MCI creates VMs."""


def namespace_key(ns: str) -> Key:
    """Return the key of a namespace's record."""
    return Key(DEPLOYMENT_NS, record_id("ns", ns))


async def guard_connection(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Refuse to remove a connection in use, or to point it elsewhere: its machines could no longer be found."""
    check_spec(request, record)
    name = record.id.removeprefix(record_id("connection", ""))
    was = BUILT_IN.get(name) if request.creates is not None else connection_record(record)
    becomes: CloudConnection | None = None
    if request.action != "remove":
        becomes = decode_spec(record.kind, request.spec or record.spec)
    if was is None or (becomes is not None and becomes.enabled and _place(becomes) == _place(was)):
        return
    await uow.exclude([record.key])
    users = await objects_at_connection(uow, name)
    if users:
        raise InUse(f"connection {name!r}", users)


def _place(connection: CloudConnection) -> tuple[str, str]:
    return connection.lane, connection.driver


async def guard_namespace(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Refuse to remove a namespace that is protected or has objects; records of ended commands do not keep it."""
    if request.action != "remove":
        return
    ns = record.id.removeprefix(record_id("ns", ""))
    await uow.exclude([record.key])
    inside = await uow.peek_selected(Selector(ns))
    users = {user.kind for user in inside if user.kind != COMMAND.kind or user.state not in ENDED_STATES}
    if users:
        raise InUse(f"namespace {ns!r}", sorted(users))
    (flag,) = await uow.peek([flag_key(ns)])
    if reason := namespace_flag_in(flag):
        raise Protected("remove", ns, ns, None, reason)


def in_namespace(guard: Guard | None = None) -> Guard:
    """Return a guard that also refuses new objects in a namespace that was removed.

    The objects of an operation need no check: the object of the operation keeps the namespace. MCIs and their growth
    always share its record, which also keeps the resources that they name (`resource_users`).
    """

    async def both(uow: UnitOfWork, request: Request, target: Object) -> Request | None:
        is_new = request.creates is not None and (request.parent is None or target.kind == MCI.kind)
        if request.ns != DEPLOYMENT_NS and (is_new or request.action in GROWTH_ACTIONS):
            await uow.share([namespace_key(request.ns)])
            (record,) = await uow.peek([namespace_key(request.ns)])
            if record is not None and record.removed:
                raise NoNamespace(DEPLOYMENT_NS, request.ns)
        return None if guard is None else await guard(uow, request, target)

    return both
