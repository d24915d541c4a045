"""Idempotency keys on every route that changes something: the same call with the same key is served once.

The key is claimed before the call is served, and the answer is kept afterwards and repeated for every later call with
that key, so no route has to do anything for it. Only the general API serves its keys without this: each of its calls is
one request to the engine, which stores its verdict in the transaction that accepts the request.

A call that ended without an answer, because its server crashed or lost the database, leaves a claim without an answer.
PUT and DELETE are then served again, as HTTP allows. So are routes that find what the first call made: they pass the
key to the engine, or declare it (`RESUMES`). For all others nobody knows whether the call took effect, and the answer
says so: doing it twice would be worse.

An answer can hold a secret, such as a new token, and so can a body. The answer is encrypted, and the fingerprint of
the call keyed, with the token of the caller, which the database does not hold: nobody else can read or guess them.
"""

import asyncio
import hmac
import logging
import math
import re
from base64 import b64decode, b64encode
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.routes import BaseRoute, HTTPRoute
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Send
from msgspec import Struct

from stateward.access import Grant, Right
from stateward.access.tokens import SYSTEM
from stateward.engine import Engine
from stateward.engine.accept.idempotency import SEPARATOR, fingerprint_of
from stateward.engine.errors import KeyReused
from stateward.errors import BadInput
from stateward.naming import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY, NAME, new_id
from stateward.plugin.route_options import RESUMES, RIGHT
from stateward.server.auth.credentials import presented_token
from stateward.server.auth.session_cookie import SAFE_METHODS, session_text
from stateward.server.errors import KeyInUse, KeySpent
from stateward.server.http.fast_path import REPLAYED, read_body
from stateward.server.http.problem_details import respond_with_problem
from stateward.server.service import ApiRequest
from stateward.store.changes import Changes
from stateward.store.errors import StoreError
from stateward.store.port import Tx
from stateward.store.records import IdempotencyRecord, Key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from litestar._kwargs import KwargsModel

log = logging.getLogger(__name__)

MAX_KEPT = 256_000
"""The bytes of the largest answer that is kept."""

LONGEST_CALL_S = 900.0
"""A claim of another server without an answer counts as abandoned after so many seconds."""

NO_VERDICTS = frozenset({400, 413, 429})
"""The statuses of calls that were not served: the key stays free."""

REPEATABLE_METHODS = frozenset({"PUT", "DELETE"})
_FAR_FUTURE = 1e12
_OPTION = "arguments"
_HEADER = IDEMPOTENCY_HEADER.lower().encode()
_PURPOSE = b"stateward kept answer 1"


class KeptAnswer(Struct, frozen=True):
    """The answer to a call, as it was sent; without a body if that was too large to keep."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes | None


def bind_keys(routes: "Iterable[BaseRoute]") -> None:
    """Note the arguments of each route, which show whether it takes the idempotency key."""
    for route in routes:
        for handler, takes in route.route_handler_map.values() if isinstance(route, HTTPRoute) else ():
            handler.opt[_OPTION] = takes


def is_covered(handler: BaseRouteHandler, right: Right, method: str) -> bool:
    """Return whether the answers of a route are kept: it changes something, and is not served by the engine's keys."""
    if _OPTION not in handler.opt or right is Right.READ or (method in SAFE_METHODS and right is not Right.ACT):
        return False
    return RIGHT in handler.opt or not _takes_key(handler)


def _takes_key(handler: BaseRouteHandler) -> bool:
    """Return whether a route passes the key on to the engine."""
    takes: KwargsModel = handler.opt[_OPTION]
    return any(parameter.field_alias == IDEMPOTENCY_HEADER for parameter in takes.expected_header_params)


