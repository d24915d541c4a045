"""The office: where agents are connected in this process, what they are told, and what their words become.

Several processes may have one each, on the same store. What one of them writes, the others read in the journal; the
order that follows is sent by whichever has the connection. Nothing here has to survive: it is all in the store.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random

from stateward.access import Grant
from stateward.access.lifecycle import TOKEN, TokenState
from stateward.agents.allowance import REJECTED
from stateward.agents.connection import DIAL_AGAIN, NO_END, NO_HELLO, NO_WORD, TWICE, AgentConnection, Disconnected
from stateward.agents.messages import (
    BUSY,
    ENDED,
    PROTOCOL,
    AgentReport,
    Goodbye,
    Hello,
    InventoryItem,
    Load,
    ProgressMessage,
    Upgrade,
    Welcome,
)
from stateward.aio.supervise import cancel_tasks
from stateward.domains.edge.agents.agent_auth import FOREIGN
from stateward.domains.edge.agents.agent_reports import AgentMessage, note_misconduct
from stateward.domains.edge.agents.connections import ConnectRequest, Disconnect
from stateward.domains.edge.agents.inventory_sync import Inventory, remove_orphan
from stateward.domains.edge.agents.report_batches import ReportBatcher
from stateward.domains.edge.handlers import related_ids
from stateward.domains.edge.lifecycle import CLOUDLET, MISSING
from stateward.domains.edge.model import (
    INSTANCE_LIFECYCLES,
    CloudletSpec,
    agent_slots,
    cloudlet_of,
    cloudlet_status,
    local_name,
    read_spec,
)
from stateward.domains.edge.records.agent_upgrade import is_upgrade_due, must_disconnect
from stateward.engine import Denied, Engine
from stateward.lifecycle import CONTROLLER
from stateward.store.errors import StoreError
from stateward.store.filters import Page, Selector
from stateward.store.records import JournalEntry as JournalLine
from stateward.store.records import Key, Object, Operation

log = logging.getLogger("stateward.edge")
audit = logging.getLogger("stateward.audit")

MISCONDUCT = frozenset({NO_END, NO_HELLO, NO_WORD, TWICE})
"""What an agent is given up for that no honest one does."""

BEAT = 10.0
"""How many seconds pass between two signs of life of an agent."""

MISSED = 3
"""How many of them may be missed before a connection is given up."""

RETRY = 10.0
"""How many seconds pass before an order without an answer is sent again; the agent does it once all the same."""

UNANSWERED = tuple(f"{one}{what}" for one in ("Create", "Update", "Delete") for what in ("Requested", "Error"))
"""The states in which an agent may have to be told something."""

MOST = 1000

LIST_AGAIN_AFTER = 0.5
"""How many seconds pass before an agent is asked for its list, when records have changed without it."""

BUSY_FOR = 0.5
"""How many seconds an agent is left alone that is busy."""

Loaded = Callable[[str, str, Load], Awaitable[None]]


class AgentHub:
    """Where agents are connected in this process."""

    def __init__(
        self,
        engine: Engine,
        controller: str,
        chance: Random,
        loaded: Loaded,
        *,
        beat: float = BEAT,
        retry: float = RETRY,
    ) -> None:
        self.engine, self.controller = engine, controller
        self.beat, self.retry = beat, retry
        self.lines: dict[Key, list[AgentConnection]] = {}
        self.rejected: Counter[str] = Counter()
        self._loaded = loaded
        self._missing: dict[Key, set[str]] = {}
        self._unnoted: set[Disconnect] = set()  # connections that are gone, while the store was away
        self._listing: set[Key] = set()  # cloudlets whose agents are to tell anew what they have
        self._removing: set[tuple[Key, str, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.intake = ReportBatcher(engine, chance)

    # --- what agents bring about (agents.line.Host) ------------------------------------------------------------------

    async def greet(self, line: AgentConnection, hello: Hello) -> Welcome | Goodbye:
        """Welcome an agent, if it speaks as we do and is wanted."""
        if hello.protocol != PROTOCOL:
            return Goodbye(f"protocol {hello.protocol} is not spoken here, but {PROTOCOL}", final=True)
        identity = hello.installation, hello.things
        greeting = ConnectRequest(line.ns, line.cloudlet, hello.version, hello.heir, self.controller, *identity)
        answer = await self.intake.greet(greeting)
        if answer.unwanted:
            return Goodbye(answer.unwanted, final=hello.heir > 0, held=answer.held)
        line.connection = answer.notify
        here = self.lines.setdefault(Key(line.ns, line.cloudlet), [])
        here.append(line)
        return Welcome(answer.notify, answer.role, self.beat)

    async def listed(self, line: AgentConnection) -> None:
        """Settle a complete list, and send what is due."""
        items = tuple(line.items.values())
        gathering = Inventory(line.ns, line.cloudlet, line.version, line.connection, items, line.installation)
        found = await self.intake.settle(gathering)
        line.items.clear()
        if found.unwanted:
            await line.say(Goodbye(found.unwanted))
            raise Disconnected(found.unwanted)
        line.settled = True
        for name, operation in found.at_work:
            line.sent[name] = operation, asyncio.get_running_loop().time()
        for order in (*found.orphans, *found.orders):
            await line.order(order)
        key = Key(line.ns, line.cloudlet)
        self._removing.update((key, order.name, order.operation) for order in found.orphans)
        await self._look_at_cloudlet(key)
        self._miss(key, found.missing)

    async def heard(self, line: AgentConnection, word: AgentReport | ProgressMessage | InventoryItem | Load) -> None:
        """Take a word: what counts moves an object, what does not is counted."""
        key = Key(line.ns, line.cloudlet)
        if isinstance(word, Load):
            await self._loaded(line.ns, f"{line.cloudlet}:{word.name}", word)
            return
        if isinstance(word, AgentReport) and await self._is_removal(line, key, word):
            return
        answer = await self.intake.hear(AgentMessage(line.ns, line.cloudlet, line.version, word))
        if not answer.counted:
            self.rejected[answer.why] += 1
            line.allowance.spend(REJECTED)
        if answer.order is not None:
            await line.order(answer.order)
        if answer.again:
            self._later(self.order_again(line, Key(line.ns, f"{line.cloudlet}:{word.name}")))
        if answer.missing:
            self._miss(key, [word.name])

    async def gave_up(self, line: AgentConnection, why: Disconnected) -> None:
        """Count and journal what no honest agent says."""
        if why.reason in MISCONDUCT:
            self.rejected[why.reason] += 1
            with suppress(StoreError):
                await self.engine.store.transact(
                    lambda tx: note_misconduct(tx, line.ns, line.cloudlet, line.version, str(why))
                )

    def turn_away(self, grant: Grant, ns: str, cloudlet: str) -> None:
        """Count and audit a token for something else; nothing is written of a cloudlet that it is not for."""
        self.rejected[FOREIGN] += 1
        audit.warning("refused: %s token=%s cloudlet=%s/%s", FOREIGN, grant.token, ns, cloudlet)

    async def left(self, line: AgentConnection) -> None:
        """Take note that a connection is gone."""
        key = Key(line.ns, line.cloudlet)
        others = [one for one in self.lines.get(key, ()) if one is not line]
        if others:
            self.lines[key] = others
        else:
            self.lines.pop(key, None)
        if line.connection:
            await self.part([Disconnect(line.ns, line.cloudlet, line.connection)])

    async def part(self, partings: Iterable[Disconnect]) -> None:
        """Take note of connections that are gone, here or elsewhere; where the store is away, that is done later."""
        given = list(partings)
        outcomes = await asyncio.gather(*(self.intake.part(one) for one in given), return_exceptions=True)
        self._unnoted.update(
            one for one, outcome in zip(given, outcomes, strict=True) if isinstance(outcome, StoreError)
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, StoreError):
                raise outcome

    async def _is_removal(self, line: AgentConnection, key: Key, report: AgentReport) -> bool:
        removal = key, report.name, report.operation
        if removal not in self._removing:
            return False
        if report.event in ENDED.values():
            self._removing.discard(removal)
            await self.engine.store.transact(lambda tx: remove_orphan(tx, key.ns, key.id, report.name))
        elif report.event == BUSY:
            line.sent.pop(report.name, None)
        return True

    # --- news --------------------------------------------------------------------------------------------------------

    def news(self, lines: Iterable[JournalLine]) -> None:
        """Look at what has changed on cloudlets whose agents are connected here, and send what is due."""
        instances: dict[Key, None] = {}
        cloudlets: dict[Key, None] = {}
        for one in lines:
            if one.kind == TOKEN.kind and one.target != TokenState.ACTIVE:
                self._dismiss(one.object.removeprefix("token-"))
            elif one.kind == CLOUDLET.kind and Key(one.ns, one.object) in self.lines:
                cloudlets[Key(one.ns, one.object)] = None
                if one.event == "change":
                    self._later(self._list_for_policy(Key(one.ns, one.object)))
            elif one.kind in INSTANCE_LIFECYCLES and _is_records_only(one):
                self._list_again(Key(one.ns, cloudlet_of(one.object)))
            elif one.kind in INSTANCE_LIFECYCLES and _asks(one) and Key(one.ns, cloudlet_of(one.object)) in self.lines:
                instances[Key(one.ns, one.object)] = None
        for key in cloudlets:
            self._later(self._look_at_cloudlet(key))
        for key in instances:
            self._later(self.tend(key))

    def _list_again(self, key: Key) -> None:
        """Have an agent tell anew what it has, soon: the records have changed without it."""
        if key in self.lines and key not in self._listing:
            self._listing.add(key)
            self._later(self._hang_up_soon(key))

    async def _list_for_policy(self, key: Key) -> None:
        """Have an agent tell anew what it has, where known orphans are to be removed from now on."""
        found = await self.engine.store.reader.object(key)
        if found is None or not cloudlet_status(found).orphans:
            return
        if read_spec(found, CloudletSpec).orphans == "remove":
            self._list_again(key)

    async def _hang_up_soon(self, key: Key) -> None:
        await asyncio.sleep(LIST_AGAIN_AFTER)
        self._listing.discard(key)
        await asyncio.gather(*(self._send_away(line, "") for line in self.lines.get(key, ())))

    def _dismiss(self, token: str) -> None:
        """Hang up on agents whose token is not valid any more."""
        for line in self._all_lines():
            if line.token == token:
                self._later(self._send_away(line, ""))

    async def tend(self, key: Key, patience: float = math.inf) -> None:
        """Send the order that is due for an instance, if one is and has not gone out this long ago or less."""
        order = await self.intake.tend(key)
        for line in self.lines.get(Key(key.ns, cloudlet_of(key.id)), ()) if order is not None else ():
            assert order is not None
            with suppress(Disconnected):
                await line.order(order, patience)

    async def order_again(self, line: AgentConnection, key: Key) -> None:
        """Send an order again that found the agent busy."""
        await asyncio.sleep(BUSY_FOR)
        line.sent.pop(local_name(key.id), None)
        await self.tend(key)

    async def _look_at_cloudlet(self, key: Key) -> None:
        found, operation = await self._cloudlet(key)
        for line in list(self.lines.get(key, ())):
            if found is None or found.removed:
                self._later(self._send_away(line, "the cloudlet was deleted"))
                continue
            seat = agent_slots(found, operation)
            if must_disconnect(seat, line.connection):
                self._later(self._send_away(line, ""))
            elif is_upgrade_due(seat, line.connection) and line.settled:
                await self._ask_to_upgrade(
                    line, Upgrade(seat.target, seat.operation, seat.serving, cloudlet_status(found).within)
                )

    async def _cloudlet(self, key: Key) -> tuple[Object | None, Operation | None]:
        reader = self.engine.store.reader
        found = await reader.object(key)
        held = found is not None and found.op is not None
        return found, await reader.operation(Key(key.ns, found.op)) if held and found and found.op else None

    async def _ask_to_upgrade(self, line: AgentConnection, upgrade: Upgrade) -> None:
        out = line.sent.get("")
        if out is None or out[0] < upgrade.operation:
            line.sent[""] = upgrade.operation, asyncio.get_running_loop().time()
            with suppress(Disconnected):
                await line.say(upgrade)

    async def _send_away(self, line: AgentConnection, reason: str) -> None:
        with suppress(Disconnected):
            if reason:
                await line.say(Goodbye(reason, final=True))
        await line.hang_up(reason or DIAL_AGAIN)

    # --- what is missing ---------------------------------------------------------------------------------------------

    def _miss(self, key: Key, names: Iterable[str]) -> None:
        """Remember what is missing on a cloudlet, and see to it."""
        found = set(names)
        if found:
            self._missing.setdefault(key, set()).update(found)
            self._later(self._recreate(key))

    async def _recreate(self, key: Key) -> None:
        """Create what is missing anew, where the cloudlet's policy says so; clusters before what is in them."""
        cloudlet = await self.engine.store.reader.object(key)
        wanted = cloudlet is not None and read_spec(cloudlet, CloudletSpec).missing == "recreate"
        for name in sorted(self._missing.pop(key, ())) if wanted else ():
            found = await self.engine.store.reader.object(Key(key.ns, f"{key.id}:{name}"))
            if found is None or found.removed:
                continue
            try:
                how = {"actor": CONTROLLER, "facts": {MISSING}, "also_locks": related_ids(found)}
                await self.engine.act(found.ns, found.id, "re-create", **how)
            except Denied as denied:
                if denied.retry or "not_ready" in denied.code:
                    self._missing.setdefault(key, set()).add(name)  # what it needs comes first: try again later

    # --- time --------------------------------------------------------------------------------------------------------

    async def keep_watch(self) -> None:
        """Give up the silent, send again what has no answer, and try again what could not be created anew.

        Each cloudlet is looked after by itself: an agent that does not read holds up its own orders only.
        """
        while True:
            await asyncio.sleep(min(self.beat, self.retry) / 2)
            now = asyncio.get_running_loop().time()
            for line in self._all_lines():
                if now - line.heard_at > MISSED * self.beat:
                    self._later(self._send_away(line, ""))
            if self._unnoted:
                unnoted, self._unnoted = self._unnoted, set()
                await self.part(unnoted)
            await self._ask_again(now)
            for key in list(self._missing):
                self._later(self._recreate(key))

    async def _ask_again(self, now: float) -> None:
        """Send what is due and was not sent, or has had no answer for long: the agent does it once all the same."""
        for ns in {key.ns for key in self.lines}:
            for kind in INSTANCE_LIFECYCLES:
                waiting = Selector(ns, kind, states=UNANSWERED)
                for found in await self.engine.store.reader.list_objects(waiting, Page(limit=MOST)):
                    if self._is_late(found, now):
                        self._later(self.tend(found.key, self.retry))

    def _is_late(self, found: Object, now: float) -> bool:
        name = local_name(found.id)
        lines = [one for one in self.lines.get(Key(found.ns, cloudlet_of(found.id)), ()) if one.settled]
        return any(name not in one.sent or now - one.sent[name][1] > self.retry for one in lines)

    def _all_lines(self) -> list[AgentConnection]:
        return [line for lines in self.lines.values() for line in lines]

    def _later(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StoreError | Disconnected):
            log.warning("left for later: %s", error)
        elif error is not None:
            log.error("has failed and is left for later", exc_info=error)

    async def close(self) -> None:
        """Let all agents go; they dial again, here or elsewhere."""
        for line in self._all_lines():
            await self._send_away(line, "")
        await cancel_tasks(self._tasks)
        await self.intake.drain()


def _is_records_only(line: JournalLine) -> bool:
    """Tell whether an instance came to rest without its agent, because an administrator wanted it so."""
    return line.actor == CONTROLLER and line.event in ENDED.values()


def _asks(line: JournalLine) -> bool:
    """Tell whether an instance came into a state in which its agent may have to be told something."""
    return line.target in UNANSWERED
