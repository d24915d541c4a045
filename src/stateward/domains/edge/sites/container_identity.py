"""Names and labels of an agent's containers, networks and volumes, and what a listing of containers tells of an app.

Everything that an agent creates has its installation and its instance in its labels, so that a listing alone tells what
belongs to what. A container's name has its generation, which is never used twice: an order that is executed again finds
the container that it created before, and never that of another order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from stateward.agents.messages import AgentOrder
from stateward.agents.published_ports import MAX_PORTS, PublishedAddress
from stateward.containers import ContainerRecord, ContainerState
from stateward.domains.edge.sites.app_manifest import AppPart

AGENT_LABEL = "stateward.agent"
INSTANCE_LABEL = "stateward.instance"
CLUSTER_LABEL = "stateward.cluster"
GENERATION_LABEL = "stateward.generation"
OPERATION_LABEL = "stateward.operation"
PART_LABEL = "stateward.part"
NUMBER_LABEL = "stateward.number"
GRACE_LABEL = "stateward.grace"
"""The label with the seconds that a container has to end after its signal."""

KILLED = 137
"""The exit code of a program that was killed; not every engine knows whether for its memory."""

MAX_TOLD = 5
"""The number of containers that a problem names."""


class Copy(Struct, frozen=True, order=True):
    """One copy of a part of an app, in a generation of the app."""

    generation: int
    part: str
    number: int

    def __str__(self) -> str:
        return f"{self.part}/{self.number}"


def copies_of(parts: Sequence[AppPart], generation: int) -> list[Copy]:
    """Return the copies of all parts, in order."""
    return [Copy(generation, part.name, number) for part in parts for number in range(part.count)]


class SiteNames:
    """The names, keys and labels of what an agent's installation creates."""

    def __init__(self, installation: str) -> None:
        self._installation = installation

    @property
    def label(self) -> str:
        """The label of everything of this installation, as a filter of listings."""
        return f"{AGENT_LABEL}={self._installation}"

    def name(self, instance: str, *parts: object) -> str:
        """Return the name of something of an instance; `.` separates, since no name of an instance has one."""
        return ".".join(("sw", self._installation[:12], *instance.split(":"), *map(str, parts)))

    def key(self, instance: str, *parts: object) -> str:
        """Return the key of something of an instance: its identity, which is never that of something else."""
        return "/".join((self._installation, instance, *map(str, parts)))

    def container(self, instance: str, copy: Copy) -> str:
        """Return the name of a container."""
        return self.name(instance, copy.generation, copy.part, copy.number)

    def labels(self, order: AgentOrder) -> dict[str, str]:
        """Return the labels of something that an order creates."""
        return {
            AGENT_LABEL: self._installation,
            INSTANCE_LABEL: order.name,
            CLUSTER_LABEL: order.host or order.name,
            GENERATION_LABEL: str(order.generation),
            OPERATION_LABEL: str(order.operation),
        }

    def container_labels(self, order: AgentOrder, copy: Copy, grace_s: int) -> dict[str, str]:
        """Return the labels of a container."""
        own = {PART_LABEL: copy.part, NUMBER_LABEL: str(copy.number), GRACE_LABEL: str(grace_s)}
        return {**self.labels(order), **own}


def copy_in(labels: Mapping[str, str]) -> Copy | None:
    """Return the copy that labels describe, or None if they are not those of a container of an app."""
    generation, number = labels.get(GENERATION_LABEL, ""), labels.get(NUMBER_LABEL, "")
    if not generation.isdecimal() or not number.isdecimal() or PART_LABEL not in labels:
        return None
    return Copy(int(generation), labels[PART_LABEL], int(number))


def grace_of(container: ContainerRecord) -> int | None:
    """Return the seconds that a container has to end."""
    text = container.labels.get(GRACE_LABEL, "")
    return int(text) if text.isdecimal() else None


def by_instance(containers: Iterable[ContainerRecord]) -> dict[str, list[ContainerRecord]]:
    """Group containers by the instance in their labels."""
    groups: dict[str, list[ContainerRecord]] = {}
    for container in containers:
        groups.setdefault(container.labels.get(INSTANCE_LABEL, ""), []).append(container)
    return groups


def published_addresses(containers: Iterable[ContainerRecord]) -> tuple[PublishedAddress, ...]:
    """Return the published ports of the containers of an app that run, in order."""
    published = [
        (copy, PublishedAddress(str(copy), port.container_port, port.host_ip, port.host_port, port.protocol))
        for container in containers
        if container.state is ContainerState.RUNNING and (copy := copy_in(container.labels)) is not None
        for port in container.ports
    ]
    published.sort(key=lambda pair: (pair[0], pair[1].port, pair[1].protocol))
    return tuple(address for _, address in published[:MAX_PORTS])


def is_up(container: ContainerRecord, network: str) -> bool:
    """Tell whether a container runs, in its cluster's network."""
    return container.state is ContainerState.RUNNING and network in container.ips


def copies_down(wanted: Sequence[Copy], containers: Iterable[ContainerRecord], network: str) -> Iterator[str]:
    """Yield what is wrong with an app's containers: missing, not running, more than one, outside of the network."""
    groups: dict[Copy | None, list[ContainerRecord]] = {}
    for container in containers:
        groups.setdefault(copy_in(container.labels), []).append(container)
    for copy in wanted:
        match groups.pop(copy, []):
            case []:
                yield f"{copy} is gone"
            case [container] if is_up(container, network):
                continue
            case [container]:
                yield f"{copy} {describe_state(container)}"
            case several:
                yield f"{copy} is there {len(several)} times"
    for other, several in groups.items():
        yield f"{len(several)} other containers are there ({other})"


def describe_state(container: ContainerRecord) -> str:
    """Describe a container that is not up."""
    if container.oom_killed:
        return "was killed: out of memory"
    match container.state:
        case ContainerState.RUNNING:
            return "is not in the network of its cluster"
        case ContainerState.EXITED | ContainerState.DEAD if container.exit_code == KILLED:
            return f"has ended with exit code {KILLED}: it was killed (signal 9), by hand or out of memory"
        case ContainerState.EXITED | ContainerState.DEAD if container.exit_code is not None:
            return f"has ended with exit code {container.exit_code}"
        case ContainerState.CREATED if container.error:
            return f"was not started: {container.error}"
        case _:
            return f"is {container.state}"


def summarize(problems: Sequence[str], number: int) -> str:
    """Return the problems of an app as one line, or nothing."""
    if not problems:
        return ""
    rest = f" and {len(problems) - MAX_TOLD} more" if len(problems) > MAX_TOLD else ""
    return f"{len(problems)} of {number} containers are not as they should be: {', '.join(problems[:MAX_TOLD])}{rest}"
