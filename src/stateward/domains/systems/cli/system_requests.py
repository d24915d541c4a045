"""Requests of the domain's commands: their paths, and the wait for what was accepted."""

from stateward.client.action_requests import RequestOutcome, finish_requests, read_outcome
from stateward.client.http import NOTHING, Params, idempotency_headers
from stateward.client.session import Session
from stateward.client.url_paths import NamedPart, UrlPath, url_path
from stateward.domains.systems.views import AskedView


def request_action(
    session: Session, method: str, *parts: str | NamedPart, body: object = None, params: Params = NOTHING
) -> AskedView:
    """Request an action below the domain's path."""
    headers, where = idempotency_headers(), at(session, *parts)
    return session.client.http.call(AskedView, method, where, body=body, headers=headers, params=params)


def at(session: Session, *parts: str | NamedPart) -> UrlPath:
    """Return a path below the domain's own, in the namespace of the command."""
    return url_path("systems", ("namespace", session.ns), *parts)


def finish(session: Session, asked: AskedView) -> None:
    """Print what was accepted, and wait for its end if the command is to."""
    finish_requests(session, [outcome_of(session, asked)])


def outcome_of(session: Session, asked: AskedView) -> RequestOutcome:
    """Return the outcome of a request so far."""
    return read_outcome(session, asked.id, asked.operation)
