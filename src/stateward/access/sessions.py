"""Sessions of browsers: a principal that has signed in, until it signs out or the session expires.

A page that keeps a token can lose it to any script, and each tab needs it anew. A browser therefore gets a cookie that
stands for a session. A session names its principal, not the rights of the principal: these are looked up for each use,
so that a session ends with the token it was opened with. Sessions are objects of the engine, like tokens, so that all
servers of a deployment know them, and a restart does not end them. The cookie's text reads `ss_<id>_<secret>`; of the
secret only a hash is kept.
"""

import hmac
import secrets
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from stateward.access.tokens import SYSTEM, Grant, Tokens, digest_of, expiry_timer
from stateward.engine import Denied, Engine, Kind, Request, UnitOfWork
from stateward.lifecycle import CLOCK, CONTROLLER, GONE, NEW, STABLE, State, declare, step
from stateward.store.records import Key, Object

PREFIX = "ss"
SESSION_S = 12 * 3600.0
"""How long a session lasts at most; one of a token that expires sooner ends with it."""


class SessionState(State):
    """The states of a session."""

    OPEN = "open", STABLE, "its browser acts as its principal"


S = SessionState

ROWS = (
    #    from    event     by          to
    step(NEW,    "open",   CONTROLLER, S.OPEN),
    step(S.OPEN, "close",  CONTROLLER, GONE),
    step(S.OPEN, "expire", CLOCK,      GONE),
)  # fmt: skip

SESSION = declare("access.session", SessionState, ROWS, CONTROLLER | CLOCK, about="the session of a browser")


class Principal(Struct, frozen=True):
    """Who has signed in: `source` is where its rights are looked up, `id` its name there."""

    source: str
    id: str


class SessionSpec(Struct, frozen=True):
    """The stored record of a session."""

    principal: Principal
    digest: str
    expires: float


def session_kind() -> Kind:
    """Return the kind of sessions, for an engine to know."""
    return Kind(SESSION, guard=_guard_session, general=False)


async def _guard_session(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Set the timer of a session's expiry with the session, and remove it with the session's end."""
    if request.action == "open":
        until = msgspec.json.decode(request.spec or "{}", type=SessionSpec).expires
        uow.changes.timers.append(expiry_timer(record, until))
    elif request.action == "close":
        uow.changes.timers_gone.append(expiry_timer(record, 0.0).key)


class Sessions:
    """Opens, checks and closes sessions."""

    def __init__(self, engine: Engine, tokens: Tokens) -> None:
        self._engine = engine
        self._tokens = tokens

    async def open(self, grant: Grant) -> tuple[str, float]:
        """Open a session for the holder of a token; returns the text of its cookie, and when the session expires."""
        until = await self._engine.store.reader.time() + SESSION_S
        until = until if grant.expires is None else min(until, grant.expires)
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        spec = SessionSpec(Principal("token", grant.token), digest_of(secret), until)
        key = _key(id_)
        plain = msgspec.to_builtins(spec)
        await self._engine.create(*key, SESSION.kind, "open", spec=plain, actor=CONTROLLER, who=grant.name)
        return f"{PREFIX}_{id_}_{secret}", until

    async def check(self, text: str) -> Grant | None:
        """Return the grant of a session's principal; None if one of both is not valid."""
        parts = text.split("_", 2)
        if len(parts) != 3 or parts[0] != PREFIX or not parts[1].isalnum():
            return None
        record = await self._engine.store.reader.object(_key(parts[1]))
        if record is None or record.removed or record.state != SessionState.OPEN:
            return None
        spec = msgspec.json.decode(record.spec, type=SessionSpec)
        if not hmac.compare_digest(spec.digest, digest_of(parts[2])):
            return None
        if spec.expires <= await self._engine.store.reader.time():
            return None  # a late expiry timer must not keep the session open
        grant = await self._tokens.grant_of(spec.principal.id) if spec.principal.source == "token" else None
        return None if grant is None else replace(grant, session=parts[1])

    async def close(self, grant: Grant) -> None:
        """Close the session that a grant came from."""
        if grant.session is None:
            return
        key = _key(grant.session)
        with suppress(Denied):  # closed by another tab, or expired
            await self._engine.act(*key, "close", actor=CONTROLLER, who=grant.name)


def _key(id_: str) -> Key:
    return Key(SYSTEM, f"session-{id_}")
