"""The routes `healthz` and `readyz`, for supervisors of processes."""

from litestar import get
from msgspec import Struct

from stateward.plugin.readiness import check_readiness
from stateward.server.auth.guards import open_to_all
from stateward.server.openapi.problem_responses import problem_response
from stateward.server.service import ApiRequest


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
    return Readiness(worker=await check_readiness(request.service.engine))


ROUTES = (alive, ready)
