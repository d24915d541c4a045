import pytest
from msgspec import Struct

from stateward.engine import Job, Kind, KindBuilder
from stateward.engine.kind_builder import progressive
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import DeclarationError, Move, check, decide


async def nothing(job: Job) -> None: ...


class LampSpec(Struct, frozen=True):
    watts: int = 5


def lamps(unknown: str | None = None) -> KindBuilder:
    lamp = KindBuilder("test.lamp", about="a lamp", spec=LampSpec, unknown=unknown)

    @lamp.creates(to="off", within=7.0)
    async def make(job: Job) -> None: ...

    @lamp.acts("off", to="on", attempts=3)
    async def light(job: Job) -> None: ...

    @lamp.acts("on", to="off", error="broken", through="going dark")
    async def put_out(job: Job) -> None: ...

    @lamp.acts("on", "off")
    async def clean(job: Job) -> None: ...

    @lamp.deletes()
    async def remove(job: Job) -> None: ...

    return lamp


@pytest.fixture
def lamp() -> Kind:
    return lamps().build()


def target(kind: Kind, state: str, event: str, actor: str = "user", origin: str | None = None) -> str:
    move = decide(kind.lifecycle, state, event, actor, origin=origin)
    assert isinstance(move, Move)
    return move.target.word


def test_a_kind_of_decorated_functions_has_a_sound_table_and_all_handlers(lamp: Kind) -> None:
    assert check(lamp.lifecycle) == ()
    assert lamp.lifecycle.actions == ("make", "light", "put_out", "clean", "remove")
    assert lamp.missing_handlers() == []
    assert (lamp.handlers["light"].attempts, lamp.spec, lamp.lifecycle.declaration.about) == (3, LampSpec, "a lamp")


def test_an_action_goes_through_a_state_of_its_own_and_ends_as_it_says(lamp: Kind) -> None:
    assert target(lamp, "(new)", "make") == "making"
    assert target(lamp, "making", "failed", "worker", "(new)") == "(gone)"
    assert target(lamp, "off", "light") == "lighting"
    assert target(lamp, "lighting", "succeeded", "worker", "off") == "on"
    assert target(lamp, "lighting", "failed", "worker", "off") == "off"
    assert target(lamp, "on", "put_out") == "going dark"
    assert target(lamp, "going dark", "failed", "worker", "on") == "broken"
    assert target(lamp, "cleaning", "succeeded", "worker", "on") == "on"


def test_an_action_has_five_minutes_unless_it_declares_another_time(lamp: Kind) -> None:
    moves = [decide(lamp.lifecycle, state, action, "user") for state, action in (("(new)", "make"), ("off", "light"))]
    assert [move.within for move in moves if isinstance(move, Move)] == [7.0, 300.0]


def test_an_object_can_be_deleted_in_all_stable_states(lamp: Kind) -> None:
    assert [target(lamp, state, "remove") for state in ("off", "on", "broken")] == ["removing"] * 3
    assert target(lamp, "removing", "succeeded", "worker", "on") == "(gone)"


def test_an_object_of_which_nobody_knows_whether_an_action_was_done_is_in_the_unknown_state() -> None:
    kind = lamps(unknown="unclear").build()
    assert target(kind, "lighting", "unknown", "worker", "off") == "unclear"
    assert target(kind, "lighting", "timed out", "clock", "off") == "unclear"
    assert target(kind, "unclear", "remove") == "removing"


def test_a_state_that_nothing_leads_to_is_refused_when_the_kind_is_built() -> None:
    lamp = lamps()
    lamp.acts("of", to="on")(nothing)
    with pytest.raises(UnknownName, match=r"state of test\.lamp 'of'; did you mean 'off'\? Known: broken, off, on"):
        lamp.build()


def test_a_table_with_a_fault_is_refused_when_the_kind_is_built() -> None:
    lamp = KindBuilder("test.lamp")
    lamp.creates(to="on")(nothing)
    with pytest.raises(DeclarationError, match=r"test\.lamp: dead end that is not final at on"):
        lamp.build()


def test_two_functions_of_one_name_are_refused() -> None:
    lamp = lamps()
    lamp.acts("on")(nothing)
    with pytest.raises(
        BadInput, match=r"function: 'nothing' must be a function whose name no other action of test.lamp"
    ):
        lamp.acts("off")(nothing)


def test_an_action_without_states_is_refused() -> None:
    with pytest.raises(BadInput, match="must be the states in which an action"):
        lamps().acts()


def test_a_stable_state_cannot_be_transitional_too() -> None:
    lamp = lamps()
    lamp.acts("on", through="off")(nothing)
    with pytest.raises(BadInput, match="through: 'off' must be a state of its own"):
        lamp.build()


WORDS = {
    "light": "lighting", "put_out": "putting_out", "stop": "stopping", "make": "making", "create": "creating",
    "resize": "resizing", "open": "opening", "free": "freeing", "tie": "tying", "deploy": "deploying", "fix": "fixing",
}  # fmt: skip


@pytest.mark.parametrize("verb", WORDS)
def test_the_word_of_a_state_in_which_an_action_runs(verb: str) -> None:
    assert progressive(verb) == WORDS[verb]
