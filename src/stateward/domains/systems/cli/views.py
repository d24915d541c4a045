"""Systems, deploys and locks as trees and tables on a terminal.

Definitions stay plain JSON here: a newer server may send fields that this version does not know.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from stateward.client.formatting import age_text, error_text, filled_table, state_text
from stateward.client.output import clean
from stateward.domains.systems.views import ChangeView, InstanceView, SystemLockView
from stateward.errors import count_text

if TYPE_CHECKING:
    from stateward.client.session import Session

SERVICE, POOL, SYSTEM, DEPLOY = "systems.service", "systems.nodepool", "systems.system", "systems.deploy"


class ServiceNode(Struct, frozen=True, kw_only=True):
    """A service, with the definition as plain JSON."""

    id: str
    path: str
    state: str
    since: datetime
    error: str | None = None
    definition: dict[str, Any] | None = None
    revision: str | None = None
    instances: list[InstanceView] | None = None


class NodePoolNode(Struct, frozen=True, kw_only=True):
    """A node pool, with the definition as plain JSON."""

    id: str
    name: str
    state: str
    error: str | None = None
    definition: dict[str, Any] | None = None


class SystemTree(Struct, frozen=True, kw_only=True):
    """A system with its services and node pools."""

    ns: str
    id: str
    state: str
    since: datetime
    error: str | None = None
    backend: str
    services: list[ServiceNode] | None = None
    node_pools: list[NodePoolNode] | None = None


def system_tree(session: "Session", found: SystemTree) -> Tree:
    """Return a system as a tree: its services by path, and their instances."""
    label = Text.assemble((clean(found.id), "bold"), " is ")
    label.append_text(state_text(session.state_class, SYSTEM, found.state)).append(
        f" for {age_text(found.since)} ({found.backend})"
    )
    tree = Tree(label)
    for service in found.services or ():
        branch = tree.add(_service(session, service))
        for one in service.instances or ():
            branch.add(_instance(one))
    for pool in found.node_pools or ():
        line = Text.assemble("node pool ", (clean(pool.name), "bold"), " is ")
        tree.add(line.append_text(state_text(session.state_class, POOL, pool.state)).append_text(_why(pool.error)))
    return tree


def _service(session: "Session", service: ServiceNode) -> Text:
    line = Text.assemble((clean(service.path), "bold"), " is ")
    line.append_text(state_text(session.state_class, SERVICE, service.state))
    wanted = (service.definition or {}).get("instances", 1)
    if service.instances is not None and service.definition is not None:
        line.append(f", {sum(one.ready for one in service.instances)} of {wanted} ready")
    address = (service.definition or {}).get("address")
    if address:
        line.append(f", at 127.0.0.1:{address}")
    return line.append_text(_why(service.error))


def _instance(one: InstanceView) -> Text:
    facts = [
        f"process {one.pid}" if one.pid else "",
        f"port {one.port}" if one.port else "",
        f"on {one.node}" if one.node else "",
        f"restarted {count_text(one.restarts, 'time')}" if one.restarts else "",
        f"without a limit of {' and '.join(one.unlimited)}" if one.unlimited else "",
    ]
    style = "green" if one.ready else "yellow" if one.phase in ("starting", "stopping") else "red"
    line = Text.assemble(clean(one.name), " ", ("ready" if one.ready else one.phase, style))
    return line.append("".join(f", {fact}" for fact in facts if fact)).append_text(_why(one.why))


def _why(error: str | None) -> Text:
    return error_text(f": {error}") if error else Text("")


def change_table(session: "Session", found: Sequence[ChangeView]) -> Table:
    """Return deploys as a table."""
    rows = (
        (
            one.id,
            one.path,
            state_text(session.state_class, DEPLOY, one.state),
            age_text(one.created),
            str(one.services),
            one.undoes or "",
            error_text(one.error),
        )
        for one in found
    )
    return filled_table(("deploy", "path", "state", "age", "services", "rolls back", "why"), rows)


def lock_table(found: Sequence[SystemLockView]) -> Table:
    """Return locks as a table."""
    rows = (
        (one.path, one.mode, "waiting" if one.waiting else "held", one.object, one.action, one.who, age_text(one.since))
        for one in found
    )
    return filled_table(("path", "mode", "is", "by", "action", "of", "since"), rows)
