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


def system_tree(session: "Session", system: SystemTree) -> Tree:
    """Return a system as a tree: its services by path, and their instances; then its jobs."""
    label = Text.assemble((clean(system.id), "bold"), " is ")
    label.append_text(state_text(session.state_class, SYSTEM, system.state)).append(
        f" for {age_text(system.since)} ({system.backend})"
    )
    tree = Tree(label)
    for alert in system.alerts or ():
        tree.add(error_text(f"{alert.node}: {alert_text(alert)}"))
    for service in system.services or ():
        branch = tree.add(_service(session, service))
        for instance in service.instances or ():
            branch.add(_instance(instance))
    for job in system.jobs or ():
        line = Text.assemble("job ", (clean(job.path), "bold"), " is ")
        line.append_text(state_text(session.state_class, JOB, job.state)).append(f", {_trigger(job)}")
        tree.add(line.append_text(_last_run(session, job, ", last run ")).append_text(_why(job.error)))
    for pool in system.node_pools or ():
        line = Text.assemble("node pool ", (clean(pool.name), "bold"), " is ")
        tree.add(line.append_text(state_text(session.state_class, POOL, pool.state)).append_text(_why(pool.error)))
    for deploy in system.deploys or ():
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
        line.append(f", {sum(instance.ready for instance in service.instances)} of {wanted} ready")
    address = service.address or (service.definition or {}).get("address")  # an older server tells the latter alone
    if address:
        line.append(f", at 127.0.0.1:{address}")
    return line.append_text(_why(service.error or service.progress))


def _instance(instance: InstanceView) -> Text:
    facts = [
        f"process {instance.pid}" if instance.pid else "",
        f"port {instance.port}" if instance.port else "",
        f"on {instance.node}" if instance.node else "",
        f"restarted {count_text(instance.restarts, 'time')}" if instance.restarts else "",
        f"without a limit of {' and '.join(instance.unlimited)}" if instance.unlimited else "",
    ]
    style = "green" if instance.ready else "yellow" if instance.phase in ("starting", "stopping") else "red"
    line = Text.assemble(clean(instance.name), " ", ("ready" if instance.ready else instance.phase, style))
    return line.append("".join(f", {fact}" for fact in facts if fact)).append_text(_why(instance.why))


def _why(error: str | None) -> Text:
    return error_text(f": {error}") if error else Text("")


def change_table(session: "Session", changes: Sequence[ChangeView]) -> Table:
    """Return deploys as a table."""
    rows = (
        (
            change.id,
            change.path,
            state_text(session.state_class, DEPLOY, change.state),
            age_text(change.created),
            str(change.services),
            change.undoes or "",
            error_text(change.error) if change.error else clean(change.progress or ""),
        )
        for change in changes
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


def job_table(session: "Session", jobs: Sequence[JobNode]) -> Table:
    """Return jobs as a table."""
    rows = (
        (
            job.path,
            state_text(session.state_class, JOB, job.state),
            _trigger(job),
            _time(job.next),
            _last_run(session, job),
            error_text(f"{_time(job.skipped.at)}: {job.skipped.why}" if job.skipped else ""),
        )
        for job in jobs
    )
    return filled_table(("job", "state", "when", "next", "last run", "last skipped"), rows)


def run_table(session: "Session", runs: Sequence[JobRunView]) -> Table:
    """Return runs of jobs as a table."""
    rows = (
        (
            run.id,
            state_text(session.state_class, JOBRUN, run.state),
            age_text(run.created),
            _cause(run),
            f"{run.succeeded} / {run.failed}",
            error_text(run.error),
        )
        for run in runs
    )
    return filled_table(("run", "state", "age", "started by", "succeeded / failed", "why"), rows)


def _cause(run: JobRunView) -> str:
    if run.missed_until is not None:
        return f"schedule, missed from {_time(run.scheduled)} to {_time(run.missed_until)}"
    return f"deploy {run.deploy}" if run.deploy else run.trigger


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"


def lock_table(locks: Sequence[SystemLockView]) -> Table:
    """Return locks as a table."""
    rows = (
        (
            lock.path,
            lock.mode,
            "waiting" if lock.waiting else "held",
            lock.object,
            lock.action,
            lock.who,
            age_text(lock.since),
        )
        for lock in locks
    )
    return filled_table(("path", "mode", "is", "by", "action", "of", "since"), rows)
