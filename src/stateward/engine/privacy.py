"""Privacy of stored records: internal parts that only administrators see, and secrets that nobody sees.

A record leaves the server in many ways: lists, history, the stream, exports, reports. A filter for each way would miss
one of them. So a kind declares its internal and secret parts, and every way out asks a `Disclosure` for the record as
its reader may see it.

In every kind, a hidden operation that no user may request is internal, with its journal entries.

A process may hold records of a kind that it does not know, because the plug-in is not loaded. Nobody can say which
parts of them are secret, so all values are: administrators see the names of the fields, and others not even those.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.job_steps import hide_step_results, without_attempts
from stateward.engine.kind_types import KindTypes
from stateward.engine.tracebacks import split_result
from stateward.engine.typed_values import MASK
from stateward.lifecycle import PROVIDER, USER, Lifecycle
from stateward.lifecycle.rows import Meaning
from stateward.store.records import JournalEntry, Object, Operation, Timer, to_json


class Privacy(Struct, frozen=True):
    """The internal and secret parts of a kind's records.

    fields      internal fields of spec, seen, arguments, steps and results
    secrets     mappings whose values are secret, at any depth; their names are shown
    texts       errors and reasons are internal
    operations  all operations are internal, with their ids, and with journal entries that change no state
    places      the prefix of its lanes' names, if they are internal; so are the names of providers in the journal
    """

    fields: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    texts: bool = False
    operations: bool = False
    places: str = ""


PUBLIC = Privacy()
UNKNOWN = Privacy(texts=True, operations=True, places="?")
"""The privacy of a kind that this process does not know; all values of its records are secret as well."""


class Disclosure:
    """Stored records as one group of readers may see them: administrators, or all others."""

    def __init__(
        self,
        kinds: Collection[tuple[Lifecycle, Privacy]],
        types_of: Callable[[str], KindTypes | None],
        *,
        internal: bool,
    ) -> None:
        self._internal = internal
        self._types_of = types_of
        self._privacy = {lifecycle.kind: None if privacy == PUBLIC else privacy for lifecycle, privacy in kinds}
        self._actions = {lifecycle.kind: actions for lifecycle, _ in kinds if (actions := internal_actions(lifecycle))}

    def _types(self, kind: str) -> KindTypes | None:
        """Return the types of a kind whose records are not shown as they are stored."""
        types = self._types_of(kind)
        return types if types is not None and (types.has_secrets or types.version > 1) else None

    def object(self, record: Object) -> Object:
        """Return an object as its readers may see it; an error tells if its spec cannot be read."""
        if (types := self._types(record.kind)) is not None:
            spec, unreadable = types.show_spec(record.spec)
            error = "; ".join(filter(None, (record.error, unreadable))) or None
            record = replace(record, spec=spec, seen=types.show_seen(record.seen, record.spec), error=error)
        privacy = self._privacy.get(record.kind, UNKNOWN)
        if privacy is None:
            return record
        spec, seen = self._json(privacy, record.spec), self._json(privacy, record.seen)
        error = record.error if self._tells(privacy) else None
        return replace(record, spec=spec, seen=seen, error=error, op=self._op(privacy, record.op))

    def operation(self, operation: Operation) -> Operation | None:
        """Return an operation as its readers may see it; None if they may not."""
        if self.hides(operation):
            return None
        if not self._internal and split_result(operation)[1] is not None:
            operation = replace(operation, result=None)
        if (types := self._types(operation.kind)) is not None:
            steps = hide_step_results(operation.steps) if types.has_secrets else operation.steps
            result = operation.result and types.show_other(operation.result)
            operation = replace(
                operation, args=types.show_args(operation.action, operation.args), steps=steps, result=result
            )
        privacy = self._privacy.get(operation.kind, UNKNOWN)
        if privacy is None:
            return operation
        result = None if operation.result is None else self._json(privacy, operation.result)
        args, steps = self._json(privacy, operation.args), self._json(privacy, operation.steps)
        error = operation.error if self._tells(privacy) else None
        steps = steps if self._tells(privacy) else without_attempts(steps)
        return replace(operation, args=args, steps=steps, result=result, error=error)

    def timer(self, timer: Timer, kind: str | None = None) -> Timer:
        """Return a timer as its readers may see it; if nobody knows the kind of its object, it may be of any kind."""
        for name in self._privacy if kind is None else (kind,):
            if (types := self._types(name)) is not None:
                timer = replace(timer, args=types.show_args(timer.event, timer.args))
        privacy = self._privacy.get(kind, UNKNOWN) if kind is not None else None
        return timer if privacy is None else replace(timer, args=self._json(privacy, timer.args))

    def hides(self, operation: Operation) -> bool:
        """Return whether an operation is hidden from the readers."""
        return self.hides_action(operation.kind, operation.action)

    def hides_action(self, kind: str, action: str) -> bool:
        """Return whether operations of an action are hidden from the readers."""
        if self._internal:
            return False
        return action in self._actions.get(kind, ()) or self._of(kind).operations

    def hides_places(self, kind: str) -> bool:
        """Return whether the lanes of a kind are hidden from the readers."""
        return not self._internal and bool(self._of(kind).places)

    def lane(self, name: str) -> str:
        """Return the name of a lane as its readers may see it: all internal lanes of a kind have one name."""
        if self._internal:
            return name
        prefixes = (privacy.places for privacy in self._privacy.values() if privacy is not None and privacy.places)
        return next((f"{prefix}*" for prefix in prefixes if name.startswith(prefix)), name)

    def entry(self, entry: JournalEntry) -> JournalEntry | None:
        """Return a journal entry as its readers may see it; None if they may not.

        An entry that changed no state does not say whether its operation is hidden. In a kind with internal operations,
        such an entry is internal if it names any operation.
        """
        if entry.spec is not None and (types := self._types(entry.kind)) is not None:
            entry = replace(entry, spec=types.show_spec(entry.spec)[0])
        privacy = self._of(entry.kind)
        of_internal = privacy.operations or (entry.op is not None and entry.kind in self._actions)
        if of_internal and entry.target is None and not self._internal:
            return None
        if privacy == PUBLIC:
            return entry
        spec = None if entry.spec is None else self._json(privacy, entry.spec)
        who = "" if entry.actor == PROVIDER and self.hides_places(entry.kind) else entry.who
        reason = entry.reason if self._tells(privacy) else None
        return replace(entry, op=self._op(privacy, entry.op), spec=spec, who=who, reason=reason)

    def _of(self, kind: str) -> Privacy:
        return self._privacy.get(kind, UNKNOWN) or PUBLIC

    def _op(self, privacy: Privacy, op: str | None) -> str | None:
        """Return the id of an operation, unless its readers would not find the operation."""
        return None if privacy.operations and not self._internal else op

    def _tells(self, privacy: Privacy) -> bool:
        return self._internal or not privacy.texts

    def _json(self, privacy: Privacy, text: str) -> str:
        """Return JSON text without internal fields, and with secret values masked."""
        if privacy is UNKNOWN:
            value = msgspec.json.decode(text) if self._internal else {}
            return to_json(dict.fromkeys(value, MASK) if isinstance(value, dict) else MASK)
        names = privacy.secrets if self._internal else privacy.secrets | privacy.fields
        if not any(f'"{name}"' in text for name in names):
            return text
        value = msgspec.json.decode(text)
        if not self._internal and isinstance(value, dict):
            value = {name: part for name, part in value.items() if name not in privacy.fields}
        return to_json(_masked(value, privacy.secrets))


def internal_actions(lifecycle: Lifecycle) -> frozenset[str]:
    """Return the hidden actions of a lifecycle that no user may ask for."""
    hidden = [row for row in lifecycle.rows if row.meaning is Meaning.HIDDEN]
    return frozenset(row.event for row in hidden) - {row.event for row in hidden if USER in row.actors}


def _masked(value: Any, secrets: frozenset[str]) -> Any:  # noqa: ANN401 - plain JSON
    if isinstance(value, list):
        return [_masked(part, secrets) for part in value]
    if not isinstance(value, dict):
        return value
    return {name: _mask_values(part) if name in secrets else _masked(part, secrets) for name, part in value.items()}


def _mask_values(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    """Mask the texts of a mapping; a mapping of the same name that holds no texts is left as it is."""
    if not isinstance(value, dict):
        return value
    return {name: MASK if isinstance(part, str) else part for name, part in value.items()}
