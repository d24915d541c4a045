"""SSH connections with the server's own key: host keys are checked by us, and nothing of the host's user is used.

A known host key is the only one that counts. Without one, any key is accepted, and the caller stores the key that the
server has shown: the first sight pins it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache

import asyncssh

from stateward.drivers.ssh.host_key import HostKeyChanged, bare_key
from stateward.drivers.ssh.ssh_address import LoginRefused, SshAddress

CONNECT_TIMEOUT_S = 30.0
KEEPALIVE_S = 15.0
"""The interval of keep-alives; four that are not answered end a connection."""

HOST_KEY_ALGORITHMS = (
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
)
READ_BYTES = 65_536


class SshConnection:
    """An open SSH connection; `host_key` is the key that the server has shown."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host_key: str) -> None:
        self.connection, self.host_key = connection, host_key

    async def run_shell(self, script: str | bytes, most: int, command: str = "exec /bin/sh") -> tuple[bytes, int]:
        """Run a command with an input; returns its output and exit status (-1: a signal).

        An output of more than `most` bytes is an error: the machine must not fill our memory.
        """
        content = script.encode() if isinstance(script, str) else script
        process = await self.connection.create_process(command, encoding=None, stderr=asyncssh.STDOUT, send_eof=True)
        async with process:
            output, _ = await asyncio.gather(_read(process, most), _write(process, content))
            await process.wait_closed()
        return output, -1 if process.returncode is None else process.returncode


async def _write(process: "asyncssh.SSHClientProcess[bytes]", content: bytes) -> None:
    try:
        process.stdin.write(content)
        process.stdin.write_eof()
        await process.stdin.drain()
    except (BrokenPipeError, ConnectionError):
        return  # the command has ended without reading it all: its status tells


async def _read(process: "asyncssh.SSHClientProcess[bytes]", most: int) -> bytes:
    output = bytearray()
    while chunk := await process.stdout.read(READ_BYTES):
        output += chunk
        if len(output) > most:
            process.close()
            raise OSError(f"it has answered with more than {most} bytes")
    return bytes(output)


class _HostKeyCheck(asyncssh.SSHClient):
    """Accepts the known host key only, or any key if none is known; keeps the key that was shown."""

    def __init__(self, known: str) -> None:
        self._known, self.shown = bare_key(known), ""

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        self.shown = bare_key(key.export_public_key("openssh").decode())
        return self._known in ("", self.shown)


@asynccontextmanager
async def open_ssh(
    address: SshAddress, private_key: str, via: SshConnection | None = None, timeout_s: float = CONNECT_TIMEOUT_S
) -> AsyncIterator[SshConnection]:
    """Open a connection, through another one if `via` is given; raises `OSError` or `TimeoutError`."""
    check = _HostKeyCheck(address.host_key)
    try:
        async with asyncio.timeout(timeout_s):
            connection = await _connect(address, private_key, via, check)
    except asyncssh.HostKeyNotVerifiable as error:
        if check.shown:
            raise HostKeyChanged(f"{address.host}:{address.port}", bare_key(address.host_key), check.shown) from None
        raise ConnectionError(f"{address.host}:{address.port} has no host key that can be checked: {error}") from error
    except asyncssh.PermissionDenied as error:
        text = f"{address.host}:{address.port} does not let {address.user!r} log in with the key of the namespace"
        raise LoginRefused(text) from error
    except asyncssh.Error as error:
        raise ConnectionError(f"{address.host}:{address.port}: {error.reason or type(error).__name__}") from error
    async with connection:
        try:
            yield SshConnection(connection, check.shown)
        except asyncssh.Error as error:
            raise ConnectionError(f"{address.host}:{address.port}: {error.reason or type(error).__name__}") from error


async def _connect(
    address: SshAddress, private_key: str, via: SshConnection | None, check: _HostKeyCheck
) -> asyncssh.SSHClientConnection:
    return await asyncssh.connect(
        address.host,
        address.port,
        tunnel=() if via is None else via.connection,
        config=(),
        client_factory=lambda: check,
        known_hosts=((), (), ()),
        server_host_key_algs=_algorithms(address.host_key),
        username=address.user,
        client_keys=[_imported(private_key)],
        agent_path=None,
        preferred_auth="publickey",
        keepalive_interval=KEEPALIVE_S,
        keepalive_count_max=4,
        connect_timeout=CONNECT_TIMEOUT_S,
        login_timeout=CONNECT_TIMEOUT_S,
    )


@lru_cache(maxsize=100)
def _imported(private_key: str) -> asyncssh.SSHKey:
    """Return a private key; a command on many machines needs the same one for each."""
    return asyncssh.import_private_key(private_key)


def _algorithms(host_key: str) -> list[str]:
    """Return the algorithms of host keys, that of the known key first: a server may have several keys."""
    name = host_key.partition(" ")[0]
    known = [
        algorithm
        for algorithm in HOST_KEY_ALGORITHMS
        if algorithm == name or (name == "ssh-rsa" and algorithm.startswith("rsa-"))
    ]
    return [*known, *(algorithm for algorithm in HOST_KEY_ALGORITHMS if algorithm not in known)]
