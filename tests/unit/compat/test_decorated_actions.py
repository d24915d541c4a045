import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Barrier, Thread

import pytest

from stateward.compat.decorated_actions import ATTEMPTS, ActionRefused, AttributeHolder, Contended, performs
from stateward.errors import BadInput, UnknownName
from stateward.lifecycle import (
    AGENT,
    BACK,
    FAILED,
    FORCE,
    GONE,
    MINUTE,
    NEW,
    STABLE,
    TRANSITIONAL,
    USER,
    Actor,
    RefusalCode,
    State,
    action,
    declare,
    every,
    request,
    step,
)


class Lamp(State):
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE
    CLEANING = "cleaning", TRANSITIONAL
    BROKEN = "broken", STABLE
    REMOVING = "removing", TRANSITIONAL


LAMP = declare(
    "lamp",
    Lamp,
    (
        step(NEW, "hang", USER, Lamp.OFF),
        step(Lamp.OFF, "drop", USER, Lamp.BROKEN),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, Lamp.BROKEN, MINUTE),
        action(Lamp.OFF | Lamp.ON, "clean", USER, Lamp.CLEANING, BACK, Lamp.BROKEN, MINUTE),
        action(Lamp.BROKEN, "clean", USER, Lamp.CLEANING, Lamp.OFF, Lamp.BROKEN, MINUTE, needs=FORCE),
        action(every(Lamp), "remove", USER, Lamp.REMOVING, GONE, Lamp.BROKEN, MINUTE),
        request(Lamp.ON, "inspect", AGENT, Lamp.CLEANING, Lamp.ON, Lamp.BROKEN, MINUTE),
    ),
    USER | AGENT,
)


class Thing:
    def __init__(self, state: str | None, epoch: int = 0) -> None:
        self.state = state
        self.epoch = epoch


class Burnt(Exception):
    pass


Work = Callable[[Thing], object]
Run = Callable[..., object]


def idle(lamp: Thing) -> object:
    return None


@performs(LAMP, "light")
def light(lamp: Thing, during: Work = idle) -> object:
    return during(lamp)


@performs(LAMP, "light")
async def light_later(lamp: Thing, during: Work = idle) -> object:
    await asyncio.sleep(0)
    return during(lamp)


def lit(lamp: Thing, during: Work = idle) -> object:
    return asyncio.run(light_later(lamp, during))


def raising(error: BaseException) -> Work:
    def work(_lamp: Thing) -> object:
        raise error

    return work


both = pytest.mark.parametrize("run", [light, lit], ids=["sync", "async"])


@both
def test_state_is_transitional_during_the_work_and_desired_after_it(run: Run) -> None:
    lamp = Thing(Lamp.OFF)
    assert run(lamp, lambda lamp: lamp.state) is Lamp.LIGHTING
    assert lamp.state is Lamp.ON


@both
def test_refused_function_does_not_run_and_the_error_carries_the_refusal(run: Run) -> None:
    lamp = Thing(Lamp.ON)
    with pytest.raises(ActionRefused) as caught:
        run(lamp, lambda lamp: pytest.fail("it ran"))
    assert caught.value.refusal.reason is RefusalCode.NOT_FROM_HERE
    assert caught.value.refusal.state is Lamp.ON
    assert not caught.value.retry
    assert str(caught.value) == str(caught.value.refusal)
    assert lamp.state is Lamp.ON


@both
def test_second_call_during_the_first_is_refused_and_may_be_tried_again(run: Run) -> None:
    lamp = Thing(Lamp.OFF)

    def again(lamp: Thing) -> None:
        with pytest.raises(ActionRefused) as caught:
            light(lamp)
        assert caught.value.refusal.reason is RefusalCode.IN_TRANSITION
        assert caught.value.retry

    run(lamp, again)
    assert lamp.state is Lamp.ON


@both
def test_error_makes_it_the_error_state_and_is_raised_on(run: Run) -> None:
    lamp, error = Thing(Lamp.OFF), Burnt()
    with pytest.raises(Burnt) as caught:
        run(lamp, raising(error))
    assert caught.value is error
    assert lamp.state is Lamp.BROKEN


@both
@pytest.mark.parametrize("error", [BadInput("watts", -1, "positive"), UnknownName("colour", "rde", ["red"])])
def test_wrong_input_puts_the_state_back(run: Run, error: Exception) -> None:
    lamp = Thing(Lamp.OFF)
    with pytest.raises(type(error)):
        run(lamp, raising(error))
    assert lamp.state is Lamp.OFF


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError(), StopIteration()])
def test_interrupted_work_is_not_left_in_transition(run: Run, error: BaseException) -> None:
    lamp = Thing(Lamp.OFF)
    with pytest.raises((type(error), RuntimeError)):
        run(lamp, raising(error))
    assert lamp.state is Lamp.BROKEN


