"""Problem details (RFC 9457): every error as a response, with the facts that a program needs.

This is the only place that turns an error into a problem, from the error's fields. Secrets are masked as in the log, so
that a token in the wrong place is not repeated. An unexpected error is logged; the response has one general sentence.
"""

import logging
import math
from collections.abc import Sequence
from functools import singledispatch
from http import HTTPStatus
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from stateward.access.quotas import QuotaExceeded
from stateward.engine import errors
from stateward.engine.accept.idempotency import RefusedBefore
from stateward.engine.kind_types import UnfitValue
from stateward.errors import BadInput, NotOffered, StatewardError, UnknownField, UnknownName, UnknownValue
from stateward.lifecycle import RefusalCode
from stateward.plugin.readiness import NotReady
from stateward.plugin.route_options import MESSAGES, PLAIN_PROBLEMS
from stateward.schemas.problems import FlagView, Problem
from stateward.server.auth.audit import AUDITED_STATUSES
from stateward.server.errors import Forbidden, NotAuthenticated, PriorityForbidden, TooMany
from stateward.server.http.body_decoding import BadBody
from stateward.server.service import service_of
from stateward.server.telemetry.logs import redacted
from stateward.server.views import blocker_view
from stateward.store.errors import StoreError, UnstorableValue
from stateward.validation_texts import GIVEN, explain

log = logging.getLogger("stateward.server")

MEDIA_TYPE = "application/problem+json"
FORBIDDEN = "forbidden"
"""The code of an error that becomes a 403: the caller may never do this, whatever the state of the object."""
RETRY_AFTER_S = 1
"""The `Retry-After` header while the store is not available."""


def problem(status: int, code: str, detail: object, **facts: Any) -> Problem:  # noqa: ANN401 - fields of Problem
    """Return a problem with the texts that follow from its status and code."""
    title = HTTPStatus(status).phrase
    return Problem(type=f"urn:stateward:{code}", title=title, status=status, code=code, detail=str(detail), **facts)


@singledispatch
def problem_of(error: Exception) -> Problem:
    """Return the problem of an error."""
    log.exception("request failed with an unexpected error; the client gets 500", exc_info=error)
    return problem(500, "internal", "internal error; the server's log has the details")


class ProblemRow(NamedTuple):
    """An error whose problem has the error's text and some of its fields; without a code here, the error has one."""

    error: type[StatewardError]
    status: int
    code: str | None
    facts: tuple[str, ...] = ()

    def problem_of(self, error: Any) -> Problem:  # noqa: ANN401 - an error of the row's class
        """Return the problem of an error of this class."""
        return problem(
            self.status, self.code or error.code, error, **{name: getattr(error, name) for name in self.facts}
        )


for row in (
    ProblemRow(StatewardError, 409, "refused", ("retry",)),
    ProblemRow(BadBody, 400, "bad_input", ("field",)),
    ProblemRow(NotAuthenticated, 401, "not_authenticated"),
    ProblemRow(Forbidden, 403, FORBIDDEN, ("right",)),
    ProblemRow(PriorityForbidden, 403, FORBIDDEN, ("right", "field")),
    ProblemRow(QuotaExceeded, 403, "quota", ("limit", "retry")),
    ProblemRow(errors.NotFound, 404, None),
    ProblemRow(errors.NoSuchOperation, 404, None),
    ProblemRow(errors.AlreadyExists, 409, None, ("state", "retry")),
    ProblemRow(errors.KeyReused, 409, None, ("retry",)),
    ProblemRow(errors.AlreadyEnded, 409, None, ("retry",)),
    ProblemRow(NotOffered, 501, None),
):
    problem_of.register(row.error, row.problem_of)


@problem_of.register
def _(error: BadInput) -> Problem:
    return problem(400, "bad_input", f"{error.field}: must be {error.allowed}", field=error.field, state=error.state)


@problem_of.register(UnknownField)
@problem_of.register(UnknownValue)
@problem_of.register(UnfitValue)
def _(error: UnknownField | UnknownValue | UnfitValue) -> Problem:
    return problem(
        422 if isinstance(error, UnfitValue) else 400,
        "bad_input",
        f"{error.field}: must be {error.allowed}",
        field=error.field,
        known=None if error.known is None else list(error.known),
        nearest=error.nearest,
        state=error.state,
    )


