"""The logs of instances, wherever they are reached: another server is asked for what this one does not reach."""

from functools import partial

from stateward.domains.systems.backends.port import Backend, LogExcerpt, ServiceRef
from stateward.domains.systems.errors import InstanceNotReached
from stateward.engine import Denied
from stateward.errors import UnknownName
from stateward.plugin.request_forwarding import Call, forward_request, is_forwarded


async def read_instance_logs(
    request: Call, backend: Backend, ref: ServiceRef, instance: str | None, after: int | None, most: int
) -> list[LogExcerpt]:
    """Return the logs of a service's instances; the server that reaches an instance is asked for its log."""
    servers = await backend.servers(ref)
    if not any(servers.values()):
        return list(await backend.logs(ref, instance, after, most))
    excerpts: list[LogExcerpt] = []
    for name in [server for server in servers if instance in (None, server)]:
        try:
            if url := servers[name]:
                excerpts += await _forwarded(request, url, name)
            else:
                excerpts += await backend.logs(ref, name, after, most)
        except Denied as error:
            if instance is not None:
                raise
            excerpts.append(LogExcerpt(name, "", after or 0, why=str(error)))
    return excerpts


async def require_instance(backend: Backend, ref: ServiceRef, instance: str | None) -> None:
    """Raise `UnknownName` if an instance is named that a service neither has nor has a log of."""
    if instance is None:
        return
    present, logged = await backend.instances(ref), await backend.logs(ref, None, None, 1)
    known = dict.fromkeys([*(seen.name for seen in present), *(excerpt.instance for excerpt in logged)])
    if instance not in known:
        raise UnknownName("instance", instance, known)


async def _forwarded(request: Call, url: str, instance: str) -> list[LogExcerpt]:
    query = {**{key: str(value) for key, value in request.query_params.items()}, "instance": instance}
    server, refusal = checked_server(request, instance, url), partial(InstanceNotReached, instance)
    return await forward_request(request, server, list[LogExcerpt], refusal, query=query)


def checked_server(request: Call, instance: str, url: str) -> str:
    """Return the server to which a request is forwarded; one that was forwarded already is refused."""
    if is_forwarded(request):
        raise InstanceNotReached(instance, "its node has just connected to another server")
    return url
