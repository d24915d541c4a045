import pytest

from stateward.client.errors import ApiError, api_error_of, exit_code_for, exit_code_of
from stateward.errors import StatewardError
from stateward.store.errors import NotADatabase, StoreFull, Unavailable

BLOCKER = {"op": "op7", "action": "suspend", "actor": "user", "who": "ann", "since": "2026-11-15T02:57:12Z"}


def problem(**facts: object) -> ApiError:
    found = api_error_of(409, {"type": "urn:x", "title": "Conflict", "status": 409, "code": "refused", **facts})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (404, 2), (413, 2), (401, 4), (403, 4), (409, 1), (412, 1), (429, 1), (500, 3), (503, 3), (302, 3)],
)
def test_a_status_has_its_exit_code(status: int, code: int) -> None:
    assert exit_code_of(status) == code
    assert problem(detail="for admin only", code="not_yours").exit_code == 4


def test_the_blocker_is_told_where_the_detail_does_not_name_it() -> None:
    assert "blocked by operation op7, suspend by user (ann), since 2026-11-15T02:57:12Z" in str(
        problem(detail="it is busy", blocker=BLOCKER)
    )
    assert str(problem(detail="blocked by op7", blocker=BLOCKER)) == "blocked by op7"


def test_a_lock_is_told_with_its_path_and_mode() -> None:
    held = {**BLOCKER, "path": "/a", "mode": "X"}
    assert "X on /a" in str(problem(detail="locked", blocker=held))


def test_the_flags_that_would_help_are_told() -> None:
    assert str(problem(detail="no", missing=["force"])) == "no; repeat it with --force"
    both = problem(detail="no", missing=["force", "option=terminate"])
    assert str(both) == "no; repeat it with --force --fact option=terminate"
    busy = problem(detail="blocked by op7", blocker=BLOCKER, missing=["force"])
    assert str(busy) == "blocked by op7; wait for it (stateward wait op7), or repeat it with --force"


def test_the_one_who_asked_is_told_once() -> None:
    of_admin = {**BLOCKER, "actor": "admin", "who": "admin"}
    assert "suspend by admin, since" in str(problem(detail="it is busy", blocker=of_admin))


def test_what_is_allowed_is_told_where_the_detail_does_not() -> None:
    assert str(problem(detail="no", allowed=["resume", "terminate"])) == "no; allowed now: resume, terminate"
    assert str(problem(detail="allowed now: resume", allowed=["resume"])) == "allowed now: resume"


def test_the_facts_are_kept_for_machines() -> None:
    facts = problem(detail="no", allowed=["resume"], state="Suspended").facts()
    assert facts == {
        "status": 409,
        "code": "refused",
        "detail": "no",
        "allowed": ["resume"],
        "state": "Suspended",
    }


@pytest.mark.parametrize("body", [None, [], "text", {}, {"detail": 7}])
def test_what_is_no_problem_is_not_taken_for_one(body: object) -> None:
    assert api_error_of(502, body) is None


@pytest.mark.parametrize(
    ("error", "code"), [(Unavailable("gone"), 3), (StoreFull("no room"), 3), (NotADatabase("text"), 2)]
)
def test_a_database_that_is_not_able_to_is_no_mistake_of_the_caller(error: StatewardError, code: int) -> None:
    assert exit_code_for(error) == code
