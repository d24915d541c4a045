"""What an agent reads of its containers without changing them: measures, health, logs, and commands in them."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from stateward.agents.local_state import LocalState
from stateward.agents.messages import CommandRequest, LogPart, LogRequest
from stateward.agents.site import InstanceMeasure, SiteCommandResult, SiteError
from stateward.containers import ContainerEngine, ContainerState, EngineRefused, EngineUnavailable, ExecTimedOut
from stateward.domains.edge.sites.app_containers import SHELL
from stateward.domains.edge.sites.app_manifest import AppProgram, parts_of
from stateward.domains.edge.sites.app_probes import ProbedApp, ProbeRunner, health_by_app
from stateward.domains.edge.sites.container_connections import ConnectionMeter
from stateward.domains.edge.sites.container_identity import Copy, SiteNames, by_instance, copies_of
from stateward.domains.edge.sites.container_logs import read_container_log
from stateward.domains.edge.sites.container_meter import container_uses, measure_things, probed_copies
from stateward.domains.edge.sites.output_excerpt import last_output
from stateward.workloads.meters import RateMeter

MAX_LOGS = 20
"""The number of containers whose logs are read at once."""

MAX_WRITTEN = 1 << 20
"""The bytes of a command's output that are kept."""


class ContainerReader:
    """Reads from the containers of a site."""

    def __init__(self, engine: ContainerEngine, names: SiteNames, state: LocalState) -> None:
        self._engine, self._names, self._state = engine, names, state
        self._cores, self._probes = RateMeter(), ProbeRunner(self._run_probe)
        self._connections = ConnectionMeter(engine)
        self._requests: dict[str, int] = {}  # of each app, since the site was opened

    async def close(self) -> None:
        """Stop the probes."""
        await self._probes.close()

    # --- measures ----------------------------------------------------------------------------------------------------

    async def measure(self) -> Mapping[str, InstanceMeasure]:
        """Measure all containers by one listing and one request for statistics, and take the verdicts of the probes."""
        try:
            containers = by_instance(await self._engine.list_containers((self._names.label,)))
            running = [
                container.id
                for group in containers.values()
                for container in group
                if container.state is ContainerState.RUNNING
            ]
            stats = await self._engine.read_stats(running) if running else ()
            connections = await self._connections.measure(running, self._probes.source_ports)
        except (EngineUnavailable, EngineRefused) as error:
            raise SiteError(str(error)) from error
        uses, things = container_uses(stats, self._cores, connections), list(self._state)
        new = {
            name: sum(connections[container.id].new for container in group if container.id in connections)
            for name, group in containers.items()
        }
        self._requests = {thing.name: self._requests.get(thing.name, 0) + new.get(thing.name, 0) for thing in things}
        parts = {thing.name: parts_of(read_program(thing.spec)) for thing in things if thing.kind == "appinst"}
        probed: dict[str, ProbedApp] = {}
        for app in things:
            if app.kind == "appinst" and app.whole:
                network = self._names.name(app.host)
                probed |= probed_copies(app, parts[app.name], containers.get(app.name, ()), network)
        await self._probes.set_apps(probed)
        health = health_by_app(self._probes.health())
        measures = measure_things(things, parts, containers, uses, self._requests)
        return {
            name: replace(measured, health=health[name]) if name in health else measured
            for name, measured in measures.items()
        }

    # --- logs and commands -------------------------------------------------------------------------------------------

    async def read_log(self, request: LogRequest) -> Sequence[LogPart]:
        """Return the output of an app's containers, or of one: PART/NUMBER, or PART for its first."""
        copies = self._copies_for(request.name, request.part)
        if request.after or request.part:
            copies = copies[:1]
        most = max(1, request.most // len(copies))
        try:
            return [
                await read_container_log(
                    self._engine, self._names.container(request.name, copy), copy, request.after, most
                )
                for copy in copies[:MAX_LOGS]
            ]
        except (EngineRefused, EngineUnavailable) as error:
            raise SiteError(f"the log cannot be read: {error}") from error

    async def run_command(self, request: CommandRequest) -> SiteCommandResult:
        """Run a command in a container of an app; one that takes too long is killed."""
        container = self._names.container(request.name, self._copies_for(request.name, request.part)[0])
        try:
            done = await self._engine.exec(container, request.argv, timeout_s=request.within, max_output=MAX_WRITTEN)
        except (EngineRefused, EngineUnavailable, ExecTimedOut) as error:
            raise SiteError(f"the command could not be run: {error}") from error
        return SiteCommandResult(done.exit_code, (done.stdout + done.stderr).decode(errors="replace"))

    def _copies_for(self, name: str, part: str) -> list[Copy]:
        """Return the copies of an app that a part names: PART/NUMBER, PART or nothing."""
        thing = self._state.get(name)
        copies = [] if thing is None else copies_of(parts_of(read_program(thing.spec)), thing.generation)
        chosen = [copy for copy in copies if part in ("", copy.part, str(copy))]
        if not chosen:
            known = f"; it has {', '.join(map(str, copies[:MAX_LOGS]))}" if copies else ""
            raise SiteError(f"{name} has no container {part!r} here{known}")
        return chosen

    async def _run_probe(self, name: str, command: str, timeout_s: float) -> None:
        """Run a probe's command in the container of a copy."""
        app, part, number = name.split("/")
        thing = self._state.get(app)
        if thing is None:
            raise SiteError(f"{app} was removed")
        container = self._names.container(app, Copy(thing.generation, part, int(number)))
        done = await self._engine.exec(container, (*SHELL, command), timeout_s=timeout_s)
        if done.exit_code:
            output = last_output((done.stdout + done.stderr).decode(errors="replace"), ())
            raise SiteError(f"exit code {done.exit_code}{output and f': {output}'}")


def read_program(spec: str) -> AppProgram:
    """Return what an app runs; raises `SiteError` if its spec cannot be read."""
    try:
        return msgspec.json.decode(spec or "{}", type=AppProgram)
    except msgspec.ValidationError as error:
        raise SiteError(f"the app's spec cannot be read: {error}") from error
