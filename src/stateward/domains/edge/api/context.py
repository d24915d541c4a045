"""Shared parts of the routes: path parameters, the caller, and the target of a request."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from litestar import Request
from litestar.di import NamedDependency, Provide
from litestar.params import PathParameter, QueryParameter
from msgspec import Struct
from msgspec.structs import replace

from stateward.access import Right
from stateward.domains.edge.agents.cloudlet_hub import CloudletHub
from stateward.domains.edge.api.schemas import (
    OVERRIDES,
    EdgeAcceptedView,
    Ignore,
    View,
    accepted_view,
    capacity_view,
    view,
)
from stateward.domains.edge.lifecycle import APPINST, CLOUDLET, CLUSTERINST
from stateward.domains.edge.model import INSTANCE_LIFECYCLES, NAME, app_id, cluster_id
from stateward.domains.edge.policy.policy_controller import PolicyController
from stateward.domains.edge.service import Service
from stateward.plugin.request_params import IdempotencyKey, Ns
from stateward.plugin.route_options import actor_of, can_dry_run, grant_of, needs
from stateward.schemas.caller import Caller
from stateward.store.records import Object

NS_PATH = "/ns/{ns:str}"
READ, ACT = needs(Right.READ), needs(Right.ACT)

Call = Request[Any, Any, Any]
ServiceDependency = NamedDependency[Service]
HubDependency = NamedDependency[CloudletHub]
PolicyDependency = NamedDependency[PolicyController]

Cloudlet = Annotated[str, PathParameter(pattern=NAME, description="the cloudlet's name")]
Cluster = Annotated[str, PathParameter(pattern=NAME, description="the cluster's name")]
App = Annotated[str, PathParameter(pattern=NAME, description="the app's name")]
RecordName = Annotated[str, PathParameter(pattern=NAME, description="its name")]
OnCloudlet = Annotated[str | None, QueryParameter(pattern=NAME, description="only on this cloudlet")]
Ignores = Annotated[
    list[Ignore] | None,
    QueryParameter(name="ignore", description="what an administrator wants ignored: the agent, its errors, the state"),
]


class Target(Struct, frozen=True):
    """The object in the path of a request, and the caller."""

    service: Service
    kind: str
    ns: str
    id: str
    by: Caller

    async def get(self) -> View:
        """Return the object, with its load if that is known."""
        record = await self.service.get(self.ns, self.id, self.kind)
        return (await views(self.service, self.ns, [record]))[0]

    async def act(self, action: str, args: dict[str, Any] | None = None) -> EdgeAcceptedView:
        """Request an action on the object."""
        return accepted_view(await self.service.act(self.ns, self.id, self.kind, action, self.by, args))


async def views(service: Service, ns: str, records: Sequence[Object]) -> list[View]:
    """Return the views of objects, with the known loads of instances and the capacities of cloudlets."""
    instances = [record for record in records if record.kind in INSTANCE_LIFECYCLES]
    loads = await service.loads_of(ns, instances) if instances else {}
    cloudlets = [record for record in records if record.kind == CLOUDLET.kind]
    used = await service.used_capacities(ns, cloudlets) if cloudlets else {}
    plain = [view(record, loads.get(record.id)) for record in records]
    return [
        replace(shown, capacity=capacity_view(record, used[record.id])) if record.id in used else shown
        for record, shown in zip(records, plain, strict=True)
    ]


TargetDependency = NamedDependency[Target]
CallerDependency = NamedDependency[Caller]


def caller_of(request: Call, ignore: list[Ignore] | None = None, key: str | None = None) -> Caller:
    """Return the caller of a request, with its overrides and idempotency key."""
    facts = frozenset(OVERRIDES[name] for name in ignore or ())
    grant = grant_of(request)
    return Caller(actor_of(request), grant.name, facts, grant.own_key(key))


def _caller(request: Call) -> Caller:
    return caller_of(request)


def _caller_with_key(request: Call, key: IdempotencyKey = None) -> Caller:
    return caller_of(request, key=key)


def _caller_with_overrides(request: Call, ignore: Ignores = None, key: IdempotencyKey = None) -> Caller:
    return caller_of(request, ignore, key)


def _accepts(caller: Callable[..., Caller], **options: Any) -> dict[str, Any]:  # noqa: ANN401 - options of a route
    return {**ACCEPTED, **options, "dependencies": {"by": Provide(caller, sync_to_thread=False)}}


DONE_AT_ONCE: dict[str, Any] = {"opt": ACT, "status_code": 200}
ACCEPTED: dict[str, Any] = {"opt": ACT, "status_code": 202}
KEYED, OVERRIDABLE = _accepts(_caller_with_key), _accepts(_caller_with_overrides)
CREATES = _accepts(_caller_with_overrides, opt=ACT | can_dry_run())
"""Options of a route that acts. A keyed request takes an idempotency key, an overridable one also overrides."""


def target_dependencies(service: Callable[[], Service]) -> dict[str, Provide]:
    """Return the dependencies that read the target of a request from its path."""

    def cloudlet_target(ns: Ns, cloudlet: Cloudlet, by: CallerDependency) -> Target:
        return Target(service(), CLOUDLET.kind, ns, cloudlet, by)

    def cluster_target(ns: Ns, cloudlet: Cloudlet, cluster: Cluster, by: CallerDependency) -> Target:
        return Target(service(), CLUSTERINST.kind, ns, cluster_id(cloudlet, cluster), by)

    def app_target(ns: Ns, cloudlet: Cloudlet, cluster: Cluster, app: App, by: CallerDependency) -> Target:
        return Target(service(), APPINST.kind, ns, app_id(cloudlet, cluster, app), by)

    providers: dict[str, Callable[..., Any]] = {
        "by": _caller, "on_cloudlet": cloudlet_target, "on_cluster": cluster_target, "on_app": app_target
    }  # fmt: skip
    return {name: Provide(provider, sync_to_thread=False) for name, provider in providers.items()}