@pytest.mark.parametrize("origin", [Lamp.OFF, Lamp.ON])
def test_work_that_goes_back_returns_to_where_it_began(origin: Lamp) -> None:
    @performs(LAMP, "clean")
    def clean(lamp: Thing) -> None:
        assert lamp.state is Lamp.CLEANING

    lamp = Thing(origin)
    clean(lamp)
    assert lamp.state is origin


def test_facts_open_what_needs_them() -> None:
    @performs(LAMP, "clean")
    def clean(lamp: Thing) -> None: ...

    @performs(LAMP, "clean", facts=frozenset({FORCE}))
    def scrub(lamp: Thing) -> None: ...

    lamp = Thing(Lamp.BROKEN)
    with pytest.raises(ActionRefused) as caught:
        clean(lamp)
    assert caught.value.refusal.missing == (FORCE,)
    scrub(lamp)
    assert lamp.state is Lamp.OFF


@both
def test_late_result_of_pre_empted_work_changes_nothing_and_is_returned(run: Run) -> None:
    lamp = Thing(Lamp.OFF)
    assert run(lamp, lambda lamp: (remove(lamp), "late")[1]) == "late"
    assert lamp.state is GONE


@both
def test_late_error_of_pre_empted_work_changes_nothing_and_is_raised(run: Run) -> None:
    lamp = Thing(Lamp.OFF)
    with pytest.raises(Burnt):
        run(lamp, lambda lamp: (remove(lamp), raising(Burnt())(lamp)))
    assert lamp.state is GONE


@both
def test_object_gone_meanwhile_is_not_an_error(run: Run) -> None:
    lamp = Thing(Lamp.OFF)
    assert run(lamp, lambda lamp: setattr(lamp, "state", None)) is None
    assert lamp.state is None


@both
@pytest.mark.parametrize("state", [None, GONE])
def test_object_gone_before_is_refused_as_final(run: Run, state: str | None) -> None:
    with pytest.raises(ActionRefused) as caught:
        run(Thing(state))
    assert caught.value.refusal.state is GONE
    assert caught.value.refusal.reason is RefusalCode.FINAL_STATE
    assert caught.value.refusal.allowed == ()


@performs(LAMP, "remove")
def remove(lamp: Thing) -> None: ...


def test_non_fatal_error_in_what_pre_empted_other_work_has_nowhere_to_return_to() -> None:
    @performs(LAMP, "remove")
    def fumble(lamp: Thing) -> None:
        raise BadInput("hand", "left", "right")

    lamp = Thing(Lamp.LIGHTING)
    with pytest.raises(BadInput):
        fumble(lamp)
    assert lamp.state is Lamp.BROKEN


def test_epoch_tells_late_work_from_later_work_of_the_same_name() -> None:
    @performs(LAMP, "light", holder=lambda lamp, during: AttributeHolder(lamp, epoch="epoch"))
    def fenced(lamp: Thing, during: Callable[[Thing], None]) -> None:
        during(lamp)

    def taken_over(lamp: Thing) -> None:
        lamp.state, lamp.epoch = Lamp.OFF, lamp.epoch + 1
        AttributeHolder(lamp, epoch="epoch").compare_and_set(Lamp.OFF, Lamp.LIGHTING)

    lamp = Thing(Lamp.OFF)
    fenced(lamp, taken_over)
    assert (lamp.state, lamp.epoch) == (Lamp.LIGHTING, 3)


def test_judge_may_call_work_failed_that_raised_nothing() -> None:
    @performs(LAMP, "light", judge=lambda holder, move: FAILED)
    def flicker(lamp: Thing) -> str:
        return "done"

    lamp = Thing(Lamp.OFF)
    assert flicker(lamp) == "done"
    assert lamp.state is Lamp.BROKEN


def test_judge_that_errs_leaves_nothing_in_transition() -> None:
    @performs(LAMP, "light", judge=lambda holder, move: "no such ending")
    def flicker(lamp: Thing) -> None: ...

    lamp = Thing(Lamp.OFF)
    with pytest.raises(UnknownName):
        flicker(lamp)
    assert lamp.state is Lamp.OFF


