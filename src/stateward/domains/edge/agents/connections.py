"""Transactions for agent connections: connect (with a notify id that only grows) and disconnect."""

import logging
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from stateward.agents.connection import ConnectionId
from stateward.agents.messages import Goodbye, Hello, Welcome
from stateward.domains.edge.agents.record_writer import journal_rejection, tell_progress, write_slots
from stateward.domains.edge.lifecycle import CLOUDLET, MEASURES, CloudletState
from stateward.domains.edge.lookups import current_operation, loaded_object, save_status, unit_of_work
from stateward.domains.edge.model import (
    HELD_UPDATE_INTERVAL_S,
    MAX_LISTED_THINGS,
    CloudletSpec,
    HeldAgent,
    agent_slots,
    cloudlet_status,
    measures_key,
    read_spec,
    with_agent_slots,
)
from stateward.domains.edge.records.agent_upgrade import (
    AgentRejection,
    CloudletEvent,
    SlotsUpdate,
    is_held,
    on_connect,
    on_disconnect,
)
from stateward.engine import Accepted, Request
from stateward.engine.accept.accept import admit_all
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import change_state, journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.lifecycle import AGENT, CONTROLLER, Move, decide
from stateward.naming import new_id
from stateward.store.changes import Ended
from stateward.store.port import Tx
from stateward.store.records import Key, Object, Operation, to_json

log = logging.getLogger("stateward.edge")

NO_CLOUDLET = "there is no such cloudlet"
CONNECTION_GONE = "the agent's connection is gone"

MAX_HELD_AGENTS = 8
"""The number of held agents that a cloudlet's status keeps; while they dial, no other one is recorded."""


class ConnectRequest(Struct, frozen=True):
    """An agent that connects to a controller."""

    site: Key
    hello: Hello
    controller: str


async def connect_agents(tx: Tx, requests: Sequence[ConnectRequest], kinds: Kinds) -> list[Welcome | Goodbye]:
    """Connect agents in one transaction, which also acknowledges their start."""
    async with unit_of_work(tx, {request.site for request in requests}) as uow:
        return [await _connect_agent(uow, kinds, request) for request in requests]


async def _connect_agent(uow: UnitOfWork, kinds: Kinds, request: ConnectRequest) -> Welcome | Goodbye:
    hello, cloudlet = request.hello, loaded_object(uow, request.site, CLOUDLET.kind)
    is_final = hello.heir > 0
    if cloudlet is None:
        return Goodbye(NO_CLOUDLET, is_final)
    operation = await current_operation(uow, cloudlet)
    slots, status = agent_slots(cloudlet, operation), cloudlet_status(cloudlet)
    is_heir = bool(hello.heir) and slots.is_upgrading and hello.heir == slots.operation
    if is_held(status.installation, hello.installation, is_served=status.serving > 0, is_heir=is_heir):
        _hold_agent(uow, cloudlet, hello)
        return Goodbye(AgentRejection.HELD, is_final, held=True)
    backend = read_spec(cloudlet, CloudletSpec).backend
    if backend not in hello.backends:
        return Goodbye(_refuse_backend(uow, cloudlet, hello, backend), is_final)
    status = replace(status, refused="")
    update = on_connect(slots, hello.version, hello.heir)
    if isinstance(update, AgentRejection):
        journal_rejection(uow, cloudlet, AGENT, hello.version, "start", update)
        return Goodbye(update, is_final)
    status = replace(status, cores=hello.cores, memory=hello.memory)
    if update.role == "serving":
        owner = hello.installation or status.installation
        held = tuple(agent for agent in status.held if agent.installation != owner)
        status = replace(status, controller=request.controller, installation=owner, held=held)
    else:
        status = replace(status, heir_controller=request.controller)
    if update.event is not None and update.event.name == "start":
        start = Request(cloudlet.ns, cloudlet.id, "start", new_id(), AGENT, hello.version)
        seen = to_json(with_agent_slots(status, update.slots))
        await _start_cloudlet(uow, kinds, cloudlet, replace(start, seen=seen))
    else:
        write_slots(uow, cloudlet, operation, update, hello.version, status=status)
    who = "the agent" if update.role == "serving" else "the successor"
    text = f"{who}, version {hello.version}, has connected and gathers what it has"
    tell_progress(uow, cloudlet, operation, text, 2, 3)
    return Welcome(update.slots.issued, update.role, backend=backend)


