"""The manifest of an app: its parts, in one typed form for every back end.

A part is a program in a number of copies. The process back end runs its command on the agent's machine, the container
back end runs its image. `backend_problems` tells what a back end cannot honour: nothing of a manifest is ignored.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from stateward.agents.messages import SiteBackend
from stateward.domains.edge.sites.probe_specs import HttpProbe, Probe
from stateward.errors import BadInput
from stateward.naming import (
    IMAGE_FORM,
    IMAGE_REFERENCE,
    SCRIPT,
    SCRIPT_MEANS,
    URL_PATH_FORM,
    VOLUME_PATH_FORM,
    is_url_path,
    is_volume_path,
    port_ranges,
)
from stateward.validation_texts import describe_pattern

MAX_PARTS = 20
MAX_COPIES = 1000
"""The number of processes or containers of an app."""

PART_NAME = describe_pattern(
    r"^[a-z0-9][a-z0-9-]{0,30}$(?!\n)", "a name of small letters, digits and dashes, at most 31 of them"
)
VOLUME_NAME = describe_pattern(f"{PART_NAME}|^$", "empty, or a name of small letters, digits and dashes")
IMAGE = describe_pattern(
    r"^$|^[A-Za-z0-9][A-Za-z0-9._/:-]{0,254}(@sha256:[0-9a-f]{64})?$(?!\n)",
    "an image such as registry.example.com/web:1.2, which may be pinned by @sha256:DIGEST",
)
ARCHIVE = describe_pattern(
    r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$(?!\n)", "the name of a file, of letters, digits and . _ -"
)
MOUNT_PATH = describe_pattern(
    r"^/[A-Za-z0-9._/+@-]{1,254}$(?!\n)", "an absolute path of letters, digits and . _ / + @ -"
)
USER = describe_pattern(r"^$|^[0-9]{1,9}(:[0-9]{1,9})?$(?!\n)", "a number such as 1000, or 1000:1000 with a group")
VARIABLE = describe_pattern(
    r"^[A-Za-z_][A-Za-z0-9_]{0,99}$(?!\n)", "a variable's name of letters, digits and _, at most 100 of them"
)
describe_pattern(SCRIPT, SCRIPT_MEANS)

PartName = Annotated[str, Meta(pattern=PART_NAME)]
Script = Annotated[str, Meta(max_length=4000, pattern=SCRIPT)]
PortNumber = Annotated[int, Meta(ge=1, le=65535)]
Capability = Literal["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID"]


class PartPort(Struct, frozen=True, omit_defaults=True):
    """A port that a part listens on; a published one is reachable at the host, at `host_port` or any free port (0)."""

    port: PortNumber
    protocol: Literal["tcp", "udp"] = "tcp"
    published: bool = False
    host_port: Annotated[int, Meta(ge=0, le=65535)] = 0


class PartVolume(Struct, frozen=True, omit_defaults=True):
    """A volume of the app at a path of its containers; without a name, a file system in memory for each container.

    All parts that name a volume share it. It outlives updates, and is removed with the app.
    """

    path: Annotated[str, Meta(pattern=MOUNT_PATH)]
    name: Annotated[str, Meta(pattern=VOLUME_NAME)] = ""
    read_only: bool = False
    size_mib: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # of a file system in memory; 0: the engine's own limit


class PartResources(Struct, frozen=True, omit_defaults=True):
    """The limits of each copy; 0 means the limit of its node."""

    cpu: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    memory_mib: Annotated[int, Meta(ge=0, le=100_000_000)] = 0
    pids: Annotated[int, Meta(ge=1, le=100_000)] = 1000


class AppPart(Struct, frozen=True, omit_defaults=True):
    """A part of an app: one program, in `count` copies.

    A command that is a text is run by a shell, a list is run as it is; without one, a container runs its image's own.
    `archive` is a file with the image in the folder of images at the agent, which is loaded if the engine has no such
    image.
    """

    name: PartName = "main"
    image: Annotated[str, Meta(pattern=IMAGE)] = ""
    archive: Annotated[str, Meta(pattern=ARCHIVE)] = ""
    command: Script | Annotated[tuple[Script, ...], Meta(max_length=100)] = ""
    count: Annotated[int, Meta(ge=1, le=MAX_COPIES)] = 1
    setup: Script = ""
    env: Annotated[
        dict[Annotated[str, Meta(pattern=VARIABLE)], Annotated[str, Meta(max_length=4000, pattern=SCRIPT)]],
        Meta(max_length=100),
    ] = {}
    ports: Annotated[tuple[PartPort, ...], Meta(max_length=100)] = ()
    volumes: Annotated[tuple[PartVolume, ...], Meta(max_length=100)] = ()
    probe: Probe | None = None
    resources: PartResources = PartResources()
    user: Annotated[str, Meta(pattern=USER)] = ""
    read_only: bool = False
    capabilities: Annotated[tuple[Capability, ...], Meta(max_length=10)] = ()
    stop_grace_s: Annotated[int, Meta(ge=0, le=600)] = 10


Parts = Annotated[tuple[AppPart, ...], Meta(max_length=MAX_PARTS)]


class AppProgram(Struct, frozen=True):
    """What an app runs, as in the spec of an AppInst: its parts, or the short form of one part."""

    command: str = ""
    setup: str = ""
    count: int = 1
    probe: Probe | None = None
    parts: Parts = ()


def parts_of(app: AppProgram) -> tuple[AppPart, ...]:
    """Return the parts of an app; the short form is one part."""
    return app.parts or (AppPart(command=app.command, count=app.count, setup=app.setup, probe=app.probe),)


def place_of(app: AppProgram, number: int, field: str) -> str:
    """Return where a field of a part stands in an app's spec."""
    return f"parts[{number}].{field}" if app.parts else field


