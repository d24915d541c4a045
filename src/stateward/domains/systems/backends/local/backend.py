"""The local backend: the port's words as files that the keeper follows."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from msgspec.structs import replace

from stateward.domains.systems.backends.local.backend_supervisor import Keeper
from stateward.domains.systems.backends.local.instance_dir import GATE, Files, Lodge, Order, State
from stateward.domains.systems.backends.local.launch import PROXY_PROGRAM, free_port
from stateward.domains.systems.backends.port import Excerpt, Home, Instance, Phase, Ref, Want, check_fits, place
from stateward.domains.systems.definition import Health, NodePool, Service
from stateward.drivers.confinement import Confinement
from stateward.drivers.process.trees import remove_tree

STEP = 0.05


class LocalBackend:
    """Runs instances as processes of this machine; everything is below one folder."""

    def __init__(self, root: Path, confinement: Confinement | None = None) -> None:
        self._files = Files(root.absolute())
        self._keeper = Keeper(self._files, (confinement or Confinement()).hiding(root.absolute()))

    async def prepare(self, home: Home) -> Mapping[str, str]:
        """Make the folder of a system."""
        self._files.home(home).mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"host": socket.gethostname(), "folder": str(self._files.root)}

    async def instances(self, ref: Ref) -> Sequence[Instance]:
        """Return the instances of a service."""
        found = ((lodge, lodge.order()) for lodge in self._files.lodges(ref))
        return [_instance(order, lodge.state() or State()) for lodge, order in found if order is not None]

    async def start(self, ref: Ref, want: Want) -> None:
        """Order an instance."""
        lodge = self._files.lodge(ref, want.name)
        if lodge.order() is None:
            node = self._placed(ref.home, want.service.node_pool)
            lodge.put_order(Order(want.name, want.revision, want.service, node))
            self._keeper.nudge()

    async def stop(self, ref: Ref, name: str) -> None:
        """Order the end of an instance."""
        self._stop(self._files.lodge(ref, name))

    def _stop(self, lodge: Lodge) -> None:
        order = lodge.order()
        if order is not None and not order.stop:
            lodge.put_order(replace(order, stop=True))
            self._keeper.nudge()

    # --- addresses ---------------------------------------------------------------------------------------------------

    async def address(self, ref: Ref, port: int | None) -> int | None:
        """Order a gate, or the end of one that stands elsewhere."""
        lodge = self._files.lodge(ref, GATE)
        order = lodge.order()
        if port is None or (order is not None and port not in (0, order.port)):
            self._stop(lodge)
            return None
        if order is None:
            lodge.put_order(self._gate(ref, port or free_port()))
            self._keeper.nudge()
            return None
        return order.port if _stands(lodge, order) else None

    async def is_addressed(self, ref: Ref, port: int | None) -> bool:
        """Tell whether the gate stands that is to."""
        lodge = self._files.lodge(ref, GATE)
        order = lodge.order()
        return port is None or (order is not None and port in (0, order.port) and _stands(lodge, order))

    def _gate(self, ref: Ref, port: int) -> Order:
        ready = str(self._files.service(ref) / "ready.json")
        command = (sys.executable, "-I", "-S", PROXY_PROGRAM, ready, str(port))
        check = Health(tcp=True, interval=5.0, timeout=5.0)
        return Order(GATE, GATE, Service(command=command, health=check, drain=0.05), port=port)

    # --- leaving -----------------------------------------------------------------------------------------------------

    async def forget(self, ref: Ref) -> None:
        """Remove the folder of a service, with its logs."""
        while (gate := self._files.lodge(ref, GATE)).order() is not None:
            self._stop(gate)
            await asyncio.sleep(STEP)
        await asyncio.to_thread(remove_tree, self._files.service(ref))

    async def remove(self, home: Home) -> None:
        """Remove the folder of a system."""
        await asyncio.to_thread(remove_tree, self._files.home(home))

    # --- node pools --------------------------------------------------------------------------------------------------

    async def ensure_pool(self, home: Home, name: str, pool: NodePool) -> None:
        """Note how large a node pool is; its nodes are all this machine."""
        used = {node: count for node, count in self._used(home).items() if node.rpartition("-")[0] == name}
        check_fits(name, pool, used)
        self._files.put_pools(home, {**self._files.pools(home), name: pool})

    async def remove_pool(self, home: Home, name: str) -> None:
        """Forget a node pool."""
        self._files.put_pools(home, {key: pool for key, pool in self._files.pools(home).items() if key != name})

    def _placed(self, home: Home, pool: str | None) -> str | None:
        known = self._files.pools(home)
        return None if pool is None or pool not in known else place(pool, known[pool], self._used(home))

    def _used(self, home: Home) -> Counter[str]:
        lodges = (lodge for ref in self._files.services(home) for lodge in self._files.lodges(ref))
        orders = (lodge.order() for lodge in lodges)
        return Counter(order.node for order in orders if order is not None and order.node is not None)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def logs(self, ref: Ref, instance: str | None, after: int | None, most: int) -> Sequence[Excerpt]:
        """Return what instances have written, also such that have ended."""
        folder = self._files.service(ref) / "logs"
        files = sorted(folder.glob("*.log"), key=lambda file: file.stat().st_mtime) if folder.is_dir() else []
        chosen = [one for one in files if one.stem == instance or (instance is None and one.stem != GATE)]
        return [_excerpt(one, after, most) for one in chosen]

    async def pause(self, ref: Ref, seconds: float) -> None:  # noqa: ARG002 - any change shows in the files
        """Wait a moment."""
        await asyncio.sleep(min(seconds, STEP))

    async def news(self) -> AsyncIterator[Ref]:
        """Yield services about which the keeper has news; there are none where another process is the keeper."""
        while True:
            yield await self._keeper.news.get()

    def live(self) -> AbstractAsyncContextManager[None]:
        """Look after the instances, or wait to take over."""
        return self._keeper.live()


def _stands(gate: Lodge, order: Order) -> bool:
    return (gate.state() or State()).ready and not order.stop


def _instance(order: Order, state: State) -> Instance:
    return Instance(
        name=order.name,
        revision=order.revision,
        phase=Phase.STOPPING if order.stop else state.phase,
        ready=state.ready and not order.stop,
        restarts=state.restarts,
        since=state.since,
        pid=None if state.process is None else state.process.pid,
        port=state.port,
        node=order.node,
        why=state.why,
    )


def _excerpt(file: Path, after: int | None, most: int) -> Excerpt:
    size = file.stat().st_size
    begin = max(0, size - most) if after is None or after > size else after
    with file.open("rb") as stream:
        stream.seek(begin)
        data = stream.read(most)
    return Excerpt(file.stem, data.decode(errors="replace"), begin + len(data))
