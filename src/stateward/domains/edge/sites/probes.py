"""Health of apps: an agent runs each app's probe in a task of its own, and counts results in a row.

A single failed probe may be chance, and so may a single success of an app that comes and goes. The health changes only
after as many equal results in a row as the probe's threshold says. Until the first verdict it is unknown.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.site import Health
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.sites.probe_specs import CommandProbe, HttpProbe, Probe, TcpProbe

LOOPBACK = "127.0.0.1"
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
            failure = await self._failure_of(app)
            self._health[app] = next_health(self._health.get(app, UNKNOWN_HEALTH), failure, app.probe.threshold)
            await asyncio.sleep(app.probe.interval_s)

    async def _failure_of(self, app: ProbedApp) -> str:
        """Run a probe once; returns why it failed, or nothing."""
        try:
            async with asyncio.timeout(app.probe.timeout_s):
                match app.probe:
                    case HttpProbe(port=port, path=path):
                        reader, writer = await self._connect(app, app.port or port)
                        return await _http_failure(reader, writer, f"{app.address}:{app.port or port}", path)
                    case TcpProbe(port=port):
                        _, writer = await self._connect(app, app.port or port)
                        await _close(writer)
                    case CommandProbe(command=command):
                        await self._run_command(app.name, command, app.probe.timeout_s)
        except TimeoutError:
            return f"no answer in {app.probe.timeout_s:g} s"
        except Exception as error:  # a probe ends with a result, whatever the app or the site does
            return str(error) or type(error).__name__
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


async def _http_failure(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str) -> str:
    try:
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nUser-Agent: stateward-agent\r\n\r\n"
        writer.write(head.encode("ascii"))
        await writer.drain()
        words = (await reader.readline()).split(maxsplit=2)
    finally:
        await _close(writer)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return "the answer is not HTTP"
    status = int(words[1])
    return "" if 200 <= status < 400 else f"HTTP status {status}"


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
