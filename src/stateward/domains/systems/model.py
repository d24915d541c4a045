"""The records that the domain stores with its objects, as JSON: specs and observations. Field names never change."""

from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from stateward.domains.systems.backends.names import LOCAL
from stateward.domains.systems.definition import JobDefinition, NodePool, Service
from stateward.engine.privacy import Privacy
from stateward.store.records import Object, Operation

T = TypeVar("T")

SECRET_ENV = Privacy(secrets=frozenset({"env"}))
"""The values of a service's environment are for its instances alone; everybody else sees the names."""


class SystemSpec(Struct, frozen=True):
    """The backend that runs the services of a system."""

    backend: str = LOCAL


class DesiredService(Struct, frozen=True, omit_defaults=True):
    """The desired definition of a service, the deploy that set it, and the versions of its secrets at that time."""

    service: Service
    revision: str
    deploy: str
    secret_versions: dict[str, int] = {}
    assigned_port: int = 0  # for address 0; 0: it was deployed by an earlier version, and its host chooses one

    @property
    def port(self) -> int | None:
        """The port of its address; None if it has none."""
        return None if self.service.address is None else self.service.address or self.assigned_port


class DesiredTree(Struct, frozen=True):
    """A definition: services and jobs by their paths from the root.

    `pools` is None if the definition leaves pools alone. `assigned_ports` are those of services with address 0.
    """

    services: dict[str, Service] = {}
    pools: dict[str, NodePool] | None = None
    jobs: dict[str, JobDefinition] = {}
    assigned_ports: dict[str, int] = {}

    @property
    def ports(self) -> dict[str, int]:
        """The ports of services, named or assigned, by path."""
        assigned = self.assigned_ports
        ports = {
            path: service.address or assigned.get(path)
            for path, service in self.services.items()
            if service.address is not None
        }
        return {path: port for path, port in ports.items() if port}

    @property
    def programs(self) -> dict[str, Service]:
        """The services and the programs of the jobs, by path; no service and job have the same one."""
        return {**self.services, **{path: job.program for path, job in self.jobs.items()}}

    def field_of(self, path: str) -> str:
        """Return the field of a definition that has the program at a path."""
        return f"{'services' if path in self.services else 'jobs'}{path}"

    def secrets(self) -> dict[str, str]:
        """Return the names of the secrets that services and jobs use, each with the field of one use."""
        return {
            ref.secret: f"{self.field_of(path)}.secrets.{variable}.secret"
            for path, program in self.programs.items()
            for variable, ref in program.secrets.items()
        }


class ChangeSpec(Struct, frozen=True):
    """The spec of a deploy: exactly these services at and below a path.

    `undoes` is the deploy that it rolls back; `undoes_last`: the last of its path, which it must still be when the
    rollback starts.
    """

    path: str
    picture: DesiredTree
    undoes: str | None = None
    undoes_last: bool = False


class ChangeSeen(Struct, frozen=True, omit_defaults=True):
    """The observations of a deploy: the definition before it, and the user who cancelled it."""

    before: DesiredTree | None = None
    cancelled: str | None = None


class DeploySteps(Struct, frozen=True):
    """The steps of a deploy that others read: the definition before, which it stores before it changes anything."""

    before: DesiredTree = DesiredTree()


class DesiredJob(Struct, frozen=True):
    """The desired definition of a job, and the deploy that set it."""

    job: JobDefinition
    deploy: str


class SkippedTime(Struct, frozen=True):
    """A scheduled time at which no run was started, and why."""

    at: float
    why: str


class JobSeen(Struct, frozen=True, omit_defaults=True):
    """The observations of a job: its next scheduled time, which has a timer, and the last one that was skipped."""

    next: float | None = None
    skipped: SkippedTime | None = None


class JobRunSpec(Struct, frozen=True, omit_defaults=True):
    """The spec of a run: the definition of its job when it was accepted, and what started it.

    `missed_until` is the last of the scheduled times that this run stands for, because no process ran at them.
    `replaces` are the runs that must have ended before it starts.
    """

    job: JobDefinition | None = None
    trigger: Literal["request", "schedule", "hook"] = "request"
    scheduled: float | None = None
    missed_until: float | None = None
    deploy: str | None = None
    replaces: tuple[str, ...] = ()


class JobRunSeen(Struct, frozen=True, omit_defaults=True):
    """The observations of a run: how many instances succeeded and failed, why it failed, and who cancelled it."""

    succeeded: int = 0
    failed: int = 0
    reason: Literal["deadline", "retries"] | None = None
    cancelled: str | None = None


class SystemLocation(Struct, frozen=True):
    """The host and folder of a system, as its backend reported them."""

    host: str = ""
    folder: str = ""


def spec_of(record: Object, wanted: type[T]) -> T | None:
    """Return the spec of an object; None if it cannot be decoded."""
    try:
        return msgspec.json.decode(record.spec, type=wanted)
    except msgspec.ValidationError:
        return None


def system_spec(system: Object) -> SystemSpec:
    """Return the spec of a system."""
    return spec_of(system, SystemSpec) or SystemSpec()


def read_deploy_steps(operation: Operation) -> DeploySteps:
    """Return the steps that a deploy has stored so far."""
    return msgspec.json.decode(operation.steps, type=DeploySteps)


def seen_of(record: Object, wanted: type[T]) -> T:
    """Return the observations of an object."""
    return msgspec.json.decode(record.seen, type=wanted)
