"""Options by which a route of a domain declares the right that it needs, and accessors of a request."""

from collections.abc import AsyncIterator
from typing import Any

from stateward.access import Grant, Right
from stateward.access.roles import ACTORS
from stateward.engine import Engine
from stateward.engine.privacy import Disclosure
from stateward.lifecycle import ADMIN
from stateward.store.records import Key, Operation, Progress

RIGHT, EVERYWHERE, SHARED, OPEN, MESSAGES = "right", "everywhere", "shared", "open", "messages"
"""The options by which a route declares the right that it needs, and whether its errors have a field `message`."""

DRY_RUN = "dry run"
"""The option of a route that can be asked what it would do: it writes nothing before it submits its requests."""

STRICT_QUERY = "strict query"
"""The option of a route of a compatible API that refuses query parameters which it does not declare."""

RESUMES = "resumes"
"""The option of a route that, called again with the same idempotency key, finds what an interrupted call has made."""

BODY, PLAIN_PROBLEMS = "body", "plain problems"
"""The options for the OpenAPI document: an example of a body that the route decodes itself; its own form of errors.

The form of errors is a function of the server's response and the error. It returns the response that clients read.
"""


def needs(right: Right, *, everywhere: bool = False, messages: bool = False) -> dict[str, Any]:
    """Return the options of a route that needs a right: in the namespace `ns` of its path, or in all of them.

    With `messages`, the text of an error is also in a field `message`, where clients of that API expect it.
    """
    return {RIGHT: right, EVERYWHERE: everywhere, MESSAGES: messages}


def shares(ns: str) -> dict[str, Any]:
    """Return the option of a route that answers about this namespace to everybody who has the right in any."""
    return {SHARED: ns}


def reads(example: dict[str, Any]) -> dict[str, Any]:
    """Return the option of a route that decodes its body itself, with an example of such a body."""
    return {BODY: example}


def can_dry_run() -> dict[str, Any]:
    """Return the option of a route that can be asked what it would do, by the header `X-Stateward-Dry-Run: 1`."""
    return {DRY_RUN: True}


def strict_query(*names: str) -> dict[str, Any]:
    """Return the option of a route that refuses query parameters which it does not declare: all, or these in any case.

    A route that changes something refuses all: a mistyped filter in its query would select everything. Of a route that
    reads, clients of the original may send others, and those that filter must not be ignored.
    """
    return {STRICT_QUERY: frozenset(name.lower() for name in names) or True}


def open_to_all(why: str, *, messages: bool = False) -> dict[str, Any]:
    """Return the options of a route that needs no token; `why` is the reason, for a reader of the code."""
    return {OPEN: why, MESSAGES: messages}


def engine_of(request: Any) -> Engine:  # noqa: ANN401 - a request or a WebSocket of any application
    """Return the engine of the application that serves a request."""
    engine: Engine = request.app.state.engine
    return engine


def grant_of(request: Any) -> Grant:  # noqa: ANN401
    """Return the rights of the caller."""
    grant: Grant = request.scope["auth"]
    return grant


def client_address_of(request: Any) -> str:  # noqa: ANN401
    """Return the address of the caller; behind a proxy, if `trusted_proxies` names that."""
    address: str = request.app.state.client_addresses.address(request.scope)
    return address


def is_private(request: Any) -> bool:  # noqa: ANN401
    """Tell whether nobody on the network can read the connection of a request."""
    private: bool = request.app.state.client_addresses.is_private(request.scope)
    return private


def actor_of(request: Any) -> str:  # noqa: ANN401
    """Return the caller's actor, as the lifecycle tables name it."""
    return ACTORS[grant_of(request).role]


def disclosure_of(request: Any) -> Disclosure:  # noqa: ANN401
    """Return which fields of stored records the caller sees: administrators see internal ones, too."""
    return engine_of(request).kinds.disclosure(internal=actor_of(request) == ADMIN)


def follow_operation(request: Any, key: Key) -> AsyncIterator[Progress | Operation | None]:  # noqa: ANN401
    """Return the progress of an operation, then its end, for a stream to the caller; None is a keep-alive.

    It ends early with the caller's token or session, and when the server stops. A token may have 100 such streams.
    """
    followed: AsyncIterator[Progress | Operation | None] = request.app.state.live_feeds.follow_operation(
        grant_of(request), key
    )
    return followed
