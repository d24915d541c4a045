"""Records of the deployment: connections with their grants and lane limits, settings, and namespaces.

An administrator adds, changes, grants, revokes and removes connections. Concurrent changes of a record are retried, so
that none is lost. Lane limits hold for the whole deployment.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.mci.errors import InvalidNamespace, NoNamespace
from stateward.domains.mci.guards.connection_grants import with_granted, without_revoked
from stateward.domains.mci.guards.spec_validation import MCI_NAME
from stateward.domains.mci.lifecycle import CONNECTION, NAMESPACE, SETTING
from stateward.domains.mci.model import DEPLOYMENT_NS, CloudConnection, TumblebugSetting, record_id, setting_record
from stateward.domains.mci.provider.catalogue import BUILT_IN, Catalogue
from stateward.domains.mci.provider.provider_pool import ProviderClients
from stateward.domains.mci.remote.command_retention import command_lane, forget_ended_commands
from stateward.engine import Accepted, AlreadyExists, Engine, NotFound
from stateward.engine.errors import VersionMismatch
from stateward.engine.queries import list_all
from stateward.lifecycle import CONTROLLER
from stateward.schemas.caller import Caller
from stateward.store.filters import Selector
from stateward.store.records import Key, Lane, LaneGroup, Object


class ProviderLimit(Struct, frozen=True):
    """Limits of a provider: regions at once, and VMs at once in each region."""

    regions: int
    vms: int


LIMITS = {
    #                  regions  VMs
    "aws":       ProviderLimit(10,      30),
    "azure":     ProviderLimit(8,       25),
    "gcp":       ProviderLimit(12,      35),
    "alibaba":   ProviderLimit(6,       20),
    "ncp":       ProviderLimit(3,       15),
    "openstack": ProviderLimit(5,       15),
}  # fmt: skip
DEFAULT_LIMIT = ProviderLimit(10, 30)


def limit_of(provider: str) -> ProviderLimit:
    """Return the limits of a provider."""
    return LIMITS.get(provider, DEFAULT_LIMIT)


def lanes_of(connections: Iterable[CloudConnection]) -> tuple[list[LaneGroup], list[Lane]]:
    """Return the lane groups and lanes of connections."""
    places = {(connection.provider, connection.lane) for connection in connections}
    groups = [LaneGroup(provider, limit_of(provider).regions) for provider in sorted({grp for grp, _ in places})]
    lanes = [Lane(lane, provider, limit_of(provider).vms, 0.0, 0.0, 0) for provider, lane in sorted(places)]
    return groups, lanes


MAX_WRITE_ATTEMPTS = 10
"""Attempts to write a record that other requests change at the same time."""

Change = Callable[[CloudConnection | None], CloudConnection]
"""Returns the new connection from the current one; None stands for an unknown connection."""


class DeploymentRecords:
    """Reads and writes connections, settings and namespaces."""

    def __init__(self, engine: Engine, catalogue: Catalogue, clients: ProviderClients) -> None:
        self.engine, self.catalogue, self.clients = engine, catalogue, clients

    async def _act(self, ns: str, id_: str, action: str, by: Caller, **how: Any) -> Accepted:  # noqa: ANN401 - as `Engine.act`
        return await self.engine.act(ns, id_, action, actor=by.actor, who=by.who, **how)

    async def add_connection(self, connection: CloudConnection, by: Caller) -> CloudConnection:
        """Add or change a connection; its driver must exist, and one in use cannot lead elsewhere.

        A change without namespaces keeps the current ones, unless the driver changes.
        """
        await self.clients.check(connection)

        def changed(was: CloudConnection | None) -> CloudConnection:
            if connection.namespaces is None and was is not None and was.driver == connection.driver:
                return replace(connection, namespaces=was.namespaces)
            return connection

        made = await self._change_connection(connection.name, changed, by)
        await self.engine.set_limits(*lanes_of([made]))
        return made

    async def grant(self, name: str, namespaces: Iterable[str], by: Caller) -> CloudConnection:
        """Let further namespaces create VMs and resources at a connection."""
        known, further = await self.catalogue.connection(name), tuple(namespaces)

        def granted(was: CloudConnection | None) -> CloudConnection:
            return replace(was or known, namespaces=with_granted(was or known, further))

        return await self._change_connection(name, granted, by)

    async def revoke(self, name: str, namespaces: Iterable[str], by: Caller) -> CloudConnection:
        """Take the grant of namespaces away; their VMs and resources stay and can be controlled."""
        known, leaving = await self.catalogue.connection(name), tuple(namespaces)

        def revoked(was: CloudConnection | None) -> CloudConnection:
            return replace(was or known, namespaces=without_revoked(was or known, leaving))

        return await self._change_connection(name, revoked, by)

    async def remove_connection(self, name: str, by: Caller) -> None:
        """Remove an unused connection; a built-in one stays as a disabled record."""
        known = await self.catalogue.connection(name)
        if name in BUILT_IN:
            await self._change_connection(name, lambda _: replace(known, enabled=False, namespaces=None), by)
        else:
            await self.engine.act(DEPLOYMENT_NS, record_id("connection", name), "remove", actor=CONTROLLER, who=by.who)
        await self.clients.discard(name)
        if known.lane not in {connection.lane for connection in await self.catalogue.all_connections()}:
            await self.engine.remove_limits([known.lane])

    async def _change_connection(self, name: str, change: Change, by: Caller) -> CloudConnection:
        """Write the changed record; retry if other requests change it at the same time."""
        key = Key(DEPLOYMENT_NS, record_id("connection", name))
        for last in (*[False] * (MAX_WRITE_ATTEMPTS - 1), True):
            record = await self.engine.store.reader.object(key)
            was = self.catalogue.read_connection(name, record)
            new = change(was)
            if new == was:
                return was
            how: dict[str, Any] = {"spec": new, "actor": CONTROLLER, "who": by.who}
            try:
                if record is None or record.removed:
                    done = await self.engine.create(*key, CONNECTION.kind, "register", **how)
                else:
                    done = await self.engine.act(*key, "change", version=record.version, **how)
            except (AlreadyExists, VersionMismatch):
                if last:
                    raise
                continue
            break
        self.clients.invalidate(name)
        made = self.catalogue.read_connection(name, done.object)
        assert made is not None
        return made

    # --- settings of Tumblebug's server ------------------------------------------------------------------------------

    async def settings(self) -> list[TumblebugSetting]:
        """Return the stored settings, by name."""
        chosen = list_all(self.engine.store.reader, Selector(DEPLOYMENT_NS, SETTING.kind))
        return sorted([setting_record(record) async for record in chosen], key=lambda setting: setting.name)

    async def store_setting(self, setting: TumblebugSetting, by: Caller) -> None:
        """Store a setting, or change its value."""
        key = Key(DEPLOYMENT_NS, record_id("setting", setting.name))
        how: dict[str, Any] = {"spec": setting, "actor": CONTROLLER, "who": by.who}
        try:
            await self.engine.create(*key, SETTING.kind, "register", **how)
        except AlreadyExists:
            await self.engine.act(*key, "change", **how)

    async def remove_setting(self, name: str, by: Caller) -> None:
        """Remove a setting, if it is stored."""
        with suppress(NotFound):
            id_ = record_id("setting", name)
            await self.engine.act(DEPLOYMENT_NS, id_, "remove", actor=CONTROLLER, who=by.who)

    # --- namespaces --------------------------------------------------------------------------------------------------

    async def add_namespace(self, ns: str, description: str, by: Caller) -> Object:
        """Create a namespace."""
        id_, spec = record_id("ns", ns), {"name": ns, "description": description}
        how: dict[str, Any] = {"spec": spec, "actor": CONTROLLER, "who": by.who}
        return (await self.engine.create(DEPLOYMENT_NS, id_, NAMESPACE.kind, "register", **how)).object

    async def describe_namespace(self, ns: str, description: str, by: Caller) -> Object:
        """Change the description of a namespace."""
        record, spec = await self.namespace(ns), {"name": ns, "description": description}
        return (await self.engine.act(*record.key, "change", spec=spec, actor=CONTROLLER, who=by.who)).object

    async def namespace(self, ns: str) -> Object:
        """Return a namespace, or raise."""
        try:
            return await self.engine.record(DEPLOYMENT_NS, record_id("ns", ns))
        except NotFound:
            raise (NoNamespace if MCI_NAME.match(ns) else InvalidNamespace)(DEPLOYMENT_NS, ns) from None

    async def namespaces(self) -> list[Object]:
        """Return all namespaces."""
        chosen = list_all(self.engine.store.reader, Selector(DEPLOYMENT_NS, NAMESPACE.kind))
        return [record async for record in chosen if record.id.startswith(record_id("ns", ""))]

    async def remove_namespace(self, ns: str, by: Caller) -> None:
        """Remove an empty namespace; records of ended commands do not keep it, and are removed, too."""
        record = await self.namespace(ns)
        await self.engine.act(*record.key, "remove", actor=CONTROLLER, who=by.who)
        await forget_ended_commands(self.engine, ns)
        await self.engine.remove_limits([command_lane(ns)])

    async def ensure_namespaces(self, names: Iterable[str]) -> None:
        """Create missing namespaces."""
        for name in names:
            with suppress(AlreadyExists):
                await self.add_namespace(name, "", Caller(CONTROLLER))
