"""Routes for the logs of an app instance, and for commands where it runs.

They go over the agent's one connection. If that ends at another controller, the request is forwarded there, with the
caller's own credentials: the other controller decides about the rights itself.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Annotated, TypeVar

from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from stateward.access import Right
from stateward.agents.connection import AgentConnection
from stateward.agents.message_types import NAME_TEXT
from stateward.agents.messages import MAX_ANSWER_CHARS, LogPart
from stateward.domains.edge.agents.cloudlet_hub import CloudletHub
from stateward.domains.edge.api.context import READ, Call, HubDependency, Target, TargetDependency
from stateward.domains.edge.api.schemas import CommandView, NewCommand
from stateward.domains.edge.errors import AgentCannotAnswer, AgentNotHere
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET
from stateward.domains.edge.lookups import find_object, unit_of_work
from stateward.domains.edge.model import (
    CONTROLLER_NS,
    ControllerSpec,
    cloudlet_of,
    cloudlet_status,
    local_name,
    read_spec,
)
from stateward.engine import NotFound
from stateward.engine.transitions import journal
from stateward.plugin.request_forwarding import forward_request, is_forwarded, while_connected
from stateward.plugin.route_options import grant_of, needs
from stateward.store.port import Tx
from stateward.store.records import Key

T = TypeVar("T")
audit = logging.getLogger("stateward.audit")

Part = Annotated[
    str, QueryParameter(max_length=250, pattern=NAME_TEXT, description="only this part of the app; empty: all")
]
After = Annotated[
    str, QueryParameter(max_length=100, pattern=NAME_TEXT, description="the cursor `next` of an earlier answer")
]
Most = Annotated[int, QueryParameter(ge=1, le=MAX_ANSWER_CHARS // 4, description="bytes of each part, at most")]

ONE_APP = "/ns/{ns:str}/cloudlets/{cloudlet:str}/clusterinsts/{cluster:str}/appinsts/{app:str}"


@get(f"{ONE_APP}/logs", opt=READ, summary="Read the logs of an app instance")
async def read_appinst_logs(
    request: Call,
    hub: HubDependency,
    on_app: TargetDependency,
    part: Part = "",
    after: After = "",
    most: Most = 10_000,
) -> list[LogPart]:
    """Return the end of what an app instance has written, or what comes after a cursor."""

    async def read(connection: AgentConnection) -> list[LogPart]:
        answer = await hub.requests.read_log(connection, local_name(on_app.id), part, after, most)
        return list(answer.parts)

    return await _at_agent(request, hub, on_app, read, list[LogPart])


@post(f"{ONE_APP}/exec", opt=needs(Right.EXECUTE), status_code=200, summary="Run a command in an app instance")
async def run_in_appinst(
    request: Call, hub: HubDependency, on_app: TargetDependency, data: JSONBody[NewCommand]
) -> CommandView:
    """Run a command where an app instance runs, and return the end of its output. It ends when the caller leaves."""

    async def run(connection: AgentConnection) -> CommandView:
        await _record_command(request, on_app, data.argv[0])
        answer = await hub.requests.run_command(connection, local_name(on_app.id), data.argv, data.part, data.within)
        return CommandView(answer.status or 0, answer.written, answer.omitted)

    return await _at_agent(request, hub, on_app, run, CommandView)


async def _at_agent(
    request: Call,
    hub: CloudletHub,
    on_app: Target,
    ask: Callable[[AgentConnection], Coroutine[object, object, T]],
    form: type[T],
) -> T:
    """Ask the agent of an instance, here or through the controller that it is connected to."""
    await on_app.get()
    cloudlet = cloudlet_of(on_app.id)
    connection = hub.serving_connection(Key(on_app.ns, cloudlet))
    if connection is not None:
        return await while_connected(request, ask(connection))
    status = cloudlet_status(await on_app.service.get(on_app.ns, cloudlet, CLOUDLET.kind))
    if not status.serving or not status.controller or status.controller == hub.controller:
        raise AgentNotHere(cloudlet, "")
    other = await on_app.service.engine.store.reader.object(Key(CONTROLLER_NS, status.controller))
    url = "" if other is None else read_spec(other, ControllerSpec).url
    if not url or is_forwarded(request):
        raise AgentNotHere(cloudlet, status.controller)
    forwarded = forward_request(request, url, form, lambda why: AgentCannotAnswer(cloudlet, why))
    return await while_connected(request, forwarded)


async def _record_command(request: Call, on_app: Target, program: str) -> None:
    """Journal who runs which program; its arguments may have secrets, and are not recorded."""
    grant = grant_of(request)
    audit.info("command: %s token=%s appinst=%s/%s program=%s", grant.name, grant.token, on_app.ns, on_app.id, program)

    async def write(tx: Tx) -> None:
        async with unit_of_work(tx, [Key(on_app.ns, on_app.id)]) as uow:
            instance = await find_object(uow, on_app.ns, on_app.id, APPINST.kind)
            if instance is None:
                raise NotFound(on_app.ns, on_app.id)
            journal(uow, instance, None, on_app.by.actor, on_app.by.who, "exec", reason=program)

    await on_app.service.engine.store.transact(write)


OUTPUT_HANDLERS = (read_appinst_logs, run_in_appinst)
