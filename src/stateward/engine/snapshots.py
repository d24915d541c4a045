"""Snapshots: objects, operations and journal entries as a user of the library reads them, with decoded values.

A row of the store keeps specs, arguments and results as JSON text, which the engine and the server pass on unread. A
user wants their values. So each record has a twin here; `Engine.record` and `Engine.wait_record` return the rows.

A spec, or arguments, of a kind that declares their type are its struct. If they cannot be read as such, they are plain
JSON: the object can still be looked at, and deleted.
"""

from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from stateward.engine.job_steps import without_times
from stateward.engine.kind_types import KindTypes, UnreadableSpec
from stateward.engine.tracebacks import split_result
from stateward.errors import BadInput
from stateward.store.records import PROTECTED_LABEL, JournalEntry, Key, Object, Operation, Status, shown_labels

VALUES = frozenset({"spec", "seen", "args", "steps"})
"""The fields that may hold secrets, whatever the kind declares."""


class Snapshot(Struct, frozen=True):
    """A record whose `repr` shows no values that may be secret: it ends up in logs and in reports of errors."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, ... if name in VALUES else getattr(self, name)) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        shown = (f"{name}={'...' if value is ... else repr(value)}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({', '.join(shown)})"


class ObjectSnapshot(Snapshot, frozen=True):
    """An object as it was when it was read. `op` is the id of the operation that changed its state then, if any."""

    ns: str
    id: str
    kind: str
    state: str
    since: float
    version: int
    generation: int
    op: str | None
    parent: str | None
    spec: Any
    seen: Any  # the last observation of it, while `spec` is what is wanted
    labels: dict[str, str]
    error: str | None
    created: float
    removed: bool = False
    protected: str = ""  # the reason of its own deletion protection, `yes` without one

    @property
    def key(self) -> Key:
        """The key of the object."""
        return Key(self.ns, self.id)


class OperationSnapshot(Snapshot, frozen=True):
    """An operation as it was when it was read: the request, and once it has ended its result or its error."""

    ns: str
    id: str
    object: str
    kind: str
    action: str
    status: Status
    actor: str
    who: str
    facts: tuple[str, ...]
    args: Any
    origin: str
    desired: str
    parent: str | None
    attempts: int
    steps: dict[str, Any]
    result: Any
    error: str | None
    traceback: str | None  # of the handler, if an error that it did not expect ended the operation
    created: float
    started: float | None
    ended: float | None

    @property
    def key(self) -> Key:
        """The key of the operation."""
        return Key(self.ns, self.id)


class HistoryEntry(Snapshot, frozen=True):
    """An entry of an object's history: who, what, from, to, why, when; `spec` if the entry changed it."""

    seq: int
    ns: str
    object: str
    kind: str
    op: str | None
    at: float
    actor: str
    who: str
    event: str
    source: str | None
    target: str | None
    reason: str | None
    spec: Any


class Completed(Struct, frozen=True):
    """An action that was carried out: the object afterwards, and its operation, unless the state changed at once."""

    object: ObjectSnapshot
    operation: OperationSnapshot | None

    @property
    def result(self) -> Any:  # noqa: ANN401 - what the handler returned
        """What the handler returned; None if the state changed at once."""
        return None if self.operation is None else self.operation.result


def object_snapshot(record: Object, types: KindTypes | None) -> ObjectSnapshot:
    """Return an object with decoded values."""
    labels: dict[str, str] = msgspec.json.decode(record.labels)
    return ObjectSnapshot(
        ns=record.ns,
        id=record.id,
        kind=record.kind,
        state=record.state,
        since=record.since,
        version=record.version,
        generation=record.generation,
        op=record.op,
        parent=record.parent,
        spec=_read_spec(record.spec, types),
        seen=msgspec.json.decode(record.seen),
        labels=shown_labels(labels),
        error=record.error,
        created=record.created,
        removed=record.removed,
        protected=labels.get(PROTECTED_LABEL, ""),
    )


def operation_snapshot(operation: Operation, types: KindTypes | None) -> OperationSnapshot:
    """Return an operation with decoded values."""
    result, traceback = split_result(operation)
    return OperationSnapshot(
        ns=operation.ns,
        id=operation.id,
        object=operation.object,
        kind=operation.kind,
        action=operation.action,
        status=operation.status,
        actor=operation.actor,
        who=operation.who,
        facts=tuple(msgspec.json.decode(operation.facts)),
        args=_read_args(operation.action, operation.args, types),
        origin=operation.origin,
        desired=operation.desired,
        parent=operation.parent,
        attempts=operation.attempts,
        steps=without_times(msgspec.json.decode(operation.steps)),
        result=None if result is None else msgspec.json.decode(result),
        error=operation.error,
        traceback=traceback,
        created=operation.created,
        started=operation.started,
        ended=operation.ended,
    )


def history_entry(entry: JournalEntry, types: KindTypes | None) -> HistoryEntry:
    """Return a journal entry with decoded values."""
    spec = None if entry.spec is None else _read_spec(entry.spec, types)
    return HistoryEntry(**{**msgspec.structs.asdict(entry), "spec": spec})


def _read_spec(text: str, types: KindTypes | None) -> Any:  # noqa: ANN401 - the kind's struct, or any JSON
    if types is not None:
        with suppress(UnreadableSpec):
            return types.read_spec(text)
    return msgspec.json.decode(text)


def _read_args(action: str, text: str, types: KindTypes | None) -> Any:  # noqa: ANN401 - the action's struct, or any JSON
    if types is not None:
        with suppress(BadInput):
            return types.read_args(action, text)
    return msgspec.json.decode(text)
