"""The ids of a system's objects: unique, and each shows the system that it belongs to.

shop               the system
shop:store.api     its service at /store/api
shop~main          its node pool main
shop@0193...       one of its deploys or teardowns
shop.store.report  its job at /store/report
shop.store.report@20261117T0300Z   a run of the job: by its scheduled time, or with another unique part

Secrets belong to the namespace: `secret+db` is the secret db, which systems of the namespace share.
"""

import re
from datetime import UTC, datetime
from hashlib import blake2b

from stateward.errors import BadInput
from stateward.locks.paths import Path, parse_path
from stateward.validation_texts import describe_pattern

NAME_RULE = "a name of small letters, digits and hyphens, at most 63 of them"
NAME = describe_pattern(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$(?!\n)", NAME_RULE)
MAX_LEVELS = 20
PATH = describe_pattern(r"^/[a-z0-9/-]{0,500}$(?!\n)", "a path in the system, such as /store/api")
SECRET_PREFIX = "secret+"  # noqa: S105 - of ids
ROTATION_ID = "rotation+secrets"
"""The id of the key rotation of a namespace: there is one, so two cannot run at once."""

_NAME = re.compile(NAME)


def checked_name(field: str, name: str) -> str:
    """Return a name of a system, a node pool or a step of a path, or raise."""
    if not _NAME.match(name):
        raise BadInput(field, name, NAME_RULE)
    return name


def checked_path(text: str, field: str = "path") -> Path:
    """Read a path of a system, whose every step must be a name."""
    path = parse_path(text, field)
    if len(path) > MAX_LEVELS:
        raise BadInput(field, text, f"a path of at most {MAX_LEVELS} levels")
    for step in path:
        checked_name(field, step)
    return path


def service_id(system: str, path: Path) -> str:
    """Return the id of the service at a path."""
    return f"{system}:{'.'.join(path)}"


def pool_id(system: str, pool: str) -> str:
    """Return the id of a node pool."""
    return f"{system}~{pool}"


def change_id(system: str, unique: str) -> str:
    """Return the id of a deploy or a teardown."""
    return f"{system}@{unique}"


def secret_id(secret: str) -> str:
    """Return the id of a secret of the namespace; no system can have such a name."""
    return f"{SECRET_PREFIX}{secret}"


def secret_name(object_id: str) -> str:
    """Return the name of a secret, by its id."""
    return object_id.removeprefix(SECRET_PREFIX)


def from_key(key: str) -> str:
    """Return a unique part that is the same for the same idempotency key."""
    return blake2b(key.encode(), digest_size=16).hexdigest()


def system_of(object_id: str) -> str:
    """Return the system that an object belongs to."""
    return re.split("[:~@+.]", object_id, maxsplit=1)[0]


def path_of(object_id: str) -> Path:
    """Return the path of a service, a job or a run of a job, by its id."""
    return Path(re.split("[:.]", object_id, maxsplit=1)[-1].partition("@")[0].split("."))


def job_id(system: str, path: Path) -> str:
    """Return the id of the job at a path."""
    return f"{system}.{'.'.join(path)}"


def run_id(job: str, unique: str) -> str:
    """Return the id of a run of a job."""
    return f"{job}@{unique}"


def scheduled_run_id(job: str, at: float) -> str:
    """Return the id of the run of a scheduled time: each time has one."""
    return run_id(job, datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%MZ"))


def job_of(run: str) -> str:
    """Return the job of a run, by its id."""
    return run.partition("@")[0]
