"""The routes `queue` and `why`: the operation, queue, lane, locks, children and parents that an object waits for."""

from collections import Counter
from collections.abc import Mapping, Sequence

from litestar import get
from msgspec import Struct

from stateward.access import Right
from stateward.engine.alerts import alerts_of
from stateward.engine.job_steps import awaited_signal
from stateward.engine.kinds import describe_word, filter_words
from stateward.engine.privacy import Disclosure
from stateward.plugin.request_params import Ns
from stateward.schemas.operations import OperationView
from stateward.schemas.waiting import ParentView, QueuedView, QueueView, WaitReason, WhyView
from stateward.server.http.parameters import Id
from stateward.server.routes.declare import api_route
from stateward.server.routes.object_details import allowed_now
from stateward.server.routes.wait_reasons import (
    ExternalParty,
    LaneLoads,
    WaitContext,
    describe_dead_worker,
    wait_reason,
)
from stateward.server.service import ApiRequest, Service
from stateward.server.views import lane_view, lock_view, to_datetime_or_none
from stateward.store.filters import Page
from stateward.store.records import Key, Lock, Object, Operation, Status, WorkerRecord, WorkItem

TAG = "objects"
MAX_PARENTS = 20
MAX_CHILDREN = 100
MAX_STUCK = 1_000
MAX_UNHEALTHY_PARTS = 3
OPEN_STATUSES = (Status.WAITING, Status.RUNNING)


@api_route(get, "/ns/{ns:str}/objects/{id:str}/queue", Right.READ, TAG, "Look at an object's queue", 404)
async def get_queue(request: ApiRequest, ns: Ns, id: Id) -> QueueView:  # noqa: A002
    """Return the work items in the object's queue, each with the reason why it waits."""
    record = await request.service.engine.record(ns, id)
    return QueueView(record.queue, await (await _inspect_queue(request, record)).queued())


@api_route(get, "/ns/{ns:str}/objects/{id:str}/why", Right.READ, TAG, "What does an object wait for?", 404)
async def get_why(request: ApiRequest, ns: Ns, id: Id) -> WhyView:  # noqa: A002
    """Return what the object waits for: its operation, queue, lane, locks and children, and its parents' operations."""
    service = request.service
    record = await service.engine.record(ns, id)
    look, presenter = await _inspect_queue(request, record), request.presenter
    queued = await look.queued()
    work = next((work_item for work_item in look.shown if work_item.object == record.id and not work_item.fenced), None)
    mine = next((entry for entry in queued if work is not None and entry.op == work.op), None)
    operation = None if work is None else await service.reader.operation(work.key)
    lane = None if work is None or presenter.disclosure.hides_places(record.kind) else look.lanes.load(work)
    children = await _children(request, work)
    trouble = await _trouble(request, record, children) + await _lost_children(look, record.ns, children)
    error, allowed = await _error(request, record), await allowed_now(request, record)
    possible = [action.event for action in allowed.actions if action.allowed and action.event != "create"]
    return WhyView(
        id=record.id,
        kind=record.kind,
        state=record.state,
        state_class=service.state_classes.get((record.kind, record.state)),
        text=(_idle_text(look, record, error, possible) if mine is None else f"{mine.action}: {mine.text}{trouble}")
        + _alerts(look, record),
        reason=None if mine is None else mine.reason,
        operation=None if operation is None else presenter.operation(operation),
        queue=queued,
        lane=None if lane is None else lane_view(lane),
        locks=[lock_view(lock) for lock in await look.locks(operation)],
        children=children,
        parents=await _parents(request, record),
        error=error or None,
        allowed=possible,
    )


