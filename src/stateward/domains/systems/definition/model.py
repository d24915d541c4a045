"""The records of a definition. They are stored as JSON with the objects, and have the same fields in YAML."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from stateward.domains.systems.object_ids import NAME
from stateward.naming import CREDENTIAL_REFERENCE, CREDENTIAL_REFERENCE_MEANS, END
from stateward.validation_texts import describe_pattern

Seconds = Annotated[float, Meta(ge=0.05, le=600)]
MAX_JOB_SECONDS = 7 * 86_400
Few = Annotated[int, Meta(ge=0, le=1_000)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
LONGEST_WORD = 10_000
WORD = describe_pattern(r"^[^\x00]*$", "a text without a NUL")
VARIABLE = describe_pattern(
    rf"^[A-Za-z_][A-Za-z0-9_]{{0,199}}{END}", "a variable's name: letters, digits and _, at most 200, no digit first"
)
LABEL_NAME = describe_pattern(
    rf"^[A-Za-z0-9][A-Za-z0-9._/-]{{0,62}}{END}", "a label's name: letters, digits and . _ / -, at most 63"
)
LABEL_VALUE = describe_pattern(rf"^[\x20-\x7e]{{0,200}}{END}", "a label's value: visible characters, at most 200")
URL_PATH = describe_pattern(rf"^/[\x21-\x7e]*{END}", "a path of visible ASCII characters that begins with /")
FILE_NAME = describe_pattern(
    rf"^[A-Za-z0-9_-][A-Za-z0-9._-]{{0,99}}{END}", "a file name: letters, digits and . _ -, at most 100, no dot first"
)
IMAGE = describe_pattern(
    rf"^[a-z0-9][A-Za-z0-9._:/-]*(@sha256:[0-9a-f]{{64}})?{END}",
    "an image, such as registry/name:tag or name@sha256: and 64 hexadecimal digits",
)
USER = describe_pattern(rf"^[0-9]{{1,9}}(:[0-9]{{1,9}})?{END}", "the number of a user, or those of a user and a group")
LOGIN = describe_pattern(CREDENTIAL_REFERENCE, f"a reference to a credential: {CREDENTIAL_REFERENCE_MEANS}")
MOUNT_PATH = describe_pattern(rf"^/[^\x00:,]+{END}", "an absolute path below /, without : and ,")
Word = Annotated[str, Meta(min_length=1, max_length=LONGEST_WORD, pattern=WORD)]
LabelName = Annotated[str, Meta(pattern=LABEL_NAME)]
LabelValue = Annotated[str, Meta(pattern=LABEL_VALUE)]
Variable = Annotated[str, Meta(pattern=VARIABLE)]


class HealthCheck(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The health check of an instance: exactly one of HTTP, TCP and a command."""

    http: Annotated[str, Meta(pattern=URL_PATH)] | None = None  # a path that answers with 2xx or 3xx
    tcp: bool = False  # the port accepts connections
    command: tuple[Word, ...] | None = None  # exits with 0
    interval: Seconds = 1.0
    timeout: Seconds = 2.0
    failures: Annotated[int, Meta(ge=1, le=100)] = 3  # in a row, until a healthy instance counts as unhealthy


