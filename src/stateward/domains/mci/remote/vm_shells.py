"""Shells on VMs: commands and files, over SSH or by the driver itself.

A VM whose driver has SSH is reached with the access key of its namespace. A machine that has just started may not
answer yet, so the first connection is tried again for a while. A driver without SSH that can run commands (simulated
clouds) runs them itself.
"""

import asyncio
import logging
import time
import traceback
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from stateward.domains.mci.lifecycle import VM
from stateward.domains.mci.model import CommandRun, VmCommandResult, vm_of, vm_seen
from stateward.domains.mci.provider.vm_waiting import GrantedClientOf
from stateward.domains.mci.remote.access_keys import AccessKeys
from stateward.domains.mci.remote.begun_runs import INTERRUPTED, BegunRuns
from stateward.domains.mci.remote.host_key_pins import pin_host_key
from stateward.domains.mci.remote.kept_output import with_limited_run
from stateward.domains.mci.remote.ssh_route import NoRoute, SshRoute, find_route
from stateward.drivers import CommandFailed, Driver, MachineHandle
from stateward.drivers.ssh import remote_run
from stateward.drivers.ssh.host_key import HostKeyChanged, fingerprint
from stateward.drivers.ssh.ssh_address import LoginRefused
from stateward.engine import Engine
from stateward.engine.queries import list_all
from stateward.engine.work_errors import Fenced, describe_error
from stateward.errors import StatewardError
from stateward.store.errors import StoreError
from stateward.store.filters import Selector
from stateward.store.records import Object

if TYPE_CHECKING:
    from stateward.drivers.ssh.ssh_connection import SshConnection

log = logging.getLogger("stateward.mci")

MAX_SESSIONS = 100
"""Connections that the commands of one namespace have at once in a process; as many more may end runs meanwhile.

The limit is not one of the process: a command may hold its connections for a day, and the other namespaces would wait.
"""

POLL_FIRST_S, POLL_MAX_S, POLL_SHARE = 2.0, 10.0, 10.0
"""Intervals at which the output of a running command is read; a poll of a busy VM takes a tenth of the time at most."""

RETRY_FIRST_S, RETRY_MAX_S = 0.5, 10.0
"""Pauses between attempts to reach a VM that does not answer."""

MAX_COPY_ANSWER_BYTES = 65_536
END_TIMEOUT_S = 20.0
"""How long the end of a run's processes may take."""

NO_SHELL_OUTPUT = "(the driver offers no way in)"
ENDS = {
    "lost": "its folder on the VM is there, but nobody knows whether it has begun; it is not run again",
    "interrupted": "it was interrupted: its process is gone without a status; the VM was restarted, or it was killed",
    "ended": "it was ended before",
    "refused": "its folder cannot be made on the VM",
}
"""Why a run that is not done has no result."""

CUT_OFF = "it was interrupted: the VM was restarted or killed, or the connection to it was lost; it is not run again"
"""Why a run has no result whose connection ended before it did; after a loss of the connection, it goes on."""

OnText = Callable[[str, str], bool]
OnOutput = Callable[[str, str, str], bool]
"""Gets the name of a VM, and what a command has written there to stdout and stderr; returns whether it wants more."""


class RunOrder(Struct, frozen=True):
    """What to run: an id by which it runs once on each VM, the commands, the user, secrets, and how long it may take.

    `patience_s` is how long a VM may take to answer at all, and `stream_bytes` how much of the end of each output is
    kept.
    """

    id: str
    commands: tuple[str, ...]
    user: str = ""
    secrets: Mapping[str, str] = {}
    seconds: float = 1800.0
    patience_s: float = 20.0
    stream_bytes: int = remote_run.MAX_OUTPUT_BYTES


class CopyOrder(Struct, frozen=True):
    """What to copy: a content, the path for it, its name if the path is a folder, and its permissions if given."""

    content: bytes
    path: str
    name: str
    user: str = ""
    seconds: float = 1800.0
    patience_s: float = 20.0
    mode: str = ""