@problem_of.register
def _(error: ValidationException) -> Problem:
    """A parameter that cannot be read, or a body that is not there."""
    said: dict[str, Any] = {}
    for entry in error.extra if isinstance(error.extra, list) else ():
        said = entry
        if entry.get("key") != "data":  # an optional body is reported, too, if anything else is wrong
            break
    field = str(said.get("key", "")) or "request"
    if field == "data":
        return problem(400, "bad_input", f"body: {MUST_BE}{GIVEN}", field="body")
    return problem(400, "bad_input", f"{field}: {said.get('message', error.detail)}", field=field)


@problem_of.register
def _(error: UnknownName) -> Problem:
    known = sorted(error.known)
    return problem(404, error.code, error, known=known, nearest=error.nearest)


@problem_of.register
def _(error: TooMany) -> Problem:
    return problem(429, "too_many", error, retry=True, retry_after=max(1, math.ceil(error.after)))


@problem_of.register
def _(error: NotReady) -> Problem:
    return problem(503, "not_ready", error, retry=True, retry_after=RETRY_AFTER_S)


@problem_of.register
def _(error: StoreError) -> Problem:
    log.warning("request failed because of the store; the client gets 503: %s", error)
    return problem(
        503, "unavailable", error.what, retry=error.retry, retry_after=RETRY_AFTER_S if error.retry else None
    )


@problem_of.register
def _(error: UnstorableValue) -> Problem:
    return problem(400, "bad_input", error.what, field="request")


@problem_of.register
def _(error: errors.Denied) -> Problem:
    status = HTTPStatus.FORBIDDEN if error.code == FORBIDDEN else HTTPStatus.CONFLICT
    return problem(status, error.code, error, retry=error.retry)


@problem_of.register
def _(error: errors.Refused) -> Problem:
    refusal = error.refusal
    return problem(
        403 if refusal.reason is RefusalCode.NOT_YOURS else 409,
        str(refusal.reason),
        error,
        state=refusal.state.word,
        state_class=refusal.state_class,
        allowed=list(refusal.allowed_to(refusal.actor)),
        allowed_with={event: list(needs) for event, needs in refusal.allowed_with_facts(refusal.actor).items()} or None,
        missing=list(refusal.missing) or None,
        blocker=None if error.blocker is None else blocker_view(error.blocker),
        retry=error.retry,
    )


@problem_of.register
def _(error: errors.Occupied) -> Problem:
    return problem(409, error.code, error, blocker=blocker_view(error.blocker), retry=True)


@problem_of.register
def _(error: errors.Locked) -> Problem:
    blockers = [blocker_view(blocker) for blocker in error.blockers]
    first = blockers[0] if blockers else None
    return problem(409, error.code, error, blocker=first, blockers=blockers, retry=True)


STATUSES = {
    "BadInput": 400,
    "UnknownValue": 400,
    "UnfitValue": 422,
    "UnknownName": 404,
    "NotFound": 404,
    "VersionMismatch": 412,
    "QuotaExceeded": 403,
}
"""The status of a refusal that is replayed by its idempotency key, by the error's class; all others are 409."""


@problem_of.register
def _(error: RefusedBefore) -> Problem:
    kept = error.refusal
    status = 403 if kept.code in (FORBIDDEN, RefusalCode.NOT_YOURS) else STATUSES.get(kept.error, HTTPStatus.CONFLICT)
    allowed = None if kept.allowed is None else list(kept.allowed)
    return problem(status, kept.code, error, retry=False, field=kept.field, state=kept.state, allowed=allowed)


@problem_of.register
def _(error: errors.NoneAllowed) -> Problem:
    skipped = {name: problem_of(why) for name, why in error.skipped.items()}
    retry = any(refusal.retry for refusal in skipped.values())
    return problem(409, error.code, error, skipped=skipped, retry=retry)


@problem_of.register
def _(error: errors.Protected) -> Problem:
    flag = FlagView(error.ns, error.holder, error.reason, error.command)
    return problem(409, error.code, error, retry=False, protection=flag)


@problem_of.register
def _(error: errors.VersionMismatch) -> Problem:
    return problem(412, error.code, error, version=error.found)


@problem_of.register
def _(error: HTTPException) -> Problem:
    if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        log.exception("request failed with an unexpected error; the client gets 500", exc_info=error)
        return problem(500, "internal", "internal error; the server's log has the details")
    return problem(error.status_code, _CODES.get(error.status_code, "bad_input"), error.detail)


