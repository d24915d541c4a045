"""What `If-Match` asks for, as the one version that a request may depend on."""

from stateward.server.etags import wanted_versions
from stateward.server.service import Service
from stateward.store.records import Key


async def matched(service: Service, key: Key, if_match: str | None) -> int | None:
    """Return the version that an object must have when the request is accepted; None if any will do.

    Of several versions it is the one that the object has now; if it has none of them, it may as well be the first.
    """
    wanted = wanted_versions(if_match)
    if wanted is None:
        return None
    if len(wanted) == 1:
        return wanted[0]
    found = await service.engine.get(*key)
    return found.version if found.version in wanted else wanted[0]