class Scripted:
    """A holder whose reads are told in advance, and that loses as often as it is told to."""

    def __init__(self, reads: Iterator[str | None], losses: int) -> None:
        self.reads = reads
        self.losses = losses
        self.written: list[tuple[str, str]] = []

    def read(self) -> str | None:
        return next(self.reads)

    def compare_and_set(self, expected: State, new: State) -> bool:
        self.losses -= 1
        if self.losses >= 0:
            return False
        self.written.append((expected, new))
        return True


class Slow(Scripted):
    """The same, asynchronous."""

    async def read(self) -> str | None:  # type: ignore[override]
        return super().read()

    async def compare_and_set(self, expected: State, new: State) -> bool:  # type: ignore[override]
        return super().compare_and_set(expected, new)


def clean_sync(holder: Scripted) -> None:
    performs(LAMP, "clean", holder=lambda: holder)(lambda: None)()


def clean_async(holder: Scripted) -> None:
    @performs(LAMP, "clean", holder=lambda: holder)
    async def clean() -> None: ...

    asyncio.run(clean())


def clean_slowly(holder: Scripted) -> None:
    holder.__class__ = Slow
    clean_async(holder)


cleaners = pytest.mark.parametrize("clean", [clean_sync, clean_async, clean_slowly])
Clean = Callable[[Scripted], None]


@cleaners
def test_loser_of_a_race_is_refused_by_the_state_that_won(clean: Clean) -> None:
    with pytest.raises(ActionRefused) as caught:
        clean(Scripted(iter([Lamp.OFF, Lamp.LIGHTING]), losses=1))
    assert caught.value.refusal.state is Lamp.LIGHTING


@cleaners
def test_state_that_changed_into_another_good_one_is_decided_on_afresh(clean: Clean) -> None:
    holder = Scripted(iter([Lamp.OFF, Lamp.ON]), losses=1)
    clean(holder)
    assert holder.written == [(Lamp.ON, Lamp.CLEANING), (Lamp.CLEANING, Lamp.ON)]


@cleaners
def test_caller_that_never_gets_its_turn_gives_up_and_says_so(clean: Clean) -> None:
    with pytest.raises(Contended) as caught:
        clean(Scripted(iter([Lamp.OFF] * ATTEMPTS), losses=ATTEMPTS))
    assert caught.value.retry
    assert caught.value.facts() == {"kind": "lamp", "event": "clean", "attempts": ATTEMPTS}
    assert str(caught.value) == f"'clean' gave up: the state of the lamp changed {ATTEMPTS} times meanwhile"


def test_of_many_threads_exactly_one_wins() -> None:
    lamp, barrier, outcomes = Thing(Lamp.OFF), Barrier(8), list[str]()

    def contend() -> None:
        barrier.wait()
        with suppress(ActionRefused):
            light(lamp)
            outcomes.append("lit")

    threads = [Thread(target=contend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["lit"]


def test_method_moves_the_object_it_belongs_to_by_its_status() -> None:
    class Street:
        def __init__(self) -> None:
            self.status: str = Lamp.OFF

        @performs(LAMP, "light")
        def light(self) -> None: ...

    street = Street()
    street.light()
    assert street.status is Lamp.ON


def test_object_may_be_passed_by_name_and_its_state_be_a_plain_word() -> None:
    lamp = Thing("off")
    light(lamp=lamp)
    assert (lamp.state, light.__name__) == ("on", "light")


def test_object_without_a_state_is_bad_input() -> None:
    with pytest.raises(BadInput) as caught:
        light(object())  # type: ignore[arg-type]
    assert caught.value.field == "holder"


@pytest.mark.parametrize(("event", "actor", "nearest"), [("lihgt", USER, "light"), ("light", Actor("usr"), "user")])
def test_unknown_name_is_told_at_the_declaration(event: str, actor: Actor, nearest: str) -> None:
    with pytest.raises(UnknownName) as caught:
        performs(LAMP, event, actor=actor)
    assert caught.value.nearest == nearest


@pytest.mark.parametrize(("event", "actor"), [("drop", USER), ("inspect", AGENT), ("light", AGENT)])
def test_only_an_action_of_the_actor_can_be_performed(event: str, actor: Actor) -> None:
    with pytest.raises(BadInput):
        performs(LAMP, event, actor=actor)


def test_generator_has_not_done_its_work_when_it_returns() -> None:
    with pytest.raises(BadInput):

        @performs(LAMP, "light")
        def trickle(lamp: Thing) -> Iterator[int]:
            yield 1
