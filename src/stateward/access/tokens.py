"""API tokens: shown once, hashed at rest, expiring, revocable.

A token reads `sw_<id>_<secret>`, in 48 characters: with a user name of seven letters it fits into one line of base64.
Some clients encode HTTP Basic by the program `base64`, which breaks longer lines. The id finds the record; of the
secret only a hash is kept. Tokens are objects of the engine in a namespace that only administrators see, so that every
issue, revocation and expiry stands in the journal.
"""

import hmac
import secrets
from contextlib import suppress
from hashlib import sha256
from math import inf

import msgspec
from msgspec import Struct

from stateward.access.lifecycle import TOKEN, TokenState
from stateward.access.roles import Role
from stateward.engine import Denied, Engine, Kind, Request
from stateward.engine.accept.idempotency import scope_key
from stateward.engine.queries import list_all
from stateward.engine.unit_of_work import UnitOfWork
from stateward.errors import BadInput
from stateward.lifecycle import CLOCK, CONTROLLER
from stateward.naming import check_text
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object, Timer

SYSTEM = "(system)"
"""The namespace of the deployment's own objects."""

ANY = "*"
"""Stands for all namespaces in a token."""

PREFIX = "sw"
SECRET_BYTES = 24

AGENT_NAMES = "NAMESPACE:CLOUDLET, the cloudlet that the agent speaks for, or NAMESPACE:* for all of a namespace"
"""The form of the namespaces in an agent's token, for messages."""


class TokenSpec(Struct, frozen=True):
    """The stored record of a token."""

    name: str
    role: Role
    namespaces: list[str]
    digest: str
    expires: float | None


class TokenInfo(Struct, frozen=True):
    """A token without its digest, as it may be shown."""

    id: str
    name: str
    role: Role
    namespaces: list[str]
    state: str
    created: float
    expires: float | None


class Grant(Struct, frozen=True):
    """The rights of a valid token, and the session that its holder has opened, if the request comes from one."""

    token: str
    name: str
    role: Role
    namespaces: frozenset[str]
    session: str | None = None
    expires: float | None = None

    @property
    def namespace_filter(self) -> frozenset[str] | None:
        """The namespaces to which lists for this token are limited; None for all."""
        return None if ANY in self.namespaces else self.namespaces

    @property
    def governs_all(self) -> bool:
        """Whether the token administers all namespaces."""
        return self.role is Role.ADMIN and ANY in self.namespaces

    @property
    def records(self) -> tuple[str, ...]:
        """The ids of the objects without which the grant is over: its token, and its session if it has one."""
        token = _object(self.token)
        return (token,) if self.session is None else (token, f"session-{self.session}")

    def own_key(self, key: str | None) -> str | None:
        """Return the idempotency key of a request, scoped to this token."""
        return scope_key(self.token, key)

    def names_site(self, ns: str, name: str) -> bool:
        """Return whether an agent's token names a cloudlet or a node."""
        return f"{ns}:{name}" in self.namespaces

    def speaks_for(self, ns: str, cloudlet: str) -> bool:
        """Return whether an agent's token is for a cloudlet, or for all cloudlets of its namespace."""
        return self.names_site(ns, cloudlet) or f"{ns}:{ANY}" in self.namespaces

    def opens(self, ns: str) -> bool:
        """Return whether the token is for a namespace; the deployment's own is for administrators of everything."""
        if ns == SYSTEM:
            return self.governs_all
        return ANY in self.namespaces or ns in self.namespaces


class LastAdministrator(Denied, code="last_administrator"):
    """Without this token, nobody could administer the deployment."""

    token: str
    text = (
        "token {token} is the last one that administers all namespaces and lasts so long; make another one first: "
        f"`stateward token create NAME --role {Role.ADMIN} --ns '{ANY}'`"
    )


def token_kind() -> Kind:
    """Return the kind of tokens, for an engine to know."""
    return Kind(TOKEN, guard=_guard_token, general=False)


