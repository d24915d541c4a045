"""The agent's own guard, over everything that it could be told."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.agents.messages import (
    Beat,
    End,
    Existing,
    Goodbye,
    Hello,
    Item,
    Order,
    Progress,
    Report,
    Upgrade,
    Welcome,
    Work,
    encode,
    fulfils,
    read_agent,
    read_controller,
)
from stateward.agents.order_admission import Admission, Mind, admit, crowded


def order(work: Work = Work.CREATE, operation: int = 5, generation: int = 5, notify: int = 2, **more: str) -> Order:
    return Order(work, operation, generation, notify, **more)


NUMBERS = (0, 4, 5, 6)
WORKS = [None, order(operation=4), order(operation=5), order(operation=6)]


@pytest.mark.parametrize("work", list(Work))
def test_nothing_old_is_done_nothing_is_done_twice_and_never_two_at_once(work: Work) -> None:
    for running, last, notify, has, whole, busy in product(
        WORKS, NUMBERS, (1, 2), NUMBERS, (True, False), (True, False)
    ):
        mind = Mind(2, running, last, "ready")
        asked = order(work, notify=notify)
        verdict = admit(Existing(has, whole), mind, asked, crowded=busy)
        if notify != 2 or asked.operation < mind.latest:
            assert verdict is Admission.STALE
        elif running is not None:
            assert verdict in (Admission.AT_IT, Admission.BUSY)
        elif last == asked.operation:
            assert verdict is Admission.AGAIN
        elif fulfils(has, whole, asked):
            assert verdict is Admission.DONE
        else:
            assert verdict is (Admission.BUSY if busy else Admission.BEGIN)


def test_a_thing_and_the_one_that_it_is_in_are_never_worked_at_together() -> None:
    cluster, app = order(name="c1"), order(name="c1:web", host="c1")
    other = order(name="c2:web", host="c2")
    assert crowded(app, [cluster])
    assert crowded(cluster, [app])
    assert not crowded(app, [other, order(name="c1:db", host="c1")])
    assert not crowded(cluster, [cluster, other])


TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)
IDS = st.integers(0, 2**53)


@given(st.one_of(
    st.builds(Hello, TEXTS, IDS), st.builds(Item, IDS, IDS, st.booleans(), IDS, TEXTS, IDS), st.builds(End, IDS, IDS),
    st.builds(Report, TEXTS, IDS, IDS, IDS, TEXTS, TEXTS), st.builds(Progress, TEXTS, IDS, IDS, IDS, TEXTS, IDS, IDS),
    st.builds(Beat, IDS),
))  # fmt: skip
def test_what_an_agent_says_is_read_as_it_was_said(word: object) -> None:
    assert read_agent(encode(word)) == word


@given(st.one_of(
    st.builds(Welcome, IDS, st.sampled_from(["serving", "heir"]), st.floats(0, 100)),
    st.builds(Order, st.sampled_from(Work), IDS, IDS, IDS, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(Upgrade, TEXTS, IDS, IDS, st.floats(0, 100)), st.builds(Goodbye, TEXTS, st.booleans()),
))  # fmt: skip
def test_what_a_controller_says_is_read_as_it_was_said(word: object) -> None:
    assert read_controller(encode(word)) == word
