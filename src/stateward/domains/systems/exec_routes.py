"""The route that runs a command in an instance. It needs a right of its own, and every command is in the journal."""

import logging
from functools import partial
from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter
from msgspec import Meta, Struct
from msgspec.structs import replace

from stateward import naming
from stateward.access import Right
from stateward.domains.systems.backends.port import Backend, CommandOutcome, ServiceRef, SystemRef, choose_running
from stateward.domains.systems.context import SystemContext
from stateward.domains.systems.definition.model import WORD
from stateward.domains.systems.errors import BackendNotGranted, BackendUnavailable, InstanceNotReached
from stateward.domains.systems.instance_output import checked_server
from stateward.domains.systems.model import system_spec
from stateward.domains.systems.object_ids import NAME, PATH, checked_path, service_id
from stateward.domains.systems.service import SystemActions
from stateward.engine import Denied, NotFound, Temporary
from stateward.engine.transitions import journal
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import StatewardError
from stateward.locks.paths import ROOT
from stateward.plugin.request_forwarding import forward_request, while_connected
from stateward.plugin.request_params import Ns
from stateward.plugin.route_options import actor_of, engine_of, grant_of, needs
from stateward.store.port import Tx
from stateward.store.records import Object

audit = logging.getLogger("stateward.audit")

MAX_OUTPUT_BYTES = 1_000_000
"""How much output of a command is returned."""

ContextDependency = NamedDependency[SystemContext]
Call = Request[Any, Any, Any]


class NewInstanceCommand(Struct, frozen=True, forbid_unknown_fields=True):
    """A command to run in an instance of a service, and the seconds after which it is given up."""

    path: Annotated[str, Meta(pattern=PATH, description="the service, such as /store/api")]
    argv: Annotated[
        tuple[Annotated[str, Meta(max_length=10_000, pattern=WORD)], ...], Meta(min_length=1, max_length=1_000)
    ]
    instance: Annotated[str, Meta(pattern=naming.NAME, description="the instance; without it, a ready one")] | None = (
        None
    )
    timeout: Annotated[float, Meta(gt=0, le=600)] = 60.0


@post("/{ns:str}/{system:str}/exec", opt=needs(Right.EXECUTE), status_code=200, summary="Run a command")
async def run_in_instance(
    request: Call,
    context: ContextDependency,
    ns: Ns,
    system: Annotated[str, PathParameter(pattern=NAME, description="the system")],
    data: JSONBody[NewInstanceCommand],
) -> CommandOutcome:
    """Run a command where an instance of a service runs, and return its output and exit status."""
    grant = grant_of(request)
    record = await SystemActions(engine_of(request), ns, grant.name, actor_of(request)).system(system)
    backend = system_spec(record).backend
    if not context.settings.may_use(backend, ns):
        raise BackendNotGranted(ns, backend)
    top = checked_path(data.path)
    service = None if top == ROOT else await context.object(ns, service_id(system, top))
    if service is None:
        raise NotFound(ns, service_id(system, top))
    ref = ServiceRef(SystemRef(ns, system), str(top))
    try:
        return await _run(request, await context.backend(ref.system), ref, service, data)
    except (Denied, NotFound):
        raise
    except (StatewardError, Temporary) as error:
        raise BackendUnavailable(system, str(error)) from error


async def _run(
    request: Call, backend: Backend, ref: ServiceRef, service: Object, data: NewInstanceCommand
) -> CommandOutcome:
    """Run a command here, or through the server that reaches the instance, which records it; a caller may leave."""
    servers = await backend.servers(ref)
    if any(servers.values()):
        chosen = choose_running(str(ref), await backend.instances(ref), data.instance).name
        data = replace(data, instance=chosen)
        if url := servers.get(chosen):
            forwarded = forward_request(
                request,
                checked_server(request, chosen, url),
                CommandOutcome,
                partial(InstanceNotReached, chosen),
                body=msgspec.json.encode(data),
            )
            return await while_connected(request, forwarded)
    await _record_command(request, service, data)
    command = backend.run_command(ref, data.instance, data.argv, data.timeout, MAX_OUTPUT_BYTES)
    return await while_connected(request, command)


async def _record_command(request: Call, service: Object, data: NewInstanceCommand) -> None:
    """Journal who runs which program before it runs; its arguments may have secrets, and are not recorded."""
    grant, program = grant_of(request), data.argv[0]
    audit.info("command: %s token=%s service=%s/%s program=%s", grant.name, grant.token, *service.key, program)

    async def write(tx: Tx) -> None:
        uow = UnitOfWork(tx)
        journal(uow, service, None, actor_of(request), grant.name, "exec", reason=program)
        await uow.apply()

    await engine_of(request).store.transact(write)
