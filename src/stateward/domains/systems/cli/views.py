"""Systems, deploys, jobs and locks as trees and tables on a terminal.

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
from stateward.domains.systems.job_views import JobRunView, SkippedView
from stateward.domains.systems.views import ChangeView, InstanceView, NodeAlertView, SystemLockView
from stateward.errors import count_text

if TYPE_CHECKING:
    from stateward.client.session import Session

SERVICE, POOL, SYSTEM, DEPLOY = "systems.service", "systems.nodepool", "systems.system", "systems.deploy"
JOB, JOBRUN = "systems.job", "systems.jobrun"


class ServiceNode(Struct, frozen=True, kw_only=True):
    """A service, with the definition as plain JSON."""

    id: str
    path: str
    state: str
    since: datetime
    error: str | None = None
    definition: dict[str, Any] | None = None
    revision: str | None = None
    address: int | None = None
    instances: list[InstanceView] | None = None
    progress: str | None = None


class NodePoolNode(Struct, frozen=True, kw_only=True):
    """A node pool, with the definition as plain JSON."""

    id: str
    name: str
    state: str
    error: str | None = None
    definition: dict[str, Any] | None = None


class JobNode(Struct, frozen=True, kw_only=True):
    """A job, with the definition as plain JSON."""

    id: str
    path: str
    state: str
    since: datetime
    error: str | None = None
    definition: dict[str, Any] | None = None
    next: datetime | None = None
    skipped: SkippedView | None = None
    runs: list[JobRunView] = []


class SystemTree(Struct, frozen=True, kw_only=True):
    """A system with its services, jobs and node pools."""

    ns: str
    id: str
    state: str
    since: datetime
    error: str | None = None
    backend: str
    services: list[ServiceNode] | None = None
    node_pools: list[NodePoolNode] | None = None
    jobs: list[JobNode] | None = None
    deploys: list[ChangeView] | None = None
    alerts: list[NodeAlertView] | None = None


def system_tree(session: "Session", found: SystemTree) -> Tree:
    """Return a system as a tree: its services by path, and their instances; then its jobs."""
    label = Text.assemble((clean(found.id), "bold"), " is ")
    label.append_text(state_text(session.state_class, SYSTEM, found.state)).append(
        f" for {age_text(found.since)} ({found.backend})"
    )
    tree = Tree(label)
    for alert in found.alerts or ():
        tree.add(error_text(f"{alert.node}: {alert_text(alert)}"))
    for service in found.services or ():
        branch = tree.add(_service(session, service))
        for one in service.instances or ():
            branch.add(_instance(one))
    for job in found.jobs or ():
        line = Text.assemble("job ", (clean(job.path), "bold"), " is ")
        line.append_text(state_text(session.state_class, JOB, job.state)).append(f", {_trigger(job)}")
        tree.add(line.append_text(_last_run(session, job, ", last run ")).append_text(_why(job.error)))
    for pool in found.node_pools or ():
        line = Text.assemble("node pool ", (clean(pool.name), "bold"), " is ")
        tree.add(line.append_text(state_text(session.state_class, POOL, pool.state)).append_text(_why(pool.error)))
    for deploy in found.deploys or ():
        line = Text.assemble("deploy of ", (clean(deploy.path), "bold"), " is ")
        line.append_text(state_text(session.state_class, DEPLOY, deploy.state))
        tree.add(line.append(f": {clean(deploy.progress)}" if deploy.progress else ""))
    return tree


def alert_text(alert: NodeAlertView) -> str:
    """Return an alert of a node, with its reason and its age."""
    return f"{alert.name} for {age_text(alert.since)}, {alert.reason}"


def _service(session: "Session", service: ServiceNode) -> Text:
    line = Text.assemble((clean(service.path), "bold"), " is ")
    line.append_text(state_text(session.state_class, SERVICE, service.state))
    wanted = (service.definition or {}).get("instances", 1)
    if service.instances is not None and service.definition is not None:
        line.append(f", {sum(one.ready for one in service.instances)} of {wanted} ready")
    address = service.address or (service.definition or {}).get("address")  # an older server tells the latter alone
    if address:
        line.append(f", at 127.0.0.1:{address}")
    return line.append_text(_why(service.error or service.progress))


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
            error_text(one.error) if one.error else clean(one.progress or ""),
        )
        for one in found
    )
    return filled_table(("deploy", "path", "state", "age", "services", "rolls back", "why"), rows)


def _trigger(job: JobNode) -> str:
    wanted = job.definition or {}
    if wanted.get("schedule"):
        return f"runs at {wanted['schedule']} ({wanted.get('time_zone', 'UTC')})"
    return f"runs {wanted['hook']}" if wanted.get("hook") else "runs on request"


def _last_run(session: "Session", job: JobNode, prefix: str = "") -> Text:
    if not job.runs:
        return Text("")
    last = job.runs[0]
    state = state_text(session.state_class, JOBRUN, last.state)
    return Text.assemble(prefix, state, f" {age_text(last.created)} ago")


def job_table(session: "Session", found: Sequence[JobNode]) -> Table:
    """Return jobs as a table."""
    rows = (
        (
            one.path,
            state_text(session.state_class, JOB, one.state),
            _trigger(one),
            _time(one.next),
            _last_run(session, one),
            error_text(f"{_time(one.skipped.at)}: {one.skipped.why}" if one.skipped else ""),
        )
        for one in found
    )
    return filled_table(("job", "state", "when", "next", "last run", "last skipped"), rows)


def run_table(session: "Session", found: Sequence[JobRunView]) -> Table:
    """Return runs of jobs as a table."""
    rows = (
        (
            one.id,
            state_text(session.state_class, JOBRUN, one.state),
            age_text(one.created),
            _cause(one),
            f"{one.succeeded} / {one.failed}",
            error_text(one.error),
        )
        for one in found
    )
    return filled_table(("run", "state", "age", "started by", "succeeded / failed", "why"), rows)


def _cause(run: JobRunView) -> str:
    if run.missed_until is not None:
        return f"schedule, missed from {_time(run.scheduled)} to {_time(run.missed_until)}"
    return f"deploy {run.deploy}" if run.deploy else run.trigger


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def lock_table(found: Sequence[SystemLockView]) -> Table:
    """Return locks as a table."""
    rows = (
        (one.path, one.mode, "waiting" if one.waiting else "held", one.object, one.action, one.who, age_text(one.since))
        for one in found
    )
    return filled_table(("path", "mode", "is", "by", "action", "of", "since"), rows)
