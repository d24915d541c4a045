"""The planner of a deploy: the requests that turn present services, jobs and pools into the desired ones (pure)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from stateward.domains.systems.definition import JobDefinition, NodePool, Service, revision_of, used_versions
from stateward.domains.systems.definition.model import Hook
from stateward.domains.systems.lifecycle import (
    JOB,
    JOBRUN,
    NODEPOOL,
    SERVICE,
    DeployState,
    JobState,
    NodePoolState,
    ServiceState,
)
from stateward.domains.systems.model import ChangeSpec, DesiredJob, DesiredService, DesiredTree, JobRunSpec, spec_of
from stateward.domains.systems.object_ids import job_id, path_of, pool_id, run_id, service_id
from stateward.engine import Request
from stateward.engine.requests import EMPTY, Creation
from stateward.lifecycle import CONTROLLER
from stateward.locks.paths import parse_path
from stateward.store.records import Object, to_json


class ChangePlanner:
    """Makes the requests for the services and node pools of one system, on behalf of a deploy."""

    def __init__(self, ns: str, system: str, deploy: str, who: str, args: Mapping[str, bool] | None = None) -> None:
        self._ns, self._system, self._deploy, self._who = ns, system, deploy, who
        self._args = to_json(args) if args else EMPTY

    def services(self, target: DesiredTree, now: Sequence[Object], versions: Mapping[str, int]) -> Iterator[Request]:
        """Return the requests for new and changed services; unchanged ones need none.

        `versions` are those of the secrets of the namespace.
        """
        present = {part.id: part for part in now}
        for path, service in target.services.items():
            object_id = service_id(self._system, parse_path(path))
            wanted = desired_service(service, self._deploy, versions, target.assigned_ports.get(path, 0))
            event = _event(present.get(object_id), wanted)
            if event is not None:
                yield self._change_request(object_id, event, SERVICE.kind, to_json(wanted))

    def jobs(self, target: Mapping[str, JobDefinition], now: Sequence[Object]) -> Iterator[Request]:
        """Return the requests for new and changed jobs; a changed `suspended` suspends or resumes the job."""
        present = {part.id: part for part in now}
        for path, job in target.items():
            object_id = job_id(self._system, parse_path(path))
            known = present.get(object_id)
            before = None if known is None else spec_of(known, DesiredJob)
            if known is not None and before is not None and before.job == job:
                continue
            wanted, state = to_json(DesiredJob(job, self._deploy)), JobState.ACTIVE if known is None else known.state
            yield self._change_request(object_id, "define" if known is None else "change", JOB.kind, wanted)
            is_new = before is None or before.job.suspended != job.suspended
            if is_new and job.suspended != (state == JobState.SUSPENDED):
                yield self._request(object_id, "suspend" if job.suspended else "resume")

    def hooks(self, hook: Hook, target: Mapping[str, JobDefinition], now: Sequence[Object]) -> Iterator[Request]:
        """Return the requests for the runs of a deploy; a suspended job is not run."""
        active = {part.id for part in now if part.state == JobState.ACTIVE}
        spec = to_json(JobRunSpec(None, "hook", deploy=self._deploy))
        for path, job in target.items():
            object_id = job_id(self._system, parse_path(path))
            if job.hook == hook and object_id in active:
                run = run_id(object_id, f"{hook}-{self._deploy.partition('@')[2]}")
                yield replace(self._request(run, "run"), spec=spec, creates=Creation(JOBRUN.kind, object_id))

    def surplus(self, target: Iterable[str], now: Sequence[Object]) -> Iterator[Request]:
        """Return the requests that delete the services and jobs outside the desired tree."""
        paths = [parse_path(path) for path in target]
        kept = {make(self._system, path) for path in paths for make in (service_id, job_id)}
        return (self._request(part.id, "delete") for part in now if part.id not in kept)

    def pools(self, target: Mapping[str, NodePool], now: Sequence[Object]) -> Iterator[Request]:
        """Return the requests for new and resized node pools."""
        present = {part.id: part for part in now}
        for name, pool in target.items():
            object_id = pool_id(self._system, name)
            event = _pool_event(present.get(object_id), pool)
            if event is not None:
                yield self._change_request(object_id, event, NODEPOOL.kind, to_json(pool))

    def surplus_pools(self, target: Mapping[str, NodePool], now: Sequence[Object]) -> Iterator[Request]:
        """Return the requests that delete the node pools outside the desired tree."""
        kept = {pool_id(self._system, name) for name in target}
        return (self._request(part.id, "delete") for part in now if part.id not in kept)

    def _change_request(self, object_id: str, event: str, kind: str, spec: str) -> Request:
        creation = Creation(kind, self._system) if event == "define" else None
        return replace(self._request(object_id, event), spec=spec, creates=creation)

    def _request(self, object_id: str, event: str) -> Request:
        return Request(self._ns, object_id, event, "", CONTROLLER, self._who, args=self._args)


def desired_service(
    service: Service, deploy: str, versions: Mapping[str, int], assigned_port: int = 0
) -> DesiredService:
    """Return the desired state of a service with the present versions of its secrets."""
    used = used_versions(service, versions)
    return DesiredService(service, revision_of(service, versions), deploy, used, assigned_port)


def _event(record: Object | None, wanted: DesiredService) -> str | None:
    if record is None:
        return "define"
    known = spec_of(record, DesiredService)
    if known is None or revision_of(known.service, known.secret_versions) != wanted.revision:
        return "updating"
    if known.service != wanted.service:
        return "scaling" if known.service.instances != wanted.service.instances else "updating"
    if known.port != wanted.port:
        return "updating"
    return None if record.state == ServiceState.STABLE else "updating"


def _pool_event(record: Object | None, pool: NodePool) -> str | None:
    if record is None:
        return "define"
    known = spec_of(record, NodePool)
    if known == pool:
        return None if record.state == NodePoolState.STABLE else "updating"
    return "scaling" if known is not None and known.slots == pool.slots else "updating"


def leaving_parts(system: str, change: ChangeSpec, parts: Iterable[Object]) -> Iterator[Object]:
    """Return the services, jobs and node pools of a system that a change removes."""
    top, wanted = parse_path(change.path), change.picture
    kept = {service_id(system, parse_path(path)) for path in wanted.services}
    kept |= {job_id(system, parse_path(path)) for path in wanted.jobs}
    kept |= {pool_id(system, name) for name in wanted.pools or ()}
    for part in parts:
        is_pool = part.kind == NODEPOOL.kind
        is_concerned = wanted.pools is not None if is_pool else path_of(part.id)[: len(top)] == top
        if is_concerned and part.id not in kept:
            yield part


def current_tree(services: Sequence[Object], pools: Sequence[Object] | None, jobs: Sequence[Object]) -> DesiredTree:
    """Return the definition of the stored services, node pools and jobs."""
    desired = ((str(path_of(service.id)), spec_of(service, DesiredService)) for service in services)
    known = {path: wanted for path, wanted in desired if wanted is not None}
    known_jobs = ((job, spec_of(job, DesiredJob)) for job in jobs)
    sizes = None if pools is None else [(pool, spec_of(pool, NodePool)) for pool in pools]
    return DesiredTree(
        {path: wanted.service for path, wanted in known.items()},
        None if sizes is None else {pool.id.partition("~")[2]: size for pool, size in sizes if size is not None},
        {str(path_of(job.id)): wanted.job for job, wanted in known_jobs if wanted is not None},
        {path: wanted.assigned_port for path, wanted in known.items() if wanted.assigned_port},
    )


def find_undoable(deploys: Iterable[Object], path: str | None, deploy: str | None = None) -> Object | None:
    """Return the named deploy, or the newest of a path (or of all) that succeeded and was not rolled back."""
    undone: set[str] = set()
    for candidate in sorted(deploys, key=lambda candidate: candidate.created, reverse=True):
        change = spec_of(candidate, ChangeSpec)
        if change is None or candidate.state != DeployState.SUCCEEDED or path not in (None, change.path):
            continue
        if change.undoes is not None:
            undone.add(change.undoes)
        elif deploy in (None, candidate.id) and (deploy is not None or candidate.id not in undone):
            return candidate
    return None