# --- checks ----------------------------------------------------------------------------------------------------------


def check_manifest(app: AppProgram) -> None:
    """Refuse a manifest that contradicts itself; raises `BadInput`."""
    if app.parts and (app.command or app.setup or app.count != 1 or app.probe):
        fields = "command, setup, count and probe"
        raise BadInput("parts", None, f"given without {fields}, which are the short form of one part")
    if not app.parts and not app.command:
        raise BadInput("command", app.command, "given, or parts instead")
    for number, part in enumerate(parts_of(app)):
        if isinstance(part.probe, HttpProbe) and not is_url_path(part.probe.path):
            raise BadInput(place_of(app, number, "probe.path"), part.probe.path, URL_PATH_FORM)
        if part.image and not IMAGE_REFERENCE.fullmatch(part.image):
            raise BadInput(place_of(app, number, "image"), part.image, IMAGE_FORM)
    names = [part.name for part in app.parts]
    for number, part in enumerate(app.parts):
        if names.index(part.name) != number:
            raise BadInput(f"parts[{number}].name", part.name, "a name that no other part has")
        if not part.image and not part.command:
            raise BadInput(f"parts[{number}].command", part.command, "given, or an image instead")
        _check_ports(app.parts, number)
        for nth, volume in enumerate(part.volumes):
            if ".." in volume.path.split("/"):
                raise BadInput(f"parts[{number}].volumes[{nth}].path", volume.path, "a path without ..")
            if not is_volume_path(volume.path):
                raise BadInput(f"parts[{number}].volumes[{nth}].path", volume.path, VOLUME_PATH_FORM)
            if volume.size_mib and volume.name:
                raise BadInput(f"parts[{number}].volumes[{nth}].size_mib", volume.size_mib, "0 for a named volume")
    if sum(part.count for part in app.parts) > MAX_COPIES:
        raise BadInput("parts", None, f"at most {MAX_COPIES} copies in all")


def _check_ports(parts: Sequence[AppPart], number: int) -> None:
    part, place = parts[number], f"parts[{number}].ports"
    taken = {(port.host_port, port.protocol) for other in parts[:number] for port in other.ports if port.published}
    seen: set[tuple[int, str]] = set()
    for nth, port in enumerate(part.ports):
        if (port.port, port.protocol) in seen:
            raise BadInput(f"{place}[{nth}].port", port.port, f"a {port.protocol} port that is not listed yet")
        seen.add((port.port, port.protocol))
        if not port.host_port:
            continue
        if not port.published:
            raise BadInput(f"{place}[{nth}].host_port", port.host_port, "0, or the port must be published")
        if part.count > 1:
            raise BadInput(f"{place}[{nth}].host_port", port.host_port, "0 (any free port) for more than one copy")
        if (port.host_port, port.protocol) in taken:
            raise BadInput(f"{place}[{nth}].host_port", port.host_port, "a port that no other part is published at")
        taken.add((port.host_port, port.protocol))


def check_backend(app: AppProgram, backend: str) -> None:
    """Refuse a manifest that a back end cannot honour; raises `BadInput`."""
    for field, value, allowed in backend_problems(app, backend):
        raise BadInput(field, value, allowed)


def check_host_ports(app: AppProgram, allowed: str) -> None:
    """Refuse ports of the host that its administrator does not allow; raises `BadInput`."""
    ranges = port_ranges(allowed)
    for number, part in enumerate(parts_of(app)):
        for nth, port in enumerate(part.ports):
            if port.host_port and not any(port.host_port in port_range for port_range in ranges):
                field = place_of(app, number, f"ports[{nth}].host_port")
                raise BadInput(
                    field, port.host_port, f"0, or a port in {allowed} (option --address-ports of the agent)"
                )


def backend_problems(app: AppProgram, backend: str) -> Iterator[tuple[str, object, str]]:
    """Yield what a back end cannot honour: the field, its value, and what is allowed."""
    for number, part in enumerate(parts_of(app)):
        problems = _container_problems(part) if backend == SiteBackend.CONTAINER else _process_problems(part)
        for field, value, allowed in problems:
            yield place_of(app, number, field), value, f"{allowed} on a cloudlet with the back end {backend}"


def _container_problems(part: AppPart) -> Iterator[tuple[str, object, str]]:
    if not part.image:
        yield "image", part.image, "an image"
    if part.setup:
        yield "setup", part.setup, "empty (the image has what the app needs)"


def _process_problems(part: AppPart) -> Iterator[tuple[str, object, str]]:
    empty = AppPart()
    if not part.command:
        yield "command", part.command, "a command"
    for field in ("image", "archive", "volumes", "resources", "user", "read_only", "capabilities"):
        value = getattr(part, field)
        if value != getattr(empty, field):
            shown = value if isinstance(value, str | bool) else None
            yield field, shown, "left out"
    for nth, port in enumerate(part.ports):
        if not port.published or port.host_port != port.port:  # a process listens at the host itself
            yield f"ports[{nth}].host_port", port.host_port, f"{port.port} and published"
