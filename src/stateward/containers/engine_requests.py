"""What is sent to a container engine: the body that creates a container, the archive of its secret files, names."""

import base64
import io
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from urllib.parse import quote

import msgspec

from stateward.containers.container_records import (
    KEY_LABEL,
    SECRETS_LABEL,
    SECRETS_PATH,
    ContainerSpec,
    RegistryLogin,
    VolumeMount,
)
from stateward.containers.errors import EngineRefusal, EngineRefused
from stateward.errors import BadInput

NANOSECONDS = 1_000_000_000
DEFAULT_REGISTRY = "docker.io"

Json = dict[str, object]

_PART_OF_ID = re.compile(r"[0-9a-fA-F]{0,63}")


def container_body(spec: ContainerSpec) -> Json:
    """Return the request that creates a container."""
    exposed: Json = {f"{port.container_port}/{port.protocol}": {} for port in spec.ports}
    body: Json = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.env.items()],
        "Labels": container_labels(spec),
        "User": spec.user,
        "Hostname": spec.hostname,
        "ExposedPorts": exposed,
        "StopSignal": "SIGTERM",
        "StopTimeout": spec.stop_grace_s,
        "HostConfig": _host_config(spec),
    }
    if spec.command is not None:
        body["Cmd"] = list(spec.command)
    if spec.entrypoint is not None:
        body["Entrypoint"] = list(spec.entrypoint)
    if spec.aliases:
        body["NetworkingConfig"] = {"EndpointsConfig": {spec.network: {"Aliases": list(spec.aliases)}}}
    return body


def container_labels(spec: ContainerSpec) -> dict[str, str]:
    """Return the labels of a container: those of the spec, its key, and its volume of secrets."""
    secrets = {SECRETS_LABEL: secrets_volume(spec)} if spec.secret_files else {}
    return {**spec.labels, KEY_LABEL: spec.key, **secrets}


def secrets_volume(spec: ContainerSpec) -> str:
    """Return the name of the volume with a container's secret files."""
    return f"{spec.name}.secrets"


def _host_config(spec: ContainerSpec) -> Json:
    limits = spec.limits
    bindings: dict[str, list[Json]] = {}
    for port in spec.ports:
        binding: Json = {"HostIp": port.host_ip, "HostPort": str(port.host_port)}
        bindings.setdefault(f"{port.container_port}/{port.protocol}", []).append(binding)
    mounts = [_volume(mount) for mount in spec.mounts if mount.volume]
    if spec.secret_files:
        mounts.append({"Type": "volume", "Source": secrets_volume(spec), "Target": SECRETS_PATH})
    return {
        "NetworkMode": spec.network,
        "PortBindings": bindings,
        "Mounts": mounts,
        "Tmpfs": {mount.path: _tmpfs(mount) for mount in spec.mounts if not mount.volume},
        "RestartPolicy": {"Name": "no"},
        "NanoCpus": round(limits.cpus * NANOSECONDS),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # with memory alone, engines allow as much again in swap
        "PidsLimit": limits.pids,
        "Ulimits": [_ulimit("nofile", limits.open_files), _ulimit("nproc", limits.pids)],
        "CapDrop": ["ALL"],
        "CapAdd": list(spec.capabilities),
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": spec.read_only_root,
    }


def _volume(mount: VolumeMount) -> Json:
    return {"Type": "volume", "Source": mount.volume, "Target": mount.path, "ReadOnly": mount.read_only}


def _tmpfs(mount: VolumeMount) -> str:
    size = [f"size={mount.size_bytes}"] if mount.size_bytes else []
    return ",".join(["ro" if mount.read_only else "rw", *size])


def _ulimit(name: str, limit: int) -> Json:
    return {"Name": name, "Soft": limit, "Hard": limit}


def check_spec(spec: ContainerSpec) -> None:
    """Refuse what no engine would check: values that would be read as something else, and secrets outside their path.

    Raises `BadInput`.
    """
    if _PART_OF_ID.fullmatch(spec.name):
        raise BadInput("name", spec.name, "a name that is not hexadecimal digits alone, as the beginning of an id is")
    if SECRETS_LABEL in spec.labels:  # the key's own label is always that of the key
        raise BadInput("labels", SECRETS_LABEL, "a label that is not kept for the volumes of secret files")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise BadInput("env", name, "a name without = and NUL, and a value without NUL")
    for path in spec.secret_files:
        parts = PurePosixPath(path)
        if not path.startswith(f"{SECRETS_PATH}/") or ".." in parts.parts or str(parts) != path or "\0" in path:
            raise BadInput("secret_files", path, f"a plain path below {SECRETS_PATH}")
    for mount in spec.mounts:
        if not mount.path.startswith("/") or any(mark in mount.path + mount.volume for mark in ":,\0"):
            raise BadInput("mounts", mount.path, "an absolute path; path and volume without : and ,")
        if mount.volume.startswith(("/", ".")):  # engines read that as a folder of the host
            raise BadInput("mounts", mount.volume, "the name of a volume, which is no path of the host")
    if spec.secret_files and spec.user and not all(part.isdigit() for part in spec.user.split(":")):
        raise BadInput("user", spec.user, "a number, because secret files are for the user alone")


def container_path(container: str) -> str:
    """Return the path of a container; raises `EngineRefused` for the beginning of an id, which might be another's."""
    if _PART_OF_ID.fullmatch(container):
        message = "it is neither a name nor a whole id"
        raise EngineRefused(EngineRefusal.NOT_FOUND, f"find container {container!r}", message)
    return f"/containers/{quote(container, safe='')}"


def secrets_archive(spec: ContainerSpec) -> bytes:
    """Return a tar archive of the secret files, which the container's user alone can read."""
    uid, _, gid = (spec.user or "0").partition(":")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path, content in sorted(spec.secret_files.items()):
            entry = tarfile.TarInfo(path.removeprefix(f"{SECRETS_PATH}/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o400, int(uid), int(gid or 0)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def label_filters(labels: Sequence[str]) -> str:
    """Return the filter of a listing by labels."""
    return msgspec.json.encode({"label": list(labels)} if labels else {}).decode()


def has_labels(labels: Mapping[str, str], wanted: Sequence[str]) -> bool:
    """Tell whether labels match every one of a filter's, which are `name` or `name=value`."""
    return all(
        name in labels and (not equals or labels[name] == value)
        for name, equals, value in (label.partition("=") for label in wanted)
    )


def registry_auth(login: RegistryLogin) -> str:
    """Return the header with the credential for a registry."""
    fields: Mapping[str, str] = {
        "username": login.username,
        "password": login.password,
        "serveraddress": login.server,
    }
    return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode()


def registry_of(image: str) -> str:
    """Return the registry that an engine asks for an image; a name without one is at Docker Hub."""
    first, slash, _ = image.partition("/")
    is_registry = slash and (first == "localhost" or first != first.lower() or "." in first or ":" in first)
    return first if is_registry else DEFAULT_REGISTRY


def pull_reference(image: str) -> tuple[str, str]:
    """Return an image's full reference and its digest, if it has one; without a tag Docker would pull all of them."""
    name, _, digest = image.partition("@")
    if digest:
        return f"{name}@{digest}", digest
    return (image if ":" in name.rpartition("/")[2] else f"{image}:latest"), ""
