"""Health checks of instances: over HTTP, by a TCP connection, or by a command."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from stateward.domains.systems.definition import HealthCheck
from stateward.workloads.commands import Starter, kill_group, start_command, wait_ended
from stateward.workloads.host_ports import LOOPBACK
from stateward.workloads.probes import end_in_time, probe_http, probe_tcp

RunCommand = Callable[[tuple[str, ...]], Awaitable[str]]
"""Runs a command in an instance, and returns what is wrong with its end."""


async def check_health(
    health: HealthCheck,
    port: int,
    environment: Mapping[str, str],
    folder: str,
    begin: Starter,
    host: str = LOOPBACK,
) -> str:
    """Return what is wrong with an instance that is a process; empty if it is healthy."""
    run = partial(_command, environment=environment, folder=folder, begin=begin)
    return await run_check(health, port, run, host)


async def run_check(
    health: HealthCheck, port: int, run_command: RunCommand, host: str = LOOPBACK, *, is_proxied: bool = False
) -> str:
    """Return what is wrong with an instance at a port; empty if it is healthy."""
    if health.command is not None and health.http is None:
        return await end_in_time(run_command(health.command), health.timeout)
    connecting = asyncio.open_connection(host, port)
    if health.http is not None:
        return await end_in_time(probe_http(connecting, f"{host}:{port}", health.http), health.timeout)
    return await end_in_time(probe_tcp(connecting, is_proxied=is_proxied), health.timeout)


async def _command(command: tuple[str, ...], environment: Mapping[str, str], folder: str, begin: Starter) -> str:
    process = await start_command(begin, command, environment, folder)
    try:
        code = await wait_ended(process)
    finally:
        if process.poll() is None:
            kill_group(process)
            process.wait()
    return "" if code == 0 else f"{command[0]} ended with {code}"
