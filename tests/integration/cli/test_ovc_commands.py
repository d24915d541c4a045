"""`stateward ovc` against a real server with simulated nodes."""

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stateward.access import Role, Tokens
from stateward.access.quotas import quota_kind
from stateward.access.tokens import token_kind
from stateward.cli.main import app as command_line
from stateward.config import Config
from stateward.domains.ovc.model import OrphanId
from stateward.domains.ovc.orphan_scan import record_orphans
from stateward.domains.ovc.plugin import OvcPlugin
from stateward.domains.ovc.settings import Settings
from stateward.domains.plugin import ProcessContext
from stateward.drivers.simulated import CALM, SimulatedCloud
from stateward.engine import Engine
from stateward.server.app import create_app
from stateward.server.live import live_routes
from stateward.server.live.feeds import LiveFeeds
from stateward.store import open_store
from stateward.store.records import Key
from tests.integration.cli.house import House
from tests.integration.engine.plant import Plant


class OvcHouse(House):
    """A server with the ovc domain."""

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.plant = Plant()
        config = Config(data=str(self.folder), rate=100_000)
        plugin = OvcPlugin(
            ProcessContext(self.folder),
            Settings("none", look_every=0.0),
            cloud=SimulatedCloud(profile=CALM, chance=Random(1)),
        )
        engine = Engine(open_store(config.store_url), [token_kind(), quota_kind(), *plugin.kinds], lease_s=3.0)
        plugin.bind_engine(engine)
        async with engine as self.engine, plugin.running(engine, works=True):
            self.tokens = Tokens(self.engine)
            self.token, _ = await self.tokens.issue("the test", Role.ADMIN, ["*"])
            app = create_app(self.engine, self.tokens, config, routes=plugin.routes, api_routes=live_routes.ROUTES)
            async with LiveFeeds(self.engine) as live_feeds:
                app.state["live_feeds"] = live_feeds
                await self._listen(app)

    def run(self, *words: str, token: str | None = None, stdin: str | None = None) -> Result:
        """Run a command against this server."""
        env = {**self.env, **({} if token is None else {"STATEWARD_TOKEN": token})}
        return CliRunner().invoke(command_line, words, env=env, input=stdin)

    def done(self, *words: str) -> str:
        """Run a command of the domain that succeeds, and return what it prints."""
        result = self.run("ovc", *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def item(self, named: str) -> Any:
        """Return an object as it is shown."""
        return self.json("ovc", "show", named)

    def state(self, named: str) -> str:
        """Return an object's state."""
        return str(self.item(named)["state"])


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvcHouse]:
    """A server with two nodes, an account, a cloudspace and an image."""
    house = OvcHouse(tmp_path_factory.mktemp("ovc"))
    with house.opened():
        for name in ("n1", "n2"):
            house.done("create", "node", name, "--wait")
        house.done("create", "account", "acme", "--retention", "1.5", "--wait")
        house.done("create", "cloudspace", "web", "--account", "account/acme", "--wait")
        house.done("create", "image", "tick", "--account", "account/acme", "--wait")
        yield house


def machine(house: OvcHouse, name: str) -> str:
    house.done("create", "machine", name, "--cloudspace", "cloudspace/web", "--image", "image/tick", "--wait")
    return f"machine/{name}"


def test_a_machine_does_as_it_is_told(house: OvcHouse) -> None:
    vm = machine(house, "obedient")
    for action, state in (
        ("pause", "PAUSED"),
        ("resume", "RUNNING"),
        ("reboot", "RUNNING"),
        ("reset", "RUNNING"),
        ("stop", "HALTED"),
        ("start", "RUNNING"),
        ("delete", "DELETED"),
        ("restore", "HALTED"),
        ("destroy", "DESTROYED"),
    ):
        id_ = house.item(vm)["id"]
        assert "succeeded" in house.done(action, vm, "--wait")
        assert house.state(id_) == state


