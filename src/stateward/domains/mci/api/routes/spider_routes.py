"""Routes below `/spider`: Tumblebug's clients look there whether the drivers are ready before they begin."""

from litestar import get
from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.tumblebug_params import OPEN, READ
from stateward.plugin.readiness import check_readiness

BASE = "/spider"


class SpiderDriver(Struct, frozen=True, rename="pascal"):
    """A driver, in the words of CB-Spider."""

    driver_name: str
    provider_name: str
    driver_lib_file_name: str = ""


@get("/readyz", opt=OPEN)
async def spider_readyz(request: TumblebugRequest) -> dict[str, str]:
    """Tell whether the server is ready."""
    await check_readiness(request.service.engine)
    return {"message": "The server is ready"}


@get("/driver", opt=READ)
async def list_spider_drivers(request: TumblebugRequest) -> dict[str, list[SpiderDriver]]:
    """Return the drivers behind the visible connections."""
    drivers = {(connection.driver, connection.provider.upper()) for connection in await request.visible_connections()}
    return {"driver": [SpiderDriver(driver, provider) for driver, provider in sorted(drivers)]}


ROUTES = (spider_readyz, list_spider_drivers)
