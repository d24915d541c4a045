from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.client.api import JournalPage
from stateward.client.operation_waiter import IN_TURN, OperationWaiter, TookTooLong
from stateward.schemas.operations import OperationView
from stateward.store.records import Status
from tests.unit.cli.sample_records import sample_entry, sample_operation


def operation(number: int, status: Status = Status.RUNNING) -> OperationView:
    return sample_operation(id=f"op{number}", object=f"o{number}", status=status)


class ScriptedServer:
    """A server and a clock in one: operations end at given times, and most ends are in the journal."""

    def __init__(self, ends: list[float], journaled: Callable[[int], bool] = lambda _: True) -> None:
        self.now = 0.0
        self.reads = 0
        self._ends, self._journaled = ends, journaled

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def operation(self, ns: str, op: str) -> OperationView:
        self.reads += 1
        number = int(op.removeprefix("op"))
        return operation(number, Status.SUCCEEDED if self._ends[number] <= self.now else Status.RUNNING)

    def journal(self, after: int, ns: str, since: str) -> JournalPage:
        ended = sorted(
            (at, number) for number, at in enumerate(self._ends) if at <= self.now and self._journaled(number)
        )
        lines = [
            sample_entry(seq=seq, object=f"o{number}", event="succeeded") for seq, (_, number) in enumerate(ended, 1)
        ]
        return JournalPage(lines[after:], max(len(lines), after), more=False)

    def follow(self, timeout: float | None = None) -> OperationWaiter:
        several = [operation(number) for number in range(len(self._ends))]
        return OperationWaiter(self, "ns", several, timeout=timeout, pause=self.pause, clock=lambda: self.now)  # type: ignore[arg-type]


@given(st.lists(st.floats(0, 60), max_size=60), st.sets(st.integers(0, 60)))
def test_every_operation_is_seen_to_end_exactly_once(ends: list[float], unjournaled: set[int]) -> None:
    server = ScriptedServer(ends, journaled=lambda number: number not in unjournaled)
    seen = [one.id for one in server.follow()]
    assert sorted(seen) == sorted(f"op{number}" for number in range(len(ends)))


def test_thousands_are_followed_without_looking_at_each_all_the_time() -> None:
    server = ScriptedServer([number / 100 for number in range(2000)])
    assert len(list(server.follow())) == 2000
    assert server.reads < 2000 + IN_TURN * 25 / 0.05


def test_what_takes_too_long_is_given_up_and_named() -> None:
    server = ScriptedServer([0.0, 100.0])
    with pytest.raises(TookTooLong, match=r"the operation has not ended after 5 s; it goes on: op1") as caught:
        list(server.follow(timeout=5.0))
    assert (caught.value.operations, caught.value.exit_code) == (["op1"], 1)


def test_nothing_to_follow_takes_no_time() -> None:
    server = ScriptedServer([])
    assert (list(server.follow()), server.now) == ([], 0.0)
