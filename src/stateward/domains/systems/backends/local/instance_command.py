"""Commands in an instance that is a process: with its user, its confinement, its environment and its folder."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from stateward.domains.systems.backends.local.instance_dir import InstanceDir, InstanceOrder, LocalInstanceState
from stateward.domains.systems.backends.local.launch import environment_of, secret_files, start_dir
from stateward.domains.systems.backends.port import CommandOutcome
from stateward.drivers.confinement import Confinement, Sandbox

CHUNK_BYTES = 65_536
SIGNAL_BASE = 128
POLL_INTERVAL_S = 0.02


async def run_in_process_instance(
    directory: InstanceDir,
    order: InstanceOrder,
    state: LocalInstanceState,
    secrets: Mapping[str, str],
    confinement: Confinement,
    argv: Sequence[str],
    timeout_s: float,
    max_output: int,
) -> CommandOutcome:
    """Run a command to its end, or kill it after a time; output beyond a limit is dropped."""
    sandbox = replace(Sandbox(directory.folder, uid=state.uid), files=secret_files(order, secrets))
    environment = environment_of(directory, order, state.boot, state.port or 0, sandbox, secrets)

    def start() -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        return subprocess.Popen(  # noqa: S603 - a command of an administrator, confined as the instance is
            argv,
            env=environment,
            cwd=start_dir(order, sandbox),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    try:
        process = await asyncio.to_thread(confinement.run, sandbox, start)
    except (OSError, ValueError) as error:
        return CommandOutcome(order.name, 127, "", f"{argv[0]}: {error}\n")
    assert process.stdout is not None
    assert process.stderr is not None
    reading = asyncio.gather(
        *(asyncio.to_thread(_read_bounded, one.fileno(), max_output) for one in (process.stdout, process.stderr))
    )
    has_timed_out = False
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(reading)
            await _wait(process)
    except TimeoutError:
        has_timed_out = True
    finally:
        _kill_group(process)
        (stdout, is_cut), (stderr, is_cut_too) = await reading
        await _wait(process)
        process.stdout.close()
        process.stderr.close()
    kept_out, kept_err = share_room(stdout, stderr, max_output)
    is_cut = is_cut or is_cut_too or (kept_out, kept_err) != (stdout, stderr)
    code = process.returncode
    status = None if has_timed_out else code if code >= 0 else SIGNAL_BASE - code
    out, err = (one.decode(errors="replace") for one in (kept_out, kept_err))
    return CommandOutcome(order.name, status, out, err, truncated=is_cut)


def share_room(stdout: bytes, stderr: bytes, most: int) -> tuple[bytes, bytes]:
    """Return the beginnings of two outputs that have room together; one gets what the other leaves, at least half."""
    kept_err = stderr[: max(most // 2, most - len(stdout))]
    return stdout[: most - len(kept_err)], kept_err


async def _wait(process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        await asyncio.sleep(POLL_INTERVAL_S)


def _read_bounded(handle: int, most: int) -> tuple[bytes, bool]:
    """Read to the end, and keep the beginning; returns it, and whether there was more."""
    kept, is_cut = bytearray(), False
    while data := os.read(handle, CHUNK_BYTES):
        is_cut = is_cut or len(kept) + len(data) > most
        kept += data[: most - len(kept)]
    return bytes(kept), is_cut


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command with its descendants; the leader may have ended before them."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
