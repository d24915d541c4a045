from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stateward.errors import BadInput, UnknownName
from stateward.testing.protocols import (
    NETWORK,
    Bounds,
    Exploration,
    FaultBudget,
    ModelMessage,
    ModelParty,
    Predicate,
    Protocol,
    Step,
    ViolationKind,
    explore,
)

ANYTHING = Predicate("anything goes", (), lambda: True)
NOTHING = Predicate("nobody may rest", (), lambda: False)


def counter(name: str, top: int, *, free: bool = False) -> ModelParty[int]:
    return ModelParty(name, 0, lambda now: [Step(now + 1, "counts")] if now < top else [], free=free)


def sender(*bodies: str, to: str = "receiver") -> ModelParty[int]:
    """Say the words one after the other."""

    def acts(said: int) -> Iterable[Step[int]]:
        if said < len(bodies):
            yield Step(said + 1, f"says {bodies[said]}", (ModelMessage(to, bodies[said]),))

    return ModelParty("sender", 0, acts)


def listener(
    react: Callable[[str, str], Iterable[Step[str]]], crash: Callable[[str], Iterable[str]] | None = None
) -> ModelParty[str]:
    return ModelParty("receiver", "", receive=react, crash=crash)


def heard(now: str, body: str) -> Iterable[Step[str]]:
    return (Step(now + body, f"has heard {now + body}"),)


def hears_never(*words: str) -> Predicate:
    return Predicate(f"never hears {'/'.join(words)}", ("receiver",), lambda now: now not in words)


def noting(seen: set[Any], *of: str) -> Predicate:
    """Claim nothing, and note what there was to see."""

    def note(*subjects: object) -> bool:
        seen.add(subjects[0] if len(subjects) == 1 else subjects)
        return True

    return Predicate("watch", of, note)


def everything_heard(protocol: Protocol, faults: FaultBudget | None = None, bounds: Bounds | None = None) -> set[str]:
    """Return every state that the receiver can be in."""
    seen: set[str] = set()
    explore(Protocol(protocol.parties, protocol.rest, (noting(seen, "receiver"),)), faults, bounds)
    return seen


def violated(found: Exploration) -> tuple[ViolationKind, str, int]:
    assert found.violation is not None
    return found.violation.kind, found.violation.name, len(found.violation.trace.steps)


def test_two_counters_are_tried_in_every_interleaving() -> None:
    found = explore(Protocol((counter("a", 2), counter("b", 3)), ANYTHING))
    assert (found.visited, found.transitions, found.depth, found.complete) == (12, 17, 5, True)
    assert found.violation is None


def test_the_shortest_way_to_a_broken_invariant_is_told_line_by_line() -> None:
    short = Predicate("stays below two", ("a",), lambda now: now < 2)
    found = explore(Protocol((counter("b", 3), counter("a", 3)), ANYTHING, (short,)))
    assert violated(found) == (ViolationKind.BROKEN, "stays below two", 2)
    assert not found.complete
    assert str(found.violation) == (
        "an invariant does not hold: stays below two\n"
        "  1. a counts\n"
        "  2. a counts\n"
        "     b: 0\n"
        "     a: 2\n"
        "     network: nothing in flight"
    )


def test_an_invariant_may_look_at_what_is_in_flight() -> None:
    alone = Predicate("one at a time", (NETWORK,), lambda flying: len(flying) < 2)
    found = explore(Protocol((sender("x", "y"), listener(heard)), ANYTHING, (alone,)))
    assert violated(found) == (ViolationKind.BROKEN, "one at a time", 2)
    assert found.violation is not None
    assert found.violation.trace.end[-1] == "network: x to receiver, y to receiver"


def test_an_invariant_that_does_not_hold_at_the_start_is_found_before_any_step() -> None:
    found = explore(Protocol((counter("a", 1),), ANYTHING, (Predicate("never zero", ("a",), bool),)))
    assert violated(found) == (ViolationKind.BROKEN, "never zero", 0)


def test_a_step_that_breaks_a_rule_is_found_even_where_it_leads_to_a_known_state() -> None:
    party = ModelParty("a", 0, lambda now: [Step(now, "cheats", breach="no cheating")])
    found = explore(Protocol((party,), ANYTHING))
    assert violated(found) == (ViolationKind.BREACH, "no cheating", 1)


def test_messages_overtake_each_other() -> None:
    assert everything_heard(Protocol((sender("x", "y"), listener(heard)), ANYTHING)) == {"", "x", "y", "xy", "yx"}


def test_nothing_is_lost_or_doubled_without_a_budget() -> None:
    protocol = Protocol(
        (sender("x"), listener(heard)), Predicate("all is heard", ("receiver",), lambda now: now == "x")
    )
    found = explore(protocol)
    assert found.violation is None
    assert found.complete


def test_a_lost_message_leaves_its_receiver_waiting() -> None:
    protocol = Protocol(
        (sender("x"), listener(heard)), Predicate("all is heard", ("receiver",), lambda now: now == "x")
    )
    found = explore(protocol, FaultBudget(losses=1))
    assert violated(found) == (ViolationKind.DEAD_END, "all is heard", 2)
    assert found.violation is not None
    assert found.violation.trace.steps == ("sender says x", "network loses x to receiver")


