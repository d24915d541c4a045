"""The images of a deploy: what each of them is now, pulled where that is needed.

A pull can take long, or hang with its registry, and nothing has changed until it has ended. So a deploy that is
cancelled meanwhile ends at once.
"""

import asyncio
from typing import Any

import msgspec
from msgspec.structs import replace

from stateward.aio.supervise import cancel_tasks
from stateward.containers import registry_of
from stateward.domains.systems.backends.port import SystemRef
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition import PinnedImage, Service
from stateward.domains.systems.model import ChangeSeen, DesiredTree, seen_of
from stateward.engine import Job, Permanent, Temporary
from stateward.errors import StatewardError, count_text

BUILT_HERE = "localhost"
CANCEL_CHECK_S = 1.0
"""Seconds between two looks whether the deploy was cancelled."""


class CancelledMeanwhile(Exception):
    """The deploy was cancelled before it had changed anything."""

    def __init__(self, who: str) -> None:
        super().__init__(who)
        self.who = who


async def pin_images(context: SystemContext, job: Job, system_ref: SystemRef, wanted: DesiredTree) -> DesiredTree:
    """Let each image stay what it is now: tags may move while this deploy runs, and before it is rolled back."""
    if all(program.image is None or program.pinned is not None for program in wanted.programs.values()):
        return wanted

    async def find() -> Any:  # noqa: ANN401 - JSON
        return await _find_images(context, job, system_ref, wanted)

    pins = msgspec.convert(await job.once("images", find), dict[str, PinnedImage])
    services = {
        path: replace(service, pinned=pins[path]) if path in pins else service
        for path, service in wanted.services.items()
    }
    jobs = {
        path: replace(definition, program=replace(definition.program, pinned=pins[path]))
        if path in pins
        else definition
        for path, definition in wanted.jobs.items()
    }
    return replace(wanted, services=services, jobs=jobs)


def _asking_registry(program: Service) -> Service:
    """Return a program whose image is pulled even if the engine has it.

    The engine may have it by the login of another namespace. A pull asks the registry whether the program's own login
    opens the image, and transfers nothing that the engine has. Engines call images that were built on their host
    `localhost/NAME`; no registry knows those.
    """
    if program.image is None or registry_of(program.image) == BUILT_HERE:
        return program
    if program.pull == "never":
        raise Permanent(
            f"the image {program.image} must be pulled (pull: never is only for {BUILT_HERE}/NAME here): the setting"
            " systems_registry_logins is in force, so the registry decides which namespace may run an image"
        )
    return replace(program, pull="always")


async def _find_images(context: SystemContext, job: Job, system_ref: SystemRef, wanted: DesiredTree) -> Any:  # noqa: ANN401 - JSON
    images = sorted({program.image for program in wanted.programs.values() if program.image is not None})
    await job.progress(f"looking for {count_text(len(images), 'image')}")
    backend = await context.backend(system_ref)
    programs = wanted.programs
    if context.settings.registry_logins:
        programs = {path: _asking_registry(program) for path, program in programs.items()}
    search = asyncio.ensure_future(backend.pin_images(system_ref, programs, job.progress))
    try:
        while not search.done():
            await asyncio.wait([search], timeout=CANCEL_CHECK_S)
            deploy = None if search.done() else await context.object(job.ns, job.object)
            if deploy is not None and (who := seen_of(deploy, ChangeSeen).cancelled) is not None:
                raise CancelledMeanwhile(who)
        return msgspec.to_builtins(search.result())
    except StatewardError as error:
        raise (Temporary if error.retry else Permanent)(str(error)) from error
    finally:
        await cancel_tasks([search])