def _refuse_backend(uow: UnitOfWork, cloudlet: Object, hello: Hello, backend: str) -> str:
    """Record that an agent cannot serve a cloudlet, and return why; journaled once, since it keeps reconnecting."""
    offered = ", ".join(hello.backends) or "none"
    why = f"the cloudlet needs the back end {backend}, and its agent offers {offered}: --backend {backend} offers it"
    status = cloudlet_status(cloudlet)
    if status.refused != why and not status.serving:
        journal_rejection(uow, cloudlet, AGENT, hello.version, "start", why)
        save_status(uow, cloudlet, replace(status, refused=why))
    return why


def _hold_agent(uow: UnitOfWork, cloudlet: Object, hello: Hello) -> None:
    """Record an agent of another installation; journaled once and written seldom, since it keeps reconnecting."""
    status = cloudlet_status(cloudlet)
    held = status.held_at(uow.now)
    former = next((agent for agent in held if agent.installation == hello.installation), None)
    others = tuple(agent for agent in held if agent is not former)
    things = hello.things[:MAX_LISTED_THINGS]
    now = HeldAgent(hello.installation, hello.version, uow.now, uow.now, things, len(hello.things))
    if former is None:
        if len(held) >= MAX_HELD_AGENTS:
            return
        owner = f"installation {status.installation}" if status.installation else "an agent without an identity"
        other = now.installation or "without identity"
        why = f"{AgentRejection.HELD}: it belongs to {owner}, and installation {other} dials"
        journal_rejection(uow, cloudlet, AGENT, hello.version, "start", why)
        log.info("agent of cloudlet %s/%s is held: %s", cloudlet.ns, cloudlet.id, why)
    else:
        now = replace(now, since=former.since)
        if replace(now, dialled=former.dialled) == former and now.dialled - former.dialled < HELD_UPDATE_INTERVAL_S:
            return
    save_status(uow, cloudlet, replace(status, held=(*others, now)))


async def _start_cloudlet(uow: UnitOfWork, kinds: Kinds, cloudlet: Object, request: Request) -> None:
    (verdict,) = await admit_all(uow, kinds, [request])
    if not isinstance(verdict, Accepted):
        raise verdict
    started = uow.objects[cloudlet.key]
    operation = await current_operation(uow, started)
    acknowledged = SlotsUpdate(agent_slots(started, None), CloudletEvent("acknowledge", CONTROLLER))
    if started.state == CloudletState.INIT:
        write_slots(uow, started, operation, acknowledged, request.who)


async def disconnect_agents(tx: Tx, lost: Sequence[ConnectionId]) -> list[bool]:
    """Record lost connections; returns for each whether its cloudlet went offline."""
    async with unit_of_work(tx, {connection.site for connection in lost}) as uow:
        return [await _disconnect_agent(uow, connection) for connection in lost]


async def _disconnect_agent(uow: UnitOfWork, lost: ConnectionId) -> bool:
    cloudlet = loaded_object(uow, lost.site, CLOUDLET.kind)
    if cloudlet is None:
        return False
    operation = await current_operation(uow, cloudlet)
    slots = agent_slots(cloudlet, operation)
    update = on_disconnect(slots, lost.notify)
    changed = write_slots(uow, cloudlet, operation, update, "", CONNECTION_GONE)
    if changed.state == cloudlet.state and update.slots.serving != slots.serving:  # for the controller of an older one
        journal(uow, changed, cloudlet.op, CONTROLLER, "", "disconnected", reason=CONNECTION_GONE)
    return changed.state != cloudlet.state


async def forget_measures(uow: UnitOfWork, cloudlet: Object) -> None:
    """Remove the measures of a cloudlet that is deleted."""
    key = measures_key(cloudlet.ns, cloudlet.id)
    await uow.load([key])
    row = loaded_object(uow, key, MEASURES.kind)
    if row is not None:
        move = decide(MEASURES, row.state, "forget", CONTROLLER)
        assert isinstance(move, Move), move
        change_state(uow, row, move, cloudlet.id, None, seen="{}")


async def on_cloudlet_end(uow: UnitOfWork, operation: Operation, ended: Ended) -> None:  # noqa: ARG001 - the signature of end hooks
    """Forget the measures of a deleted cloudlet; mark one as offline whose agent left during a delete that failed."""
    cloudlet = uow.objects[Key(operation.ns, operation.object)]
    if cloudlet.removed:
        await forget_measures(uow, cloudlet)
    slots = agent_slots(cloudlet, None)
    if operation.action in ("delete", "maintain") and cloudlet.state == CloudletState.READY and not slots.serving:
        gone = SlotsUpdate(slots, CloudletEvent("disconnected", CONTROLLER))
        write_slots(uow, cloudlet, None, gone, "", f"the agent left during the operation {operation.action}")
