"""Secrets of local instances: delivered at each start, and written to no file but those of the secrets."""

import asyncio
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from stateward.domains.systems.backends.local import LocalBackend
from stateward.domains.systems.definition import HealthCheck, SecretRef
from stateward.domains.systems.errors import SecretMissing
from stateward.store.errors import Unavailable
from stateward.workloads.confinement import Confinement, Sandbox
from tests.integration.domains.systems.local_backend_harness import (
    HOME,
    WEB,
    end_all,
    ready,
    shell,
    start,
    until_instances,
)

VALUE, NEWER = "hunter2-hunter2", "correct horse battery staple"
REFS = {
    "PASSWORD": SecretRef("db"),
    "CERT": SecretRef("db", "file", "cert.pem"),
}
TELL = 'stat -c "%a %U" "$CERT"; [ "$(cat "$CERT")" = "$PASSWORD" ] && echo same ${#PASSWORD}; exec sleep 1000'


class Values:
    """The secrets of a test; `errors` are raised first."""

    def __init__(self) -> None:
        self.now = {"db": VALUE}
        self.errors: list[Exception] = []

    async def read(self, ns: str, names: Collection[str]) -> Mapping[str, str]:
        """Return values, or raise the next error."""
        assert ns == HOME.ns
        if self.errors:
            raise self.errors.pop()
        return {name: self.now[name] for name in names}


async def log_of(backend: LocalBackend) -> str:
    """Return what the instance has written."""
    return "".join(one.text for one in await backend.logs(WEB, None, 0, 10_000))


def texts_below(folder: Path) -> str:
    """Return all files below a folder."""
    return "".join(
        f"{path}: {path.read_bytes().decode(errors='replace')}\n" for path in folder.rglob("*") if path.is_file()
    )


async def test_an_instance_gets_its_secrets_at_every_start_and_no_file_has_them(tmp_path: Path) -> None:
    values = Values()
    for boot in range(2):  # the second backend takes over
        backend = LocalBackend(tmp_path, read_secrets=values.read)
        await backend.prepare(HOME)
        async with backend.live():
            await start(backend, shell(TELL, secrets=REFS))
            before = (await ready(backend))[0]
            assert before.pid is not None
            values.now = {"db": NEWER} if boot else {"db": VALUE}
            os.killpg(before.pid, signal.SIGKILL)
            await until_instances(backend, lambda seen, old=before.pid: seen[0].ready and seen[0].pid != old)  # type: ignore[misc]
            text = await log_of(backend)
            assert f"same {len(values.now['db'])}" in text
            assert text.count("same") == 2 + boot
            assert "400 " in text
            assert VALUE not in texts_below(tmp_path)
            assert NEWER not in texts_below(tmp_path)
    async with backend.live():
        await end_all(backend)


async def test_a_health_check_has_the_secrets(tmp_path: Path) -> None:
    values = Values()
    check = HealthCheck(command=("/bin/sh", "-c", f'[ "$(cat "$CERT")" = "$PASSWORD" ] && [ "$PASSWORD" = {VALUE} ]'))
    service = shell("exec sleep 1000", secrets=REFS, health=check)
    for _ in range(2):
        backend = LocalBackend(tmp_path, read_secrets=values.read)
        await backend.prepare(HOME)
        async with backend.live():
            values.errors = [Unavailable("down")]
            await start(backend, service)
            pid = (await ready(backend))[0].pid
            await asyncio.sleep(0)
            assert [one.pid for one in await backend.instances(WEB)] == [pid]
    async with backend.live():
        await end_all(backend)


async def test_a_missing_secret_is_the_reason_of_a_crash_until_it_is_there(tmp_path: Path) -> None:
    values = Values()
    values.errors = [SecretMissing("db")]
    backend = LocalBackend(tmp_path, read_secrets=values.read)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell(TELL, secrets=REFS))
        seen = await until_instances(backend, lambda seen: bool(seen and seen[0].why))
        assert "there is no secret db" in seen[0].why
        await ready(backend)
        await end_all(backend)


@pytest.mark.parametrize("required", [True, False])
async def test_another_instance_cannot_read_the_files(tmp_path: Path, required: bool) -> None:
    values = Values()
    backend = LocalBackend(tmp_path, Confinement(required=required), values.read)
    await backend.prepare(HOME)
    async with backend.live():
        await start(backend, shell(TELL, secrets=REFS), "one")
        await ready(backend)
        folder = tmp_path / HOME.ns / HOME.system / "services" / "web" / "instances" / "one"
        assert folder.exists()
        private = Sandbox(folder).secrets_dir  # on the host, where it is not in a file system of its own
        if required and os.geteuid() == 0:
            assert not private.exists()
            spy = "ls /run/stateward/secrets; cat /run/stateward/secrets/*; cat /dev/shm/*/*/*; exec sleep 1000"
            await start(backend, shell(spy), "two")
            await ready(backend, 2)
            assert VALUE not in await log_of(backend)
        else:
            assert private.stat().st_mode & 0o777 == 0o700
            assert [one.stat().st_mode & 0o777 for one in private.iterdir()] == [0o400]
        await end_all(backend)
    assert not private.exists()
