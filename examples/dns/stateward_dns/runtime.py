"""The domain in a process: the server that the settings name, the kinds on it, drift detection, and the demo."""

import asyncio
import binascii
from ipaddress import ip_address

from stateward.plugin import BadInput, DomainRuntime, Engine, ProcessContext
from stateward_dns.demo import DnsDemo
from stateward_dns.drift import DriftDetector
from stateward_dns.dynamic_updates import DynamicUpdates, ServerAddress
from stateward_dns.kinds import kinds_on
from stateward_dns.routes import routes_on
from stateward_dns.server_port import DnsServer
from stateward_dns.settings import DnsSettings
from stateward_dns.simulated import SimulatedServer

SIMULATED_DELAY_S = 0.5
SIMULATED_CHECK_S = 5.0


def create_runtime(context: ProcessContext) -> DomainRuntime:
    """Create the domain's part of a process."""
    settings: DnsSettings = context.settings.get("dns") or DnsSettings()
    if settings.host:
        return _runtime(context, DynamicUpdates(_address(settings)), settings.check_every)
    if not context.demo:
        raise BadInput("dns_host", None, "set: the address of the DNS server")
    simulated = SimulatedServer(SIMULATED_DELAY_S)
    return _runtime(context, simulated, SIMULATED_CHECK_S, DnsDemo(simulated, context.random))


def _runtime(
    context: ProcessContext, server: DnsServer, check_every_s: float, demo: DnsDemo | None = None
) -> DomainRuntime:
    async def drift_detection(engine: Engine) -> None:
        detector = DriftDetector(engine, server, context.random, check_every_s)
        while True:
            await asyncio.sleep(detector.interval_s())
            await detector.check_all()

    run = None if demo is None else demo.run
    return DomainRuntime(kinds_on(server), routes_on(server), tasks=[drift_detection], demo=run)


def _address(settings: DnsSettings) -> ServerAddress:
    try:
        ip_address(settings.host)
    except ValueError:
        raise BadInput("dns_host", settings.host, "an IP address: names are what the server is there for") from None
    try:
        binascii.a2b_base64(settings.key_secret, strict_mode=True)
    except binascii.Error:
        raise BadInput("dns_key_secret", None, "the TSIG key in Base64, as the server's configuration has it") from None
    return ServerAddress(
        settings.host,
        settings.port,
        settings.catalog,
        settings.key_name,
        settings.key_secret,
        settings.key_algorithm,
        settings.timeout,
    )
