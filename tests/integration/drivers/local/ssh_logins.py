"""How tests log in to machines of this host: as a client does that knows the host key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncssh

from stateward.drivers import Observation
from tests.integration.drivers.local.host_machines import TIMEOUT_S

KEY, OTHER_KEY = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))


def public_text(key: asyncssh.SSHKey) -> str:
    """Return a public key as a file of OpenSSH has it, with a comment."""
    return f"{key.export_public_key().decode().strip()} somebody"


def known_hosts(seen: Observation) -> asyncssh.SSHKnownHosts:
    """Return the one host key that a listing shows."""
    return asyncssh.import_known_hosts(f"[127.0.0.1]:{seen.ssh_port} {seen.host_key}")


@asynccontextmanager
async def log_in(
    seen: Observation, key: asyncssh.SSHKey = KEY, user: str = "anna"
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Connect to a machine, whose SSH server may still be starting."""
    async with asyncio.timeout(TIMEOUT_S):
        connection = await _connect(seen, key, user)
    async with connection:
        yield connection


async def _connect(seen: Observation, key: asyncssh.SSHKey, user: str) -> asyncssh.SSHClientConnection:
    while True:
        try:
            return await asyncssh.connect(
                "127.0.0.1",
                seen.ssh_port,
                username=user,
                client_keys=[key],
                known_hosts=known_hosts(seen),
                server_host_key_algs=["ssh-ed25519"],
                config=None,
                agent_path=None,
            )
        except (ConnectionRefusedError, ConnectionResetError):
            await asyncio.sleep(0.05)