class VmShells:
    """Runs commands on VMs, and copies files there."""

    engine: Engine

    def __init__(
        self, access_keys: AccessKeys, granted_client_of: GrantedClientOf, is_on_host: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._access_keys, self._granted_client_of = access_keys, granted_client_of
        self.is_on_host = is_on_host  # tells whether the machines of a connection are on this host, and reached there
        self.sessions = _semaphores_by_namespace()
        self.endings = _semaphores_by_namespace()  # apart: a command must be ended while others have all sessions

    @asynccontextmanager
    async def open(self, vms: Sequence[Object]) -> AsyncIterator["ShellGroup"]:
        """Yield the shells of some VMs, which share connections to their bastions."""
        async with AsyncExitStack() as stack:
            group = ShellGroup(self, vms, stack)
            try:
                yield group
            finally:
                await group.stop_connecting()

    async def driver_of(self, vm: Object) -> Driver:
        """Return the driver of a VM whose namespace has a grant for the connection; raises `Permanent` otherwise."""
        return (await self._granted_client_of(vm_of(vm).connection, vm_of(vm).lane, vm.ns)).driver

    @asynccontextmanager
    async def connect(
        self, vm: Object, route: SshRoute, via: "SshConnection | None", patience_s: float
    ) -> AsyncIterator["SshConnection"]:
        """Open a connection to a VM; the host key that it shows at first sight is pinned."""
        try:
            from stateward.drivers.ssh.ssh_connection import open_ssh  # an extra, and slow to import
        except ModuleNotFoundError as error:
            raise NoRoute("commands over SSH need the extra `ssh` on every worker: stateward[ssh]") from error
        private = self._access_keys.pair(vm.ns).private
        until, pause = time.monotonic() + patience_s, RETRY_FIRST_S
        async with AsyncExitStack() as stack:
            while True:
                try:
                    connection = await stack.enter_async_context(open_ssh(route.address, private, via))
                    break
                except HostKeyChanged as error:
                    raise HostKeyRefused(vm, error) from error
                except (OSError, TimeoutError) as error:
                    if time.monotonic() + pause > until:
                        raise self._explained(vm, error) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_MAX_S)
            if not route.address.host_key:
                pinned = await self.engine.store.transact(lambda tx: pin_host_key(tx, vm, connection.host_key))
                if pinned != connection.host_key:  # another command was faster, and has seen another server
                    raise HostKeyRefused(vm, HostKeyChanged(vm.id, pinned, connection.host_key))
            yield connection

    def _explained(self, vm: Object, error: Exception) -> Exception:
        """Return an error that says what to add where a VM does not know the key of its namespace."""
        if not isinstance(error, LoginRefused):
            return error
        line = self._access_keys.pair(vm.ns).public
        return LoginRefused(f"{error}; its authorized_keys must have this line: {line}")


def _semaphores_by_namespace() -> defaultdict[str, asyncio.Semaphore]:
    return defaultdict(lambda: asyncio.Semaphore(MAX_SESSIONS))


