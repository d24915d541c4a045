"""Verdicts under idempotency keys: the first verdict of a key, accepted or refused, stays its verdict.

A refused request that is repeated may find its object in another state, and be accepted: the caller would have two
verdicts for one key. So a refusal is stored like an acceptance, in the same table: its facts follow the fingerprint of
the request. A process of an earlier version reads such a row as that of another request, and refuses the repetition.

A key belongs to its caller: the stored key begins with the caller's id and a space, which no key can contain. Rows of
earlier versions have the bare key, and count for the request with the same fingerprint only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from msgspec import Struct

from stateward.engine.errors import Denied, Refused
from stateward.engine.kind_types import UnfitValue
from stateward.errors import BadInput, StatewardError
from stateward.store.filters import JournalFilter
from stateward.store.port import Reader
from stateward.store.records import IdempotencyRecord, Key, to_json

SEPARATOR = " "


_REPLAYS: ContextVar[list[bool] | None] = ContextVar("replays", default=None)


@contextmanager
def noted_replays() -> Iterator[list[bool]]:
    """Note whether each request with a key that the block submits was accepted before."""
    replays: list[bool] = []
    before = _REPLAYS.set(replays)
    try:
        yield replays
    finally:
        _REPLAYS.reset(before)


def note_replay(key: str | None, *, again: bool) -> None:
    """Note that a request with a key was accepted: again, or for the first time."""
    if key is not None and (replays := _REPLAYS.get()) is not None:
        replays.append(again)


class StoredRefusal(Struct, frozen=True, omit_defaults=True):
    """The facts of a refusal, as they are stored."""

    error: str  # the class of the error, by which its HTTP status is found
    code: str
    text: str
    retry: bool = False
    field: str | None = None
    state: str | None = None
    allowed: tuple[str, ...] | None = None


class RefusedBefore(Denied):
    """The request was refused under this key before; another attempt needs another key."""

    def __init__(self, refusal: StoredRefusal) -> None:
        super().__init__(refusal)
        self.refusal, self.code = refusal, refusal.code

    def __str__(self) -> str:
        return self.refusal.text


def scope_key(caller: str, key: str | None) -> str | None:
    """Return the stored form of a caller's key; callers without an id share their keys."""
    return key if key is None or not caller else f"{caller}{SEPARATOR}{key}"


def bare_key(key: str) -> str:
    """Return a key as its caller gave it."""
    return key.rpartition(SEPARATOR)[2]


async def was_created_by(reader: Reader, key: Key, who: str) -> bool:
    """Return whether a caller created an object; earlier versions derived names from keys that callers shared."""
    made = await reader.journal(0, 1, JournalFilter(ns=key.ns, object=key.id))
    return bool(made) and made[0].who == who


def add_refusal(fingerprint: str, error: StatewardError) -> str:
    """Return a fingerprint with the facts of a refusal, as stored."""
    return f"{fingerprint}{SEPARATOR}{to_json(_to_stored(error))}"


def read_refusal(answer: IdempotencyRecord) -> RefusedBefore | None:
    """Return the refusal in an idempotency record; None if the request was accepted."""
    _, separator, text = answer.fingerprint.partition(SEPARATOR)
    return RefusedBefore(msgspec.json.decode(text, type=StoredRefusal)) if separator else None


def fingerprint_of(answer: IdempotencyRecord) -> str:
    """Return the fingerprint of a record's request."""
    return answer.fingerprint.partition(SEPARATOR)[0]


def _to_stored(error: StatewardError) -> StoredRefusal:
    name, code = type(error).__name__, getattr(error, "code", "refused")
    if isinstance(error, BadInput):  # the value may be secret
        text = f"{error.field}: must be {error.allowed}"
        base = UnfitValue if isinstance(error, UnfitValue) else BadInput
        return StoredRefusal(base.__name__, "bad_input", text, field=error.field, state=error.state)
    if isinstance(error, Refused):
        refusal = error.refusal
        allowed = tuple(refusal.allowed_to(refusal.actor))
        return StoredRefusal(name, str(refusal.reason), str(error), error.retry, None, refusal.state.word, allowed)
    return StoredRefusal(name, code, str(error), error.retry, state=getattr(error, "state", None))
