"""Two installations of the agent with one cloudlet's token: the first is kept, the second waits for a hand-over."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.agents.connection import CONNECTION_LOST, AgentConnection, Disconnected
from stateward.agents.messages import Existing, Goodbye, Hello
from stateward.agents.simulation import SimulatedSite
from stateward.domains.edge.agents.connections import MAX_HELD_AGENTS, ConnectRequest
from stateward.domains.edge.api.schemas import view
from stateward.domains.edge.lifecycle import CLOUDLET
from stateward.domains.edge.lookups import save_status, unit_of_work
from stateward.domains.edge.model import (
    HELD_GONE_AFTER_S,
    MAX_LISTED_THINGS,
    CloudletStatus,
    HeldAgent,
    cloudlet_status,
)
from stateward.engine import Refused
from stateward.errors import BadInput
from stateward.schemas.caller import Caller
from stateward.store.port import Store, Tx
from stateward.store.records import Object
from tests.integration.domains.edge.conftest import ADA, ANN, NS, AgentRunner, EdgeHarness, open_harness
from tests.integration.domains.edge.process_deployment import Agent, open_deployment
from tests.waiting import until

FIRST, SECOND = "1" * 32, "2" * 32


def runner(installation: str) -> AgentRunner:
    return AgentRunner("munich", SimulatedSite(), installation=installation)


async def status_of(harness: EdgeHarness) -> CloudletStatus:
    return cloudlet_status(await harness.get("munich"))


async def until_held(harness: EdgeHarness, installation: str, *things: str) -> HeldAgent:
    """Wait until an installation is held, with these things at its site."""

    def condition(one: HeldAgent) -> bool:
        return one.installation == installation and one.things == things

    found = await harness.until_true("munich", lambda one: any(map(condition, cloudlet_status(one).held)))
    return next(filter(condition, cloudlet_status(found).held))


async def until_owned(harness: EdgeHarness, installation: str | None) -> None:
    """Wait until an installation serves."""

    def serves(found: Object) -> bool:
        now = cloudlet_status(found)
        return found.state == "Ready" and now.installation == installation and now.serving > 0

    await harness.until_true("munich", serves)


async def hand_over(harness: EdgeHarness, installation: str | None, by: Caller) -> None:
    """Hand the cloudlet over to an installation."""
    await harness.service.act(NS, "munich", CLOUDLET.kind, "handover", by, {"installation": installation})


async def until_agent_knows(second: AgentRunner) -> None:
    """Wait until an agent knows that it is held."""
    await until(lambda: second.agent._is_held)


async def test_the_second_installation_is_held_runs_nothing_and_is_shown_and_journaled_once(
    harness: EdgeHarness,
) -> None:
    first = await harness.cloudlet(runner=runner(FIRST))
    serving = (await status_of(harness)).serving
    second = harness.start(runner(SECOND))
    await until_held(harness, SECOND)
    assert (await harness.cluster()).status == "succeeded"
    await until_agent_knows(second)
    assert (await status_of(harness)).serving == serving
    assert second.site.applied == []
    assert [name for name, _, _ in first.site.applied] == ["c1"]
    shown = view(await harness.get("munich")).conditions
    assert shown.installation == FIRST
    assert [one.installation for one in shown.held] == [SECOND]
    refusals = [one for one in await harness.history("munich") if one.event == "rejected: start"]
    assert len(refusals) == 1
    assert FIRST in str(refusals[0].reason)
    assert SECOND in str(refusals[0].reason)


async def test_a_held_agent_tells_what_it_has_already(harness: EdgeHarness) -> None:
    await harness.cloudlet(runner=runner(FIRST))
    second = runner(SECOND)
    second.site.things["c7"] = Existing(1)
    harness.start(second)
    assert (await until_held(harness, SECOND, "c7")).version == "1.0"
    assert second.site.things == {"c7": Existing(1)}


async def test_a_first_that_is_gone_keeps_its_cloudlet_until_an_administrator_hands_it_over(
    harness: EdgeHarness,
) -> None:
    first = await harness.cloudlet(runner=runner(FIRST), missing="recreate")
    await harness.cluster()
    await first.kill()
    await harness.until("munich", "Offline")
    second = harness.start(runner(SECOND))
    await until_held(harness, SECOND)
    assert await harness.state("munich") == "Offline"
    with pytest.raises(Refused):
        await hand_over(harness, None, ANN)
    await hand_over(harness, None, ADA)
    await until_owned(harness, SECOND)
    await harness.until_renewed("munich:c1", 0)
    await harness.until_true("munich:c1", lambda one: one.state == "Ready" and "c1" in second.site.things)
    lines = [one for one in await harness.history("munich") if one.event == "handed over"]
    assert [(one.who, one.reason) for one in lines] == [("ada", f"from installation {FIRST} to {SECOND}")]


async def test_held_agents_cost_a_cloudlet_little_whatever_they_say(harness: EdgeHarness) -> None:
    await harness.cloudlet(runner=runner(FIRST))
    site, names = (await harness.get("munich")).key, tuple(f"{'c' * 245}{number}" for number in range(250))

    async def dial(installation: str, things: tuple[str, ...]) -> None:
        hello = Hello("1.0", installation=installation, things=things)
        answer = await harness.hub.connects.submit(ConnectRequest(site, hello, "here"))
        assert isinstance(answer, Goodbye)
        assert answer.held

    for number in range(MAX_HELD_AGENTS + 2):
        await dial(str(number), names)
    before = await harness.get("munich")
    assert len(before.seen) < 30_000
    held = view(before).conditions.held
    assert [one.installation for one in held] == [str(number) for number in range(MAX_HELD_AGENTS)]
    assert {(one.things, one.thing_count) for one in held} == {(names[:MAX_LISTED_THINGS], 250)}
    refusals = [one for one in await harness.history("munich") if one.event == "rejected: start"]
    assert len(refusals) == MAX_HELD_AGENTS
    await dial("1", names)
    assert (await harness.get("munich")).version == before.version, "it is written once a minute"


async def test_a_connection_is_logged_as_that_of_an_agent_once_it_has_said_hello(
    harness: EdgeHarness, caplog: pytest.LogCaptureFixture
) -> None:
    connection = AgentConnection(HungUp(), NS, "munich", asyncio.get_running_loop().time)
    with caplog.at_level(logging.INFO):
        with pytest.raises(Disconnected):
            await connection.serve(harness.hub)
        assert "is disconnected" not in caplog.text
        connection.has_said_hello = True
        await harness.hub.on_failure(connection, Disconnected(CONNECTION_LOST))
    assert f"agent of cloudlet {NS}/munich is disconnected: {CONNECTION_LOST}" in caplog.text


class HungUp:
    """The socket of a peer that says nothing and is gone."""

    async def receive_text(self) -> str:
        raise OSError("the peer is gone")

    async def send_text(self, data: bytes) -> None: ...

    async def close(self, code: int, reason: str) -> None: ...


async def test_a_hand_over_disconnects_the_first_which_is_held_from_then_on_and_tells_what_it_still_has(
    harness: EdgeHarness,
) -> None:
    await harness.cloudlet(runner=runner(FIRST), missing="leave")
    await harness.cluster()
    harness.start(runner(SECOND))
    await until_held(harness, SECOND)
    await hand_over(harness, SECOND, ADA)
    await until_owned(harness, SECOND)
    await until_held(harness, FIRST, "c1")
    await harness.until_true("munich:c1", lambda one: view(one).conditions.missing)


async def test_a_hand_over_to_one_that_is_not_held_is_refused_and_says_which_are(harness: EdgeHarness) -> None:
    await harness.cloudlet(runner=runner(FIRST))
    with pytest.raises(BadInput, match="the cloudlet holds none"):
        await hand_over(harness, None, ADA)
    harness.start(runner(SECOND))
    await until_held(harness, SECOND)
    with pytest.raises(BadInput, match=SECOND):
        await hand_over(harness, "3" * 32, ADA)
    assert (await status_of(harness)).installation == FIRST


async def test_a_held_agent_that_dials_no_more_is_not_shown_and_gets_nothing_handed_over(harness: EdgeHarness) -> None:
    first = await harness.cloudlet(runner=runner(FIRST))
    key = (await harness.get("munich")).key

    async def dialled_long_ago(tx: Tx) -> None:
        async with unit_of_work(tx, [key]) as uow:
            ago = uow.now - HELD_GONE_AFTER_S
            held = HeldAgent(SECOND, "1.0", ago, ago)
            save_status(uow, uow.objects[key], replace(cloudlet_status(uow.objects[key]), held=(held,)))

    await harness.engine.store.transact(dialled_long_ago)
    assert view(await harness.get("munich")).conditions.held == ()
    with pytest.raises(BadInput, match="the cloudlet holds none"):
        await hand_over(harness, SECOND, ADA)
    assert first.agent.notify


async def test_owner_and_held_survive_a_restart_of_the_controller(
    new_store: Callable[[], Store], tmp_path: Path
) -> None:
    first, second = runner(FIRST), runner(SECOND)
    async with open_harness(new_store(), tmp_path) as harness:
        await harness.cloudlet(runner=first)
        harness.start(second)
        await until_held(harness, SECOND)
    async with open_harness(new_store(), tmp_path) as harness:
        harness.start(second)
        await until_agent_knows(second)
        harness.start(first)
        await until_owned(harness, FIRST)
        assert [one.installation for one in (await status_of(harness)).held] == [SECOND]


async def test_agents_without_an_identity_serve_as_ever_and_own_nothing(harness: EdgeHarness) -> None:
    old = await harness.cloudlet(runner=runner(""))
    assert (await status_of(harness)).installation is None
    new = harness.start(runner(FIRST))
    await until_held(harness, FIRST)
    await old.kill()
    await until_owned(harness, FIRST)
    assert (await status_of(harness)).held == ()
    again = harness.start(runner(""))
    await until_held(harness, "")
    await hand_over(harness, None, ADA)
    await until_owned(harness, "")
    assert again.agent.notify
    async with asyncio.timeout(60):
        while new.agent.notify:  # it hears of that a moment later
            await asyncio.sleep(0.005)


def test_real_agents_in_two_folders_do_not_duel_and_the_command_line_hands_over(tmp_path: Path) -> None:
    with open_deployment(tmp_path) as deployment:
        deployment.work()
        deployment.call("POST", "/cloudlets", {"name": "munich"})
        deployment.until("/cloudlets/munich", "Ready", online=True)
        deployment.call("POST", "/cloudlets/munich/clusterinsts", {"name": "c1"})
        deployment.until("/cloudlets/munich/clusterinsts/c1", "Ready")
        deployment.work(site="other")
        deployment.until_true(lambda: bool(deployment.get("/cloudlets/munich")["conditions"]["held"]))
        owner = deployment.get("/cloudlets/munich")["conditions"]["installation"]
        (rival,) = deployment.get("/cloudlets/munich")["conditions"]["held"]
        assert owner == (tmp_path / "site" / "installation").read_text()
        assert rival["installation"] == (tmp_path / "other" / "installation").read_text()
        assert deployment.nodes("c1") == 1
        said = deployment.agent.said.read_text() if isinstance(deployment.agent, Agent) else ""
        assert said.count("agent waits: the cloudlet belongs to another installation") == 1
        assert "serves" not in said
        deployment.call("POST", "/cloudlets/munich/handover", {})
        deployment.until("/cloudlets/munich", "Ready", online=True, installation=rival["installation"])
