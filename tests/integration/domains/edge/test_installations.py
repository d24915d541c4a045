"""Two installations of the agent with one cloudlet's token: the first is kept, the second waits for a hand-over."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from stateward.agents.messages import Existing
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.api.schemas import view
from stateward.domains.edge.model import CloudletStatus, HeldAgent, cloudlet_status
from stateward.engine import Refused
from stateward.errors import BadInput
from stateward.store.port import Store
from stateward.store.records import Object
from tests.integration.domains.edge.conftest import ADA, ANN, NS, Hand, House, open_house
from tests.integration.domains.edge.field import Agent, open_field

FIRST, SECOND = "1" * 32, "2" * 32


def hand(installation: str) -> Hand:
    return Hand("munich", SimulatedSite(), installation=installation)


async def marks(house: House) -> CloudletStatus:
    return cloudlet_status(await house.get("munich"))


async def held(house: House, installation: str, *things: str) -> HeldAgent:
    """Wait until an installation is held, and has told that it has these things."""

    def condition(one: HeldAgent) -> bool:
        return one.installation == installation and one.things == things

    found = await house.until_true("munich", lambda one: any(map(condition, cloudlet_status(one).held)))
    return next(filter(condition, cloudlet_status(found).held))


async def owned(house: House, installation: str | None) -> None:
    """Wait until an installation serves."""

    def serves(found: Object) -> bool:
        now = cloudlet_status(found)
        return found.state == "Ready" and now.installation == installation and now.serving > 0

    await house.until_true("munich", serves)


async def dials_on(second: Hand) -> None:
    """Wait until an agent has been told that it is held."""
    async with asyncio.timeout(60):
        while not second.agent._is_held:
            await asyncio.sleep(0.005)


async def test_the_second_installation_is_held_runs_nothing_and_is_shown_and_journaled_once(house: House) -> None:
    first = await house.cloudlet(hand=hand(FIRST))
    serving = (await marks(house)).serving
    second = house.start(hand(SECOND))
    await held(house, SECOND)
    assert (await house.cluster()).status == "succeeded"
    await dials_on(second)
    assert (await marks(house)).serving == serving
    assert second.site.applied == []
    assert [name for name, _, _ in first.site.applied] == ["c1"]
    shown = view(await house.get("munich")).conditions
    assert shown.installation == FIRST
    assert [one.installation for one in shown.held] == [SECOND]
    refusals = [one for one in await house.history("munich") if one.event == "rejected: start"]
    assert len(refusals) == 1
    assert FIRST in str(refusals[0].reason)
    assert SECOND in str(refusals[0].reason)


async def test_a_held_agent_tells_what_it_has_already(house: House) -> None:
    await house.cloudlet(hand=hand(FIRST))
    second = hand(SECOND)
    second.site.things["c7"] = Existing(1)
    house.start(second)
    assert (await held(house, SECOND, "c7")).version == "1.0"
    assert second.site.things == {"c7": Existing(1)}


async def test_a_first_that_is_gone_keeps_its_cloudlet_until_an_administrator_hands_it_over(house: House) -> None:
    first = await house.cloudlet(hand=hand(FIRST), missing="recreate")
    await house.cluster()
    await first.kill()
    await house.until("munich", "Offline")
    second = house.start(hand(SECOND))
    await held(house, SECOND)
    assert await house.state("munich") == "Offline"
    with pytest.raises(Refused):
        await house.service.hand_over(NS, "munich", None, ANN)
    await house.service.hand_over(NS, "munich", None, ADA)
    await owned(house, SECOND)
    await house.renewed("munich:c1", 0)
    await house.until_true("munich:c1", lambda one: one.state == "Ready" and "c1" in second.site.things)
    lines = [one for one in await house.history("munich") if one.event == "handed over"]
    assert [(one.who, one.reason) for one in lines] == [("ada", f"from installation {FIRST} to {SECOND}")]


async def test_a_hand_over_disconnects_the_first_which_is_held_from_then_on_and_tells_what_it_still_has(
    house: House,
) -> None:
    await house.cloudlet(hand=hand(FIRST), missing="leave")
    await house.cluster()
    house.start(hand(SECOND))
    await held(house, SECOND)
    await house.service.hand_over(NS, "munich", SECOND, ADA)
    await owned(house, SECOND)
    await held(house, FIRST, "c1")
    await house.until_true("munich:c1", lambda one: view(one).conditions.missing)


async def test_a_hand_over_to_one_that_is_not_held_is_refused_and_says_which_are(house: House) -> None:
    await house.cloudlet(hand=hand(FIRST))
    with pytest.raises(BadInput, match="none is"):
        await house.service.hand_over(NS, "munich", None, ADA)
    house.start(hand(SECOND))
    await held(house, SECOND)
    with pytest.raises(BadInput, match=SECOND):
        await house.service.hand_over(NS, "munich", "3" * 32, ADA)
    assert (await marks(house)).installation == FIRST


async def test_owner_and_held_survive_a_restart_of_the_controller(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    first, second = hand(FIRST), hand(SECOND)
    async with open_house(new_store(), tmp_path) as house:
        await house.cloudlet(hand=first)
        house.start(second)
        await held(house, SECOND)
    async with open_house(new_store(), tmp_path) as house:
        house.start(second)
        await dials_on(second)
        house.start(first)
        await owned(house, FIRST)
        assert [one.installation for one in (await marks(house)).held] == [SECOND]


async def test_agents_without_an_identity_serve_as_ever_and_own_nothing(house: House) -> None:
    old = await house.cloudlet(hand=hand(""))
    assert (await marks(house)).installation is None
    new = house.start(hand(FIRST))
    await held(house, FIRST)
    await old.kill()
    await owned(house, FIRST)
    assert (await marks(house)).held == ()
    again = house.start(hand(""))
    await held(house, "")
    await house.service.hand_over(NS, "munich", None, ADA)
    await owned(house, "")
    assert again.agent.notify
    assert not new.agent.notify


def test_real_agents_in_two_folders_do_not_duel_and_the_command_line_hands_over(tmp_path: Path) -> None:
    with open_field(tmp_path) as field:
        field.work()
        field.call("POST", "/cloudlets", {"name": "munich"})
        field.until("/cloudlets/munich", "Ready", online=True)
        field.call("POST", "/cloudlets/munich/clusterinsts", {"name": "c1"})
        field.until("/cloudlets/munich/clusterinsts/c1", "Ready")
        field.work(site="other")
        field.sure(lambda: bool(field.get("/cloudlets/munich")["conditions"]["held"]))
        owner = field.get("/cloudlets/munich")["conditions"]["installation"]
        (rival,) = field.get("/cloudlets/munich")["conditions"]["held"]
        assert owner == (tmp_path / "site" / "installation").read_text()
        assert rival["installation"] == (tmp_path / "other" / "installation").read_text()
        assert field.nodes("c1") == 1
        said = field.agent.said.read_text() if isinstance(field.agent, Agent) else ""
        assert said.count("agent is held and waits: the cloudlet belongs to another installation") == 1
        assert "serves" not in said
        field.call("POST", "/cloudlets/munich/handover", {})
        field.until("/cloudlets/munich", "Ready", online=True, installation=rival["installation"])
