"""The agent: connects to a controller, sends its inventory, executes orders, and reports.

Its memory may be lost at any time. It reads what exists from its site. Reports lost with a connection are made up for
by the inventory of the next one, or the controller sends the order again. So the agent may be killed at any moment.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress

from msgspec.structs import replace

from stateward.agents.agent_ports import (
    CONNECTION_ERRORS,
    AgentSocket,
    Dialer,
    Dismissed,
    UpgradeHandler,
    describe_connection_error,
)
from stateward.agents.answers import NodeEngine, SiteAnswers
from stateward.agents.measure_reports import MeasureReporter, measure_site
from stateward.agents.message_types import clip_text
from stateward.agents.messages import (
    BEGUN,
    BUSY,
    ENDED,
    FAILED,
    MAX_HELD_NAMES,
    AgentOrder,
    AgentReport,
    CommandRequest,
    Existing,
    FromAgent,
    FromController,
    Goodbye,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    LogRequest,
    ProgressMessage,
    RequestCancelled,
    SiteBackend,
    StatusMessage,
    Upgrade,
    Welcome,
    encode,
    fulfils_order,
    read_controller,
)
from stateward.agents.node_messages import ImageRequest, SecretAnswer, VolumeRemoval
from stateward.agents.order_admission import InstanceMemory, OrderVerdict, has_related_work, judge_order
from stateward.agents.secret_requests import SecretRequests
from stateward.agents.site import (
    UNKNOWN_CAPACITY,
    AgentLease,
    AgentSite,
    SiteCapacity,
    SiteError,
    ThingStatus,
)
from stateward.aio.struct_types import prepare_struct_types
from stateward.aio.supervise import cancel_tasks

log = logging.getLogger("stateward.agent")

OBSERVE_INTERVAL_S = 5.0
"""Seconds between two observations of the site."""

MAX_MISSED_HEARTBEATS = 3

MAX_ENDED_MEMORIES = 1000
"""How many things that are gone the agent remembers: an order that overtakes their removal is younger."""
NOTHING_EXISTS = Existing()
UNSEEN = "it could not be observed"


class Agent:
    """The agent of one site; it works on one of the `backends` that it offers, by default on its site alone.

    The agent of a node has a capacity, a lease, and statuses of its things. It asks for values of secrets, and finds
    images and removes volumes if it has a container engine.
    """

    def __init__(
        self,
        site: AgentSite,
        dialer: Dialer,
        version: str,
        upgrades: UpgradeHandler,
        *,
        observe_interval_s: float = OBSERVE_INTERVAL_S,
        installation: str = "",
        capacity: SiteCapacity = UNKNOWN_CAPACITY,
        backends: Mapping[str, AgentSite] | None = None,
        lease: AgentLease | None = None,
        statuses: Callable[[], AsyncIterator[ThingStatus]] | None = None,
        secrets: SecretRequests | None = None,
        engine: NodeEngine | None = None,
    ) -> None:
        self._lease, self._statuses, self._secrets, self._engine = lease, statuses, secrets, engine
        self._site, self._dialer, self.version, self._upgrades = site, dialer, version, upgrades
        self._backends = backends or {SiteBackend.PROCESS: site}
        self._observe_interval_s, self._installation = observe_interval_s, installation
        self._capacity = capacity
        self._is_held = False  # the site belongs to another installation
        self._logged_problem = ""  # why it is not connected; logged again only when it changes
        self.notify = 0
        self.synced = asyncio.Event()
        self._socket: AgentSocket | None = None
        self._memories: dict[str, InstanceMemory] = {}
        self._existing: dict[str, Existing] = {}
        self._ended_works = 0  # the number of orders that have ended; an observation during which it changed is stale
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until dismissed or cancelled, reconnecting as often as needed."""
        prepare_struct_types()
        try:
            while True:
                try:
                    await self._run_connection()
                except CONNECTION_ERRORS as error:
                    self._log_problem(describe_connection_error(error))
                await asyncio.sleep(self._dialer.retry_delay_s)
        except Dismissed as dismissed:
            log.warning("agent ends, dismissed by the controller: %s", dismissed)
        finally:
            await self._stop()

    async def run_until_stopped(self) -> None:
        """Run until dismissed, or stopped by SIGINT or SIGTERM; what exists stays as it is."""
        task = asyncio.ensure_future(self.run())
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    def _log_problem(self, why: str) -> None:
        if why != self._logged_problem:
            self._logged_problem = why
            log.info("agent is not connected and will retry: %s", why)

    async def _stop(self) -> None:
        await cancel_tasks(self._tasks)
        if self._socket is not None:
            with suppress(*CONNECTION_ERRORS):
                await self._socket.close()
        for site in {id(backend): backend for backend in self._backends.values()}.values():
            await site.close()

    # --- one connection ----------------------------------------------------------------------------------------------

    async def _run_connection(self) -> None:
        await self._settle()
        socket = self._socket = await self._dialer.dial()
        tasks: list[asyncio.Task[None]] = []
        answers = SiteAnswers(self._site, self._send, self._engine)
        try:
            welcome = await self._handshake(socket)
            self.notify = welcome.notify
            self._use_backend(welcome.backend)
            if welcome.role == "heir":
                await self._site.observe()  # a successor that cannot observe the site must not end its predecessor
                await self._upgrades.take_over()
            await self._settle()
            if self._lease is not None:
                self._lease.begin(welcome.lease)
            await self._send_inventory()
            self.synced.set()
            if self._secrets is not None:
                self._secrets.open(self._send, self.notify)
            self._logged_problem = ""
            log.info("agent serves over connection %d", self.notify)
            patience = MAX_MISSED_HEARTBEATS * welcome.beat
            loops = [self._heartbeat_loop(welcome.beat), self._observe_loop(), self._trust_connection(patience)]
            if welcome.measures > 0:
                loops.append(self._measure_loop(welcome.measures, MeasureReporter(self.notify)))
            if self._statuses is not None:
                loops.append(self._status_loop(self._statuses))
            tasks = [asyncio.create_task(loop) for loop in loops]
            await self._receive_messages(socket, patience, answers)
        finally:
            self.notify = 0
            self.synced.clear()
            if self._secrets is not None:
                self._secrets.close()
            await cancel_tasks(tasks)
            await answers.close()
            with suppress(*CONNECTION_ERRORS):
                await socket.close()

    def _use_backend(self, backend: str) -> None:
        """Work on the back end that the controller names; it changes only while nothing exists."""
        site = self._backends.get(backend)
        if site is None:
            raise ConnectionError(f"the controller needs the back end {backend}, which this agent does not offer")
        if site is not self._site:
            self._site, self._existing = site, {}

    async def _settle(self) -> None:
        """Forget the orders that were carried out, if the lease has ended: they may come again as they were."""
        if self._lease is not None and await self._lease.settle():
            self._memories = {name: memory for name, memory in self._memories.items() if memory.work is not None}

    async def _handshake(self, socket: AgentSocket) -> Welcome:
        hello = Hello(
            self.version,
            self._upgrades.successor_of,
            installation=self._installation,
            answers=True,
            cores=self._capacity.cores,
            memory=self._capacity.memory,
            backends=tuple(self._backends),
            slots=self._capacity.slots,
            address=self._capacity.address,
            secrets=self._secrets is not None and self._secrets.is_private(),
        )
        if self._is_held:
            hello = replace(hello, things=await self._thing_names())
        await socket.send(encode(hello), text=True)
        async with asyncio.timeout(10.0):
            answer = read_controller(await socket.recv())
        if isinstance(answer, Goodbye):
            self._handle_goodbye(answer)
        if not isinstance(answer, Welcome):
            raise ConnectionError("the controller does not answer as it should")
        self._is_held = False
        return answer

    async def _thing_names(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(await self._site.observe()))[:MAX_HELD_NAMES]
        except SiteError:
            return ()

    def _handle_goodbye(self, goodbye: Goodbye) -> None:
        if goodbye.final:
            raise Dismissed(goodbye.reason)
        if goodbye.held and goodbye.reason != self._logged_problem:
            self._logged_problem = goodbye.reason
            log.warning("agent waits: %s", goodbye.reason)
        self._is_held = goodbye.held
        raise ConnectionError(goodbye.reason)

    async def _send_inventory(self) -> None:
        """Send the inventory: one observation of the site, during which no order ended."""
        try:
            await self._observe_site()
        except SiteError as error:
            await self._send(AgentReport("gather failed", 0, 0, self.notify, error=clip_text(str(error))))
            raise ConnectionError(f"cannot gather: {error}") from error
        working = (name for name, memory in self._memories.items() if memory.work is not None)
        items = [self._item(name) for name in dict.fromkeys([*self._existing, *working])]
        for item in items:
            await self._send(item)
        await self._send(InventoryEnd(len(items), self.notify))

    async def _observe_site(self) -> None:
        while True:
            before = self._ended_works
            seen = await self._site.observe()
            if before == self._ended_works:
                self._existing = dict(seen)
                return

    def _item(self, name: str) -> InventoryItem:
        memory, has = self._memories.get(name, InstanceMemory()), self._existing.get(name, NOTHING_EXISTS)
        at = memory.work.operation if memory.work is not None else 0
        problem = clip_text(has.problem)
        return InventoryItem(at, has.generation, has.whole, self.notify, name, memory.latest, problem, has.ports)

    async def _receive_messages(self, socket: AgentSocket, patience: float, answers: SiteAnswers) -> None:
        while True:
            async with asyncio.timeout(patience):
                message: FromController = read_controller(await socket.recv())
            match message:
                case AgentOrder():
                    await self._handle_order(message)
                case Upgrade():
                    self._start_task(self._upgrade(message))
                case LogRequest() | CommandRequest() | ImageRequest() | VolumeRemoval():
                    await answers.begin(message)
                case RequestCancelled():
                    answers.cancel(message)
                case Goodbye():
                    self._handle_goodbye(message)
                case Heartbeat():
                    if self._lease is not None:
                        self._lease.renew(message.number)
                case SecretAnswer():
                    if self._secrets is not None:
                        self._secrets.on_answer(message)
                case Welcome():
                    pass

    async def _heartbeat_loop(self, beat: float) -> None:
        """Send heartbeats; the first one begins the lease, if there is one."""
        if self._lease is None:
            await asyncio.sleep(beat)
        while True:
            number = 0 if self._lease is None else self._lease.note_heartbeat()
            await self._send(Heartbeat(self.notify, number))
            await asyncio.sleep(beat)

    async def _status_loop(self, statuses: Callable[[], AsyncIterator[ThingStatus]]) -> None:
        """Send the statuses of all things, and each one again when it changes."""
        async for status in statuses():
            await self._send(StatusMessage(clip_text(status.status), status.generation, self.notify, status.name))

    async def _trust_connection(self, stable_s: float) -> None:
        """Reset the backoff once the connection has lasted; a welcome alone does not reset it."""
        await asyncio.sleep(stable_s)
        self._dialer.reset_backoff()

    async def _observe_loop(self) -> None:
        """Observe the site in a loop, and send items that have changed by themselves."""
        while True:
            await asyncio.sleep(self._observe_interval_s)
            before, known = self._ended_works, dict(self._existing)
            try:
                seen = await self._site.observe()
            except SiteError as error:
                log.warning("agent cannot observe its site and will retry: %s", error)
                continue
            except Exception:
                log.exception("agent failed to observe its site and will retry")
                continue
            if before == self._ended_works:
                await self._send_changes(known, seen)

    async def _send_changes(self, known: Mapping[str, Existing], seen: Mapping[str, Existing]) -> None:
        for name, had in known.items():
            memory, now = self._memories.get(name, InstanceMemory()), seen.get(name, NOTHING_EXISTS)
            if memory.work is None and now != had:
                self._existing[name] = now
                await self._send(self._item(name))

    async def _measure_loop(self, interval_s: float, reporter: MeasureReporter) -> None:
        """Measure the site in a loop, and send what has changed; what cannot be measured is unknown."""
        while True:
            measures, problem = await measure_site(self._site)
            for message in reporter.messages(measures, self._existing, problem):
                await self._send(message)
            await asyncio.sleep(interval_s)

    # --- work --------------------------------------------------------------------------------------------------------

    async def _handle_order(self, order: AgentOrder) -> None:
        memory = replace(self._memories.get(order.name, InstanceMemory()), connection=self.notify)
        works = [memory.work for memory in self._memories.values() if memory.work is not None]
        existing = self._existing.get(order.name, NOTHING_EXISTS)
        verdict = judge_order(existing, memory, order, crowded=has_related_work(order, works))
        log.info("order %s for %s: agent %s", order, order.name, verdict.value)
        match verdict:
            case OrderVerdict.BEGIN:
                self._memories[order.name] = replace(memory, work=order)
                await self._report(order, BEGUN[order.work])
                self._start_task(self._execute(order))
            case OrderVerdict.DONE:
                await self._finish(order, ENDED[order.work])
            case OrderVerdict.REPEAT:
                await self._report(order, memory.answer)
                if memory.answer == ENDED[order.work] and not fulfils_order(existing.generation, existing.whole, order):
                    await self._send(self._item(order.name))  # it is gone since, and nobody was there to be told
            case OrderVerdict.BUSY:
                await self._report(order, BUSY)

    async def _execute(self, order: AgentOrder) -> None:
        sending: list[asyncio.Task[None]] = []

        def report_progress(text: str, done: int | None = None, total: int | None = None) -> None:
            numbers = order.operation, order.generation, self.notify
            message = ProgressMessage(clip_text(text), *numbers, order.name, done, total)
            sending.append(self._start_task(self._send(message)))

        try:
            await self._site.execute(order, report_progress)
            event, error = ENDED[order.work], ""
        except SiteError as failure:
            event, error = FAILED[order.work], str(failure)
        except Exception as failure:
            log.exception("order %s for %s has failed", order, order.name)
            event, error = FAILED[order.work], f"{type(failure).__name__}: {failure}"
        await asyncio.gather(*sending)  # the final report must come after all progress lines
        await self._note_result(order, failed=bool(error))
        await self._finish(order, event, error)

    async def _note_result(self, order: AgentOrder, *, failed: bool) -> None:
        """Update what exists after an order, before its end is reported."""
        if not failed and not order.keep_data:
            ports = self._site.ports_of(order.name)
            made = NOTHING_EXISTS if order.work.value == "delete" else Existing(order.generation, ports=ports)
            self._existing[order.name] = made
            return
        try:
            self._existing[order.name] = (await self._site.observe()).get(order.name, NOTHING_EXISTS)
        except Exception as error:  # the order has ended even if the site cannot be observed; a part of it may be there
            log.warning("agent cannot observe %s after an order: %s", order.name, error)
            self._existing[order.name] = Existing(max(1, order.generation), whole=False, problem=UNSEEN)

    async def _finish(self, order: AgentOrder, event: str, error: str = "") -> None:
        self._ended_works += 1
        if self._existing.get(order.name, NOTHING_EXISTS).generation == 0:
            self._existing.pop(order.name, None)
        self._memories.pop(order.name, None)  # the order of memories is that of their ends
        self._memories[order.name] = InstanceMemory(0, None, order.operation, event)
        self._forget_oldest()
        await self._report(order, event, error)

    def _forget_oldest(self) -> None:
        """Forget half of the things that are gone, if there are too many."""
        if len(self._memories) - len(self._existing) <= MAX_ENDED_MEMORIES:
            return
        gone = [name for name, memory in self._memories.items() if memory.work is None and name not in self._existing]
        for name in gone[: MAX_ENDED_MEMORIES // 2]:
            del self._memories[name]

    async def _report(self, order: AgentOrder, event: str, error: str = "") -> None:
        numbers = order.operation, order.generation, self.notify
        ports = self._existing.get(order.name, NOTHING_EXISTS).ports
        await self._send(AgentReport(event, *numbers, order.name, clip_text(error), ports))

    async def _upgrade(self, upgrade: Upgrade) -> None:
        async def report(event: str, error: str) -> None:
            await self._send(AgentReport(event, upgrade.operation, 0, self.notify, error=clip_text(error)))

        await self._upgrades.upgrade(upgrade, report)

    async def _send(self, message: FromAgent) -> None:
        """Send a message; if the connection is lost, the next inventory makes up for it."""
        socket = self._socket
        if socket is None or not self.notify:
            return
        with suppress(*CONNECTION_ERRORS):
            await socket.send(encode(message), text=True)

    def _start_task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
