"""The first start of a container, by an engine that may be killed meanwhile.

A Podman that is killed while it starts a container may leave it half started: no later start succeeds. One that is
killed while it creates a container may forget it. Both are created again, with the same name and key.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from stateward.containers.errors import EngineRefusal, EngineRefused
from stateward.containers.port import ContainerEngine

LOST = (EngineRefusal.DAMAGED, EngineRefusal.NOT_FOUND)


class StartedContainer(Struct, frozen=True):
    """A container that runs; `was_started` is False if it ran already."""

    id: str
    was_started: bool


async def start_created(
    engine: ContainerEngine, container: str, create_again: Callable[[], Awaitable[str]]
) -> StartedContainer:
    """Start a container that was created; one that a killed engine has damaged or lost is created again, once.

    Its program may have begun already, for a moment: this is not for programs that may run only once.
    """
    try:
        return StartedContainer(container, await engine.start_container(container))
    except EngineRefused as error:
        if error.reason not in LOST:
            raise
    await engine.remove_container(container, force=True)
    created = await create_again()
    return StartedContainer(created, await engine.start_container(created))