def test_disks_come_and_go(house: OvcHouse) -> None:
    vm = machine(house, "collector")
    house.done("add-disk", vm, "first", "--gib", "2", "--wait")
    house.done("create", "disk", "second", "--account", "account/acme", "--wait")
    house.done("attach", vm, "disk/second", "--wait")
    assert len(house.item(vm)["disks"]) == 3
    house.done("detach", vm, "disk/second", "--wait")
    assert house.state("disk/second") == "CREATED"
    assert "3 disks" not in house.done("show", vm)
    assert "second" in house.done("list", "disks", "--state", "CREATED")


def test_a_clone_is_made_and_a_machine_moves(house: OvcHouse) -> None:
    vm = machine(house, "mother")
    before = house.item(vm)["node"]
    house.done("migrate", vm, "--wait")
    assert house.item(vm)["node"] != before
    house.done("stop", vm, "--wait")
    house.done("clone", vm, "child", "--wait")
    refused = house.run("ovc", "delete", vm)
    assert (refused.exit_code != 0, "has clones" in refused.output) == (True, True)


def test_a_node_goes_into_maintenance_and_leaves(house: OvcHouse) -> None:
    house.done("create", "node", "third", "--option", "latency=0", "--wait")
    house.done("maintenance", "node/third", "--vmaction", "stop", "--wait")
    assert house.state("node/third") == "MAINTENANCE"
    assert "maintenance" in house.done("show", "node/third") or house.item("node/third")["report"] is not None
    house.done("enable", "node/third", "--wait")
    id_ = house.item("node/third")["id"]
    house.done("decommission", "node/third", "--wait")
    assert house.state(id_) == "DECOMMISSIONED"


def test_queues_and_healing_are_told(house: OvcHouse) -> None:
    vm = machine(house, "quiet")
    assert "has no queue" in house.done("queue", vm)
    assert "has no queue" in house.done("queue", vm, "--stop")
    assert house.json("ovc", "queue", vm)["operations"] == []
    assert "Nothing is stuck" in house.done("healing")
    assert house.json("ovc", "healing", "--hours", "1") == {"stuck": [], "healed": [], "strangers": []}


def test_what_belongs_to_nobody_is_told_with_the_healing_and_with_its_node(house: OvcHouse) -> None:
    id_ = house.item("node/n1")["id"]
    stray = OrphanId("machine", "vm-of-nobody-12345678")
    house.ask(house.engine.store.transact(lambda tx: record_orphans(tx, Key("default", id_), [stray], complete=True)))
    for told in (house.done("healing"), house.done("show", "node/n1")):
        assert "vm-of-nobody-12345678" in told
    assert "1 orphans" in house.done("list", "nodes")
    house.ask(house.engine.store.transact(lambda tx: record_orphans(tx, Key("default", id_), [], complete=True)))
    assert house.json("ovc", "healing", "--hours", "1")["strangers"] == []


def test_whoever_believes_in_another_state_is_told(house: OvcHouse) -> None:
    vm = machine(house, "believed")
    refused = house.run("ovc", "stop", vm, "--status", "PAUSED")
    assert (refused.exit_code != 0, "Other action currently happening" in refused.output) == (True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "machine/nobody"), "the name of one"),
        (("show", "ship/titanic"), "KIND/NAME"),
        (("show", "titanic"), "KIND/NAME"),
        (("list", "ships"), "one of accounts"),
        (("show", "vm-000000000000"), "there is no object"),
    ],
)
def test_names_that_lead_nowhere_are_told(house: OvcHouse, words: tuple[str, ...], said: str) -> None:
    result = house.run("ovc", *words)
    assert (result.exit_code != 0, said in result.output) == (True, True), result.output


def test_an_empty_namespace_says_so(house: OvcHouse) -> None:
    house.ns, before = "empty", house.ns
    try:
        assert "No machines in namespace empty" in house.done("list", "machines")
    finally:
        house.ns = before
