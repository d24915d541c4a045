"""Three nodes, each with PostgreSQL, Patroni and etcd; a primary, a synchronous standby, and one more.

The settings are those of deploy/postgresql.md: without a synchronous standby nothing is committed, and only a standby
that has everything is promoted.

Patroni speaks to etcd by its older protocol. By the newer one, Patroni up to 3.0.2 takes the leader's key back without
looking whose it is by now: a primary that was cut off came back as one, without what had been committed meanwhile.
"""

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import msgspec

from tests.rehearsal.network import NODES, Network
from tests.rehearsal.required_programs import Postgres

PATIENCE = 120.0
TTL, LOOP = 20, 5
PRIMARY, SYNCHRONOUS = ("master", "primary", "leader"), "sync_standby"


class Node:
    """One of the three nodes."""

    def __init__(self, number: int, folder: Path) -> None:
        self.number = number
        self.name = f"n{number}"
        self.folder = folder
        self.etcd: subprocess.Popen[bytes] | None = None
        self.patroni: subprocess.Popen[bytes] | None = None

    def processes(self) -> list[int]:
        """Return all processes of the node, PostgreSQL's included."""
        mine = [one.pid for one in (self.etcd, self.patroni) if one is not None and one.poll() is None]
        return [*(pid for first in mine for pid in family(first)), *self.postgres()]

    def postgres(self) -> list[int]:
        """Return the postmaster and its children, which do not end with Patroni."""
        try:
            postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split("\n")[0])
        except (OSError, ValueError):
            return []
        return family(postmaster) if "postgres" in command_line_of(postmaster) else []


