"""The parser of definitions: a service, or a group of services and jobs.

    node_pools:                 services:                    command: python3 web.py
      main: {nodes: 2}            web: {command: ...}        instances: 2
    services:                     store:                     health: {http: /health}
      ...                           services: ...
    jobs:                           jobs: ...
      report: {command: ...}

An error names the file, the line and the field.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from stateward.domains.systems.cron import parse_cron, time_zone
from stateward.domains.systems.definition.document import NO_NUL, BadDefinition, Document, Where, load
from stateward.domains.systems.definition.model import (
    LONGEST_WORD,
    JobDefinition,
    NodePool,
    SecretRef,
    Service,
    Tree,
    file_name,
)
from stateward.domains.systems.object_ids import MAX_LEVELS, NAME_RULE, checked_name
from stateward.errors import BadInput
from stateward.locks.paths import ROOT, Path, parse_path
from stateward.naming import (
    IMAGE_FORM,
    IMAGE_REFERENCE,
    URL_PATH_FORM,
    VOLUME_PATH_FORM,
    is_url_path,
    is_volume_path,
)
from stateward.validation_texts import explain

T = TypeVar("T")

GROUP = ("services", "jobs", "node_pools")
PROGRAMS = ("command", "image")
SERVICE_FIELDS = ("instances", "health", "address", "rollout", "drain", "redeploy_on_secret_change", "port")
"""The fields of a service that a job does not have."""

JOB_FIELDS = tuple(field for field in JobDefinition.__struct_fields__ if field != "program")
MAX_HOOK_S = 3_600.0
"""The longest deadline of a job that a deploy waits for: a deploy has two hours."""

JOB = "job"
"""The field of a definition that is one job, for the path of the deploy."""

CHECKS = ("http", "tcp", "command")

VARIANT_ZONES = ("posix/", "right/")
"""Copies of all time zones that some hosts have; those of `right` count leap seconds."""

MAX_VALUE_CHARS = 30_000
"""The longest value of a variable: Linux starts no program with one of more than 131,071 bytes."""

MOUNT_POINT = re.compile(r"(?:/[^\x00-\x1f\x7f/:,]{1,255})+")
MOUNT_FORM = "an absolute path below /, without : and , and control characters, and without an empty part, . and .."


def read(text: str, file: str = "definition", base: str | None = None) -> Tree:
    """Read a definition; its folders are relative to `base`, the folder of the file."""
    if base is not None and "\0" in base:
        raise BadInput("base", base, NO_NUL)
    document = load(text, file)
    if not isinstance(document.value, dict):
        raise document.wrong(
            (), document.value, "a definition, with services, a job, or the command or image of a service"
        )
    parts = dict(_parts(document, document.value, (), ROOT))
    services = {path: part for path, part in parts.items() if isinstance(part, Service)}
    jobs = {path: part for path, part in parts.items() if isinstance(part, JobDefinition)}
    if base is not None:
        services = {path: _with_absolute_folder(service, base) for path, service in services.items()}
        jobs = {path: replace(job, program=_with_absolute_folder(job.program, base)) for path, job in jobs.items()}
    return Tree(services, _pools(document), jobs)


def locate_error(error: BadInput, text: str, file: str, top: Path) -> BadInput:
    """Return an error about a program of a definition that was deployed at a path, with its file and line."""
    match = re.fullmatch(r"(services|jobs)(/[^.]*)\.(.+)", error.field)
    if match is None or isinstance(error, BadDefinition):  # of a definition in the file services/web.yaml, say
        return error
    below = parse_path(match[2])[len(top) :]
    where = tuple(word for name in below[:-1] for word in ("services", name))
    where += (match[1], below[-1]) if below else (JOB,) if match[1] == "jobs" else ()
    error.field = load(text, file).wrong((*where, *match[3].split(".")), error.value, error.allowed).field
    return error


def _is_group(value: dict[str, Any], path: Path) -> bool:
    return "services" in value or "jobs" in value or (path == ROOT and value.keys().isdisjoint(PROGRAMS))


def _parts(
    document: Document,
    value: Any,  # noqa: ANN401
    where: Where,
    path: Path,
) -> Iterator[tuple[str, Service | JobDefinition]]:
    if not isinstance(value, dict):
        raise document.wrong(where, value, "a service or a group: a mapping")
    if path == ROOT and JOB in value:
        for field in value.keys() - {JOB}:
            raise document.wrong((field,), field, f"left out beside {JOB}: a job alone has all its fields below it")
        yield str(path), _job(document, value[JOB], (JOB,))
        return
    if not _is_group(value, path):
        if path == ROOT:
            for field in (
                job_field
                for job_field in JOB_FIELDS
                if job_field in value and job_field not in Service.__struct_fields__
            ):
                raise document.wrong((field,), field, f"a field of a service; a job alone stands below {JOB}")
        yield str(path), _service(document, value, where)
        return
    for field in value:
        if field not in GROUP or (field == "node_pools" and path != ROOT):
            raise document.wrong((*where, field), field, _group_fields(field, path))
    services = _members(document, value, where, path, "services")
    for name, member in services.items():
        yield from _parts(document, member, (*where, "services", name), Path((*path, name)))
    for name, member in _members(document, value, where, path, "jobs").items():
        if name in services:
            raise document.wrong((*where, "jobs", name), name, "a name that no service of the group has")
        yield str(Path((*path, name))), _job(document, member, (*where, "jobs", name))


def _members(document: Document, group: dict[str, Any], where: Where, path: Path, field: str) -> dict[str, Any]:
    """Return the services, or the jobs, of a group by name."""
    members = group.get(field, {})
    if not isinstance(members, dict) or len(path) >= MAX_LEVELS:
        raise document.wrong((*where, field), members, f"{field} by name, at most {MAX_LEVELS} levels deep")
    for name in members:
        _name(document, (*where, field, name), name)
    return members


def _group_fields(field: str, path: Path) -> str:
    if field == "node_pools":
        return "at the top: node pools belong to the whole system"
    if path == ROOT and field in Service.__struct_fields__:
        return "in a service, which says its command or image too"
    return f"a field of a group, which has {', '.join(GROUP)}"


def _service(document: Document, value: dict[str, Any], where: Where) -> Service:
    value = {**value, **{name: _words(document, value[name], (*where, name)) for name in ("command",) if name in value}}
    health = value.get("health")
    if isinstance(health, dict) and "command" in health:
        words = _words(document, health["command"], (*where, "health", "command"))
        value["health"] = {**health, "command": words}
    if isinstance(secrets := value.get("secrets"), dict):  # an error in a mapping would not tell in which of them
        for variable, ref in secrets.items():
            _converted(document, ref, (*where, "secrets", variable), SecretRef)
    service = _converted(document, value, where, Service)
    _check_combination(document, service, where)
    return service


def _job(document: Document, value: Any, where: Where) -> JobDefinition:  # noqa: ANN401
    if not isinstance(value, dict):
        raise document.wrong(where, value, "a job: a mapping")
    for field in SERVICE_FIELDS:
        if field in value:
            raise document.wrong((*where, field), value[field], "left out: only a service has it")
    own = {field: value[field] for field in JOB_FIELDS if field in value}
    program = _service(document, {field: member for field, member in value.items() if field not in own}, where)
    job = replace(_converted(document, {**own, "program": {}}, where, JobDefinition), program=program)
    if job.hook is not None and job.schedule is not None:
        raise document.wrong((*where, "hook"), job.hook, "given without a schedule: a job has one of them")
    if job.hook is not None and job.deadline > MAX_HOOK_S:
        raise document.wrong((*where, "deadline"), job.deadline, f"at most {MAX_HOOK_S:g}: a deploy waits for the job")
    try:
        if job.time_zone.startswith(VARIANT_ZONES):
            raise BadInput("time_zone", job.time_zone, f"a time zone without {' or '.join(VARIANT_ZONES)}")
        time_zone(job.time_zone)
        if job.schedule is not None:
            if not (job.schedule.isascii() and job.schedule.isprintable()):
                raise BadInput(
                    "schedule", job.schedule, "five fields with spaces between them, and no other characters"
                )
            parse_cron(job.schedule)
    except BadInput as error:
        raise document.wrong((*where, error.field), job.schedule, error.allowed) from error
    return job


def _words(document: Document, value: Any, where: Where) -> Any:  # noqa: ANN401
    """Return the words of a command that is written as one line."""
    if not isinstance(value, str):
        return value
    try:
        return shlex.split(value)
    except ValueError as error:
        raise document.wrong(where, value, f"a command ({str(error).lower()})") from error


def _check_combination(document: Document, service: Service, where: Where) -> None:
    """Refuse fields that contradict each other."""
    health, rollout = service.health, service.rollout
    if not service.command and service.image is None:
        raise document.wrong((*where, "command"), None, "given, unless there is an image")
    if service.pinned is not None:
        raise document.wrong((*where, "pinned"), None, "left out: a deploy finds the digest of the image")
    if health is not None and sum((health.http is not None, health.tcp, health.command is not None)) != 1:
        raise document.wrong((*where, "health"), "", f"a check with exactly one of {', '.join(CHECKS)}")
    if health is not None and health.http is not None and not is_url_path(health.http):
        raise document.wrong((*where, "health", "http"), health.http, URL_PATH_FORM)
    if health is not None and health.command == ():
        raise document.wrong((*where, "health", "command"), "", "a command of at least one word")
    _check_secrets(document, service, (*where, "secrets"))
    _check_texts(document, service, where)
    if rollout.max_surge == rollout.max_unavailable == 0:
        raise document.wrong((*where, "rollout"), "", "able to replace something: max_surge and max_unavailable are 0")


def _check_texts(document: Document, service: Service, where: Where) -> None:
    """Refuse texts that fit their type, and that no host or engine could use; stored definitions may have them."""
    if service.image is not None and not IMAGE_REFERENCE.fullmatch(service.image):
        raise document.wrong((*where, "image"), service.image, IMAGE_FORM)
    for variable, value in service.env.items():
        if len(value) > MAX_VALUE_CHARS:
            raise document.wrong((*where, "env", variable), "", f"at most {MAX_VALUE_CHARS} characters long")
    taken: dict[str, str] = {}
    for name, path in service.volumes.items():
        if not MOUNT_POINT.fullmatch(path) or {".", ".."} & set(path.split("/")):
            raise document.wrong((*where, "volumes", name), path, MOUNT_FORM)
        if not is_volume_path(path):
            raise document.wrong((*where, "volumes", name), path, VOLUME_PATH_FORM)
        if path in taken:
            raise document.wrong((*where, "volumes", name), path, f"a path of its own: {taken[path]} has it")
        taken[path] = name


def _check_secrets(document: Document, service: Service, where: Where) -> None:
    """Refuse a variable, or a file, that would have two values."""
    taken: set[str] = set()
    for variable, ref in service.secrets.items():
        if variable in service.env:
            raise document.wrong((*where, variable), "", "a variable that env does not set, too")
        if ref.delivery == "env" and ref.path is not None:
            raise document.wrong((*where, variable, "path"), "", "left out, or used with as: file")
        if ref.delivery == "file" and file_name(variable, ref) in taken:
            raise document.wrong((*where, variable), "", f"a file of its own: {file_name(variable, ref)} is taken")
        taken |= {file_name(variable, ref)} if ref.delivery == "file" else set()


def _pools(document: Document) -> dict[str, NodePool] | None:
    if not _is_group(document.value, ROOT) or "node_pools" not in document.value:
        return None
    written = document.value["node_pools"]
    if not isinstance(written, dict):
        raise document.wrong(("node_pools",), written, "node pools by name")
    pools = {}
    for name, value in written.items():
        where = ("node_pools", name)
        _name(document, where, name)
        pools[name] = _converted(document, {} if value is None else value, where, NodePool)
    return pools


def _name(document: Document, where: Where, name: str) -> None:
    try:
        checked_name("name", name)
    except BadInput as error:
        raise document.wrong(where, name, NAME_RULE) from error


def _converted(document: Document, value: Any, where: Where, wanted: type[T]) -> T:  # noqa: ANN401
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        problem = explain(error, wanted)
        inner = [part for part in re.split(r"[.\[\]]+", problem.place) if part]
        raise document.wrong((*where, *inner), None, problem.allowed) from error


def _with_absolute_folder(service: Service, base: str) -> Service:
    """Return a service with its folder below `base`; the joined path has the same limit as the folder."""
    if service.folder is None:
        return service
    folder = str(File(base) / service.folder)
    if len(folder) > LONGEST_WORD:
        allowed = f"short enough: with the folder of a service it has at most {LONGEST_WORD} characters"
        raise BadInput("base", base, allowed)
    return replace(service, folder=folder)
