"""The agent: dials, tells what it has, does what it is asked, and says how it goes.

Its memory is of no consequence. What exists is read from the site; what was said over a connection that broke is told
again by the list of the next one, or asked for again. So it may be killed at any moment.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Protocol

from msgspec import MsgspecError
from msgspec.structs import replace
from websockets.exceptions import WebSocketException

from stateward.agents.messages import (
    BEGUN,
    BUSY,
    ENDED,
    FAILED,
    MOST_HELD,
    AgentOrder,
    AgentReport,
    Existing,
    FromAgent,
    FromController,
    Goodbye,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    ProgressMessage,
    Upgrade,
    Welcome,
    clipped,
    encode,
    read_controller,
)
from stateward.agents.order_admission import InstanceMemory, OrderVerdict, admit, crowded
from stateward.agents.site import AgentSite, SiteError
from stateward.aio.supervise import cancel_tasks

log = logging.getLogger("stateward.agent")

LOOK_EVERY = 5.0
"""How many seconds pass between two looks at whether everything still runs."""

MISSED = 3
BROKEN = (OSError, EOFError, WebSocketException, MsgspecError, TimeoutError)
NOTHING = Existing()


class AgentSocket(Protocol):
    """What is needed of a connection."""

    async def send(self, message: bytes, *, text: bool | None = None) -> None:
        """Send a message."""

    async def recv(self) -> str | bytes:
        """Return the next message."""

    async def close(self) -> None:
        """Close the connection."""


class Dialer(Protocol):
    """How controllers are reached."""

    async def dial(self) -> AgentSocket:
        """Connect to the next controller."""

    def welcome(self) -> None:
        """Take note that a controller let us in, and that the connection is stable."""

    @property
    def pause(self) -> float:
        """How many seconds to wait before the next try."""


class Dismissed(Exception):
    """The controller wants this agent to end."""


class UpgradeHandler(Protocol):
    """How an agent is upgraded."""

    async def upgrade(self, order: Upgrade, say: Callable[[str, str], Awaitable[None]]) -> None:
        """Start the successor and watch it; says what becomes of it."""

    async def take_over(self) -> None:
        """End the agent before, and be the one that serves from now on."""

    @property
    def heir(self) -> int:
        """The upgrade that this agent is the heir of; 0 once it serves."""


class Agent:
    """An agent of one cloudlet."""

    def __init__(
        self,
        site: AgentSite,
        caller: Dialer,
        version: str,
        successor: UpgradeHandler,
        *,
        look_every: float = LOOK_EVERY,
        installation: str = "",
    ) -> None:
        self._site, self._caller, self.version, self._successor = site, caller, version, successor
        self._look_every, self._installation = look_every, installation
        self._is_held = False  # the cloudlet belongs to another installation
        self.connection = 0
        self.settled = asyncio.Event()
        self._socket: AgentSocket | None = None
        self._minds: dict[str, InstanceMemory] = {}
        self._has: dict[str, Existing] = {}
        self._ended = 0  # how many pieces of work have ended: a look that this changed under is not to be trusted
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until dismissed or cancelled, over as many connections as it takes."""
        try:
            while True:
                try:
                    await self._connection()
                except BROKEN as error:
                    log.info("not connected: %s", str(error) or type(error).__name__)
                await asyncio.sleep(self._caller.pause)
        except Dismissed as dismissed:
            log.warning("dismissed: %s", dismissed)
        finally:
            await self._stop()

    async def _stop(self) -> None:
        await cancel_tasks(self._tasks)
        if self._socket is not None:
            with suppress(*BROKEN):
                await self._socket.close()
        await self._site.close()

    # --- one connection ----------------------------------------------------------------------------------------------

    async def _connection(self) -> None:
        socket = self._socket = await self._caller.dial()
        helpers: list[asyncio.Task[None]] = []
        try:
            welcome = await self._introduced(socket)
            self.connection = welcome.notify
            if welcome.role == "heir":
                await self._site.look()  # who cannot even look is not to end the one that can
                await self._successor.take_over()
            await self._tell_all()
            self.settled.set()
            log.info("agent serves over connection %d", self.connection)
            patience = MISSED * welcome.beat
            loops = self._beating(welcome.beat), self._watching(), self._trust_connection(patience)
            helpers = [asyncio.create_task(loop) for loop in loops]
            await self._listen(socket, patience)
        finally:
            self.connection = 0
            self.settled.clear()
            await cancel_tasks(helpers)
            with suppress(*BROKEN):
                await socket.close()

    async def _introduced(self, socket: AgentSocket) -> Welcome:
        hello = Hello(self.version, self._successor.heir, installation=self._installation)
        if self._is_held:
            hello = replace(hello, things=await self._list_things())
        await socket.send(encode(hello), text=True)
        async with asyncio.timeout(10.0):
            answer = read_controller(await socket.recv())
        if isinstance(answer, Goodbye):
            self._heed(answer)
        if not isinstance(answer, Welcome):
            raise ConnectionError("the controller does not answer as it should")
        self._is_held = False
        return answer

    async def _list_things(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(await self._site.look()))[:MOST_HELD]
        except SiteError:
            return ()

    def _heed(self, goodbye: Goodbye) -> None:
        if goodbye.final:
            raise Dismissed(goodbye.reason)
        if goodbye.held and not self._is_held:
            log.warning("agent is held and waits: %s", goodbye.reason)
        self._is_held = goodbye.held
        raise ConnectionError(goodbye.reason)

    async def _tell_all(self) -> None:
        """Send the list: one look at everything, during which no work ended."""
        try:
            await self._look()
        except SiteError as error:
            await self._say(AgentReport("gather failed", 0, 0, self.connection, error=clipped(str(error))))
            raise ConnectionError(f"cannot gather: {error}") from error
        names = dict.fromkeys([*self._has, *(name for name, mind in self._minds.items() if mind.work is not None)])
        items = [self._item(name) for name in names]
        for item in items:
            await self._say(item)
        await self._say(InventoryEnd(len(items), self.connection))

    async def _look(self) -> None:
        while True:
            before = self._ended
            seen = await self._site.look()
            if before == self._ended:
                self._has = dict(seen)
                return

    def _item(self, name: str) -> InventoryItem:
        mind, has = self._minds.get(name, InstanceMemory()), self._has.get(name, NOTHING)
        at = mind.work.operation if mind.work is not None else 0
        return InventoryItem(at, has.generation, has.whole, self.connection, name, mind.latest)

    async def _listen(self, socket: AgentSocket, patience: float) -> None:
        while True:
            async with asyncio.timeout(patience):
                word: FromController = read_controller(await socket.recv())
            match word:
                case AgentOrder():
                    await self._ordered(word)
                case Upgrade():
                    self._begin(self._upgrade(word))
                case Goodbye():
                    self._heed(word)
                case Heartbeat() | Welcome():
                    pass

    async def _beating(self, beat: float) -> None:
        while True:
            await asyncio.sleep(beat)
            await self._say(Heartbeat(self.connection))

    async def _trust_connection(self, stable_s: float) -> None:
        """Reset the backoff, once the connection has lasted; one that is lost right after the welcome does not."""
        await asyncio.sleep(stable_s)
        self._caller.welcome()

    async def _watching(self) -> None:
        """Look from time to time whether everything still runs, and tell what does not."""
        told: dict[str, Existing] = {}
        while True:
            await asyncio.sleep(self._look_every)
            before, known = self._ended, dict(self._has)
            try:
                seen = await self._site.look()
            except SiteError as error:
                log.warning("cannot look: %s", error)
                continue
            except Exception:
                log.exception("cannot look, and looks again later")
                continue
            if before == self._ended:
                await self._tell_changes(known, seen, told)

    async def _tell_changes(
        self, known: Mapping[str, Existing], seen: Mapping[str, Existing], told: dict[str, Existing]
    ) -> None:
        for name, had in known.items():
            mind, now = self._minds.get(name, InstanceMemory()), seen.get(name, NOTHING)
            if mind.work is None and now != had and told.get(name) != now:
                told[name] = self._has[name] = now
                await self._say(self._item(name))

    # --- work --------------------------------------------------------------------------------------------------------

    async def _ordered(self, order: AgentOrder) -> None:
        mind = replace(self._minds.get(order.name, InstanceMemory()), connection=self.connection)
        works = [one.work for one in self._minds.values() if one.work is not None]
        verdict = admit(self._has.get(order.name, NOTHING), mind, order, crowded=crowded(order, works))
        log.info("%s of %s: %s", order, order.name, verdict.value)
        match verdict:
            case OrderVerdict.BEGIN:
                self._minds[order.name] = replace(mind, work=order)
                await self._report(order, BEGUN[order.work])
                self._begin(self._work(order))
            case OrderVerdict.DONE:
                await self._finish(order, ENDED[order.work])
            case OrderVerdict.AGAIN:
                await self._report(order, mind.answer)
            case OrderVerdict.BUSY:
                await self._report(order, BUSY)

    async def _work(self, order: AgentOrder) -> None:
        told: list[asyncio.Task[None]] = []

        def tell(text: str, done: int | None = None, total: int | None = None) -> None:
            line = ProgressMessage(
                clipped(text), order.operation, order.generation, self.connection, order.name, done, total
            )
            told.append(self._begin(self._say(line)))

        try:
            await self._site.do(order, tell)
            event, error = ENDED[order.work], ""
        except SiteError as failure:
            event, error = FAILED[order.work], str(failure)
        except Exception as failure:
            log.exception("%s of %s has failed", order, order.name)
            event, error = FAILED[order.work], f"{type(failure).__name__}: {failure}"
        await asyncio.gather(*told)  # the last word comes last
        await self._see(order, failed=bool(error))
        await self._finish(order, event, error)

    async def _see(self, order: AgentOrder, *, failed: bool) -> None:
        """Take note of what work has left, before anybody is told that it has ended."""
        if not failed:
            made = NOTHING if order.work.value == "delete" else Existing(order.generation)
            self._has[order.name] = made
            return
        with suppress(Exception):  # the order ends in any case
            self._has[order.name] = (await self._site.look()).get(order.name, NOTHING)

    async def _finish(self, order: AgentOrder, event: str, error: str = "") -> None:
        self._ended += 1
        if self._has.get(order.name, NOTHING).generation == 0:
            self._has.pop(order.name, None)
        self._minds[order.name] = InstanceMemory(0, None, order.operation, event)
        await self._report(order, event, error)

    async def _report(self, order: AgentOrder, event: str, error: str = "") -> None:
        await self._say(
            AgentReport(event, order.operation, order.generation, self.connection, order.name, clipped(error))
        )

    async def _upgrade(self, upgrade: Upgrade) -> None:
        async def say(event: str, error: str) -> None:
            await self._say(AgentReport(event, upgrade.operation, 0, self.connection, error=clipped(error)))

        await self._successor.upgrade(upgrade, say)

    async def _say(self, word: FromAgent) -> None:
        """Say something; where the connection is gone, the next one's list will tell."""
        socket = self._socket
        if socket is None or not self.connection:
            return
        with suppress(*BROKEN):
            await socket.send(encode(word), text=True)

    def _begin(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
