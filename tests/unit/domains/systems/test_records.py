"""Retention of deploys: the surplus records."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stateward.domains.systems.lifecycle import DEPLOY
from stateward.domains.systems.model import ChangeSpec, DesiredTree
from stateward.domains.systems.retention import ENDED, surplus
from stateward.store.records import Object

OPEN = ("pending", "accepted", "in progress")


def record(number: int, path: str, state: str, undoes: str | None = None) -> Object:
    """Return a deploy; the higher its number, the newer."""
    spec = msgspec.json.encode(ChangeSpec(path, DesiredTree(), undoes)).decode()
    named = {"ns": "n", "id": f"shop@{number}", "kind": DEPLOY.kind, "state": state}
    times = {"since": float(number), "created": float(number), "version": 1, "generation": 1}
    return Object(**named, **times, op=None, queue="", parent="shop", spec=spec, labels="{}", error=None)  # type: ignore[arg-type]


def numbers(records: list[Object], kept: int) -> list[int]:
    return sorted(int(one.id.partition("@")[2]) for one in surplus(records, kept))


def test_the_newest_are_kept_and_the_others_are_not() -> None:
    assert numbers([record(number, "/a", "failed") for number in range(5)], kept=2) == [0, 1, 2]


def test_the_last_success_of_each_path_is_kept_however_old() -> None:
    old = [record(0, "/a", "succeeded"), record(1, "/a", "succeeded"), record(2, "/b", "succeeded")]
    assert numbers([*old, *(record(number, "/c", "failed") for number in range(3, 6))], kept=1) == [0, 3, 4]


def test_a_rollback_is_not_what_a_rollback_goes_back_by() -> None:
    assert numbers([record(0, "/a", "succeeded"), record(1, "/a", "succeeded", "shop@0")], kept=0) == [1]


@given(
    st.lists(st.tuples(st.sampled_from(["/a", "/b"]), st.sampled_from([*sorted(ENDED), *OPEN])), max_size=12),
    st.integers(0, 12),
)
def test_nothing_that_is_under_way_is_ever_too_much(records: list[tuple[str, str]], kept: int) -> None:
    found = [record(number, path, state) for number, (path, state) in enumerate(records)]
    gone = list(surplus(found, kept))
    assert {one.state for one in gone} <= ENDED
    assert sum(one.state in ENDED for one in found) - len(gone) >= min(kept, sum(one.state in ENDED for one in found))
