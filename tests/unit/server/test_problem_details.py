import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.access import Right
from stateward.access.quotas import QuotaExceeded
from stateward.engine.errors import (
    AlreadyEnded,
    AlreadyExists,
    Blocker,
    KeyReused,
    Locked,
    NoneAllowed,
    NoSuchOperation,
    NotFound,
    Occupied,
    Refused,
    VersionMismatch,
)
from stateward.engine.requests import LockRequest
from stateward.errors import BadInput, StatewardError, UnknownName
from stateward.lifecycle import Refusal, decide
from stateward.plugin.readiness import NotReady
from stateward.server.errors import Forbidden, NotAuthenticated, TooMany
from stateward.server.http.body_decoding import BadBody, bad_body
from stateward.server.http.problem_details import encoded, mask_secrets, problem, problem_of
from stateward.store.errors import DatabaseReplaced, ReadOnly, StoreBusy, UnstorableValue
from stateward.store.records import Status
from tests.integration.engine.pump_kinds import PUMP

BLOCKER = Blocker("o1", "pump", "user", "ann", 100.0, "/a", "X")


def refusal() -> Refusal:
    verdict = decide(PUMP, "pumping", "tune", "user")
    assert isinstance(verdict, Refusal)
    return verdict


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (BadInput("id", "x", "a name"), 400, "bad_input"),
        (BadBody("id", "is wrong"), 400, "bad_input"),
        (UnstorableValue("a NUL"), 400, "bad_input"),
        (NotAuthenticated(given=True), 401, "not_authenticated"),
        (Forbidden(Right.ACT, "shop"), 403, "forbidden"),
        (QuotaExceeded("shop", "operations", 3, retry=True), 403, "quota"),
        (UnknownName("kind", "x", ["y"]), 404, "unknown_name"),
        (NotFound("shop", "x"), 404, "not_found"),
        (NoSuchOperation("shop", "x"), 404, "not_found"),
        (Refused(refusal(), BLOCKER), 409, "in_transition"),
        (Occupied("move", BLOCKER), 409, "occupied"),
        (Locked("t", LockRequest("/a", "X"), (BLOCKER,)), 409, "locked"),
        (AlreadyExists("shop", "x", "idle"), 409, "exists"),
        (KeyReused("k"), 409, "key_reused"),
        (AlreadyEnded("o1", Status.FAILED), 409, "ended"),
        (NoneAllowed("pump", {"x": NotFound("shop", "x")}), 409, "none_allowed"),
        (StatewardError("no"), 409, "refused"),
        (VersionMismatch("x", 1, 2), 412, "version"),
        (TooMany(0.2), 429, "too_many"),
        (NotReady("the store is away"), 503, "not_ready"),
        (StoreBusy("locked"), 503, "unavailable"),
        (ReadOnly("no"), 503, "unavailable"),
        (DatabaseReplaced("the file is gone"), 503, "unavailable"),
        (RuntimeError("secret"), 500, "internal"),
    ],
)
def test_every_error_is_one_problem(error: Exception, status: int, code: str) -> None:
    found = problem_of(error)
    assert (found.status, found.code) == (status, code)
    plain = msgspec.json.decode(encoded(found))
    assert plain["type"] == f"urn:stateward:{code}"
    assert plain["title"]
    assert "secret" not in plain["detail"]
    assert plain.get("retry") is True or "retry_after" not in plain
    assert None not in plain.values()


def test_a_refusal_tells_what_is_allowed_and_what_is_in_the_way() -> None:
    found = problem_of(Refused(refusal(), BLOCKER))
    assert (found.state, found.state_class, found.retry) == ("pumping", "transitional", True)
    assert (found.allowed, found.allowed_with) == ([], {"scrap": ["force"]})
    assert found.blocker is not None
    assert (found.blocker.op, found.blocker.who) == ("o1", "ann")


def test_a_value_that_was_refused_is_not_repeated() -> None:
    assert "hunter2" not in encoded(problem_of(BadInput("password", "hunter2", "long enough"))).decode()


def test_a_token_in_a_problem_is_masked_wherever_it_is() -> None:
    text = "sw_0123456789ab_" + "s3cr3t" * 5
    found = problem(409, "refused", text, known=[text], skipped={text: problem(404, "not_found", text)})
    assert "s3cr3t" not in encoded(found).decode()
    assert mask_secrets(found).detail.startswith("sw_0123456789ab_")


@given(st.text(), st.text())
def test_masking_leaves_a_problem_readable(detail: str, state: str) -> None:
    found = mask_secrets(problem(409, "refused", detail, state=state))
    assert msgspec.json.decode(encoded(found))["status"] == 409


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ("Object contains unknown field `x`", "x"),
        ("Object contains unknown field `x` - at `$.selector`", "selector.x"),
        ("Object missing required field `id`", "id"),
        ("Expected `str`, got `int` - at `$.id`", "id"),
        ("Expected `str`, got `int` - at `$.requests[0].object`", "requests[0].object"),
        ("Expected `object`, got `array`", "body"),
    ],
)
def test_the_field_is_named_that_a_body_is_wrong_about(said: str, field: str) -> None:
    assert bad_body(msgspec.ValidationError(said)).field == field
