"""A site of real processes: a cluster is a group of node processes, an app is processes inside a node.

Nodes are machines of the process driver, which finds them again after any crash. An app's processes are started by its
node's own shell and belong to its process group; each is known by a mark in its arguments. What an app has put into a
session of its own is known by a label (`process_tracking`). What runs is read from the operating system, not from
memory.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from shlex import join, quote

import msgspec
from msgspec.structs import replace

from stateward.agents.local_state import Deployed, LocalState
from stateward.agents.messages import AgentOrder, CommandRequest, Existing, LogPart, LogRequest, OrderAction
from stateward.agents.site import AgentSite, InstanceMeasure, ReportProgress, SiteCommandResult, SiteError
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.sites.app_probes import ProbeRunner, health_by_app
from stateward.domains.edge.sites.output_excerpt import last_output
from stateward.domains.edge.sites.process_meter import ProcessMeter
from stateward.domains.edge.sites.process_programs import probed_parts, setup_scripts, shell_programs
from stateward.domains.edge.sites.process_tracking import background_shell, kill_labeled, with_label
from stateward.drivers import (
    AlreadyDone,
    CallAccepted,
    CommandFailed,
    MachineAction,
    MachineHandle,
    MachineSpec,
    MachineState,
    Observation,
    ProviderRegion,
)
from stateward.drivers.process import ProcessDriver
from stateward.procfs import command_lines, stat_of
from stateward.workloads.confinement import Confinement
from stateward.workloads.log_files import empty_long_log, parse_cursor, read_part

MARK = "stateward-app"
LABEL_SEPARATOR = "//"
"""Separates the parts of a label."""

IMAGE = "sh"
SETUP_TIMEOUT_S = 600.0
WAIT_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02
STABLE_AFTER_S = 0.5
"""Seconds that an app must run before it counts as started."""

LOG_PART = "log"
MAX_LOG_BYTES = 4000
"""How much of an app's log is read for an error."""

MAX_LOG_FILE_BYTES, LOG_INTERVAL_S = 20_000_000, 30.0
"""How long an app's log grows before it becomes the old one, and the time between two checks."""