def family(first: int) -> list[int]:
    """Return a process and its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [first]
    for one in found:
        found += children.get(one, [])
    return found


def command_line_of(process: int) -> str:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


class Cluster:
    """The database cluster, and the faults that can be caused in it."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        self._network = network
        self._postgres = Postgres(folder)
        self._password = secrets.token_hex(8)
        self.nodes = {number: Node(number, folder / f"n{number}") for number in NODES}

    def url(self, database: str) -> str:
        """Return the URL of a database, whichever node is primary."""
        where = ",".join(f"{self._network.address(n)}:{self._network.ports[n].postgres}" for n in NODES)
        return f"postgresql://postgres:{self._password}@{where}/{database}?target_session_attrs=read-write"

    # --- starting ----------------------------------------------------------------------------------------------------

    async def start(self, *databases: str) -> None:
        """Start all nodes, and create databases."""
        for node in self.nodes.values():
            node.folder.mkdir()
            self.start_node(node.number)
        await self.until_healthy()
        connection = await asyncpg.connect(self.url("postgres"))
        for name in databases:
            await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()

    def start_node(self, number: int) -> None:
        """Start the programs of a node that do not run."""
        node = self.nodes[number]
        self._own(node.folder)
        if node.etcd is None or node.etcd.poll() is not None:
            node.etcd = self._run(node, "etcd", *self._etcd(node))
        if node.patroni is None or node.patroni.poll() is not None:
            settings = node.folder / "patroni.yml"
            settings.write_bytes(msgspec.json.encode(self._settings(node)))  # which is YAML, too
            self._own(settings)
            node.patroni = self._run(node, "patroni", str(settings))

    def _own(self, path: Path) -> None:
        if self._postgres.user is not None:
            shutil.chown(path, self._postgres.user, self._postgres.user)

    def _run(self, node: Node, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{node.name}.{command[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._network.inside(node.number), *self._postgres.as_user(*command)],
                cwd=node.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": str(node.folder)},
            )  # fmt: skip

    def _etcd(self, node: Node) -> list[str]:
        here = self._network.address(node.number)
        ports = self._network.ports[node.number]
        peers = ",".join(f"{one.name}=http://{self._at(one, 'peer')}" for one in self.nodes.values())
        return [
            "--name", node.name, "--data-dir", str(node.folder / "etcd"), "--logger", "zap",
            "--listen-client-urls", f"http://{here}:{ports.client}",
            "--advertise-client-urls", f"http://{here}:{ports.client}",
            "--listen-peer-urls", f"http://{here}:{ports.peer}",
            "--initial-advertise-peer-urls", f"http://{here}:{ports.peer}",
            "--initial-cluster", peers, "--initial-cluster-state", "new", "--enable-v2",
        ]  # fmt: skip

    def _at(self, node: Node, what: str) -> str:
        return f"{self._network.address(node.number)}:{getattr(self._network.ports[node.number], what)}"

    def _settings(self, node: Node) -> dict[str, Any]:
        account = {"username": "postgres", "password": self._password}
        return {
            "scope": "rehearsal",
            "name": node.name,
            "restapi": {"listen": self._at(node, "patroni"), "connect_address": self._at(node, "patroni")},
            "etcd": {"hosts": [self._at(one, "client") for one in self.nodes.values()]},
            "bootstrap": {"dcs": SHARED, "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"]},
            "postgresql": {
                "listen": self._at(node, "postgres"),
                "connect_address": self._at(node, "postgres"),
                "data_dir": str(node.folder / "data"),
                "bin_dir": str(self._postgres.programs),
                "pgpass": str(node.folder / "pgpass"),
                "authentication": {"superuser": account, "replication": account, "rewind": account},
                "parameters": {
                    "unix_socket_directories": str(node.folder),
                    "dynamic_shared_memory_type": "mmap",  # in the data folder: killed servers leave it
                },
                "pg_hba": ["local all all trust", *(f"host {one} all all md5" for one in ("all", "replication"))],
            },
        }

    async def stop(self) -> None:
        """End all processes."""
        for node in self.nodes.values():
            send(signal.SIGKILL, node.processes())
        for node in self.nodes.values():
            for process in (node.etcd, node.patroni):
                if process is not None:
                    await asyncio.to_thread(process.wait, PATIENCE)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def members(self) -> dict[str, dict[str, Any]]:
        """Return Patroni's view of the nodes, by name, from the first node that answers."""
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            for node in self.nodes.values():
                try:
                    answer = await client.get(f"http://{self._at(node, 'patroni')}/cluster")
                    return {one["name"]: one for one in answer.json()["members"]}
                except (httpx.HTTPError, ValueError, KeyError):
                    continue
        return {}

    async def primary(self) -> int:
        """Return the primary of a healthy cluster."""
        return await self._with_role(*PRIMARY)

    async def synchronous(self) -> int:
        """Return the synchronous standby."""
        return await self._with_role(SYNCHRONOUS)

    async def _with_role(self, *roles: str) -> int:
        """Return the node with one of these roles; while the cluster elects one, none may have it."""
        async with asyncio.timeout(PATIENCE):
            while True:
                members = await self.members()
                found = [n for n, node in self.nodes.items() if members.get(node.name, {}).get("role") in roles]
                if len(found) == 1:
                    return found[0]
                await asyncio.sleep(0.2)

    async def until_healthy(self) -> None:
        """Wait until there are a primary, a synchronous standby, and one more that streams."""
        await until(self._is_healthy)

    async def _is_healthy(self) -> bool:
        members = (await self.members()).values()
        roles = [one.get("role") for one in members]
        healthy = all(one.get("state") in ("running", "streaming") for one in members)
        streaming = all(one.get("lag", 0) == 0 or isinstance(one.get("lag"), int) for one in members)
        leaders = [role for role in roles if role in PRIMARY]
        return len(roles) == len(NODES) and len(leaders) == 1 and SYNCHRONOUS in roles and healthy and streaming

    # --- mistreating -------------------------------------------------------------------------------------------------

    def kill(self, number: int, *, all_of_it: bool) -> None:
        """Kill -9 PostgreSQL on a node; or all that runs there, as when a machine dies."""
        node = self.nodes[number]
        send(signal.SIGKILL, node.processes() if all_of_it else node.postgres())

    def pause_node(self, number: int, still: bool) -> None:
        """Stop all processes of a node, or continue them."""
        send(signal.SIGSTOP if still else signal.SIGCONT, self.nodes[number].processes())

    def receive(self, number: int, still: bool) -> None:
        """Stop the walreceiver of a standby, or continue it."""
        found = [one for one in self.nodes[number].postgres() if "walreceiver" in command_line_of(one)]
        send(signal.SIGSTOP if still else signal.SIGCONT, found)

    async def replay(self, number: int, pause: bool) -> None:
        """Pause the replay of a standby, or resume it."""
        here = f"{self._network.address(number)}:{self._network.ports[number].postgres}"
        connection = await asyncpg.connect(f"postgresql://postgres:{self._password}@{here}/postgres", timeout=10)
        await connection.execute(f"SELECT pg_wal_replay_{'pause' if pause else 'resume'}()")
        await connection.close(timeout=5)


SHARED: dict[str, Any] = {
    "ttl": TTL,
    "loop_wait": LOOP,
    "retry_timeout": 5,
    "maximum_lag_on_failover": 1048576,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "synchronous_node_count": 1,
    "postgresql": {
        "use_pg_rewind": True,
        "parameters": {
            "wal_level": "replica",
            "max_connections": 400,
            "synchronous_commit": "on",
            "wal_log_hints": "on",
            "max_wal_senders": 10,
            "wal_sender_timeout": "10s",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "idle_in_transaction_session_timeout": "30s",
            "tcp_keepalives_idle": 10,
            "tcp_keepalives_interval": 5,
            "tcp_keepalives_count": 3,
        },
    },
}
"""Settings of all nodes."""


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    """Send a signal to those processes that exist."""
    for one in processes:
        with suppress(ProcessLookupError):
            os.kill(one, number)


async def until(condition: Callable[[], Awaitable[bool]], within: float = PATIENCE) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(within):
        while not await condition():
            await asyncio.sleep(0.2)
