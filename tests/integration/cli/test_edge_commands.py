"""`stateward edge` against a real server whose cloudlet has a simulated agent."""

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from stateward.agents.agent import Agent
from stateward.agents.inprocess import InProcessDialer
from stateward.agents.published_ports import PublishedAddress
from stateward.agents.self_upgrade import NoUpgrade
from stateward.agents.simulation import SimulatedSite
from stateward.agents.site import Health, InstanceMeasure
from stateward.domains.edge.runtime import EdgeRuntime
from stateward.plugin.runtime import ProcessContext
from tests.integration.cli.cli_server import DomainCliServer

NUMBERS = count(1)
PATIENT_S = 60.0


class EdgeCliServer(DomainCliServer):
    """A server with the edge domain."""

    command = "edge"

    def make_runtime(self) -> EdgeRuntime:
        self.agents: list[asyncio.Task[None]] = []
        self.plugin = EdgeRuntime(ProcessContext(self.folder, random=Random(1)), measure_s=0.05)
        return self.plugin

    async def stop_users(self) -> None:
        for task in self.agents:
            task.cancel()
        await asyncio.gather(*self.agents, return_exceptions=True)

    def done(self, *words: str) -> str:
        """Run a command of the domain that succeeds, and return all it prints, progress included."""
        result = self.run(self.command, *words)
        assert result.exit_code == 0, result.output
        return result.output

    def work(self, cloudlet: str, installation: str = "") -> None:
        """Let an agent work for a cloudlet."""
        board, self.site = InProcessDialer(self.plugin.agent_hub, self.ns, cloudlet), SimulatedSite()
        agent = Agent(self.site, board, "1.0", NoUpgrade(), observe_interval_s=0.05, installation=installation)
        self.do(lambda: self.agents.append(asyncio.get_running_loop().create_task(agent.run())))


@pytest.fixture(scope="module")
def edge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EdgeCliServer]:
    cli = EdgeCliServer(tmp_path_factory.mktemp("edge"))
    with cli.opened():
        yield cli


@pytest.fixture
def lab(edge_server: EdgeCliServer) -> EdgeCliServer:
    """A namespace of the test's own, with a cloudlet that is ready."""
    edge_server.use_namespace(f"t{next(NUMBERS)}")
    edge_server.done("cloudlet", "create", "munich")
    edge_server.work("munich")
    edge_server.run("wait", "munich")
    return edge_server


def test_a_cluster_lives_by_the_command_line_with_lines_that_can_be_shown_again(lab: EdgeCliServer) -> None:
    made = lab.done("clusterinst", "create", "munich/c1", "--nodes", "2", "--wait")
    assert "step 1 (1 of 1)" in made
    assert "Ready" in made
    (found,) = lab.seen("clusterinst", "update", "munich/c1", "--nodes", "3", "--wait")
    operation = found["operation"]["id"]
    assert "step 1 (1 of 1)" in lab.done("progress", operation)
    assert lab.seen("clusterinst", "show", "munich/c1")["spec"]["nodes"] == 3
    assert "munich:c1" in lab.done("clusterinst", "show")
    assert "nodes" in lab.done("clusterinst", "show", "munich/c1")
    lab.done("clusterinst", "delete", "munich/c1", "--wait")
    assert "there is no object" in lab.refused("clusterinst", "show", "munich/c1")
    assert lab.seen("clusterinst", "show") == []


def test_load_health_alerts_and_published_ports_of_an_app_are_shown_alone_and_in_the_list(lab: EdgeCliServer) -> None:
    lab.done("app", "create", "web", "command=sleep 1")
    lab.done("clusterinst", "create", "munich/c1", "--wait")
    lab.done("appinst", "create", "munich/c1/web", "--wait")
    address = PublishedAddress("web/0", 8000, "127.0.0.1", 34567)
    lab.site.things["c1:web"] = replace(lab.site.things["c1:web"], ports=(address,))
    bad = Health(False, "HTTP status 500")
    lab.site.measures["c1:web"] = InstanceMeasure(0.25, 3 << 20, 7, 7, health=bad)
    end = time.monotonic() + PATIENT_S
    while True:
        found = lab.seen("appinst", "show", "munich/c1/web")
        if found["ports"] and found["load"] and found["conditions"]["alerts"]:
            break
        assert time.monotonic() < end, found
    texts = ("0.25 cores, 3 MiB, 7 connections, unhealthy", "8000/tcp at 127.0.0.1:34567", "unhealthy: HTTP status 500")
    for words in (("show", "munich/c1/web"), ("show",)):
        shown = " ".join(lab.done("appinst", *words).split())
        assert all(text in shown for text in texts), shown


def test_an_app_is_deployed_changed_refreshed_and_removed(lab: EdgeCliServer) -> None:
    lab.done("app", "create", "web", "command=sleep 1", "count=2")
    lab.done("clusterinst", "create", "munich/c1", "--wait")
    lab.done("appinst", "create", "munich/c1/web", "--wait")
    lab.done("appinst", "update", "munich/c1/web", "--count", "5", "--wait")
    assert lab.seen("appinst", "show", "munich/c1/web")["spec"]["count"] == 5
    lab.done("appinst", "refresh", "munich/c1/web", "--wait")
    assert lab.seen("appinst", "show", "munich/c1/web")["spec"]["count"] == 2
    assert "in use by AppInst munich:c1:web" in lab.refused("clusterinst", "delete", "munich/c1")
    assert "munich:c1:web" in lab.done("appinst", "show", "--cloudlet", "munich")
    lab.done("appinst", "delete", "munich/c1/web", "--wait")
    lab.done("clusterinst", "delete", "munich/c1", "--wait")


