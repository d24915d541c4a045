"""Demand, as pure functions: the number of nodes for a load, and the cloudlets to deploy an app on."""

from collections.abc import Collection, Mapping
from math import ceil

from msgspec import Struct
from msgspec.structs import replace

from stateward.domains.edge.model import AppStatus, AutoprovSpec, AutoscaleSpec, CountedRequests, cloudlet_of

SCALE_UP_TOLERANCE = 1.1
"""The load relative to the target below which no node is added."""


class ClusterLoad(Struct, frozen=True):
    """The load of all nodes of a cluster together: cores, bytes of memory, connections; None is unknown."""

    cpu: float | None = 0.0
    mem: float | None = 0.0
    connections: float | None = 0.0


def desired_nodes(policy: AutoscaleSpec, nodes: int, load: ClusterLoad) -> int:
    """Return the number of nodes that a cluster's load needs, within the policy's limits.

    While a load that has a target is unknown, no node is removed because of the others.
    """
    pairs = ((load.cpu, policy.cpu), (load.mem, policy.mem), (load.connections, policy.connections))
    counted = [(carried, each) for carried, each in pairs if each > 0]
    wanted = [carried / each for carried, each in counted if carried is not None]
    if not wanted:
        return nodes
    raw = max(wanted)
    if nodes <= raw < SCALE_UP_TOLERANCE * nodes and policy.min <= nodes <= policy.max:
        return nodes
    needed = max(ceil(min(raw, policy.max)), policy.min)  # the quotient of two finite numbers may be infinite
    return needed if len(wanted) == len(counted) else max(needed, min(nodes, policy.max))


class DeploymentPlan(Struct, frozen=True):
    """The cloudlets to deploy an app on, and the instances to remove."""

    deploy: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def record_interval(policy: AutoprovSpec, status: AppStatus, requests: Mapping[str, int]) -> AppStatus:
    """Count consecutive intervals with enough or too few requests, by cloudlet; failed cloudlets are allowed again.

    A cloudlet that is not among the requests has had none. If they are measured, nothing is known of it, and its counts
    stay as they are.
    """
    enough = {name: requests.get(name, 0) >= policy.requests for name in policy.cloudlets}
    unknown = {name for name in policy.cloudlets if policy.demand == "measured" and name not in requests}
    high = {name: count for name in unknown if (count := status.high.get(name, 0))}
    low = {name: count for name in unknown if (count := status.low.get(name, 0))}
    high |= {name: status.high.get(name, 0) + 1 for name, good in enough.items() if good and name not in unknown}
    low |= {name: status.low.get(name, 0) + 1 for name, good in enough.items() if not good and name not in unknown}
    return replace(status, high=high, low=low, avoided=())


def unmeasured_requests(policy: AutoprovSpec, status: AppStatus, requests: Mapping[str, int]) -> dict[str, int]:
    """Return the reported requests that count: where demand is measured, those at cloudlets without the app."""
    measured = {cloudlet_of(member) for member in status.members} if policy.demand == "measured" else set()
    return {name: number for name, number in requests.items() if name not in measured}


def measured_requests(counted: Mapping[str, CountedRequests], totals: Mapping[str, CountedRequests]) -> dict[str, int]:
    """Return the requests since the last interval, by cloudlet; over another connection, the count begins anew."""
    return {
        name: max(0, now.total - counted[name].total)
        for name, now in totals.items()
        if name in counted and counted[name].notify == now.notify
    }


def _is_full(policy: AutoprovSpec, status: AppStatus, serving: Collection[str]) -> bool:
    """Tell whether all instances of an app serve, and have had enough requests for long enough."""
    high = [status.high.get(cloudlet_of(member), 0) for member in serving]
    return bool(high) and len(high) == len(status.members) and min(high) >= policy.deploy_after


def plan_deployment(
    policy: AutoprovSpec, status: AppStatus, online: Collection[str], missing: Collection[str] = frozenset()
) -> DeploymentPlan:
    """Return the plan for an app; the transaction that carries it out checks the limits again.

    An instance serves if its cloudlet is online and it is not `missing` there. Above the policy's `max`, instances that
    do not serve are removed first, then those with the least demand. Of idle instances, those go first that have been
    idle longest. Where demand is measured, an app whose instances all have enough of it gets one more.
    """
    staying = [member for member in status.members if member not in status.leaving]
    outside = [member for member in staying if cloudlet_of(member) not in policy.cloudlets]
    there = [member for member in staying if member not in outside]
    serving = [member for member in there if cloudlet_of(member) in online and member not in missing]
    taken = {cloudlet_of(member) for member in status.members}
    free = [
        cloudlet
        for cloudlet in policy.cloudlets
        if cloudlet in online and cloudlet not in taken and cloudlet not in status.avoided
    ]
    wanted = [cloudlet for cloudlet in free if status.high.get(cloudlet, 0) >= policy.deploy_after]
    if not wanted and policy.demand == "measured" and _is_full(policy, status, serving):
        wanted = free[:1]
    lacking = max(0, policy.min - len(serving) - len(wanted))
    deploy = [*wanted, *[cloudlet for cloudlet in free if cloudlet not in wanted][:lacking]]
    room = max(0, policy.max - len(status.members))
    by_need = sorted(there, key=lambda member: (member in serving, -status.low.get(cloudlet_of(member), 0)))
    surplus = by_need[: max(0, len(there) - policy.max)]
    kept = [member for member in serving if member not in surplus]
    idle = [member for member in kept if status.low.get(cloudlet_of(member), 0) >= policy.undeploy_after]
    idle.sort(key=lambda member: -status.low[cloudlet_of(member)])
    spare = max(0, len(kept) - policy.min)
    return DeploymentPlan(tuple(deploy[:room]), (*outside, *surplus, *idle[:spare]))