def test_a_spared_message_is_never_lost() -> None:
    protocol = Protocol(
        (sender("x"), listener(heard)), Predicate("all is heard", ("receiver",), lambda now: now == "x")
    )
    assert explore(protocol, FaultBudget(losses=1, spared=lambda message: message.body == "x")).violation is None


def test_a_doubled_message_is_heard_twice_and_no_more_often_than_the_budget_allows() -> None:
    protocol = Protocol((sender("x"), listener(heard)), ANYTHING)
    assert everything_heard(protocol, FaultBudget(duplicates=1)) == {"", "x", "xx"}
    assert everything_heard(protocol, FaultBudget(duplicates=2)) == {"", "x", "xx", "xxx"}


def test_more_copies_of_a_message_than_the_network_holds_are_dropped() -> None:
    protocol = Protocol((sender("x", "x", "x"), listener(heard)), ANYTHING)
    assert explore(protocol, bounds=Bounds(copies=1)).complete
    flying: set[tuple[ModelMessage, ...]] = set()
    explore(Protocol(protocol.parties, ANYTHING, (noting(flying, NETWORK),)), bounds=Bounds(copies=2))
    assert {len(messages) for messages in flying} == {0, 1, 2}


def test_a_moot_message_is_forgotten_as_soon_as_it_is_moot() -> None:
    deaf = ModelParty("receiver", "", moot=lambda _, body: body == "x")
    flying: set[tuple[ModelMessage, ...]] = set()
    explore(Protocol((sender("x", "y"), deaf), ANYTHING, (noting(flying, NETWORK),)))
    assert flying == {(), (ModelMessage("receiver", "y"),)}


def test_a_crash_leaves_only_what_is_durable() -> None:
    forgetful = listener(heard, crash=lambda now: (now[:1],))
    protocol = Protocol((sender("x", "y"), forgetful), ANYTHING)
    assert everything_heard(protocol, FaultBudget(crashes={"receiver": 1})) == {"", "x", "y", "xy", "yx"}
    remembers = Predicate("remembers both", ("sender", "receiver", NETWORK), lambda said, now, net: len(now) == 2)
    found = explore(Protocol(protocol.parties, remembers), FaultBudget(crashes={"receiver": 1}))
    assert found.violation is not None
    assert found.violation.trace.steps[-2:] == ("receiver crashes, left: x", "receiver restarts")


def test_a_message_to_one_who_is_down_is_gone() -> None:
    mortal = listener(heard, crash=lambda now: (now,))
    protocol = Protocol((sender("x"), mortal), Predicate("hears it", ("receiver",), bool))
    found = explore(protocol, FaultBudget(crashes={"receiver": 1}))
    assert found.violation is not None
    assert "receiver hears x: is down" in found.violation.trace.steps


def test_a_crash_may_leave_one_thing_or_another_and_a_restart_may_say_so() -> None:
    party = ModelParty(
        "receiver",
        "work",
        crash=lambda _: ("nothing", "half"),
        restart=lambda left: [Step(f"{left}, again", "starts over")],
    )
    seen = everything_heard(Protocol((party,), ANYTHING), FaultBudget(crashes={"receiver": 1}))
    assert seen == {"work", "nothing", "half", "nothing, again", "half, again"}


def test_one_who_is_down_starts_again_and_nobody_rests_before() -> None:
    party: ModelParty[int] = ModelParty("a", 0, crash=lambda now: (now,), restart=lambda _: ())
    found = explore(Protocol((party,), ANYTHING), FaultBudget(crashes={"a": 1}))
    assert violated(found) == (ViolationKind.DEAD_END, "somebody is down", 1)


def test_the_budget_of_crashes_is_each_partys_own() -> None:
    a: ModelParty[int] = ModelParty("a", 0, crash=lambda now: (now + 1,))
    b: ModelParty[int] = ModelParty("b", 0, crash=lambda now: (now + 1,))
    most: set[tuple[int, int]] = set()
    explore(Protocol((a, b), ANYTHING, (noting(most, "a", "b"),)), FaultBudget(crashes={"a": 2, "b": 1}))
    assert max(most) == (2, 1)
    assert len(most) == 6


def test_a_state_in_which_nothing_can_happen_is_a_dead_end_unless_it_is_a_rest() -> None:
    assert violated(explore(Protocol((counter("a", 2),), NOTHING))) == (ViolationKind.DEAD_END, "nobody may rest", 2)
    assert explore(Protocol((counter("a", 2),), Predicate("two", ("a",), lambda now: now == 2))).violation is None


def test_going_round_in_circles_without_a_way_to_rest_is_found() -> None:
    spins = ModelParty("a", 0, lambda now: [Step((now + 1) % 3 if now < 3 else now, "turns"), *_leap(now)])
    found = explore(Protocol((spins,), Predicate("leapt", ("a",), lambda now: now == 9)))
    assert found.violation is None
    stuck = ModelParty(
        "a", 0, lambda now: [Step(9, "leaps"), Step(1, "slips")] if now == 0 else [Step(3 - now, "turns")]
    )
    found = explore(Protocol((stuck,), Predicate("leapt", ("a",), lambda now: now >= 9 or now < 0)))
    assert violated(found) == (ViolationKind.NO_REST, "leapt", 1)
    assert found.violation is not None
    assert found.violation.trace.steps == ("a slips",)


