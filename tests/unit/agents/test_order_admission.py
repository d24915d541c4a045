"""The agent's admission of orders, over all combinations of orders and memories."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateward.agents.messages import (
    AgentOrder,
    AgentReport,
    Existing,
    Goodbye,
    Heartbeat,
    Hello,
    InventoryEnd,
    InventoryItem,
    OrderAction,
    ProgressMessage,
    Upgrade,
    Welcome,
    encode,
    fulfils_order,
    read_agent,
    read_controller,
)
from stateward.agents.order_admission import InstanceMemory, OrderVerdict, has_related_work, judge_order


def order(
    work: OrderAction = OrderAction.CREATE, operation: int = 5, generation: int = 5, notify: int = 2, **more: Any
) -> AgentOrder:
    return AgentOrder(work, operation, generation, notify, **more)


NUMBERS = (0, 4, 5, 6)
WORKS = [None, order(operation=4), order(operation=5), order(operation=6)]


@pytest.mark.parametrize("work", list(OrderAction))
def test_nothing_old_is_done_nothing_is_done_twice_and_never_two_at_once(work: OrderAction) -> None:
    for running, last, notify, has, whole, busy in product(
        WORKS, NUMBERS, (1, 2), NUMBERS, (True, False), (True, False)
    ):
        mind = InstanceMemory(2, running, last, "ready")
        asked = order(work, notify=notify)
        verdict = judge_order(Existing(has, whole), mind, asked, crowded=busy)
        if notify != 2 or asked.operation < mind.latest:
            assert verdict is OrderVerdict.STALE
        elif running is not None:
            assert verdict in (OrderVerdict.RUNNING, OrderVerdict.BUSY)
        elif last == asked.operation:
            assert verdict is OrderVerdict.REPEAT
        elif fulfils_order(has, whole, asked):
            assert verdict is OrderVerdict.DONE
        else:
            assert verdict is (OrderVerdict.BUSY if busy else OrderVerdict.BEGIN)


def test_a_thing_and_the_one_that_it_is_in_are_never_worked_at_together() -> None:
    cluster, app = order(name="c1"), order(name="c1:web", host="c1")
    other = order(name="c2:web", host="c2")
    assert has_related_work(app, [cluster])
    assert has_related_work(cluster, [app])
    assert not has_related_work(app, [other, order(name="c1:db", host="c1")])
    assert not has_related_work(cluster, [cluster, other])


TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)
IDS = st.integers(0, 2**53)


@given(st.one_of(
    st.builds(Hello, TEXTS, IDS),
    st.builds(InventoryItem, IDS, IDS, st.booleans(), IDS, TEXTS, IDS),
    st.builds(InventoryEnd, IDS, IDS),
    st.builds(AgentReport, TEXTS, IDS, IDS, IDS, TEXTS, TEXTS),
    st.builds(ProgressMessage, TEXTS, IDS, IDS, IDS, TEXTS, IDS, IDS),
    st.builds(Heartbeat, IDS),
))  # fmt: skip
def test_what_an_agent_says_is_read_as_it_was_said(word: object) -> None:
    assert read_agent(encode(word)) == word


@given(st.one_of(
    st.builds(Welcome, IDS, st.sampled_from(["serving", "heir"]), st.floats(0, 100)),
    st.builds(AgentOrder, st.sampled_from(OrderAction), IDS, IDS, IDS, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(Upgrade, TEXTS, IDS, IDS, st.floats(0, 100)), st.builds(Goodbye, TEXTS, st.booleans()),
))  # fmt: skip
def test_what_a_controller_says_is_read_as_it_was_said(word: object) -> None:
    assert read_controller(encode(word)) == word