class NoFreeSession(ConnectionError):
    """The time of a command was over before its namespace had a free session for it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it waited {seconds:g} s for a free session (a namespace has {MAX_SESSIONS} at once)")


class HostKeyRefused(ConnectionError):
    """The SSH server of a VM shows another host key than the one that is known."""

    def __init__(self, vm: Object, changed: HostKeyChanged) -> None:
        spec = vm_of(vm)
        super().__init__(
            f"the host key has changed: {fingerprint(changed.known)} is known, and the machine shows"
            f" {fingerprint(changed.shown)}; if it was installed anew, `stateward mci forget-host-key"
            f" {spec.mci}/{spec.name}` accepts the next one, otherwise somebody stands between"
        )


class ShellGroup:
    """The shells of the VMs of one command."""

    def __init__(self, shells: VmShells, vms: Sequence[Object], stack: AsyncExitStack) -> None:
        self._shells, self._vms, self._stack = shells, vms, stack
        self._bastions: dict[str, asyncio.Task[SshConnection]] = {}  # bounded by: one command
        self._others: list[Object] | None = None
        self._on_host: dict[str, bool] = {}  # bounded by: one command
        self._reading = asyncio.Lock()

    async def stop_connecting(self) -> None:
        """Give up connections to bastions that nobody waits for any more."""
        for task in self._bastions.values():
            task.cancel()
        await asyncio.gather(*self._bastions.values(), return_exceptions=True)

    async def run(
        self,
        vm: Object,
        order: RunOrder,
        on_output: OnOutput = lambda _vm, _stdout, _stderr: False,
        begun: BegunRuns | None = None,
    ) -> VmCommandResult:
        """Run commands on a VM; an error is a part of the result.

        `begun` keeps a driver without SSH from running them again after an earlier attempt.
        """
        address = vm_seen(vm).public_ip or vm_seen(vm).private_ip
        try:
            driver = await self._shells.driver_of(vm)
            if driver.caps.has_ssh and vm_seen(vm).ssh_port:
                return await self._run_over_ssh(vm, order, on_output, address)
            if begun is not None and driver.caps.runs_commands and not await begun.begin(vm_of(vm).name):
                return VmCommandResult(error=INTERRUPTED, address=address)
            return await _run_by_driver(driver, vm, order, on_output, address)
        except (Fenced, StoreError):
            raise  # it is not stored that the run begins, so it must not
        except Exception as error:
            return VmCommandResult(error=_why_failed(vm, error), address=address)

    async def copy(self, vm: Object, order: CopyOrder) -> VmCommandResult:
        """Copy a file to a VM; an error is a part of the result."""
        address = vm_seen(vm).public_ip or vm_seen(vm).private_ip
        failed = f"{order.name} was not copied to {order.path}"
        try:
            driver = await self._shells.driver_of(vm)
            if not driver.caps.has_ssh or not vm_seen(vm).ssh_port:
                raise NoRoute("files are copied over SSH, and its driver offers none")
            async with self._session(vm, order) as left, asyncio.timeout(left), self._connected(vm, order) as shell:
                command = remote_run.copy_script(order.path, order.name, order.mode)
                output, status = await shell.run_shell(order.content, MAX_COPY_ANSWER_BYTES, command)
        except Exception as error:
            return VmCommandResult(error=f"{failed}: {_why_failed(vm, error)}", address=address)
        run = CommandRun(status=status, stderr=_text(output))
        why = "" if status == 0 else f"{failed}: {_text(output).strip() or f'exit status {status}'}"
        return VmCommandResult((run,), why, address)

    async def end(self, vm: Object, order: RunOrder, begun: BegunRuns | None = None) -> str:
        """End the processes of a run on a VM; returns why that is not certain, or nothing."""
        end, unsure = await self._end(vm, order)
        if (
            begun and not (end or unsure) and begun.is_of_earlier_attempt(vm_of(vm).name)
        ):  # nothing was asked, without SSH
            return "an earlier attempt has begun it, and its driver cannot end it"
        return unsure

    async def _end(self, vm: Object, order: RunOrder) -> tuple[str, str]:
        """End a run; returns what the VM says about it (`never`: it had not begun), and why that is not certain."""
        try:
            driver = await self._shells.driver_of(vm)
            if not driver.caps.has_ssh or not vm_seen(vm).ssh_port:
                return "", ""
            async with (
                asyncio.timeout(END_TIMEOUT_S),
                self._shells.endings[vm.ns],
                self._connected(vm, order) as shell,
            ):
                mark = remote_run.new_mark()
                output, _ = await shell.run_shell(remote_run.end_script(order.id, mark), remote_run.most_bytes(1))
                end = remote_run.read_report(output, 1, mark).end
                return end, "" if end else "its shell gave no answer"
        except Exception as error:
            return "", _why_failed(vm, error)

    # --- over SSH ----------------------------------------------------------------------------------------------------

    async def _run_over_ssh(self, vm: Object, order: RunOrder, on_output: OnOutput, address: str) -> VmCommandResult:
        has_begun = False
        try:
            async with (
                self._session(vm, order) as left,
                asyncio.timeout(left) as limit,
                self._connected(vm, order) as shell,
            ):
                has_begun = True
                report, unread = await _followed(shell, order, partial(on_output, vm_of(vm).name))
        except NoFreeSession as error:
            return VmCommandResult(error=f"{error}; {await self._end_unstarted(vm, order)}", address=address)
        except ConnectionError as error:
            if not has_begun:
                raise
            return VmCommandResult(error=_cut_off(str(error)), address=address)
        except TimeoutError:
            if not limit.expired():
                raise
            _, unsure = await self._end(vm, order)
            why = f"not done in time (at most {order.seconds:g} s were left)"
            ended = f"; its processes may still run: {unsure}" if unsure else "; its processes were ended"
            return VmCommandResult(error=why + ended, address=address)
        return _result(order, report, address, unread)

    async def _end_unstarted(self, vm: Object, order: RunOrder) -> str:
        """End a run that this attempt did not start, and return what became of it: an earlier attempt may have."""
        end, unsure = await self._end(vm, order)
        if unsure:
            return f"this attempt has started nothing, and whether an earlier one has is not known: {unsure}"
        return "nothing was started" if end == "never" else "the processes of an earlier attempt were ended"

    @asynccontextmanager
    async def _session(self, vm: Object, order: RunOrder | CopyOrder) -> AsyncIterator[float]:
        """Hold a session of the namespace; yields the time that is left, or raises `NoFreeSession`."""
        until = time.monotonic() + max(0.0, order.seconds)
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(max(0.0, order.seconds)):
                    await stack.enter_async_context(self._shells.sessions[vm.ns])
            except TimeoutError:
                raise NoFreeSession(order.seconds) from None
            yield max(0.0, until - time.monotonic())

    @asynccontextmanager
    async def _connected(self, vm: Object, order: RunOrder | CopyOrder) -> AsyncIterator["SshConnection"]:
        route = await self._route(vm, order.user)
        via = None if route.bastion is None else await self._bastion(route.bastion, order.patience_s)
        async with self._shells.connect(vm, route, via, order.patience_s) as shell:
            yield shell

    async def _route(self, vm: Object, user: str) -> SshRoute:
        connection = vm_of(vm).connection
        if connection not in self._on_host:
            self._on_host[connection] = await self._shells.is_on_host(connection)
        on_host = self._on_host[connection]
        with suppress(NoRoute):
            return find_route(vm, self._vms, user, on_host=on_host)
        return find_route(vm, await self._all_vms(vm.ns), user, on_host=on_host)

    async def _all_vms(self, ns: str) -> list[Object]:
        """Return all VMs of the namespace, for a bastion of the same network in another MCI."""
        async with self._reading:
            if self._others is None:
                reader = self._shells.engine.store.reader
                self._others = [vm async for vm in list_all(reader, Selector(ns, VM.kind))]
        return self._others

    async def _bastion(self, bastion: Object, patience_s: float) -> "SshConnection":
        """Return the connection to a bastion, which all VMs behind it share."""
        if bastion.id not in self._bastions:
            opened = self._stack.enter_async_context(
                self._shells.connect(bastion, find_route(bastion, ()), None, patience_s)
            )
            self._bastions[bastion.id] = asyncio.ensure_future(opened)
        try:
            return await asyncio.shield(self._bastions[bastion.id])
        except (OSError, TimeoutError) as error:
            raise ConnectionError(f"its bastion {bastion.id} cannot be reached: {error}") from error


def _why_failed(vm: Object, error: Exception) -> str:
    """Return the text of an error on one VM; an error that nobody expects must not stop the others either."""
    if isinstance(error, OSError | StatewardError):
        return str(error) or type(error).__name__
    frames = "".join(traceback.format_tb(error.__traceback__))  # without the text of the error: it may have a secret
    log.error("a command on VM %s of %s failed unexpectedly, with %s:\n%s", vm.id, vm.ns, type(error).__name__, frames)
    return describe_error(error)


async def _followed(shell: "SshConnection", order: RunOrder, on_text: OnText) -> tuple[remote_run.RunReport, int]:
    """Start a run, or follow one that was started; what it writes is told while it runs.

    Returns the report, and how many bytes of the output were not told because nobody wants more of it.
    """
    mark = remote_run.new_mark()
    script = remote_run.start_script(order.id, order.commands, order.secrets, mark, order.stream_bytes)
    task = asyncio.ensure_future(
        shell.run_shell(script, remote_run.most_bytes(len(order.commands), order.stream_bytes))
    )
    try:
        reader = OutputReader(shell, order, on_text)
        pause = POLL_FIRST_S
        while not (await asyncio.wait([task], timeout=pause))[0]:
            began = time.monotonic()
            await reader.poll()
            pause = max(min(1.5 * pause, POLL_MAX_S), POLL_SHARE * (time.monotonic() - began))
        output, _ = await task
    finally:
        task.cancel()
    report = remote_run.read_report(output, len(order.commands), mark, order.stream_bytes)
    await reader.finish(report)
    return report, max(0, sum(result.written_bytes for result in report.results) - reader.told_bytes)


class OutputReader:
    """Reads what the commands of a run write, while they run."""

    def __init__(self, shell: "SshConnection", order: RunOrder, on_text: OnText) -> None:
        self._shell, self._order, self._on_text = shell, order, on_text
        self._number, self._stdout, self._stderr = 0, 0, 0
        self._has_polled, self._is_wanted = False, True
        self.told_bytes = 0

    async def poll(self) -> bool:
        """Read the next piece; returns whether there may be more at once."""
        if not self._is_wanted or self._number >= len(self._order.commands):
            return False
        self._has_polled = True
        mark = remote_run.new_mark()
        script = remote_run.poll_script(self._order.id, self._number, self._stdout, self._stderr, mark)
        output, _ = await self._shell.run_shell(script, remote_run.most_bytes(1))
        chunk = remote_run.read_chunk(output, mark)
        self._stdout, self._stderr = self._stdout + len(chunk.stdout), self._stderr + len(chunk.stderr)
        self.told_bytes += len(chunk.stdout) + len(chunk.stderr)
        self._is_wanted = self._on_text(_text(chunk.stdout), _text(chunk.stderr))
        if max(len(chunk.stdout), len(chunk.stderr)) >= remote_run.CHUNK_BYTES:
            return True
        if chunk.has_ended:
            self._number, self._stdout, self._stderr = self._number + 1, 0, 0
        return chunk.has_ended

    async def finish(self, report: remote_run.RunReport) -> None:
        """Tell the rest of the output of a run that has ended; most have ended before the first poll, and wrote little.

        A report that has only the end of an output is not enough.
        """
        if self._has_polled or any(result.stdout_cut or result.stderr_cut for result in report.results):
            while await self.poll():
                pass
            return
        for result in report.results:
            self.told_bytes += result.written_bytes
            self._on_text(_text(result.stdout), _text(result.stderr))


def _result(order: RunOrder, report: remote_run.RunReport, address: str, unread: int) -> VmCommandResult:
    runs = tuple(_kept_run(order, result) for result in report.results)
    failed = next((number for number, run in enumerate(runs) if run.status != 0), None)
    error = ""
    if failed is not None and runs[failed].status is not None:
        error = f"{order.commands[failed]!r} ended with exit status {runs[failed].status}"
    elif report.end != "done":
        error = ENDS.get(report.end) or _cut_off(report.trouble)
    elif failed is not None:
        error = f"the exit status of {order.commands[failed]!r} is unknown: the VM reported none from 0 to 999"
    return VmCommandResult(runs, error, address, unread)


def _cut_off(trouble: str) -> str:
    return f"{CUT_OFF} ({trouble})" if trouble else CUT_OFF


def _kept_run(order: RunOrder, result: remote_run.RunResult) -> CommandRun:
    """Return a command with both outputs as texts; one that was cut does not begin within a secret."""
    secrets = [part.encode() for value in order.secrets.values() for part in (value, *value.splitlines())]

    def kept(output: bytes, cut: int) -> tuple[str, int]:
        more = max((_overlap(secret, output) for secret in secrets), default=0) if cut else 0
        return _text(output[more:]), cut + more

    (stdout, stdout_cut), (stderr, stderr_cut) = (
        kept(result.stdout, result.stdout_cut),
        kept(result.stderr, result.stderr_cut),
    )
    return CommandRun(stdout, result.status, stderr, stdout_cut, stderr_cut)


def _overlap(secret: bytes, output: bytes) -> int:
    """Return with how many of the last bytes of a secret an output begins: nobody could mask this part later."""
    starts = (start for start in range(1, len(secret)) if output[:1] == secret[start : start + 1])
    return next((len(secret) - start for start in starts if output.startswith(secret[start:])), 0)


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\0", "?")


# --- by the driver itself --------------------------------------------------------------------------------------------


async def _run_by_driver(
    driver: Driver, vm: Object, order: RunOrder, on_output: OnOutput, address: str
) -> VmCommandResult:
    """Run the commands in order until one fails, by a driver that can do so without SSH; stderr is a part of stdout."""
    if not driver.caps.runs_commands:
        return VmCommandResult((CommandRun(NO_SHELL_OUTPUT),), address=address)
    spec, runs = vm_of(vm), list[CommandRun]()
    handle = MachineHandle(spec.uid, vm_seen(vm).native_id or None)
    for line in order.commands:
        try:
            written = await driver.run(handle, line, order.user or spec.user, order.seconds)
        except CommandFailed as error:
            on_output(spec.name, error.written, "")
            why = f"{line!r} ended with {error}"
            run = with_limited_run(CommandRun(error.written, error.status), order.stream_bytes)
            return VmCommandResult((*runs, run), why, address)
        except (OSError, TimeoutError) as error:
            why = f"{line!r} failed: {type(error).__name__} {error}".rstrip()
            return VmCommandResult((*runs, CommandRun()), why, address)
        on_output(spec.name, written, "")
        runs.append(with_limited_run(CommandRun(written, 0), order.stream_bytes))
    return VmCommandResult(tuple(runs), address=address)
