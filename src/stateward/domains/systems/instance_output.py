"""The logs of instances, wherever they are reached: another server is asked for what this one does not reach."""

from functools import partial

from stateward.domains.systems.backends.port import Backend, LogExcerpt, ServiceRef
from stateward.domains.systems.errors import InstanceNotReached
from stateward.plugin.request_forwarding import Call, forward_request, is_forwarded


async def read_instance_logs(
    request: Call, backend: Backend, ref: ServiceRef, instance: str | None, after: int | None, most: int
) -> list[LogExcerpt]:
    """Return the logs of a service's instances; the server that reaches an instance is asked for its log."""
    servers = await backend.servers(ref)
    if not any(servers.values()):
        return list(await backend.logs(ref, instance, after, most))
    found: list[LogExcerpt] = []
    for name in [one for one in servers if instance in (None, one)]:
        if url := servers[name]:
            query = {**{key: str(value) for key, value in request.query_params.items()}, "instance": name}
            found += await forward_request(
                request,
                checked_server(request, name, url),
                list[LogExcerpt],
                partial(InstanceNotReached, name),
                query=query,
            )
        else:
            found += await backend.logs(ref, name, after, most)
    return found


def checked_server(request: Call, instance: str, url: str) -> str:
    """Return the server to which a request is forwarded; one that was forwarded already is refused."""
    if is_forwarded(request):
        raise InstanceNotReached(instance, "its node has just connected to another server")
    return url
