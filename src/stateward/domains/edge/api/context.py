"""Shared parts of the routes: path parameters, dependencies, and the caller."""

from typing import Annotated, Any

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from stateward.access import Right
from stateward.domains.edge.agents.agent_hub import AgentHub
from stateward.domains.edge.api.schemas import OVERRIDES, Ignore
from stateward.domains.edge.model import NAME
from stateward.domains.edge.policy.policy_controller import PolicyController
from stateward.domains.edge.service import Service
from stateward.domains.plugin import actor_of, grant_of, needs
from stateward.schemas.caller import Caller

NS_PATH = "/ns/{ns:str}"
TAGS = ["edge"]
READ, ACT = needs(Right.READ), needs(Right.ACT)

Call = Request[Any, Any, Any]
ServiceDependency = NamedDependency[Service]
HubDependency = NamedDependency[AgentHub]
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


def caller_of(request: Call, ignore: list[Ignore] | None = None, key: str | None = None) -> Caller:
    """Return the caller of a request, with its overrides and idempotency key."""
    facts = frozenset(OVERRIDES[one] for one in ignore or ())
    grant = grant_of(request)
    return Caller(actor_of(request), grant.name, facts, grant.own_key(key))
