"""Random workloads from tables: good domains pass, bad handlers and tables are found with a seed that fails again."""

from collections.abc import Iterable
from importlib import import_module
from random import Random
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from stateward.engine import Handler, Job, Kind
from stateward.lifecycle import BACK, GONE, MINUTE, NEW, STABLE, TRANSITIONAL, USER, State, action, declare, step
from stateward.plugin import DomainPlugin
from stateward.testing import Effects, SimulatedState, SimulationFailed, do_nothing, simulate


class Lamp(State):
    MAKING = "making", TRANSITIONAL
    OFF = "off", STABLE
    LIGHTING = "lighting", TRANSITIONAL
    ON = "on", STABLE


LAMP = declare(
    "acme.lamp",
    Lamp,
    [
        action(NEW, "make", USER, Lamp.MAKING, Lamp.OFF, Lamp.OFF, MINUTE),
        action(Lamp.OFF, "light", USER, Lamp.LIGHTING, Lamp.ON, BACK, MINUTE),
        step(Lamp.ON, "off", USER, Lamp.OFF),
        step(Lamp.OFF, "remove", USER, GONE),
    ],
    by=USER,
)


def lamps(effects: Effects, *, repeats: bool) -> list[Kind]:
    """Lamps at a provider with or without idempotency keys."""

    async def work(job: Job) -> None:
        await (effects.apply if repeats else effects.apply_once)(job.key.id)

    return [Kind(LAMP, {"make": Handler(work), "light": Handler(work)})]


def good(effects: Effects) -> list[Kind]:
    return lamps(effects, repeats=False)


def bad(effects: Effects) -> list[Kind]:
    return lamps(effects, repeats=True)


def test_idempotent_handlers_pass_in_many_worlds() -> None:
    report = simulate(good, seeds=5)
    assert report.worlds == 5
    assert report.operations > 100
    assert 0 < report.effects <= report.operations


def test_effect_that_happens_twice_is_found_with_a_seed_that_fails_again() -> None:
    with pytest.raises(SimulationFailed, match="happened twice") as found:
        simulate(bad, seeds=40)
    seed = found.value.seed
    assert f"simulate(..., seeds=[{seed}]) runs it again" in str(found.value)
    with pytest.raises(SimulationFailed) as again:
        simulate(bad, seeds=[seed])
    assert again.value.trace == found.value.trace


def test_trace_tells_what_happened() -> None:
    with pytest.raises(SimulationFailed) as found:
        simulate(bad, seeds=40)
    assert "p1 starts" in found.value.trace[0]
    assert any("effect 'op" in line for line in found.value.trace)
    assert "WRONG: the effect" in found.value.trace[-1]


def test_listener_hears_of_each_event() -> None:
    heard: list[str] = []
    simulate(good, seeds=[3], listener=heard.append)
    assert any("fault: " in line for line in heard)
    assert any("make acme.lamp-" in line and "accepted" in line for line in heard)


def test_same_seed_gives_the_same_world() -> None:
    heard: list[list[str]] = [[], []]
    for lines in heard:
        simulate(good, seeds=[5], listener=lines.append)
    assert heard[0] == heard[1]


def test_domain_is_simulated_as_it_is_declared() -> None:
    kind = Kind(LAMP)
    assert simulate(DomainPlugin("acme", [kind]), seeds=2).operations > 10


def one_lamp_is_on(state: SimulatedState) -> None:
    assert sum(one.state == Lamp.ON for one in state.of_kind("acme.lamp")) <= 1, "two lamps are on"


def test_invariant_of_the_domain_is_checked_after_each_commit() -> None:
    with pytest.raises(SimulationFailed, match="WRONG: one_lamp_is_on does not hold: two lamps are on"):
        simulate(good, seeds=10, invariants=[one_lamp_is_on])


def test_invariant_is_checked_at_rest() -> None:
    seen: list[bool] = []
    simulate(good, seeds=[1], invariants=[lambda state: seen.append(state.at_rest)])
    assert seen[-1]
    assert seen.count(True) == 1


async def blow_up(job: Job) -> None:
    raise Exception("the bulb")


def test_handler_that_is_given_replaces_all_others() -> None:
    kind = Kind(LAMP, {"make": Handler(blow_up), "light": Handler(blow_up)})
    heard: list[str] = []
    simulate([kind], seeds=[1], handler=do_nothing, listener=heard.append)
    assert any("succeeded on" in line for line in heard)


def test_handler_that_raises_is_no_broken_promise() -> None:
    kind = Kind(LAMP, {"make": Handler(blow_up), "light": Handler(blow_up)})
    assert simulate([kind], seeds=2).operations > 10


class Spec(Struct):
    watts: Annotated[int, Meta(ge=5, le=60)]
    colour: str = "white"


def test_specs_are_made_from_their_type() -> None:
    assert simulate([Kind(LAMP, spec=Spec)], seeds=2).operations > 10


def test_arguments_are_made_from_their_type() -> None:
    heard: list[str] = []
    simulate([Kind(LAMP, args={"light": Spec})], seeds=2, handler=do_nothing, listener=heard.append)
    assert sum("light acme.lamp-" in line and "accepted" in line for line in heard) > 5


def test_specs_that_cannot_be_made_are_told() -> None:
    def fail(_chance: Random) -> None:
        raise ZeroDivisionError("no spec today")

    with pytest.raises(ZeroDivisionError, match="no spec today"):
        simulate([Kind(LAMP, spec=Spec)], seeds=2, specs={"acme.lamp": fail})


def test_specs_that_are_all_refused_are_told() -> None:
    with pytest.raises(AssertionError, match=r"no operation was accepted in 2 worlds.*watts"):
        simulate([Kind(LAMP, spec=Spec)], seeds=2, specs={"acme.lamp": lambda chance: {"watts": 1000}})


def kinds_of(domain: str) -> Iterable[Kind]:
    plugin: DomainPlugin = import_module(f"stateward.domains.{domain}.plugin").domain
    return [Kind(lifecycle) for lifecycle in plugin.all_lifecycles]


@pytest.mark.parametrize("domain", ["edge", "leases", "mci", "ovc", "systems"])
def test_tables_of_the_built_in_domains_break_no_promise(domain: str) -> None:
    assert simulate(kinds_of(domain), seeds=2, handler=do_nothing).operations > 20


@pytest.mark.parametrize("domain", ["leases", "systems"])
def test_guards_of_built_in_domains_break_no_promise(domain: str) -> None:
    plugin: DomainPlugin = import_module(f"stateward.domains.{domain}.plugin").domain
    assert simulate(plugin, seeds=3, handler=do_nothing).operations > 10