class ProcessSite(AgentSite):
    """Clusters and apps as processes on this machine; one folder has all their files."""

    def __init__(self, folder: Path, confinement: Confinement | None = None) -> None:
        self._folder = str(folder)
        self._state = LocalState(folder / "things")
        place = ProviderRegion("process", "agent", options={"folder": str(folder / "machines")})
        self._driver = ProcessDriver(place, confinement=(confinement or Confinement()).hiding(folder))
        self._meter = ProcessMeter(f"{MARK}/")
        self._probes = ProbeRunner(self._run_probe)
        self._logs_checked = -LOG_INTERVAL_S
        self._log_check: asyncio.Task[None] | None = None

    async def observe(self) -> Mapping[str, Existing]:
        """Return the things in the local state; a thing whose processes do not run is not whole."""
        nodes = await self._nodes()
        running = await asyncio.to_thread(marked_processes)
        self._state.reload()
        self._begin_log_check()
        problems = {thing.name: self._problem(thing, nodes, running) for thing in self._state}
        return {
            thing.name: Existing(thing.generation, not problems[thing.name], problems[thing.name])
            for thing in self._state
        }

    async def execute(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Create, update or delete a cluster or an app."""
        spec = msgspec.json.decode(order.spec) if order.spec else {}
        thing = self._state.get(order.name)
        kind = str(spec.get("kind") or (thing.kind if thing else "clusterinst"))
        if order.work is OrderAction.DELETE:
            if thing is not None and thing.kind == "appinst":
                await self._remove_app(thing, report_progress)
            elif thing is not None:
                await self._remove_cluster(thing, report_progress, keep_data=order.keep_data)
        elif kind == "appinst":
            await self._start_app(order, report_progress)
        else:
            await self._make_cluster(order, spec, report_progress)

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Measure all nodes and apps in one scan, and take the verdicts of the probes."""
        sessions = {key: int(node.details["pid"]) for key, node in (await self._nodes()).items() if _is_up(node)}
        things = list(self._state)
        await self._probes.set_apps(probed_parts(things))
        health = health_by_app(self._probes.health())
        measures = await asyncio.to_thread(self._meter.measure, things, sessions)
        return {
            name: replace(measured, health=health[name]) if name in health else measured
            for name, measured in measures.items()
        }

    async def _run_probe(self, name: str, command: str, timeout_s: float) -> None:
        name = name.partition("/")[0]
        thing = self._state.get(name)
        key, _ = await self._node_for(thing.host if thing is not None else "")
        label = self._label(key, f"{MARK}/{name}/{thing.generation if thing is not None else 0}/probe")
        await self._driver.run(MachineHandle(key), with_label(label, f"set -e\n{command}"), "", timeout_s)

    async def close(self) -> None:
        """Stop the probes, and close the driver; the processes go on."""
        await cancel_tasks([] if self._log_check is None else [self._log_check])
        await self._probes.close()
        await self._driver.close()

    # --- clusters ----------------------------------------------------------------------------------------------------

    async def _make_cluster(
        self, order: AgentOrder, spec: Mapping[str, object], report_progress: ReportProgress
    ) -> None:
        """Scale a cluster to the requested nodes, keeping those that run and are set up."""
        wanted, size, setup = int(str(spec.get("nodes", 1))), str(spec.get("size", "tiny")), str(spec.get("setup", ""))
        former = self._state.get(order.name)
        nodes = await self._nodes()
        before = former.parts if former is not None else ()
        raw = former.raw if former is not None else ()
        alive = [key for key in before if _is_up(nodes.get(key)) and key not in raw]
        stale = [key for key in before if key not in alive]
        new = _new_keys(order, before, wanted - len(alive))
        parts = (*alive[:wanted], *new)
        everything = (*parts, *alive[wanted:], *stale)
        thing = Deployed(order.name, "clusterinst", order.generation, False, "", order.spec, everything, tuple(new))
        self._state.save(thing)
        for nth, key in enumerate(new, start=1):
            report_progress(f"starting node {key}", nth, len(new))
            await self._start_node(key, order.name, size)
            if setup:
                report_progress(f"setting up node {key}", nth, len(new))
                await self._run(key, "setup", setup)
        await self._end_nodes([*alive[wanted:], *stale], report_progress)
        self._state.save(replace(thing, whole=True, parts=parts, raw=()))

    async def _start_node(self, key: str, name: str, size: str) -> None:
        (outcome,) = await self._driver.create([MachineSpec(key, name, size, IMAGE)])
        if not isinstance(outcome, CallAccepted | AlreadyDone):
            raise SiteError(f"node {key} cannot be started: {outcome.message}")
        await _wait_until(lambda nodes: _is_up(nodes.get(key)), self._nodes, f"node {key} does not come up")

    async def _run(self, key: str, mark: str, command: str) -> None:
        try:
            await self._driver.run(
                MachineHandle(key), with_label(self._label(key, mark), f"set -e\n{command}"), "", SETUP_TIMEOUT_S
            )
        except (OSError, TimeoutError) as error:
            raise SiteError(f"node {key} could not be set up: {_error_text(error)}") from error

    async def _remove_cluster(self, thing: Deployed, report_progress: ReportProgress, *, keep_data: bool) -> None:
        """End all nodes; to keep the data, leave those that run and are set up, since apps have their files there."""
        self._state.save(replace(thing, whole=False))
        nodes = await self._nodes() if keep_data else {}
        kept = tuple(key for key in thing.parts if _is_up(nodes.get(key)) and key not in thing.raw)
        await self._end_nodes([key for key in thing.parts if key not in kept], report_progress)
        if kept:
            self._state.save(replace(thing, whole=False, parts=kept, raw=()))
        else:
            self._state.remove(thing.name)

    async def _end_nodes(self, keys: Sequence[str], report_progress: ReportProgress) -> None:
        if not keys:
            return
        report_progress(f"ending {len(keys)} nodes", 0, len(keys))
        await self._driver.act(MachineAction.TERMINATE, [MachineHandle(key) for key in keys])

        def gone(nodes: Mapping[str, Observation]) -> bool:
            return not any(_is_there(nodes.get(key)) for key in keys)

        await _wait_until(gone, self._nodes, "nodes do not end")
        labels = tuple(self._label(key, "") for key in keys)
        await self._kill_all(lambda label: label.startswith(labels), "processes of the nodes do not end")

    async def _nodes(self) -> dict[str, Observation]:
        listing = await self._driver.observe()
        if not listing.complete:
            raise SiteError(f"the site cannot be seen: {listing.problem}")
        return {machine.key: machine for machine in listing.machines}

    # --- apps --------------------------------------------------------------------------------------------------------

    async def _start_app(self, order: AgentOrder, report_progress: ReportProgress) -> None:
        """Start an app's processes of this generation, and end those of others."""
        key, group = await self._node_for(order.host)
        programs = shell_programs(order.spec)
        number = len(programs)
        marks = tuple(f"{MARK}/{order.name}/{order.generation}/{n}" for n in range(number))
        setup = f"{MARK}/{order.name}/{order.generation}/setup"
        self._state.save(Deployed(order.name, "appinst", order.generation, False, order.host, order.spec, marks))
        for script in setup_scripts(order.spec):
            report_progress("setting up", 0, number)
            await self._run(key, setup, script)
        there, started = await self._marks_in(group), {}
        for nth, (mark, program) in enumerate(zip(marks, programs, strict=True), start=1):
            if mark not in there:
                report_progress(f"starting process {nth}", nth, number)
                started[mark] = await self._launch(key, program, mark, _log_of(order.name))
        await self._end_processes(group, order.name, keep=(*marks, setup))
        if gone := await self._wait_stable(group, marks, started):
            output = await self._read_output(key, order.name, started)
            raise SiteError(f"{', '.join(gone)} ended at once{output and f'; its last output: {output}'}")
        self._state.save(Deployed(order.name, "appinst", order.generation, True, order.host, order.spec, marks))

    async def _launch(self, key: str, command: str, mark: str, log: str) -> int:
        """Start a process of an app in a node; returns its pid."""
        # The line after the command keeps the shell, and with it the mark, for as long as the command runs; a shell
        # of its own lets the command begin with `exec`.
        program = f"echo {quote(_first_line(mark))}\nsh -c {quote(command)}\n:"
        line = with_label(self._label(key, mark), background_shell(program, mark, log))
        try:
            return int(await self._driver.run(MachineHandle(key), line, "", WAIT_TIMEOUT_S))
        except (OSError, TimeoutError, ValueError) as error:
            raise SiteError(f"{mark} could not be started: {_error_text(error)}") from error

    async def _wait_stable(self, group: int, marks: Sequence[str], started: Mapping[str, int]) -> list[str]:
        """Wait until all processes run, and a little longer; returns the marks of those that have ended.

        A process shows its mark a little after its start.
        """

        async def missing() -> list[str]:
            running = await self._marks_in(group)
            return [mark for mark in marks if mark not in running]

        def known(missing_marks: list[str]) -> bool:
            return not missing_marks or any(not _is_alive(started.get(mark, 0)) for mark in missing_marks)

        await _wait_until(known, missing, "the app's processes do not begin")
        await asyncio.sleep(STABLE_AFTER_S)
        return await missing()

    async def _read_output(self, key: str, name: str, started: Collection[str]) -> str:
        """Return the last lines of an app's output since its start."""
        try:
            data, _ = await asyncio.to_thread(read_part, *self._log_files(key, name), None, MAX_LOG_BYTES)
        except OSError:
            return ""
        return last_output(data.decode(errors="replace"), {_first_line(mark) for mark in started})

    def _log_files(self, key: str, name: str) -> tuple[Path, Path]:
        """Return the log of an app, and its old one; the app owns both."""
        log = self._driver.path_of(key) / "work" / _log_of(name)
        return log, log.with_name(f"{log.name}.old")

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return the log of an app, which all its processes write."""
        key = await self._node_of_app(request.name)
        try:
            files, after = self._log_files(key, request.name), parse_cursor(request.after)
            data, end = await asyncio.to_thread(read_part, *files, after, request.most)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise SiteError(f"the log cannot be read: {error}") from error
        return [LogPart(LOG_PART, data.decode(errors="replace"), str(end))]

    def _begin_log_check(self) -> None:
        """Empty the logs that are too long, from time to time; a slow disk delays nothing else."""
        now = asyncio.get_running_loop().time()
        if now - self._logs_checked >= LOG_INTERVAL_S and (self._log_check is None or self._log_check.done()):
            self._logs_checked = now
            self._log_check = asyncio.create_task(self._empty_long_logs())

    async def _empty_long_logs(self) -> None:
        for app in self._state:
            host = self._state.get(app.host)
            if app.kind == "appinst" and host is not None and host.parts:
                with suppress(OSError):  # it is tried again
                    await asyncio.to_thread(
                        empty_long_log, *self._log_files(host.parts[0], app.name), MAX_LOG_FILE_BYTES
                    )

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command on the node of an app; its output comes when it has ended."""
        key = await self._node_of_app(request.name)
        mark = f"{MARK}/{request.name}/command-{request.request}"
        line = with_label(self._label(key, mark), join(request.argv))
        try:
            return SiteCommandResult(0, await self._driver.run(MachineHandle(key), line, "", request.within))
        except CommandFailed as failed:
            return SiteCommandResult(failed.status, failed.written)
        except OSError as error:
            raise SiteError(f"the command could not be run: {_error_text(error)}") from error

    async def _remove_app(self, thing: Deployed, report_progress: ReportProgress) -> None:
        self._state.save(replace(thing, whole=False))
        host = self._state.get(thing.host)
        sessions = await self._node_sessions()
        groups = [sessions[key] for key in (host.parts if host else ()) if key in sessions]
        report_progress("ending its processes")
        for group in groups or [0]:  # processes that have left their node may outlive it
            await self._end_processes(group, thing.name)
        self._state.remove(thing.name)

    async def _end_processes(self, group: int, name: str, keep: Sequence[str] = ()) -> None:
        """Kill the processes of an app, in its node and outside, except those to keep."""

        def must_end(mark: str) -> bool:
            return mark.startswith(f"{MARK}/{name}/") and mark not in keep

        def marked() -> list[int]:
            return [pid for (where, mark), pid in marked_processes().items() if where == group and must_end(mark)]

        ours = self._folder + LABEL_SEPARATOR
        await self._kill_all(
            lambda label: label.startswith(ours) and must_end(label.rpartition(LABEL_SEPARATOR)[2]),
            f"processes of {name} do not end",
            marked,
        )

    async def _kill_all(
        self, is_wanted: Callable[[str], bool], why: str, roots: Callable[[], list[int]] = list
    ) -> None:
        """Kill the wanted processes until none is left; their nodes go on."""
        nodes = (await self._node_sessions()).values()

        async def kill() -> int:
            return await asyncio.to_thread(lambda: kill_labeled(is_wanted, roots(), nodes))

        await _wait_until(lambda number: number == 0, kill, why)

    async def _node_sessions(self) -> dict[str, int]:
        """Return the session ids of nodes with a process, by key; a stopped node has one too."""
        return {key: int(node.details["pid"]) for key, node in (await self._nodes()).items() if "pid" in node.details}

    def _label(self, key: str, mark: str) -> str:
        """Return the label of a process; it has the folder, since two agents on a machine may use the same names."""
        return LABEL_SEPARATOR.join((self._folder, key, mark))

    async def _node_of_app(self, name: str) -> str:
        thing = self._state.get(name)
        if thing is None or thing.kind != "appinst":
            raise SiteError(f"there is no app {name!r} here")
        return (await self._node_for(thing.host))[0]

    async def _node_for(self, host: str) -> tuple[str, int]:
        """Return the node that runs a cluster's apps and its process group: the first node, which scaling keeps."""
        thing = self._state.get(host)
        if thing is None or not thing.parts:
            raise SiteError(f"there is no cluster {host!r} here")
        node = (await self._nodes()).get(thing.parts[0])
        if node is None or not _is_up(node):
            raise SiteError(f"node {thing.parts[0]} of cluster {host!r} does not run")
        return thing.parts[0], int(node.details["pid"])

    async def _marks_in(self, group: int) -> list[str]:
        return [mark for where, mark in await asyncio.to_thread(marked_processes) if where == group]

    def _problem(
        self, thing: Deployed, nodes: Mapping[str, Observation], running: Mapping[tuple[int, str], int]
    ) -> str:
        """Return what of a thing is not as it should be, or nothing."""
        if not thing.whole:
            return "it is not complete"
        if thing.kind != "appinst":
            down = [key for key in thing.parts if not _is_up(nodes.get(key))]
            return f"{len(down)} of {len(thing.parts)} nodes do not run: {', '.join(down[:5])}" if down else ""
        host = self._state.get(thing.host)
        node = nodes.get(host.parts[0]) if host is not None and host.parts else None
        if node is None or not _is_up(node):
            return "its node does not run"
        down = [mark for mark in thing.parts if (int(node.details["pid"]), mark) not in running]
        return f"{len(down)} of {len(thing.parts)} processes do not run" if down else ""


def _log_of(name: str) -> str:
    return f"app-{name.replace(':', '_')}.log"


def _first_line(mark: str) -> str:
    return f"{mark} starts"


def _new_keys(order: AgentOrder, taken: Sequence[str], number: int) -> list[str]:
    """Return unused keys for new nodes: the driver creates nothing twice under one key."""
    names = (f"{order.name.replace(':', '_')}-{order.operation}-{n}" for n in count())
    return list(islice((name for name in names if name not in taken), max(0, number)))


def _error_text(error: Exception) -> str:
    return str(error) or "it took too long"


def _is_up(node: Observation | None) -> bool:
    return node is not None and node.state is MachineState.RUNNING and "pid" in node.details


def _is_alive(pid: int) -> bool:
    stat = stat_of(pid) if pid else None
    return stat is not None and stat.alive


def _is_there(node: Observation | None) -> bool:
    return node is not None and node.state is not MachineState.TERMINATED


async def _wait_until(done: Callable[..., bool], observe: Callable[[], object], why: str) -> None:
    end = asyncio.get_running_loop().time() + WAIT_TIMEOUT_S
    while not done(await observe()):  # type: ignore[misc]
        if asyncio.get_running_loop().time() > end:
            raise SiteError(why)
        await asyncio.sleep(POLL_INTERVAL_S)


def marked_processes() -> dict[tuple[int, str], int]:
    """Return the pids of app processes on this machine, by process group and mark."""
    processes: dict[tuple[int, str], int] = {}
    for pid, arguments in command_lines():
        mark = arguments[3].decode(errors="replace") if len(arguments) > 3 else ""
        if mark.startswith(MARK + "/") and (stat := stat_of(pid)) is not None and stat.alive:
            processes[stat.group, mark] = pid
    return processes
