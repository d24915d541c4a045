"""Signals: durable messages to an operation that has not ended, which waits of its handler take one by one.

A signal has a row of its own, because the worker of the operation stores its steps at the same time. It is sent under
the lock of the operation's object. The worker looks for signals under the same lock before it lets the operation wait,
so that no signal is overlooked.
"""

from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.engine.accept.idempotency import bare_key
from stateward.engine.errors import AlreadyEnded, KeyReused, NoSuchOperation, TooManySignals
from stateward.engine.job_steps import awaited_signal
from stateward.engine.kinds import Kinds
from stateward.engine.transitions import journal
from stateward.engine.typed_values import check_depth
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import USER
from stateward.naming import check_text
from stateward.store.port import Tx
from stateward.store.records import IdempotencyRecord, Key, Signal

MAX_WAITING_SIGNALS, MAX_WAITING_CHARS = 1000, 1_000_000
"""How many signals that no wait has taken an operation can have, and how many characters of JSON in all of them."""

SIGNAL_EVENT = "signal: "
"""The prefix of the journal event of a signal; its name follows."""


class SignalRequest(Struct, frozen=True):
    """A signal that is to be sent: the payload is JSON, and `key` the idempotency key."""

    ns: str
    op: str
    name: str
    payload: str
    actor: str | None = None  # None: the program itself
    who: str = ""
    key: str | None = None

    def __post_init__(self) -> None:
        check_text("name", self.name, 1, 100, without="/")
        check_depth("payload", self.payload)
        if len(self.payload) > MAX_WAITING_CHARS:
            raise BadInput("payload", None, f"at most {MAX_WAITING_CHARS:,} characters of JSON")

    @property
    def fingerprint(self) -> str:
        """A digest that two requests share if they are the same signal."""
        parts = (self.ns, self.op, self.name, self.payload, self.who)
        return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


async def send_signal(tx: Tx, kinds: Kinds, sent: SignalRequest) -> bool:
    """Send a signal; returns False if the same one was sent with the same idempotency key before."""
    uow, key = UnitOfWork(tx), Key(sent.ns, sent.op)
    if await _was_sent_before(tx, sent):
        return False
    await uow.load_operations([key])
    if key not in uow.operations:
        raise NoSuchOperation(*key)
    kinds.require_interference(uow.operations[key], sent.actor)
    subject = Key(sent.ns, uow.operations[key].object)
    await uow.load([subject])
    operation, work = (await tx.operations([key]))[key], uow.work(key)  # its steps are read under the lock
    if work is None or work.fenced:
        raise AlreadyEnded(operation.id, operation.status)
    waiting, is_awaited = await tx.signals([key]), awaited_signal(operation.steps) == sent.name
    if not is_awaited or any(signal.name == sent.name for signal in waiting):  # others cannot keep an awaited one out
        chars = sum(len(signal.payload) for signal in waiting) + len(sent.payload)
        if len(waiting) >= MAX_WAITING_SIGNALS or chars > MAX_WAITING_CHARS:
            raise TooManySignals(sent.op, len(waiting), MAX_WAITING_SIGNALS, MAX_WAITING_CHARS)
    uow.changes.signals.append(Signal(sent.ns, sent.op, sent.name, sent.payload, sent.who, tx.now))
    journal(uow, uow.objects[subject], operation.id, sent.actor or USER, sent.who, f"{SIGNAL_EVENT}{sent.name}")
    if work.owner is None and work.not_before > tx.now and is_awaited:
        uow.update_work(replace(work, not_before=tx.now))
    if sent.key is not None:
        record = IdempotencyRecord(sent.ns, sent.key, sent.fingerprint, sent.op, operation.object, tx.now)
        uow.changes.idempotency_records.append(record)
    await uow.apply()
    return True


async def _was_sent_before(tx: Tx, sent: SignalRequest) -> bool:
    if sent.key is None:
        return False
    key = Key(sent.ns, sent.key)
    before = (await tx.idempotency_records([key])).get(key)
    if before is not None and before.fingerprint != sent.fingerprint:
        raise KeyReused(bare_key(sent.key))
    return before is not None
