"""Errors of a request to the server, each with its exit code."""

import errno
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from stateward.client.output import BAD_USAGE, NO
from stateward.errors import StatewardError

T = TypeVar("T")

UNREACHABLE = 3
"""Exit code: no server answers, or the server cannot serve the request."""

FORBIDDEN = frozenset({401, 403})
NOT_FOUND = frozenset({404})
NOT_ALLOWED = 4
"""Exit code: the token is missing, not valid, or does not allow the request."""

NOT_YOURS = "not_yours"
"""The code of a refusal, with the status 409: the lifecycle keeps the action for other actors."""

ProblemFacts = dict[str, Any]
"""The fields of a problem, as the server sent them."""

TOO_MANY = 429
STANDARD = frozenset({"type", "title", "status", "detail", "code", "instance"})


class RequestFailed(StatewardError):
    """The base of all errors of a request to a server."""

    exit_code = UNREACHABLE


class Unreachable(RequestFailed, retry=True):
    """No server answers at the address."""

    url: str
    why: str
    text = "no server answers at {url}: {why}"


class ServerAbsent(Unreachable):
    """Nobody listens at the address."""

    why: str = "connection refused"
    text = "no server answers at {url}: {why}. `stateward serve` starts one; --server names another"


class NotOurs(RequestFailed):
    """The response at the address is not that of a Stateward server."""

    url: str
    status: int
    why: str
    text = "{url} answers with {status}, but not as a Stateward server: {why}"


class AnswerUnreadable(RequestFailed):
    """The response to a request that may have changed something cannot be read: the request must not be repeated."""

    exit_code = NO
    url: str
    status: int
    why: str
    text = "{url} answers with {status}, and the request may have taken effect, but the answer cannot be read: {why}"


class ApiError(RequestFailed):
    """A problem that the server reported, with its facts."""

    def __init__(self, status: int, code: str, detail: str, more: Mapping[str, Any]) -> None:
        super().__init__(status, code, detail)
        self.status, self.code, self.detail = status, code, detail
        self._more = dict(more)
        self.retry = bool(more.get("retry", False))

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """The exit code for its HTTP status and its code."""
        return exit_code_of(self.status, self.code)

    def facts(self) -> dict[str, object]:
        """Return the problem as the server sent it."""
        return {"status": self.status, "code": self.code, "detail": self.detail, **self._more}

    def __str__(self) -> str:
        return "; ".join((self.detail, *self._additions()))

    def _additions(self) -> list[str]:
        """Return the facts that the detail does not contain: blocker, allowed actions, missing flags, field, delay."""
        additions = []
        blocker, allowed = self._more.get("blocker"), self._more.get("allowed")
        if isinstance(blocker, dict) and str(blocker.get("op")) not in self.detail:
            who = f" ({blocker['who']})" if blocker.get("who") not in (None, "", blocker.get("actor")) else ""
            where = f", {blocker['mode']} on {blocker['path']}" if blocker.get("path") else ""
            asked = f"{blocker.get('action')} by {blocker.get('actor')}{who}, since {blocker.get('since')}"
            additions.append(f"blocked by operation {blocker.get('op')}, {asked}{where}")
        if isinstance(allowed, list) and not all(str(action) in self.detail for action in allowed):
            additions.append(f"allowed now: {', '.join(map(str, allowed))}")
        missing = self._more.get("missing")
        if isinstance(missing, list) and missing:
            flags = " ".join("--force" if fact == "force" else f"--fact {fact}" for fact in missing)
            waits = f"wait for it (stateward wait {blocker.get('op')}), or " if isinstance(blocker, dict) else ""
            additions.append(f"{waits}repeat it with {flags}")
        field = self._more.get("field")
        if isinstance(field, str) and field not in self.detail:
            additions.append(f"field: {field}")
        if "retry_after" in self._more:
            additions.append(f"try again in {self._more['retry_after']} s")
        return additions


def is_refused(error: BaseException | None) -> bool:
    """Return whether nobody listens at the address, by the cause of an error."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError) or getattr(error, "errno", None) == errno.ECONNREFUSED:
            return True
        error = error.__cause__ or error.__context__
    return False


def none_if(statuses: Collection[int], ask: Callable[[], T]) -> T | None:
    """Return an answer, or None if the server reports a problem of one of these HTTP statuses."""
    try:
        return ask()
    except ApiError as problem:
        if problem.status not in statuses:
            raise
        return None


def exit_code_for(error: StatewardError) -> int:
    """Return the exit code of an error: its own, or one that says whether the same command may succeed later."""
    return int(getattr(error, "exit_code", UNREACHABLE if error.retry else BAD_USAGE))


def exit_code_of(status: int, code: str = "") -> int:
    """Return the exit code for an HTTP status; an action that is for other actors only (409) is not allowed, too."""
    if status in FORBIDDEN or code == NOT_YOURS:
        return NOT_ALLOWED
    if status in (409, 412, TOO_MANY):
        return NO
    return BAD_USAGE if 400 <= status < 500 else UNREACHABLE


def api_error_of(status: int, body: object, retry_after: str | None = None) -> ApiError | None:
    """Return the error of a problem in a response body, or None if the body is not a problem."""
    if not isinstance(body, dict) or not isinstance(body.get("detail", body.get("title")), str):
        return None
    more = {name: value for name, value in body.items() if name not in STANDARD}
    if retry_after is not None:
        more["retry_after"] = retry_after
    detail = str(body.get("detail") or body.get("title"))
    return ApiError(status, str(body.get("code", "")), detail, more)
