"""The routes of the deployment: lanes and their limits, workers, timers, locks."""

from litestar import get, put
from litestar.params import JSONBody

from stateward.access import Right
from stateward.plugin.request_params import Ns
from stateward.schemas.deployment import LaneGroupView, LanesView, LaneView, LockView, TimerView, WorkerView
from stateward.schemas.request_bodies import GroupLimit, LaneLimit
from stateward.server.auth.guards import requires_everywhere
from stateward.server.http.parameters import Grp, LanePath, Limit, Tree
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.server.views import lane_view, lanes_view, lock_view, timer_view, worker_view
from stateward.store.port import LaneLoad
from stateward.store.records import Key, Lane, LaneGroup

TAG = "deployment"


@api_route(get, "/lanes", requires_everywhere(Right.READ), TAG, "List the lanes")
async def list_lanes(request: ApiRequest) -> LanesView:
    """Return all lanes and groups with their limits and loads; internal lanes are for administrators."""
    groups, loads = await request.service.reader.lanes()
    public = request.presenter.disclosure.lane
    return lanes_view(groups, [load for load in loads if public(load.lane.lane) == load.lane.lane])


@api_route(put, "/lanes/{lane:path}", Right.GOVERN, TAG, "Limit a lane", 413)
async def set_lane(request: ApiRequest, lane: LanePath, data: JSONBody[LaneLimit]) -> LaneView:
    """Set how many operations may run in a lane at once, from now on; with 0, none starts."""
    name = lane.removeprefix("/")
    _, loads = await request.service.reader.lanes()
    former = next((load for load in loads if load.lane.lane == name), None)
    kept = (0.0, 0.0, 0) if former is None else (former.lane.back_off, former.lane.opened, former.lane.throttled)
    changed = Lane(name, data.grp, data.capacity, *kept)
    await request.service.engine.set_limits(lanes=[changed])
    running, waiting = (0, False) if former is None else (former.running, former.waiting)
    return lane_view(LaneLoad(changed, running, waiting))


@api_route(put, "/groups/{grp:str}", Right.GOVERN, TAG, "Limit a group", 413)
async def set_group(request: ApiRequest, grp: Grp, data: JSONBody[GroupLimit]) -> LaneGroupView:
    """Set how many lanes of a group may be active at once, from now on."""
    await request.service.engine.set_limits([LaneGroup(grp, data.lanes)])
    return LaneGroupView(grp, data.lanes)


@api_route(get, "/workers", Right.GOVERN, TAG, "List the workers")
async def list_workers(request: ApiRequest) -> list[WorkerView]:
    """Return the registered workers; a worker is alive until its lease expires."""
    now = await request.service.reader.time()
    return [worker_view(worker, now) for worker in await request.service.reader.workers()]


@api_route(get, "/ns/{ns:str}/timers", Right.READ, TAG, "List timers")
async def list_timers(request: ApiRequest, ns: Ns, limit: Limit = 100) -> list[TimerView]:
    """Return the pending timers of a namespace, in the order in which they fall due."""
    service, disclosure = request.service, request.presenter.disclosure
    timers = await service.reader.timers(ns, service.page_size(limit))
    objects = await service.reader.objects({Key(timer.ns, timer.object) for timer in timers})
    kinds = {key: record.kind for key, record in objects.items()}
    return [timer_view(disclosure.timer(timer, kinds.get(Key(timer.ns, timer.object)))) for timer in timers]


@api_route(get, "/ns/{ns:str}/locks/{tree:str}", Right.READ, TAG, "List locks")
async def list_locks(request: ApiRequest, ns: Ns, tree: Tree) -> list[LockView]:
    """Return the held and awaited locks of a tree, in the order of their requests."""
    return [lock_view(lock) for lock in await request.service.reader.locks_of(Key(ns, tree))]


ROUTES = (list_lanes, set_lane, set_group, list_workers, list_timers, list_locks)
