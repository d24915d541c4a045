"""Health of apps: an agent runs each app's probe in a task of its own, and counts results in a row.

A single failed probe may be chance, and so may a single success of an app that comes and goes. The health changes only
after as many equal results in a row as the probe's threshold says. Until the first verdict it is unknown.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.site import Health
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.sites.probe_specs import CommandProbe, HttpProbe, Probe, TcpProbe
from stateward.workloads.host_ports import LOOPBACK
from stateward.workloads.probes import end_in_time, probe_http, probe_tcp

MAX_STATUS_LINE = 200
"""The bytes of an HTTP answer's first line that are read."""

SOURCE_KEPT_S = 120.0
"""Seconds that the port of a probe is remembered: a kernel knows a closed connection for one minute."""

RunProbeCommand = Callable[[str, str, float], Awaitable[None]]
"""Runs a command where an app runs, given its name, the command and the seconds it may take; raises on failure."""


UNKNOWN_HEALTH = Health()


def next_health(health: Health, failure: str, threshold: int) -> Health:
    """Return the health after the result of a probe; `failure` is empty for a success."""
    is_good = not failure
    if is_good == health.is_healthy:
        return replace(health, reason=failure, contrary=0)
    contrary = health.contrary + 1
    is_first_success = is_good and health.is_healthy is None
    if is_first_success or contrary >= threshold:
        return Health(is_good, failure)
    return replace(health, contrary=contrary)


class ProbedApp(Struct, frozen=True):
    """An app to probe, or APP/PART or APP/PART/NUMBER for a part or a copy of it.

    It listens at `address`, and at `port` instead of the probe's if that is not 0. Its probe comes from the address
    `source` of this host, if that is given. Another generation, probe or address is another app, whose health is not
    known yet.
    """

    name: str
    generation: int
    probe: Probe
    address: str = LOOPBACK
    port: int = 0
    source: str = ""


def health_by_app(health: Mapping[str, Health]) -> dict[str, Health]:
    """Return the health of apps from that of their parts: bad if one is bad, good if all are good."""
    by_app: dict[str, Health] = {}
    for name, current in health.items():
        app, _, part = name.partition("/")
        if current.is_healthy is False and part:
            current = replace(current, reason=f"{part}: {current.reason}")
        former = by_app.get(app, current)
        verdicts = former.is_healthy, current.is_healthy
        if False in verdicts:
            by_app[app] = former if former.is_healthy is False else current
        else:
            by_app[app] = former if former.is_healthy is None else current
    return by_app


class ProbeRunner:
    """Runs the probes of a site's apps, and remembers the ports that they came from."""

    def __init__(self, run_command: RunProbeCommand) -> None:
        self._run_command = run_command
        self._source_ports: dict[int, float] = {}  # with the time of the probe
        self._tasks: dict[ProbedApp, asyncio.Task[None]] = {}
        self._health: dict[ProbedApp, Health] = {}

    async def set_apps(self, apps: Mapping[str, ProbedApp]) -> None:
        """Start the probes of new apps, and stop those of others."""
        gone = [probed for probed in self._tasks if apps.get(probed.name) != probed]
        await cancel_tasks([self._tasks.pop(probed) for probed in gone])
        for probed in gone:
            self._health.pop(probed, None)
        for app in apps.values():
            if app not in self._tasks:
                self._tasks[app] = asyncio.create_task(self._probe_loop(app))

    def health(self) -> dict[str, Health]:
        """Return the health of each app, by name."""
        return {probed.name: self._health.get(probed, UNKNOWN_HEALTH) for probed in self._tasks}

    def source_ports(self) -> set[int]:
        """Return the ports from which probes came, for as long as the other end may know of the connection."""
        oldest = asyncio.get_running_loop().time() - SOURCE_KEPT_S
        self._source_ports = {port: at for port, at in self._source_ports.items() if at >= oldest}
        return set(self._source_ports)

    async def close(self) -> None:
        """Stop all probes."""
        await self.set_apps({})

    async def _probe_loop(self, app: ProbedApp) -> None:
        while True:
            failure = await end_in_time(self._probe(app), app.probe.timeout_s)
            self._health[app] = next_health(self._health.get(app, UNKNOWN_HEALTH), failure, app.probe.threshold)
            await asyncio.sleep(app.probe.interval_s)

    async def _probe(self, app: ProbedApp) -> str:
        """Run a probe once; returns why it failed, or nothing."""
        match app.probe:
            case HttpProbe(port=port, path=path):
                at = app.port or port
                return await probe_http(self._connect(app, at), f"{app.address}:{at}", path)
            case TcpProbe(port=port):
                return await probe_tcp(self._connect(app, app.port or port))
            case CommandProbe(command=command):
                await self._run_command(app.name, command, app.probe.timeout_s)
                return ""

    async def _connect(self, app: ProbedApp, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop, connection = asyncio.get_running_loop(), socket.socket()
        try:
            connection.setblocking(False)
            connection.bind((app.source, 0))
            self._source_ports[connection.getsockname()[1]] = loop.time()  # before anybody can see the connection
            await loop.sock_connect(connection, (app.address, port))
            return await asyncio.open_connection(sock=connection, limit=MAX_STATUS_LINE)
        except BaseException:
            connection.close()
            raise
