"""The arrows of a drawing."""

import pytest

from stateward.lifecycle import GONE, NEW, Lifecycle, Meaning, States
from stateward.lifecycle.render.arrow_labels import Tone
from stateward.lifecycle.render.edges import Edge, edges
from stateward.plugin.registry import installed
from tests.unit.lifecycle.render.samples import INSTANCE, MACHINE, InstanceState, MachineState

ALL = (MACHINE, INSTANCE, *installed().lifecycles)


def edge(lifecycle: Lifecycle, source: str, target: str) -> Edge:
    return next(one for one in edges(lifecycle) if one.sources == (source,) and one.target == target)


def bundle(lifecycle: Lifecycle, event: str) -> Edge:
    return next(one for one in edges(lifecycle) if one.bundled and event in [label.event for label in one.labels])


def said(one: Edge) -> list[str]:
    return [str(label) for label in one.labels]


@pytest.mark.parametrize("lifecycle", ALL, ids=lambda one: one.kind)
def test_every_move_lies_on_one_arrow_and_every_arrow_is_made_of_moves(lifecycle: Lifecycle) -> None:
    moves = {
        (move.source, move.event, tuple(sorted(move.needs)), move.target)
        for move in lifecycle.every_move()
        if move.meaning is not Meaning.HIDDEN and not (move.meaning is Meaning.CANCEL and move.origin is not None)
    }
    drawn = [
        way
        for one in edges(lifecycle)
        for source in one.sources
        for way in (
            *((source, label.event, label.needs, one.target) for label in one.labels),
            *((one.target, label.event, label.needs, source) for label in one.back),
        )
    ]
    assert set(drawn) == moves


@pytest.mark.parametrize("lifecycle", ALL, ids=lambda one: one.kind)
def test_no_two_arrows_lead_the_same_way(lifecycle: Lifecycle) -> None:
    ways = [(one.sources, States((one.target,))) for one in edges(lifecycle)]
    back = [(States((one.target,)), one.sources) for one in edges(lifecycle) if one.back]
    assert len({*ways, *back}) == len(ways) + len(back)


def test_what_happens_between_two_states_shares_an_arrow() -> None:
    assert said(edge(INSTANCE, "Creating", "CreateError")) == ["failed (agent)", "timed out"]


def test_cancelling_and_hidden_work_are_not_drawn() -> None:
    events = {label.event for one in edges(INSTANCE) for label in (*one.labels, *one.back)}
    assert "cancelled" not in events
    assert "migrate" not in events


def test_an_event_that_leads_to_one_state_from_many_is_one_arrow_from_a_bundle() -> None:
    forced = bundle(MACHINE, "terminate")
    assert said(forced) == ["terminate [force]"]
    assert MachineState.REBOOTING in forced.sources
    assert forced.target == MachineState.TERMINATING


def test_what_leads_the_same_way_from_the_same_many_states_shares_their_bundle() -> None:
    assert said(bundle(MACHINE, "timed out")) == ["unknown", "timed out"]


def test_a_bundle_that_saves_no_arrow_is_not_made() -> None:
    terminates = [one for one in edges(MACHINE) if said(one) == ["terminate"]]
    assert [one.sources for one in terminates] == [(MachineState.RUNNING,), (MachineState.SUSPENDED,)]


@pytest.mark.parametrize("lifecycle", ALL, ids=lambda one: one.kind)
def test_success_of_our_own_work_is_never_bundled_since_it_is_the_way_through(lifecycle: Lifecycle) -> None:
    assert not any(one.bundled and "succeeded" in said(one) for one in edges(lifecycle))


def test_work_that_ends_where_it_began_leads_back_along_its_own_arrow() -> None:
    update = edge(INSTANCE, "Ready", "Updating")
    assert said(update) == ["update"]
    assert [label.event for label in update.back] == ["succeeded", "failed", "timed out"]
    assert not any(one.sources == (InstanceState.UPDATING,) for one in edges(INSTANCE))


def test_work_that_ends_elsewhere_for_others_does_not_lead_back() -> None:
    assert not edge(INSTANCE, "CreateError", "CreateRequested").back


def test_an_arrow_is_as_loud_as_its_loudest_label() -> None:
    assert edge(MACHINE, NEW, "Creating").tone is Tone.ASKED
    assert edge(MACHINE, "Terminated", GONE).tone is Tone.WENT_ON
    assert bundle(MACHINE, "terminate").tone is Tone.INSISTED
    assert bundle(MACHINE, "failed").tone is Tone.FAILED


def test_actors_are_named_only_where_they_are_a_restriction() -> None:
    assert said(edge(MACHINE, "Running", "Suspending")) == ["suspend"]
    assert said(edge(MACHINE, "Failed", "Running")) == ["seen running (provider)"]
    assert said(edge(MACHINE, "Suspending", "Suspended")) == ["succeeded"]