class Rollout(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a replacement: how many instances may be surplus, and how many may be missing."""

    max_surge: Few = 1
    max_unavailable: Few = 0


class SecretRef(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A secret of the namespace that the instances get: as a variable, or as a file whose path the variable has."""

    secret: Annotated[str, Meta(pattern=NAME)]
    delivery: Literal["env", "file"] = field(default="env", name="as")
    path: Annotated[str, Meta(pattern=FILE_NAME)] | None = None  # the file's name; None: that of the variable


def file_name(variable: str, ref: SecretRef) -> str:
    """Return the name of the file of a secret."""
    return ref.path or variable


class Resources(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The most that one instance may use; None: no limit."""

    cpu: Annotated[float, Meta(ge=0.01, le=1_024)] | None = None  # cores
    memory: Annotated[int, Meta(ge=1, le=16_777_216)] | None = None  # MiB
    pids: Annotated[int, Meta(ge=1, le=4_194_304)] | None = None  # processes and threads


Capability = Literal["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"]
"""The privileges that a container may get: those that programs need that start as root and then change their user."""

DEFAULT_PORT = 8080


class PinnedImage(Struct, frozen=True, omit_defaults=True):
    """An image as a deploy found it: its id in the engine, and the digest to pull it by, if there is one."""

    id: str
    digest: str = ""


class Service(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A service: its command or image, the number of its instances, and their health check.

    The fields from `image` on are for containers.
    """

    command: tuple[Word, ...] = ()  # needed without an image; else: the image's own
    instances: Few = 1
    env: dict[Variable, str] = {}
    secrets: dict[Variable, SecretRef] = {}
    redeploy_on_secret_change: bool = False  # replace its instances when a secret has a new value
    folder: Word | None = None  # the folder of its instances; None: an empty folder for each
    health: HealthCheck | None = None  # None: an instance that has run for a moment is healthy
    address: Port | None = None  # one port of this machine for all instances; 0: a deploy chooses one
    node_pool: str | None = None
    resources: Resources = Resources()
    rollout: Rollout = Rollout()
    deadline: Seconds = 60.0  # without progress, after which a change of the service fails
    grace: Seconds = 10.0  # between SIGTERM and SIGKILL
    drain: Seconds = 0.3  # without new connections, before SIGTERM
    image: Annotated[str, Meta(max_length=500, pattern=IMAGE)] | None = None
    pinned: PinnedImage | None = None  # what the image was when it was deployed
    pull: Literal["missing", "always", "never"] = "missing"
    registry_login: Annotated[str, Meta(max_length=500, pattern=LOGIN)] | None = None
    port: Annotated[int, Meta(ge=1, le=65_535)] = DEFAULT_PORT  # inside the container
    volumes: dict[Annotated[str, Meta(pattern=NAME)], Annotated[str, Meta(max_length=500, pattern=MOUNT_PATH)]] = {}
    user: Annotated[str, Meta(pattern=USER)] | None = None  # None: the image's own
    read_only: bool = False  # the root of the container's file system
    capabilities: tuple[Capability, ...] = ()

    @property
    def stop_s(self) -> float:
        """The seconds that the end of an instance may take."""
        return self.drain + self.grace


class NodePool(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The nodes that services run on; each has slots for instances.

    With the backend `nodes` they are the registered nodes that have the labels: at least so many, with at most so many
    instances of the pool on each.
    """

    nodes: Annotated[int, Meta(ge=1, le=1_000)] = 1
    slots: Annotated[int, Meta(ge=1, le=1_000)] = 10
    labels: dict[LabelName, LabelValue] = {}


Hook = Literal["before-deploy", "after-deploy"]


class JobDefinition(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job: a program that runs to its end, on request, by a schedule, or as a part of deploys.

    The fields of the program are those of a service; in YAML they stand beside the others.
    """

    program: Service
    schedule: Annotated[str, Meta(max_length=200)] | None = None  # five fields, as in a crontab
    time_zone: Annotated[str, Meta(max_length=100)] = "UTC"  # of the schedule
    hook: Hook | None = None  # deploys run it, and fail with it
    parallelism: Annotated[int, Meta(ge=1, le=1_000)] = 1  # instances at once
    completions: Annotated[int, Meta(ge=1, le=1_000)] = 1  # instances that must succeed
    retries: Annotated[int, Meta(ge=0, le=1_000)] = 0  # failed instances that a run survives
    backoff: Seconds = 1.0  # before the first retry of an instance; doubled before each further one
    deadline: Annotated[float, Meta(ge=1, le=MAX_JOB_SECONDS)] = 3_600.0  # of a run
    concurrency: Literal["forbid", "allow", "replace"] = "forbid"  # if a run is still on at the next scheduled time
    history: Annotated[int, Meta(ge=1, le=200)] = 10  # ended runs that are kept, with their logs
    suspended: bool = False


class Tree(Struct, frozen=True):
    """A definition: services and jobs by path below the path of the deploy, and node pools.

    `pools` is None if the definition leaves pools alone.
    """

    services: Mapping[str, Service]
    pools: Mapping[str, NodePool] | None = None
    jobs: Mapping[str, JobDefinition] = {}


NO_VERSIONS: Mapping[str, int] = {}


def revision_of(service: Service, versions: Mapping[str, int] = NO_VERSIONS) -> str:
    """Return the revision of a service: a hash of the fields that require new instances when they change.

    If it is to be redeployed on a change of its secrets, their versions are a part of it.
    """
    is_published = service.image is not None and service.address is not None  # only a new container can get a port
    making = replace(service, instances=1, rollout=Rollout(), deadline=60.0, address=0 if is_published else None)
    text = msgspec.json.encode(making, order="deterministic")
    if service.redeploy_on_secret_change:
        text += msgspec.json.encode(used_versions(service, versions), order="deterministic")
    return blake2b(text, digest_size=6).hexdigest()


def used_versions(service: Service, versions: Mapping[str, int]) -> dict[str, int]:
    """Return the versions of the secrets that a service uses, as far as they exist."""
    return {secret.secret: versions[secret.secret] for secret in service.secrets.values() if secret.secret in versions}