class KeyedCalls:
    """The calls with idempotency keys that this server serves."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._server = new_id()
        self._locks: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def serve(self, app: ASGIApp, right: Right, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """Serve a call by `app`, unless it has a key that was used before."""
        handler = scope["route_handler"]
        given = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), None)
        if given is None or not is_covered(handler, right, scope["method"]):
            await app(scope, receive, send)
            return
        if re.match(IDEMPOTENCY_KEY, given) is None:
            raise BadInput(IDEMPOTENCY_HEADER, given, "1 to 200 visible ASCII characters, without spaces")
        assert isinstance(handler, HTTPRouteHandler)
        body = await read_body(receive, 0, handler.resolve_request_max_body_size() or math.inf)
        call = _KeyedCall(self._engine, self._server, given, scope, body)
        lock = self._locks.setdefault(call.key, asyncio.Lock())
        async with lock:
            kept = await call.claim()
            if kept is not None:
                await _send(kept, send)
            else:
                await call.answer(app, receive, send)


class _KeyedCall:
    """One call with an idempotency key."""

    def __init__(self, engine: Engine, server: str, given: str, scope: HTTPScope, body: bytes) -> None:
        self._engine, self._store, self._server, self._given, self._scope = engine, engine.store, server, given, scope
        self._body = body
        grant: Grant = scope["auth"]
        ns = str(scope["path_params"].get("ns", ""))
        own = grant.own_key(given)  # the engine stores its verdict under that
        self.key = Key(ns if re.match(NAME, ns) else SYSTEM, f"{own}{SEPARATOR}call")
        self._answer_key = Key(self.key.ns, f"{own}{SEPARATOR}answer")
        secret = (presented_token(scope["headers"]) or session_text(scope) or "").encode()
        asked = [scope["method"], scope["path"], scope["query_string"].decode("latin-1")]
        self._fingerprint = hmac.new(secret, msgspec.json.encode(asked) + body, "sha256").hexdigest()
        self._cipher = AESSIV(HKDF(SHA512(), 64, None, _PURPOSE).derive(secret))
        self._bound_to = [self.key.ns.encode(), self.key.id.encode()]

    async def claim(self) -> KeptAnswer | None:
        """Claim the key; returns the answer that was given before, and raises if there can't be one."""
        claim, answer = await self._store.transact(self._claim)
        if claim is None:
            return None
        if fingerprint_of(claim) != self._fingerprint:
            raise KeyReused(self._given)
        if answer is not None:
            return self._read(answer)
        if not await self._is_abandoned(claim):
            raise KeyInUse(self._given)
        handler = self._scope["route_handler"]
        resumes = handler.opt.get(RESUMES, False) or _takes_key(handler)
        if self._scope["method"] not in REPEATABLE_METHODS and not resumes:
            raise KeySpent(
                self._given, "was interrupted: check whether it was done, and send it with another key if not"
            )
        return None

    async def _claim(self, tx: Tx) -> tuple[IdempotencyRecord | None, IdempotencyRecord | None]:
        records = await tx.idempotency_records([self.key, self._answer_key])
        claim = records.get(self.key)
        if claim is None:
            text = f"{self._fingerprint}{SEPARATOR}{self._server}"
            await tx.apply(Changes(idempotency_records=[self._record(self.key, text, tx)]))
        return claim, records.get(self._answer_key)

    def _record(self, key: Key, text: str, tx: Tx) -> IdempotencyRecord:
        return IdempotencyRecord(key.ns, key.id, text, None, self._scope["path"], tx.now)

    async def _is_abandoned(self, claim: IdempotencyRecord) -> bool:
        """Return whether nobody serves the call anymore; this server doesn't, because it holds the lock of the key."""
        if claim.fingerprint.endswith(f"{SEPARATOR}{self._server}") or await self._store.is_sole_user():
            return True
        return await self._store.reader.time() > claim.at + LONGEST_CALL_S

    async def answer(self, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Serve the call and keep its answer."""
        sent = _RecordedSend(send)
        try:
            bodies = [self._body]

            async def receive_again() -> Any:  # noqa: ANN401 - a message
                if bodies:
                    return {"type": "http.request", "body": bodies.pop(), "more_body": False}
                return await receive()

            await app(self._scope, receive_again, sent)
        except Exception as error:
            if sent.status:
                raise
            request = ApiRequest(self._scope, receive, send)
            response = respond_with_problem(request, error).to_asgi_response(None, request)
            await response(self._scope, receive, sent)
        try:
            if sent.status in NO_VERDICTS:
                await self._store.retention.drop_idempotency_records([self.key], _FAR_FUTURE)
            elif sent.status < 500 or sent.status == 501:
                await self._store.transact(partial(self._keep, sent.kept()))
        except StoreError:
            log.warning("the answer to a call with the idempotency key %s could not be kept", self._given)

    async def _keep(self, answer: KeptAnswer, tx: Tx) -> None:
        if self._answer_key not in await tx.idempotency_records([self._answer_key]):
            sealed = self._cipher.encrypt(msgspec.msgpack.encode(answer), self._bound_to)
            record = self._record(self._answer_key, b64encode(sealed).decode(), tx)
            await tx.apply(Changes(idempotency_records=[record]))

    def _read(self, record: IdempotencyRecord) -> KeptAnswer:
        plain = self._cipher.decrypt(b64decode(record.fingerprint), self._bound_to)
        answer = msgspec.msgpack.decode(plain, type=KeptAnswer)
        if answer.body is None:
            raise KeySpent(self._given, f"was answered with {answer.status}, and a body that was too large to keep")
        return answer


class _RecordedSend:
    """Sends the messages of a response on, and remembers them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body = bytearray()  # bounded by: one response
        self._is_small = True

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self._headers = message["status"], [(name, value) for name, value in message["headers"]]
        elif message["type"] == "http.response.body" and self._is_small:
            self._body += message.get("body", b"")
            self._is_small = len(self._body) <= MAX_KEPT
        await self._send(message)

    def kept(self) -> KeptAnswer:
        return KeptAnswer(self.status, self._headers, bytes(self._body) if self._is_small else None)


async def _send(answer: KeptAnswer, send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, REPLAYED]})
    await send({"type": "http.response.body", "body": answer.body or b"", "more_body": False})