async def _guard_token(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Set the timer of a token's expiry with the token, and remove it with the token's end."""
    await guard_last_administrator(uow, request, record)
    if request.action == "issue":
        expires = msgspec.json.decode(request.spec or "{}", type=TokenSpec).expires
        if expires is not None:
            uow.changes.timers.append(expiry_timer(record, expires))
    elif request.action == "revoke":
        uow.changes.timers_gone.append(expiry_timer(record, 0.0).key)


def expiry_timer(record: Object, at: float) -> Timer:
    """Return the timer that ends a token or a session."""
    return Timer(record.ns, f"expiry of {record.id.removeprefix('token-')}", at, 0, record.id, "expire", "[]", "{}")


async def guard_last_administrator(uow: UnitOfWork, request: Request, record: Object) -> None:
    """Raise if the last administrator's token is revoked: another one must be valid for at least as long.

    The rows of all active tokens are locked, so of two concurrent revocations of the last two tokens one is refused.
    """
    lasts_until = _governs_until(record, uow.now) if request.action == "revoke" else None
    if lasts_until is None:
        return
    active = await uow.tx.select(Selector(SYSTEM, TOKEN.kind, states=(TokenState.ACTIVE.word,)))
    others = (_governs_until(uow.objects.get(other.key, other), uow.now) for other in active if other.key != record.key)
    if not any(until is not None and until >= lasts_until for until in others):
        raise LastAdministrator(record.id.removeprefix("token-"))


def _governs_until(record: Object, now: float) -> float | None:
    """Return until when a token administers all namespaces; None if it does not."""
    spec = msgspec.json.decode(record.spec, type=TokenSpec)
    until = inf if spec.expires is None else spec.expires
    governs = record.state == TokenState.ACTIVE and spec.role is Role.ADMIN and ANY in spec.namespaces
    return until if governs and until > now else None


class Tokens:
    """Issues, checks, lists and revokes tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def issue(
        self, name: str, role: Role, namespaces: list[str], expires: float | None = None, who: str = ""
    ) -> tuple[str, TokenInfo]:
        """Issue a token; its text is returned here and never again."""
        check_text("name", name, 1, 200)
        if not namespaces:
            raise BadInput("namespaces", namespaces, f"a list of namespaces, or [{ANY!r}] for all")
        for named in namespaces:
            ns, colon, cloudlet = named.rpartition(":")
            if role is Role.AGENT and not (ns and colon and cloudlet):
                raise BadInput("namespaces", named, AGENT_NAMES)
            if role is not Role.AGENT and named.endswith(f":{ANY}"):
                raise BadInput("namespaces", named, f"a namespace, or {ANY!r} for all")
        now = await self._engine.store.reader.time()
        if expires is not None and expires <= now:
            raise BadInput("expires", expires, "a time to come")
        id_, secret = secrets.token_hex(6), secrets.token_urlsafe(SECRET_BYTES)
        spec = TokenSpec(name, role, namespaces, digest_of(secret), expires)
        made = await self._engine.create(
            SYSTEM, _object(id_), TOKEN.kind, "issue", spec=msgspec.to_builtins(spec), actor=CONTROLLER, who=who
        )
        return f"{PREFIX}_{id_}_{secret}", _info(made.object)

    async def check(self, text: str) -> Grant | None:
        """Return the grant of a token; None if the token is not valid."""
        parts = text.split("_", 2)
        if len(parts) != 3 or parts[0] != PREFIX or not parts[1].isalnum():
            return None
        spec = await self._active(parts[1])
        return (
            None
            if spec is None or not hmac.compare_digest(spec.digest, digest_of(parts[2]))
            else _grant(parts[1], spec)
        )

    async def grant_of(self, id_: str) -> Grant | None:
        """Return the grant of a token whose holder is known by other means, such as a session; None if it is over."""
        spec = await self._active(id_)
        return None if spec is None else _grant(id_, spec)

    async def _active(self, id_: str) -> TokenSpec | None:
        record = await self._engine.store.reader.object(Key(SYSTEM, _object(id_)))
        if record is None or record.removed or record.state != TokenState.ACTIVE:
            return None
        spec = msgspec.json.decode(record.spec, type=TokenSpec)
        if spec.expires is not None and spec.expires <= await self._engine.store.reader.time():
            return None  # a late expiry timer must not keep the token valid
        return spec

    async def revoke(self, id_: str, who: str = "") -> TokenInfo:
        """Revoke a token."""
        done = await self._engine.act(SYSTEM, _object(id_), "revoke", actor=CONTROLLER, who=who)
        return _info(done.object)

    async def remove_ended(self, before: float) -> None:
        """Remove the tokens that were revoked or have expired before a time."""
        ended = Selector(SYSTEM, TOKEN.kind, states=(TokenState.REVOKED.word, TokenState.EXPIRED.word))
        async for record in list_all(self._engine.store.reader, ended):
            if record.since < before:
                with suppress(Denied):  # another process was faster
                    await self._engine.act(*record.key, "remove", actor=CLOCK, who="retention")

    async def list(self, after: str | None = None, limit: int = 1000) -> list[TokenInfo]:
        """Return all tokens, in every state."""
        chosen = Selector(SYSTEM, kind=TOKEN.kind)
        return [_info(record) for record in await self._engine.store.reader.list_objects(chosen, Page(after, limit))]


def _grant(id_: str, spec: TokenSpec) -> Grant:
    return Grant(id_, spec.name, spec.role, frozenset(spec.namespaces), expires=spec.expires)


def digest_of(secret: str) -> str:
    """Return the hash of a secret, which is stored instead of it."""
    return sha256(secret.encode()).hexdigest()  # the secret is 24 random bytes: there is nothing to guess or to stretch


def _object(id_: str) -> str:
    return f"token-{id_}"


def _info(record: Object) -> TokenInfo:
    spec = msgspec.json.decode(record.spec, type=TokenSpec)
    id_ = record.id.removeprefix("token-")
    return TokenInfo(id_, spec.name, spec.role, spec.namespaces, record.state, record.created, spec.expires)
