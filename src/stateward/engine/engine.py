"""The engine: the public API for a library user or a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from random import Random
from typing import Any, NoReturn, Self, Unpack

import msgspec

from stateward.aio.struct_types import prepare_struct_types
from stateward.aio.supervise import close_each
from stateward.engine import errors, snapshots
from stateward.engine.accept import groups
from stateward.engine.accept.accept import Verdict, accept_function, plan
from stateward.engine.accept.idempotency import RefusedBefore, note_replay
from stateward.engine.accept.sequences import RequestSequence, accept_sequences
from stateward.engine.dry_run import end_dry_run, is_dry_run
from stateward.engine.external_reports import ExternalReport, Sighting, record_external_reports, record_sightings
from stateward.engine.finish import cancel
from stateward.engine.kinds import Admission, Kind, Kinds
from stateward.engine.maintenance.forget import forget
from stateward.engine.maintenance.state_migration import refuse_unknown_states
from stateward.engine.protection import set_namespace_flag, set_object_flag
from stateward.engine.queries import Recovered, recovered, state_at, watch
from stateward.engine.requests import STORED_FORMS, Accepted, CreateOptions, Creation, Request, RequestOptions
from stateward.engine.signals import SignalRequest, send_signal
from stateward.engine.transaction_batcher import TransactionBatcher, transaction_batcher
from stateward.engine.waiters import ENDED_STATUSES, OperationWaiters
from stateward.engine.worker.lease import LEASE_S
from stateward.engine.worker.prefetch import PREFETCH_WINDOW_S
from stateward.engine.worker.worker import Worker
from stateward.errors import BadInput, StatewardError
from stateward.lifecycle import CLOCK, TIMED_OUT, USER
from stateward.naming import check_new_object, new_id
from stateward.store.changes import Changes
from stateward.store.errors import StoreError
from stateward.store.filters import OPEN_STATUSES, JournalFilter, OperationCursor, OperationFilter, Selector
from stateward.store.port import Store, StuckWork
from stateward.store.records import JournalEntry, Key, Lane, LaneGroup, Object, Operation, Status, Timer, to_json

CANCEL_BATCH = 500
"""How many child operations are cancelled in one transaction."""


class Engine:
    """Accepts requests, runs a worker, and answers queries. Use it as an async context manager."""

    def __init__(
        self,
        store: Store,
        kinds: Iterable[Kind],
        *,
        works: bool = True,
        slots: int = 500,
        lease_s: float = LEASE_S,
        process: str | None = None,
        new_id: Callable[[], str] = new_id,
        chance: Random | None = None,
        admission: Admission | None = None,
        prefetch_window_s: float = PREFETCH_WINDOW_S,
    ) -> None:
        self.store = store
        self.kinds = Kinds(kinds, admission)
        self._new_id = new_id
        chance = chance or Random()  # noqa: S311 - for jitter, not for secrets
        self.worker: Worker | None = None
        if works:
            name = f"{process or new_id()}/1"
            self.worker = Worker(
                store,
                self.kinds,
                name,
                new_id,
                chance,
                slots=slots,
                lease_s=lease_s,
                prefetch_window_s=prefetch_window_s,
            )
        self._requests: TransactionBatcher[Request, Accepted] = TransactionBatcher(self._accept, chance)
        self._sequences: TransactionBatcher[RequestSequence, Accepted] = TransactionBatcher(
            lambda batch: accept_sequences(store, self.kinds, batch), chance
        )
        self._external_reports: TransactionBatcher[ExternalReport, bool] = transaction_batcher(
            store, chance, lambda tx, reports: record_external_reports(tx, self.kinds, reports)
        )
        self._waiters = OperationWaiters(store)
        self._is_entered = False

    async def __aenter__(self) -> Self:
        await self.open()
        try:
            await self.start_worker()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_each(self.stop_worker, self.close)

    async def open(self) -> None:
        """Open the store and accept requests; nothing is carried out here before `start_worker`."""
        missing = {kind.name: names for kind in self.kinds if (names := kind.missing_handlers())}
        if self.worker is not None and missing:
            raise errors.MissingHandlers(missing)
        prepare_struct_types()
        await self.store.open()
        self._is_entered = True
        try:
            await refuse_unknown_states(self.store.reader, self.kinds)
        except BaseException:  # a second attempt must not find this one's lock
            await self.close()
            raise
        self._waiters.start()

    async def close(self) -> None:
        """Finish the requests that are being accepted, and close the store."""
        await close_each(
            self._requests.drain,
            self._sequences.drain,
            self._external_reports.drain,
            self._waiters.stop,
            self.store.close,
        )
        self._is_entered = False

    async def start_worker(self) -> None:
        """Start the worker, if there is one: its handlers run from now on."""
        if self.worker is not None:
            await self.worker.start()

    async def stop_worker(self) -> None:
        """Stop the worker, if there is one: what it hasn't finished is requeued."""
        if self.worker is not None:
            await self.worker.stop()

    async def drain(self) -> None:
        """Prepare the exit: start no more operations, and let those that run here end within a grace time."""
        if self.worker is not None:
            await self.worker.drain()

    @property
    def _open_store(self) -> Store:
        """The store of an engine that was entered; raises if it was not."""
        self._require_entered()
        return self.store

    def _require_entered(self) -> None:
        if not self._is_entered:
            raise errors.EngineNotEntered

    # --- requests -----------------------------------------------------------------------------------------------------

    async def create(
        self,
        ns: str,
        object: str,  # noqa: A002 - the glossary's word
        kind: str | Kind,
        action: str | None = None,
        *,
        spec: Any = None,  # noqa: ANN401 - anything that is JSON
        labels: dict[str, str] | None = None,
        parent: str | None = None,
        queue: str | None = None,
        **how: Unpack[RequestOptions],
    ) -> Accepted:
        """Create an object, by the first action of its lifecycle: `create`, or the only one there is."""
        name = kind.name if isinstance(kind, Kind) else kind
        creates = Creation(name, parent, to_json(labels or {}), queue)
        action = action or self.kinds[name].lifecycle.creating_action()
        return await self.submit(self.request(ns, object, action, spec=spec, creates=creates, **how))

    async def act(
        self,
        ns: str,
        object: str,  # noqa: A002
        action: str,
        *,
        spec: Any = None,  # noqa: ANN401
        **how: Unpack[RequestOptions],
    ) -> Accepted:
        """Submit an action on an object."""
        return await self.submit(self.request(ns, object, action, spec=spec, **how))

    async def run(
        self,
        ns: str,
        object: str,  # noqa: A002
        action: str,
        *,
        kind: str | Kind | None = None,
        seconds: float | None = None,
        **how: Unpack[CreateOptions],
    ) -> snapshots.Completed:
        """Submit an action and wait for its end; with a `kind`, the action creates the object.

        Raises an `OperationFailed` unless the operation succeeds, and TimeoutError if that takes longer than `seconds`;
        the operation then goes on.
        """
        options: dict[str, Any] = {**how}
        if kind is None:
            accepted = await self.act(ns, object, action, **options)
        else:
            accepted = await self.create(ns, object, kind, action, **options)
        if accepted.operation is None:
            return snapshots.Completed(self._object_snapshot(accepted.object), None)
        ended = await self.wait(ns, accepted.operation.id, seconds, check=True)
        record = await self._open_store.reader.object(Key(ns, object))
        return snapshots.Completed(self._object_snapshot(record or accepted.object), ended)

    def request(
        self,
        ns: str,
        object: str,  # noqa: A002
        action: str,
        *,
        spec: Any = None,  # noqa: ANN401 - anything that is JSON
        creates: Creation | None = None,
        **options: Unpack[RequestOptions],
    ) -> Request:
        """Build a request; it gets its operation's id here, so that it can be submitted again without harm."""
        for field, name in (("id", object), ("ns", ns)):
            if "\0" in name:  # SQLite ends a text there, and PostgreSQL refuses it
                raise BadInput(field, name, "a name without NUL")
        if creates is not None:  # now, because no store can look some names up
            check_new_object(ns, object)
        given = {
            name: STORED_FORMS[name](value) if name in STORED_FORMS else value
            for name, value in {"actor": USER, "spec": spec, **options}.items()
            if value is not None
        }
        return Request(ns, object, action, self._new_id(), creates=creates, **given)

    async def submit(self, request: Request) -> Accepted:
        """Submit a request; raises a denial, which has changed nothing."""
        self._require_entered()
        if is_dry_run():
            await self._end_dry_run([request])
        key = request.key
        if key is None and request.action in self.kinds.steps:
            # No operation shows that a step was accepted, so a key must: the answer to a commit may be lost.
            request = msgspec.structs.replace(request, key=f"op:{request.op}")
        accepted = await self._requests.submit(request)
        note_replay(key, again=accepted.again)
        return accepted

    async def submit_sequence(self, requests: Sequence[Request]) -> Accepted:
        """Submit requests about one object, of which all or none are accepted; returns the verdict on the last one."""
        self._require_entered()
        if is_dry_run():
            await self._end_dry_run(requests)
        accepted = await self._sequences.submit(requests)
        note_replay(requests[-1].key, again=accepted.again)
        return accepted

    async def _end_dry_run(self, requests: Sequence[Request]) -> NoReturn:
        """Raise the plan of requests, or the denial of the first that is denied."""
        accepted = []
        for verdict in await self.plan(requests):
            if isinstance(verdict, StatewardError):
                raise verdict
            accepted.append(verdict)
        await end_dry_run(requests, accepted)

    async def plan(self, requests: Sequence[Request]) -> list[Verdict]:
        """Return what requests would lead to, or what is in the way, without writing anything."""
        return await self._open_store.transact(lambda tx: plan(tx, self.kinds, requests))

    async def group(
        self, whole: Request | None, members: Selector, each: Request, *, acts_alone: bool = False
    ) -> groups.GroupVerdict:
        """Submit an action on a whole and on all of its members, which it needs unless it `acts_alone`.

        One transaction accepts them.
        """
        verdict: groups.GroupVerdict | StatewardError
        try:
            verdict = await self._open_store.transact(
                lambda tx: groups.accept_group(
                    tx, self.kinds, whole, members, each, self._new_id, acts_alone=acts_alone
                )
            )
        except (StoreError, errors.KeyReused, RefusedBefore, errors.UnknownKind):
            raise
        except StatewardError as error:
            asked, refusal = groups.keyed_request(whole, members, each), error
            if asked.key is None:
                raise
            verdict = await self._open_store.transact(
                lambda tx: groups.store_group_refusal(tx, self.kinds, whole, asked, refusal)
            )
        if isinstance(verdict, StatewardError):
            raise verdict
        note_replay((whole or each).key, again=verdict.again)
        return verdict

    async def choose_once(
        self, members: Selector, each: Request, choice: groups.BulkChoice
    ) -> groups.BulkChoice | None:
        """Return the objects of a bulk action with a key: those that the first request chose (see `groups`)."""
        return await self._open_store.transact(lambda tx: groups.choose_once(tx, members, each, choice))

    async def explain_none_allowed(self, whole: Request, error: errors.NoneAllowed) -> StatewardError:
        """Return the error to report if no member of a group allows an action: the whole's own, if it refuses too."""
        return await self._open_store.transact(lambda tx: groups.explain_none_allowed(tx, self.kinds, whole, error))

    async def cancel(self, ns: str, op: str, who: str = "", *, actor: str | None = None) -> Operation:
        """Cancel an operation and its children, or have its kind do so.

        An `actor` that the table does not allow to request the operation is refused; without one, the program cancels.
        """
        asked = await self._open_store.reader.operation(Key(ns, op))
        is_open = asked is not None and asked.kind in self.kinds and asked.status not in ENDED_STATUSES
        if asked is not None and is_open and (action := self.kinds.of(asked).rules.cancel_action):
            self.kinds.require_interference(asked, actor)
            await self.act(ns, asked.object, action, actor=actor or USER, who=who)
            return asked
        operation = await self._open_store.transact(lambda tx: cancel.cancel(tx, self.kinds, Key(ns, op), who, actor))
        await self._cancel_below([operation.key], who)
        return operation

    async def cancel_group(self, ns: str, group: str, who: str = "", *, actor: str | None = None) -> None:
        """Cancel all operations of an action on many objects that have not ended, and their children.

        Operations that the table does not allow the `actor` to request are left alone.
        """
        first = await self._open_store.reader.operation(Key(ns, group))
        if first is not None:
            self.kinds.require_interference(first, actor)
        only, last = OperationFilter(ns, group=group, statuses=OPEN_STATUSES), None
        while operations := await self._open_store.reader.list_operations(only, last, CANCEL_BATCH):
            last = OperationCursor(operations[-1].created, operations[-1].id)
            await self._cancel_below(await self._cancel_batch(operations, who, actor), who)

    async def _cancel_below(self, parents: list[Key], who: str) -> None:
        while parents:
            below = await self._open_store.reader.children_of(parents.pop())
            left = [operation for operation in below if operation.status not in ENDED_STATUSES]
            for batch in (left[first : first + CANCEL_BATCH] for first in range(0, len(left), CANCEL_BATCH)):
                parents += await self._cancel_batch(batch, who)

    async def _cancel_batch(self, operations: Sequence[Operation], who: str, actor: str | None = None) -> list[Key]:
        return await self._open_store.transact(lambda tx: cancel.cancel_all(tx, self.kinds, operations, who, actor))

    async def signal(
        self,
        ns: str,
        op: str,
        name: str,
        payload: Any = None,  # noqa: ANN401 - anything that is JSON
        *,
        actor: str | None = None,
        who: str = "",
        key: str | None = None,
    ) -> bool:
        """Send a signal to an operation that has not ended, which takes it with `job.wait_for(name)`.

        An `actor` that the table does not allow to request the operation is refused; without one, the program sends it.
        Returns False if the same signal was sent with the same idempotency key before.
        """
        sent = SignalRequest(ns, op, name, to_json(payload), actor, who, key)
        is_new = await self._open_store.transact(lambda tx: send_signal(tx, self.kinds, sent))
        note_replay(key, again=not is_new)
        return is_new

    async def report(self, report: ExternalReport) -> bool:
        """Record the report of another party; returns whether it counted."""
        self._require_entered()
        return await self._external_reports.submit(report)

    async def observe(self, sightings: Sequence[Sighting]) -> list[bool]:
        """Record what a provider shows of objects at rest, in one transaction; returns for each whether it counted."""
        return (
            await self._open_store.transact(lambda tx: record_sightings(tx, self.kinds, sightings)) if sightings else []
        )

    async def wait(
        self, ns: str, op: str, seconds: float | None = None, *, check: bool = False
    ) -> snapshots.OperationSnapshot:
        """Wait until an operation has ended; raises TimeoutError if it takes longer.

        With `check`, an operation that did not succeed raises an `OperationFailed`.
        """
        ended = await self.wait_record(ns, op, seconds)
        if check and ended.status is not Status.SUCCEEDED:
            raise await self._failure_of(ended)
        return self._operation_snapshot(ended)

    async def _failure_of(self, ended: Operation) -> errors.OperationFailed:
        """Return the error of an operation that did not succeed; the journal tells a deadline from a failure."""
        reader = self._open_store.reader
        record = await reader.object(Key(ended.ns, ended.object))
        state = None if record is None or record.removed else record.state
        if ended.status is Status.CANCELLED:
            return errors.OperationCancelled(self._operation_snapshot(ended), state)
        entries = await reader.journal(0, 1000, JournalFilter(ended.ns, ended.object, op=ended.id, actor=CLOCK))
        is_timed_out = any(entry.event == TIMED_OUT for entry in entries)
        return (errors.OperationTimedOut if is_timed_out else errors.OperationFailed)(
            self._operation_snapshot(ended), state
        )

    async def wait_record(self, ns: str, op: str, seconds: float | None = None) -> Operation:
        """Wait until an operation has ended, and return its row of the store, as `wait` does without decoding it."""
        self._require_entered()
        try:
            async with asyncio.timeout(seconds) as patience:
                return await self._waiters.wait_for_end(Key(ns, op))
        except TimeoutError:
            if not patience.expired():
                raise
            raise TimeoutError(f"operation {op} has not ended after {seconds:g} s; it goes on") from None

    async def wait_record_or_none(self, ns: str, op: str, seconds: float | None = None) -> Operation | None:
        """Wait until an operation has ended; returns None if it takes longer, or if the engine stops meanwhile."""
        try:
            return await self.wait_record(ns, op, seconds)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return None  # the waiter was cancelled, not the caller

    async def forget(self, ns: str, object: str, kind: str, who: str = "") -> Object:  # noqa: A002
        """Remove the record of an object whose kind nobody knows any more; `kind` confirms which one that is."""
        return await forget(self._open_store, self.kinds, Key(ns, object), kind, who)

    async def protect(
        self,
        ns: str,
        object: str,  # noqa: A002
        reason: str | None = "",
        *,
        actor: str = USER,
        who: str = "",
    ) -> Object:
        """Protect an object, and what is below it, against removals that people ask for; None lifts that.

        Raises `Occupied` if an operation is removing the object already.
        """
        key = Key(ns, object)
        return await self._open_store.transact(lambda tx: set_object_flag(tx, self.kinds, key, reason, actor, who))

    async def protect_namespace(self, ns: str, reason: str | None = "", *, actor: str = USER, who: str = "") -> str:
        """Protect a namespace against removals that people ask for; None lifts that. Returns the stored reason."""
        return await self._open_store.transact(lambda tx: set_namespace_flag(tx, ns, reason, actor, who))

    # --- time and limits ---------------------------------------------------------------------------------------------

    async def set_timer(self, timer: Timer) -> None:
        """Set a timer, or replace the timer with the same id."""
        await self._change(Changes(timers=[timer]))

    async def unset_timer(self, ns: str, timer: str) -> None:
        """Remove a timer."""
        await self._change(Changes(timers_gone=[Key(ns, timer)]))

    async def set_limits(self, groups_: Sequence[LaneGroup] = (), lanes: Sequence[Lane] = ()) -> None:
        """Set how many lanes of a group, and how many operations of a lane, may be active at once."""
        await self._change(Changes(groups=list(groups_), lanes=list(lanes)))

    async def remove_limits(self, lanes: Sequence[str]) -> None:
        """Remove lanes that get no operations any more; one that has some keeps its limits."""
        await self._change(Changes(lanes_gone=list(lanes)))

    async def _change(self, changes: Changes) -> None:
        await self._open_store.transact(lambda tx: tx.apply(changes))

    # --- queries ------------------------------------------------------------------------------------------------------

    async def get(self, ns: str, object: str) -> snapshots.ObjectSnapshot:  # noqa: A002
        """Return an object, or raise `NotFound`."""
        return self._object_snapshot(await self.record(ns, object))

    async def record(self, ns: str, object: str) -> Object:  # noqa: A002
        """Return the row of an object in the store, as `get` does without decoding it."""
        record = await self._open_store.reader.object(Key(ns, object))
        if record is None or record.removed:
            raise errors.NotFound(ns, object)
        return record

    async def history(self, ns: str, object: str, limit: int = 1000) -> list[snapshots.HistoryEntry]:  # noqa: A002
        """Return the history of an object: what happened, by whom and why, rejected reports included."""
        entries = await self._open_store.reader.journal(0, limit, JournalFilter(ns=ns, object=object))
        return [snapshots.history_entry(entry, self.kinds.types(entry.kind)) for entry in entries]

    def _object_snapshot(self, record: Object) -> snapshots.ObjectSnapshot:
        return snapshots.object_snapshot(record, self.kinds.types(record.kind))

    def _operation_snapshot(self, operation: Operation) -> snapshots.OperationSnapshot:
        return snapshots.operation_snapshot(operation, self.kinds.types(operation.kind))

    async def state_at(self, ns: str, object: str, time: float) -> str | None:  # noqa: A002
        """Return the state of an object at a time, or None if it did not exist, or if that time was pruned."""
        return (await state_at(self._open_store.reader, Key(ns, object), time)).state

    async def stuck(self, limit: int = 1000, namespaces: Collection[str] | None = None) -> list[StuckWork]:
        """Return work that is past its deadline or whose worker is dead, and which recovery has not handled yet."""
        return await self._open_store.reader.stuck(limit, namespaces)

    async def recovered(
        self,
        since: float,
        ns: str | None = None,
        show: Callable[[JournalEntry], JournalEntry | None] = lambda entry: entry,
    ) -> list[Recovered]:
        """Return what was recovered since a time: requeued from dead workers, finished, or timed out.

        `show` returns a journal entry as the reader may see it, or None if the reader may not.
        """
        return await recovered(self._open_store.reader, since, ns, show)

    def watch(self, after: int, only: JournalFilter | None = None) -> AsyncIterator[JournalEntry]:
        """Yield the journal entries that follow a number, for ever."""
        return watch(self._open_store, after, only or JournalFilter())

    async def _accept(self, requests: Sequence[Request]) -> Sequence[Accepted | StatewardError]:
        if self.worker is not None:
            return await self.worker.accept(requests)
        return await self.store.transact(accept_function(self.kinds, requests))