def _leap(now: int) -> list[Step[int]]:
    return [Step(9, "leaps")] if now == 1 else []


def test_nobody_may_need_a_free_party_to_get_unstuck() -> None:
    waits = Predicate("counted", ("a",), lambda now: now == 1)
    assert explore(Protocol((counter("a", 1),), waits)).violation is None
    assert violated(explore(Protocol((counter("a", 1, free=True),), waits))) == (ViolationKind.DEAD_END, "counted", 0)


def test_nobody_may_need_a_fault_to_get_unstuck() -> None:
    party = ModelParty("a", "stuck", crash=lambda _: ("well",))
    found = explore(
        Protocol((party,), Predicate("well", ("a",), lambda now: now == "well")), FaultBudget(crashes={"a": 1})
    )
    assert violated(found) == (ViolationKind.DEAD_END, "well", 0)


def test_doing_something_that_changes_nothing_is_no_way_on() -> None:
    idles = ModelParty("a", 0, lambda now: [Step(now, "idles")])
    assert violated(explore(Protocol((idles,), NOTHING))) == (ViolationKind.DEAD_END, "nobody may rest", 0)


def test_a_direct_word_is_taken_in_the_same_step_or_the_step_cannot_be_made() -> None:
    asks = ModelParty(
        "asker", 2, lambda left: [Step(left - 1, "asks", call_argument="go")] if left else [], calls="receiver"
    )
    once = listener(lambda now, _: () if now else [Step("gone", "goes", (ModelMessage("receiver", "later"),))])
    found = explore(Protocol((asks, once), ANYTHING))
    assert (found.visited, found.depth) == (3, 2)
    bad = explore(Protocol((asks, once), ANYTHING, (hears_never("gone"),)))
    assert bad.violation is not None
    assert bad.violation.trace.steps == ("asker asks; receiver: goes",)


def test_a_direct_word_to_one_who_is_down_is_not_taken() -> None:
    asks = ModelParty(
        "asker", 1, lambda left: [Step(left - 1, "asks", call_argument="go")] if left else [], calls="receiver"
    )
    mortal = listener(heard, crash=lambda now: (now,))
    found = explore(Protocol((asks, mortal), ANYTHING), FaultBudget(crashes={"receiver": 1}))
    assert found.visited == 6


def test_a_bound_on_states_depth_or_messages_makes_it_incomplete() -> None:
    protocol = Protocol((counter("a", 50), counter("b", 50)), ANYTHING)
    assert explore(protocol).complete
    assert not explore(protocol, bounds=Bounds(states=100)).complete
    shallow = explore(protocol, bounds=Bounds(depth=7))
    assert (shallow.complete, shallow.depth) == (False, 7)
    chatty = Protocol((sender("x", "y", "z"), listener(heard)), ANYTHING)
    assert explore(chatty, bounds=Bounds(in_flight=3)).complete
    assert not explore(chatty, bounds=Bounds(in_flight=2)).complete


def test_what_a_bound_cut_off_is_not_taken_for_a_dead_end_or_for_restlessness() -> None:
    heard_all = Predicate("heard all", ("receiver",), lambda now: len(now) == 2)
    mute = ModelParty(
        "receiver", "", receive=lambda now, body: [Step(now + body)] if now or body == "y" else [Step(now)]
    )
    found = explore(Protocol((sender("x", "y"), mute), heard_all), bounds=Bounds(in_flight=0))
    assert found.violation is None
    assert not found.complete


def test_a_search_says_what_it_saw() -> None:
    assert str(explore(Protocol((counter("a", 1),), ANYTHING))) == "2 states, 1 transitions, depth 1: all there is"


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol((ModelParty("a", 0, calls="b"),), ANYTHING),
        Protocol((sender("x", to="b"),), ANYTHING),
        Protocol((counter("a", 1),), Predicate("of b", ("b",), bool)),
    ],
)
def test_a_party_that_does_not_exist_is_named_with_those_that_do(protocol: Protocol) -> None:
    with pytest.raises(UnknownName) as caught:
        explore(protocol)
    assert (caught.value.what, caught.value.name) == ("party", "b")


def test_a_crash_of_nobody_and_a_budget_out_of_range_are_refused() -> None:
    protocol = Protocol((counter("a", 1),), ANYTHING)
    with pytest.raises(UnknownName):
        explore(protocol, FaultBudget(crashes={"b": 1}))
    with pytest.raises(BadInput):
        explore(protocol, FaultBudget(losses=-1))
    with pytest.raises(BadInput):
        explore(protocol, FaultBudget(duplicates=256))


def test_a_word_to_nobody_in_particular_is_refused() -> None:
    party = ModelParty("a", 0, lambda now: [Step(now, "says", call_argument="hello")])
    with pytest.raises(BadInput):
        explore(Protocol((party,), ANYTHING))