def test_an_app_is_defined_by_a_manifest_in_a_file(lab: EdgeCliServer, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("parts:\n- {name: web, image: 'web:1', count: 2, env: {MODE: live}}\n")
    lab.done("app", "create", "shop", "-f", str(file), "organization=games")
    shown = lab.seen("app", "show", "shop")["spec"]
    assert shown["organization"] == "games"
    assert shown["parts"] == [{"name": "web", "image": "web:1", "count": 2, "env": {"MODE": "live"}}]
    for text, why in (
        ("parts: [", "YAML or JSON"),
        ("[]", "one object"),
        ("parts: [{image: 'a b'}]", "parts[0].image"),
    ):
        file.write_text(text)
        assert why in lab.refused("app", "create", "shop", "-f", str(file))
    assert "a file that can be read" in lab.refused("app", "update", "shop", "-f", str(tmp_path / "none"))


def test_records_are_defined_changed_shown_and_struck_out(lab: EdgeCliServer) -> None:
    lab.done("flavor", "create", "m4", "size=small")
    for command in ("create", "update"):
        assert (
            "field: must be given, as FIELD=VALUE, or in a file (-f). Sizes of nodes: size, cores, memory."
            in lab.refused("flavor", command, "m4")
        )
    assert lab.seen("flavor", "show", "m4")["spec"]["size"] == "small"
    lab.done("autoscale", "create", "busy", "min=1", "max=4", "cpu=100")
    lab.done("autoscale", "update", "busy", "max=6")
    assert lab.seen("autoscale", "show", "busy")["spec"]["max"] == 6
    lab.done("autoprov", "create", "near", 'cloudlets=["munich"]', "max=1", "requests=5", "deploy_after=1")
    lab.done("cloudlet", "create", "rome")
    lab.done("autoprov", "update", "near", "cloudlets=munich,rome")
    assert lab.seen("autoprov", "show", "near")["spec"]["cloudlets"] == ["munich", "rome"]
    game = lab.run("edge", "app", "create", "game", "autoprov=near", "-f", "-", stdin="command: sleep 1")
    assert game.exit_code == 0, game.output
    lab.done("app", "demand", "game", "munich=9")
    assert "a number" in lab.refused("app", "demand", "game", "munich=many")
    assert "autoprov.near" in lab.done("autoprov", "show")
    lab.done("flavor", "delete", "m4")
    assert "None in namespace" in lab.done("flavor", "show")


def test_a_cloudlet_is_shown_changed_and_its_failed_upgrade_settled(lab: EdgeCliServer) -> None:
    assert "agent 1.0" in lab.done("cloudlet", "show")
    lab.done("cloudlet", "update", "munich", "--orphans", "remove")
    assert lab.seen("cloudlet", "show", "munich")["spec"]["orphans"] == "remove"
    assert [one["version"] for one in lab.seen("agents")["agents"]] == ["1.0"]
    assert "munich" in lab.done("agents")
    assert "not installed here" in lab.refused("cloudlet", "upgrade", "munich", "2.0", "--wait")
    assert "upgrade has failed" in lab.refused("clusterinst", "create", "munich/c1")
    lab.done("cloudlet", "fix", "munich")
    lab.done("cloudlet", "maintain", "munich", "--wait")
    assert "no new instances" in lab.refused("clusterinst", "create", "munich/c1")
    lab.done("cloudlet", "resume", "munich")
    assert "of unknown cores" in lab.done("cloudlet", "show", "munich")
    lab.done("cloudlet", "delete", "munich", "--wait")
    assert lab.seen("cloudlet", "show") == []


def test_a_cloudlet_is_handed_over_to_an_agent_that_is_held(lab: EdgeCliServer) -> None:
    lab.work("munich", "a" * 32)
    held = f"another agent is held: installation {'a' * 32}"
    while held not in " ".join(lab.done("cloudlet", "show", "munich").split()):
        time.sleep(0.01)
    assert "one that is held" in lab.refused("cloudlet", "handover", "munich", "--installation", "b" * 32)
    operator = lab.json("token", "create", "ann", "--role", "operator", "--ns", lab.ns)["token"]
    assert lab.run("edge", "cloudlet", "handover", "munich", token=operator).exit_code == 4
    lab.done("cloudlet", "handover", "munich")
    while lab.seen("cloudlet", "show", "munich")["conditions"]["installation"] != "a" * 32:
        time.sleep(0.01)


def test_what_is_not_a_name_or_says_nothing_is_refused_before_anything_is_asked(lab: EdgeCliServer) -> None:
    assert "CLOUDLET/CLUSTER" in lab.refused("clusterinst", "create", "munich")
    assert "at least one option with a new value" in lab.refused("clusterinst", "update", "munich/c1")
    assert "at least one option with a new value" in lab.refused("appinst", "update", "munich/c1/web")


def test_an_administrator_may_leave_the_agent_out_by_an_option(lab: EdgeCliServer) -> None:
    lab.done("clusterinst", "create", "munich/c9", "--ignore", "agent", "--wait")
    lab.done("clusterinst", "delete", "munich/c9", "--ignore", "agent", "--ignore", "transient", "--wait")
