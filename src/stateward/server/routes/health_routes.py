"""The routes `healthz` and `readyz`, for supervisors of processes."""

import asyncio

from litestar import get
from msgspec import Struct

from stateward.engine import Engine
from stateward.server.auth.guards import open_to_all
from stateward.server.errors import NotReady
from stateward.server.openapi.problem_responses import problem_response
from stateward.server.service import ApiRequest
from stateward.store.errors import DatabaseReplaced, StoreError

STORE_TIMEOUT_S = 2.0
"""How many seconds the store may take to answer before the process is not ready."""


class HealthStatus(Struct, frozen=True):
    """The process lives."""

    status: str = "ok"


class Readiness(Struct, frozen=True):
    """The process can do its work: the store answers, and so does the worker where there is one."""

    store: str = "ok"
    worker: str = "ok"


EVERYBODY = open_to_all("it tells nothing but whether the process is well")


@get("/healthz", guards=[EVERYBODY], tags=["health"], summary="Is the process alive?")
async def alive() -> HealthStatus:
    """Answer, as long as the process can."""
    return HealthStatus()


@get("/readyz", guards=[EVERYBODY], tags=["health"], summary="Can it work?", responses={503: problem_response(503)})
async def ready(request: ApiRequest) -> Readiness:
    """Look whether the store answers with a schema that fits, and whether the worker renews its lease."""
    engine = request.service.engine
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            return Readiness(worker=await _worker(engine))
    except DatabaseReplaced as error:
        raise NotReady(error.what) from error
    except (StoreError, TimeoutError) as error:
        raise NotReady("the store does not answer") from error


async def _worker(engine: Engine) -> str:
    reader = engine.store.reader
    await reader.last_journal_seq()
    if engine.worker is None:
        return "none here"
    if engine.worker.is_draining:
        raise NotReady("it is about to stop")
    now = await reader.time()
    mine = [one for one in await reader.workers() if one.id == engine.worker.name]
    if not any(one.is_alive(now) for one in mine):
        raise NotReady("the worker does not renew its lease")
    return "ok"


ROUTES = (alive, ready)
