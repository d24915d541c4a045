"""Verdicts under idempotency keys: the first one, accepted or refused, is the answer to its key.

A request that was refused and is repeated at once may find its object in another state, and be accepted. A caller who
sent it twice would then have two verdicts for one key. So a refusal is stored like an acceptance, in the same table:
its facts follow the fingerprint of the request. A process of an earlier version reads such a row as the answer to
another request, and refuses it.

A key belongs to its caller: the stored key begins with the caller's id and a space, which no key can contain. Rows of
earlier versions have the bare key. They count for the request that they were the answer to, and for no other.
"""

import msgspec
from msgspec import Struct

from stateward.engine.errors import Denied, Refused
from stateward.errors import BadInput, StatewardError
from stateward.store.filters import JournalFilter
from stateward.store.port import Reader
from stateward.store.records import IdempotencyRecord, Key, to_json

SEPARATOR = " "


class StoredRefusal(Struct, frozen=True, omit_defaults=True):
    """What is kept of a refusal: enough to say the same again."""

    error: str  # the class of the error, by which its status is found
    code: str
    text: str
    retry: bool = False
    field: str | None = None
    state: str | None = None
    allowed: tuple[str, ...] | None = None


class RefusedBefore(Denied):
    """The request was refused under this key before; a new try needs a new key."""

    def __init__(self, refusal: StoredRefusal) -> None:
        super().__init__(refusal)
        self.refusal, self.code = refusal, refusal.code

    def __str__(self) -> str:
        return self.refusal.text


def scope_key(caller: str, key: str | None) -> str | None:
    """Return the key under which a caller's request is stored; callers without an id share their keys."""
    return key if key is None or not caller else f"{caller}{SEPARATOR}{key}"


def bare_key(key: str) -> str:
    """Return a key as its caller gave it."""
    return key.rpartition(SEPARATOR)[2]


async def was_created_by(reader: Reader, key: Key, who: str) -> bool:
    """Tell whether an object was made by somebody: for names that follow from a key, as earlier versions had them."""
    made = await reader.journal(0, 1, JournalFilter(ns=key.ns, object=key.id))
    return bool(made) and made[0].who == who


def add_refusal(fingerprint: str, error: StatewardError) -> str:
    """Return a fingerprint with the refusal of its request, as it is stored."""
    return f"{fingerprint}{SEPARATOR}{to_json(_to_stored(error))}"


def read_refusal(answer: IdempotencyRecord) -> RefusedBefore | None:
    """Return the refusal that an answer is; None if the request was accepted."""
    _, separator, text = answer.fingerprint.partition(SEPARATOR)
    return RefusedBefore(msgspec.json.decode(text, type=StoredRefusal)) if separator else None


def fingerprint_of(answer: IdempotencyRecord) -> str:
    """Return the fingerprint of the request that an answer is for."""
    return answer.fingerprint.partition(SEPARATOR)[0]


def _to_stored(error: StatewardError) -> StoredRefusal:
    name, code = type(error).__name__, getattr(error, "code", "refused")
    if isinstance(error, BadInput):  # the value may be secret
        text = f"{error.field}: it is not {error.allowed}"
        return StoredRefusal("BadInput", "bad_input", text, field=error.field, state=error.state)
    if isinstance(error, Refused):
        refusal = error.refusal
        allowed = tuple(refusal.allowed_to(refusal.actor))
        return StoredRefusal(name, str(refusal.reason), str(error), error.retry, None, refusal.state.word, allowed)
    return StoredRefusal(name, code, str(error), error.retry, state=getattr(error, "state", None))