class QueueInspection(Struct, frozen=True):
    """An object's queue and everything that may delay it, read once, for one group of readers."""

    service: Service
    disclosure: Disclosure
    work_items: list[WorkItem]
    operations: dict[Key, Operation]
    now: float
    lanes: LaneLoads
    live_workers: list[WorkerRecord]
    dead_workers: Mapping[str, WorkerRecord]

    @property
    def shown(self) -> list[WorkItem]:
        """The work items in the queue whose operations are not hidden."""
        return [work_item for work_item in self.work_items if not self._hides(work_item)]

    def _hides(self, work: WorkItem) -> bool:
        operation = self.operations.get(work.key)
        return operation is not None and self.disclosure.hides(operation)

    def unknown(self, record: Object, operation: Operation | None = None) -> str:
        """Return what no live worker knows of an object, or of an operation on it; an empty text if one knows all."""
        words = filter_words(record, operation)
        if not self.live_workers or any(worker.knows(record.kind, words) for worker in self.live_workers):
            return ""
        knowing = next((worker for worker in self.live_workers if worker.knows(record.kind)), None)
        unknown = [word for word in words if knowing is not None and not knowing.knows(record.kind, [word])]
        return describe_word(unknown[0] if unknown else record.kind)

    async def queued(self) -> list[QueuedView]:
        """Return the views of the queue, at most one page."""
        shown = self.shown[: self.service.config.page_limit]
        return [await self._queued(number, work) for number, work in enumerate(shown)]

    async def _queued(self, number: int, work: WorkItem) -> QueuedView:
        operation = self.operations.get(work.key)
        record = await self.service.reader.object(Key(work.ns, work.object))
        locks, party = await self.locks(operation), await self._external_party(work, operation, record)
        is_begun = party is not None or work.owner is not None
        reports = await self.service.reader.progress_of(work.key, 0) if is_begun else []
        around = WaitContext(
            self.now,
            self.work_items,
            locks,
            self.lanes,
            len(self.live_workers),
            self.dead_workers,
            party,
            "" if operation is None or record is None else self.unknown(record, operation),
            None if operation is None else awaited_signal(operation.steps),
            _begin_time(work, operation, party),
            reports[-1] if reports else None,
        )
        reason, text = wait_reason(work, around)
        hidden = operation is not None and self.disclosure.hides_places(operation.kind)
        if hidden:
            text = text.replace(f"lane {work.lane}", "its lane")
        if reason is WaitReason.QUEUE and any(
            self._hides(work_item) for work_item in self.work_items if work_item.seq < work.seq
        ):
            text = "other work on its object has to end first"
        return QueuedView(
            position=number,
            op=work.op,
            object=work.object,
            action="" if operation is None else operation.action,
            who="" if operation is None else operation.who,
            lane="" if hidden else work.lane,
            grp=work.grp,
            priority=work.priority,
            attempts=work.attempts,
            owner=work.owner,
            not_before=to_datetime_or_none(work.not_before or None),
            deadline=to_datetime_or_none(work.deadline),
            reason=reason,
            text=text,
        )

    async def _external_party(
        self, work: WorkItem, operation: Operation | None, record: Object | None
    ) -> ExternalParty | None:
        """Return the external party that carries out an operation; None if a worker of ours does."""
        if operation is None or not (work.remote or work.is_parked):
            return None
        find_party = self.service.engine.kinds.why(operation.kind).party
        if find_party is None or record is None:
            return ExternalParty() if work.remote else None
        party = find_party(record)
        site = await self.service.reader.object(Key(work.ns, party.object))
        absent = site if site is not None and site.state in party.absent else None
        return ExternalParty(party.name, absent)

    async def locks(self, operation: Operation | None) -> list[Lock]:
        """Return the locks on the tree of an operation; none if it did not request any."""
        if operation is None or operation.tree is None:
            return []
        return await self.service.reader.locks_of(Key(operation.ns, operation.tree))


def _begin_time(work: WorkItem, operation: Operation | None, party: ExternalParty | None) -> float | None:
    """Return since when an operation is carried out; a worker's claim set its deadline."""
    if operation is None or party is not None or work.deadline is None:
        return None if operation is None else operation.created
    return operation.started or max(operation.created, work.deadline - operation.within)


async def _inspect_queue(request: ApiRequest, record: Object) -> QueueInspection:
    service, reader = request.service, request.service.reader
    work_items = await reader.queue_of(Key(record.ns, record.queue))
    operations = await reader.operations([work_item.key for work_item in work_items])
    now = await reader.time()
    groups, loads = await reader.lanes()
    lanes = LaneLoads({load.lane.lane: load for load in loads}, {group.grp: group.lanes for group in groups})
    workers = await reader.workers()
    lost = {worker.id: worker for worker in workers if not worker.is_alive(now)}
    alive = [worker for worker in workers if worker.id not in lost]
    return QueueInspection(service, request.presenter.disclosure, work_items, operations, now, lanes, alive, lost)


