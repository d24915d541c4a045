"""A process that a test kills in the middle of an action: it reports its step, and hangs there.

python -m tests.integration.domains.ovc.crash_child DATABASE FOLDER DRIVER ACTION STEP LEASE
"""

import asyncio
import json
import sys
from pathlib import Path

from stateward.domains.ovc.lifecycle import VM
from stateward.domains.ovc.machine_handlers import OvcVmHandlers
from stateward.domains.ovc.nodes import NodeRegistry
from stateward.domains.ovc.settings import Settings
from stateward.engine import Handler, Job
from stateward.store import open_store
from tests.integration.domains.ovc.ovc_harness import ADA, FILES, Cloud, open_cloud

STEPS: dict[str, tuple[type, str]] = {
    "stop": (NodeRegistry, "stop_machine"),
    "delete": (NodeRegistry, "stop_stale"),
    "destroy": (OvcVmHandlers, "_remove_disks"),
}
"""The steps of a destruction, and the function that does each."""


def say(**facts: str) -> None:
    """Report to the test, as a line of JSON."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def hang_in(cloud: Cloud, step: str, vm: str, op: str) -> None:
    """Let a step of a destruction hang before it begins, or (`after ...`) when it is done and not yet noted."""
    owner, name = STEPS[step.removeprefix("after ")]
    done = getattr(owner, name)

    async def hanging(self: object, *args: object) -> None:
        if step.startswith("after "):
            await done(self, *args)
        say(vm=vm, op=op, at=step)
        await asyncio.Event().wait()

    setattr(owner, name, hanging)


def hang_at_the_second(cloud: Cloud, op: str) -> None:
    """Let the second VM of a cascade hang, when the first one has gone."""
    handlers = cloud.engine.kinds[VM.kind].handlers
    deleting, met = handlers["delete"], list[str]()

    async def hanging(job: Job) -> object:
        met.append(job.object)
        if len(met) == 1:
            return await deleting.run(job)
        await cloud.until_state(met[0], "DELETED")
        say(vm=met[0], op=op, at="the second VM")
        await asyncio.Event().wait()
        return None

    handlers["delete"] = Handler(hanging, deleting.observe)


async def main(database: str, folder: Path, driver: str, action: str, step: str, lease: str) -> None:
    """Begin the action, and hang."""
    settings = FILES if driver == "qemu" else Settings(look_every=0.0)
    store = open_store(database, migrate=True) if "://" in database else open_store(database)
    async with open_cloud(store, folder, settings, lease=float(lease)) as cloud:
        options = {"bandwidth": "60000"} if driver == "qemu" else {}
        await cloud.create_base_objects(2, driver=driver, **options)
        vm = await cloud.vm()
        if action == "destroy":
            request = cloud.engine.request(cloud.ns, vm, action)
            hang_in(cloud, step, vm, request.op)
            await cloud.engine.submit(request)
        elif action == "migrate":
            accepted = await cloud.ask(vm, action, ADA)
            await cloud.until_progress(accepted.op.id)
            behind = (await cloud.ask(vm, step)).op.id if step else ""
            say(vm=vm, op=accepted.op.id, at=action, behind=behind)
        elif action == "delete account":
            await cloud.vm()
            request = cloud.engine.request(cloud.ns, cloud.account, "delete", actor=ADA.actor)
            hang_at_the_second(cloud, request.op)
            await cloud.engine.submit(request)
        else:
            raise ValueError(action)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