MUST_BE = "must be "

_CODES = {403: "forbidden", 404: "no_such_route", 405: "no_such_method", 406: "not_acceptable"}


@problem_of.register
def _(_: NotFoundException) -> Problem:
    return problem(404, "no_such_route", "there is nothing at this path")


@problem_of.register
def _(_: MethodNotAllowedException) -> Problem:
    return problem(405, "no_such_method", "the path does not have this method")


@problem_of.register
def _(_: RequestEntityTooLarge) -> Problem:
    return problem(413, "too_large", "the body is larger than body_limit allows, a setting of the server")


def respond_with_problem(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response to a request that failed with an error."""
    if isinstance(error, ValidationException) and isinstance(error.extra, list):
        error.extra = [_parameter_fault(request, said) for said in error.extra]
    problem = problem_of(error)
    if problem.status in AUDITED_STATUSES:
        service_of(request).audit.refused(request.scope, problem.status, problem.detail)
    headers = {name.decode(): value.decode() for name, value in service_of(request).headers}
    headers |= dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="stateward"'
    handlers = _handlers(request)
    if any(handler.opt.get(MESSAGES) for handler in handlers):
        body = msgspec.json.encode(worded_as_message(mask_secrets(problem)))
        return Response(body, status_code=problem.status, media_type="application/json", headers=headers)
    plain = Response(encoded(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)
    form = next((handler.opt[PLAIN_PROBLEMS] for handler in handlers if PLAIN_PROBLEMS in handler.opt), None)
    return plain if form is None else form(plain, error)


def worded_as_message(problem: Problem) -> dict[str, Any]:
    """Return a problem for clients that read a field `message`.

    There is no `status` in it: their objects have a field of that name, and they read `.status.vm` of any answer.
    """
    facts: dict[str, Any] = msgspec.to_builtins(problem)
    del facts["status"]  # the response has it
    return {"message": problem.detail, **facts}


def _handlers(request: Request[Any, Any, Any]) -> Sequence[BaseRouteHandler]:
    """Return the handler of a request, or those of the API that a path without a handler belongs to."""
    handler: BaseRouteHandler | None = request.scope.get("route_handler")
    if handler is not None:
        return [handler]
    path = request.url.path.split("/")[1:]
    routes = [route for route in request.app.routes if isinstance(route, HTTPRoute)]
    shared = [_shared_segments(path, route.path.split("/")[1:]) for route in routes]
    most = max(shared, default=0)
    near = [route for route, count in zip(routes, shared, strict=True) if most and count == most]
    return [handler for route in near for handler in route.route_handlers]


def _shared_segments(path: Sequence[str], pattern: Sequence[str]) -> int:
    """Return how many segments a path and a route's pattern begin with in common; a parameter fits any segment."""
    pairs = zip(path, pattern, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1] or pair[1].startswith("{"), pairs))


def _parameter_fault(request: Request[Any, Any, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Return what is wrong with a parameter, with its public name and a sentence of what it must be."""
    name, message = str(said.get("key", "")), str(said.get("message", ""))
    handler: BaseRouteHandler | None = request.scope.get("route_handler")
    field = None if handler is None else handler.parsed_fn_signature.parameters.get(name)
    if field is not None:
        name = getattr(field.kwarg_definition, "name", None) or name
    if not message.startswith(MUST_BE):
        message = f"{MUST_BE}{explain(message, None if field is None else field.raw).allowed}"
    return {**said, "key": name, "message": message}


def encoded(problem: Problem) -> bytes:
    """Return a problem as JSON, without secrets."""
    return msgspec.json.encode(mask_secrets(problem))


def mask_secrets(problem: Problem) -> Problem:
    """Mask secrets in the parts of the request that a problem repeats."""
    plain = msgspec.to_builtins(problem)
    return msgspec.convert(_masked(plain), Problem)


def _masked(value: Any) -> Any:  # noqa: ANN401 - plain JSON
    match value:
        case str():
            return redacted(value)
        case list():
            return [_masked(part) for part in value]
        case dict():
            return {redacted(name): _masked(part) for name, part in value.items()}
        case _:
            return value


__all__ = [
    "MEDIA_TYPE",
    "encoded",
    "mask_secrets",
    "problem",
    "problem_of",
    "respond_with_problem",
    "worded_as_message",
]
