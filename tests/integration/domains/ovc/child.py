"""A process that is killed in the middle: it makes a VM, begins something, says where it is, and hangs there.

python -m tests.integration.domains.ovc.child DATABASE FOLDER DRIVER ACTION STEP
"""

import asyncio
import json
import sys
from pathlib import Path

from stateward.domains.ovc.settings import read_settings
from stateward.store import open_store
from tests.integration.domains.ovc.cloud import ADA, FILES, Cloud, open_cloud

FOR_EVER = 3600.0


def say(**facts: str) -> None:
    """Tell the test."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def hang_in(cloud: Cloud, step: str, vm: str, op: str) -> None:
    """Let a step of a destruction hang before it begins, or (`after ...`) when it is done and not yet noted."""
    from stateward.domains.ovc.vms import Vms

    name = {"stop": "_power_off", "delete": "_sweep", "destroy": "_remove_disks"}[step.removeprefix("after ")]
    done = getattr(Vms, name)

    async def hanging(self: Vms, *args: object) -> None:
        if step.startswith("after "):
            await done(self, *args)
        say(vm=vm, op=op, at=step)
        await asyncio.sleep(FOR_EVER)

    setattr(Vms, name, hanging)


async def main(database: str, folder: Path, driver: str, action: str, step: str) -> None:
    """Begin, and hang."""
    settings = FILES if driver == "qemu" else read_settings(folder)
    store = open_store(database, migrate=True) if "://" in database else open_store(database)
    async with open_cloud(store, folder, settings, lease=1.0) as cloud:
        options = {"bandwidth": "60000"} if driver == "qemu" else {}
        await cloud.furnish(2, driver=driver, **options)
        vm = await cloud.vm()
        if action == "destroy":
            request = cloud.engine.request(cloud.ns, vm, action)
            hang_in(cloud, step, vm, request.op)
            await cloud.engine.submit(request)
        elif action == "migrate":
            accepted = await cloud.ask(vm, action, ADA)
            await cloud.until_told(accepted.op.id)
            say(vm=vm, op=accepted.op.id, at=action)
        else:
            cloud.doors.close(action)
            accepted = await cloud.ask(vm, action)
            await cloud.doors.somebody_at(action)
            say(vm=vm, op=accepted.op.id, at=action)
        await asyncio.sleep(FOR_EVER)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
