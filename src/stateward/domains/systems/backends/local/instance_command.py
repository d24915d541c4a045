"""Commands in an instance that is a process: with its user, its confinement, its environment and its folder."""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from stateward.containers.command_kill import MARK_VARIABLE, kill_on_host, new_mark
from stateward.domains.systems.backends.local.instance_dir import InstanceDir, InstanceOrder, LocalInstanceState
from stateward.domains.systems.backends.local.launch import environment_of, secret_files, start_dir
from stateward.domains.systems.backends.port import CommandOutcome
from stateward.workloads.commands import kill_group, start_command, wait_ended
from stateward.workloads.confinement import Confinement, Sandbox

CHUNK_BYTES = 65_536
SIGNAL_BASE = 128


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
    """Run a command to its end, or kill all of it after a time; output beyond a limit is dropped.

    It is over when nobody holds its output any more. A process that has left its session is found by its mark.
    """
    sandbox = replace(Sandbox(directory.folder, uid=state.uid), files=secret_files(order, secrets))
    mark = new_mark()
    environment = environment_of(directory, order, state.boot, state.port or 0, sandbox, secrets)
    environment = {**environment, MARK_VARIABLE: mark}

    try:
        begin = partial(confinement.run, sandbox)
        process = await start_command(begin, argv, environment, start_dir(order, sandbox), subprocess.PIPE)
    except (OSError, ValueError) as error:
        return CommandOutcome(order.name, 127, "", f"{argv[0]}: {error}\n")
    assert process.stdout is not None
    assert process.stderr is not None
    outputs = [_PipeReader(pipe.fileno(), max_output) for pipe in (process.stdout, process.stderr)]
    has_timed_out = True
    try:
        async with asyncio.timeout(timeout_s):
            for output in outputs:
                await output.ended.wait()
            await wait_ended(process)
        has_timed_out = False
    except TimeoutError:
        pass
    finally:
        kill_group(process)
        if has_timed_out:  # or its caller has left
            await asyncio.to_thread(kill_on_host, mark, 0, "")
        await wait_ended(process)
        for output in outputs:
            output.close()
        process.stdout.close()
        process.stderr.close()
    stdout, stderr = (bytes(output.kept) for output in outputs)
    kept_out, kept_err = share_room(stdout, stderr, max_output)
    is_cut = any(output.is_cut for output in outputs) or (kept_out, kept_err) != (stdout, stderr)
    code = process.returncode
    status = None if has_timed_out else code if code >= 0 else SIGNAL_BASE - code
    out, err = (text.decode(errors="replace") for text in (kept_out, kept_err))
    return CommandOutcome(order.name, status, out, err, truncated=is_cut)


def share_room(stdout: bytes, stderr: bytes, most: int) -> tuple[bytes, bytes]:
    """Return the beginnings of two outputs that have room together; one gets what the other leaves, at least half."""
    kept_err = stderr[: max(most // 2, most - len(stdout))]
    return stdout[: most - len(kept_err)], kept_err


class _PipeReader:
    """Reads a pipe as it is written, and keeps the beginning.

    No thread waits for its end: whoever has left the command's session may hold the pipe for ever.
    """

    def __init__(self, handle: int, most: int) -> None:
        self.kept = bytearray()  # bounded by: `most`
        self.is_cut, self.ended = False, asyncio.Event()
        self._handle, self._most, self._loop = handle, most, asyncio.get_running_loop()
        os.set_blocking(handle, False)
        self._loop.add_reader(handle, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._handle, CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._handle)
            self.ended.set()
        self.is_cut = self.is_cut or len(self.kept) + len(data) > self._most
        self.kept += data[: self._most - len(self.kept)]

    def close(self) -> None:
        """Read what is in the pipe, and no more."""
        self._read()
        self._loop.remove_reader(self._handle)