def _idle_text(look: QueueInspection, record: Object, error: str, possible: Sequence[str]) -> str:
    """Return why an object waits for nothing that its reader may see, and what can be done if something is wrong."""
    kinds = look.service.engine.kinds
    if record.kind in kinds or not look.work_items:
        made_by = kinds.of(record).made_by if record.kind in kinds else ""
        allowed = ", ".join(possible) or (f"nothing on itself, but {made_by}" if made_by else "nothing")
        return f"it waits for nothing; error: {error}; allowed now: {allowed}" if error else "it waits for nothing"
    unknown = look.unknown(record)
    nobody = f"no worker knows {unknown}" if unknown else f"this server does not know the kind {record.kind}"
    return f"{nobody}; only administrators see its operations"


async def _error(request: ApiRequest, record: Object) -> str:
    """Return what is wrong with an object: what its record says, and the parts that have made it unhealthy."""
    own, said = _own_error(request, record), list[str]()
    for selected in request.service.engine.kinds.why(record.kind).unhealthy_parts(record):
        for part in await request.service.reader.list_objects(selected, Page(None, MAX_UNHEALTHY_PARTS + 1)):
            why = _own_error(request, part)
            said.append(f"{part.id} is {part.state}: {why}" if why else f"{part.id} is {part.state}")
    more = ["and more"] if len(said) > MAX_UNHEALTHY_PARTS else []
    return "; ".join(filter(None, (own, *(text for text in said[:MAX_UNHEALTHY_PARTS] if text not in own), *more)))


def _own_error(request: ApiRequest, record: Object) -> str:
    """Return what the record of an object says is wrong with it, as far as its reader may see it."""
    shown = request.presenter.disclosure.object(record)
    return shown.error or request.service.engine.kinds.why(record.kind).fault(shown)


def _alerts(look: QueueInspection, record: Object) -> str:
    """Return the alerts of the object."""
    has_alerts = look.service.engine.kinds.why(record.kind).has_alerts
    return "".join(f"; alert: {alert.name}, {alert.reason}" for alert in (alerts_of(record) if has_alerts else ()))


async def _children(request: ApiRequest, work: WorkItem | None) -> list[OperationView]:
    """Return the children that have not ended."""
    if work is None or not work.children:
        return []
    children = await request.service.reader.children_of(work.key)
    return request.presenter.operations([child for child in children if child.status in OPEN_STATUSES][:MAX_CHILDREN])


async def _trouble(request: ApiRequest, record: Object, children: Sequence[OperationView]) -> str:
    """Return the last error of the object, or of one of the children that it waits for."""
    shown = request.presenter.disclosure.object
    if record.op is not None and (error := shown(record).error) is not None:
        return f"; it had trouble: {error}"
    below = (
        await request.service.reader.objects({Key(record.ns, child.object) for child in children}) if children else {}
    )
    for _, child_record in sorted(below.items()):
        if child_record.op is not None and (error := shown(child_record).error) is not None:
            return f"; {child_record.id} had trouble: {error}"
    return ""


async def _lost_children(look: QueueInspection, ns: str, children: Sequence[OperationView]) -> str:
    """Return the dead workers that own some of the children."""
    if not children or not look.dead_workers:
        return ""
    ids = {child.id for child in children}
    stuck = await look.service.reader.stuck(MAX_STUCK, [ns])
    held = Counter(work.owner or "" for work in stuck if work.orphaned and work.op in ids)
    lost = ((look.dead_workers[owner], number) for owner, number in held.items() if owner in look.dead_workers)
    return "".join(
        f"; worker {worker.id}, which holds {number} of them, {describe_dead_worker(worker)}" for worker, number in lost
    )


async def _parents(request: ApiRequest, record: Object) -> list[ParentView]:
    parents: list[ParentView] = []
    seen, above = {record.id}, await _above(request, record)
    while above is not None and above.id not in seen and len(parents) < MAX_PARENTS:
        seen.add(above.id)
        parents.append(await _parent(request, above))
        above = await _above(request, above)
    return parents


async def _above(request: ApiRequest, record: Object) -> Object | None:
    """Return the object that an object is part of, as its kind says, or else its parent."""
    part_of = request.service.engine.kinds.why(record.kind).part_of
    for name in (part_of and part_of(record), record.parent):
        above = await request.service.reader.object(Key(record.ns, name)) if name else None
        if above is not None and not above.removed:
            return above
    return None


async def _parent(request: ApiRequest, above: Object) -> ParentView:
    holder = None if above.op is None else await request.service.reader.operation(Key(above.ns, above.op))
    shown = None if holder is None else request.presenter.operation(holder)
    return ParentView(
        above.id, above.kind, above.state, request.service.state_classes.get((above.kind, above.state)), shown
    )


ROUTES = (get_queue, get_why)
