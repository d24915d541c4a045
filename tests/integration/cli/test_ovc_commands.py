"""`stateward ovc` against a real server with simulated nodes."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from stateward.domains.ovc.model import OrphanId
from stateward.domains.ovc.orphan_scan import record_orphans
from stateward.domains.ovc.runtime import OvcRuntime
from stateward.domains.ovc.settings import Settings
from stateward.drivers.simulated import CALM, SimulatedCloud
from stateward.plugin.runtime import ProcessContext
from stateward.store.records import Key
from tests.integration.cli.cli_server import DomainCliServer


class OvcCliServer(DomainCliServer):
    """A server with the ovc domain."""

    command = "ovc"

    def make_runtime(self) -> OvcRuntime:
        cloud = SimulatedCloud(profile=CALM, chance=Random(1))
        return OvcRuntime(ProcessContext(self.folder), Settings("none", look_every=0.0), cloud=cloud)

    def item(self, named: str) -> Any:
        """Return an object as it is shown."""
        return self.json("ovc", "show", named)

    def state(self, named: str) -> str:
        """Return an object's state."""
        return str(self.item(named)["state"])


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OvcCliServer]:
    """A server with two nodes, an account, a cloudspace and an image."""
    cli = OvcCliServer(tmp_path_factory.mktemp("ovc"))
    with cli.opened():
        for name in ("n1", "n2"):
            cli.done("create", "node", name, "--wait")
        cli.done("create", "account", "acme", "--retention", "1.5", "--wait")
        cli.done("create", "cloudspace", "web", "--account", "account/acme", "--wait")
        cli.done("create", "image", "tick", "--account", "account/acme", "--wait")
        yield cli


def machine(cli: OvcCliServer, name: str) -> str:
    cli.done("create", "machine", name, "--cloudspace", "cloudspace/web", "--image", "image/tick", "--wait")
    return f"machine/{name}"


def test_json_has_the_fields_of_all_kinds(cli: OvcCliServer) -> None:
    common = ["id", "kind", "name", "state", "since", "parent", "operation", "error", "spec", "bin"]
    of_one_kind = ["disks", "clones", "vm", "users", "node", "firewall"]
    of_nodes = ["away", "report", "looked", "trouble", "strangers"]
    account = cli.item("account/acme")
    assert list(account) == [*common, *of_one_kind, *of_nodes]
    assert {account[name] for name in of_one_kind} == {None}
    assert [list(one) for one in cli.json("ovc", "list", "accounts")] == [list(account)]


def test_a_machine_does_as_it_is_told(cli: OvcCliServer) -> None:
    vm = machine(cli, "obedient")
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
        id_ = cli.item(vm)["id"]
        assert "succeeded" in cli.done(action, vm, "--wait")
        assert cli.state(id_) == state


def test_disks_come_and_go(cli: OvcCliServer) -> None:
    vm = machine(cli, "collector")
    cli.done("add-disk", vm, "first", "--gib", "2", "--wait")
    cli.done("create", "disk", "second", "--account", "account/acme", "--wait")
    cli.done("attach", vm, "disk/second", "--wait")
    assert len(cli.item(vm)["disks"]) == 3
    cli.done("detach", vm, "disk/second", "--wait")
    assert cli.state("disk/second") == "CREATED"
    assert "3 disks" not in cli.done("show", vm)
    assert "second" in cli.done("list", "disks", "--state", "CREATED")


def test_a_clone_is_made_and_a_machine_moves(cli: OvcCliServer) -> None:
    vm = machine(cli, "mother")
    before = cli.item(vm)["node"]
    cli.done("migrate", vm, "--wait")
    assert cli.item(vm)["node"] != before
    cli.done("stop", vm, "--wait")
    cli.done("clone", vm, "child", "--wait")
    refused = cli.run("ovc", "delete", vm)
    assert (refused.exit_code != 0, "has clones" in refused.output) == (True, True)


def test_a_node_goes_into_maintenance_and_leaves(cli: OvcCliServer) -> None:
    cli.done("create", "node", "third", "--option", "latency=0", "--wait")
    cli.done("maintenance", "node/third", "--vmaction", "stop", "--wait")
    assert cli.state("node/third") == "MAINTENANCE"
    assert "maintenance" in cli.done("show", "node/third") or cli.item("node/third")["report"] is not None
    cli.done("enable", "node/third", "--wait")
    id_ = cli.item("node/third")["id"]
    cli.done("decommission", "node/third", "--wait")
    assert cli.state(id_) == "DECOMMISSIONED"


def test_queues_and_healing_are_told(cli: OvcCliServer) -> None:
    vm = machine(cli, "quiet")
    assert "has no queue" in cli.done("queue", vm)
    assert "has no queue" in cli.done("queue", vm, "--stop")
    assert cli.json("ovc", "queue", vm)["operations"] == []
    assert "Nothing is stuck" in cli.done("healing")
    assert cli.json("ovc", "healing", "--hours", "1") == {"stuck": [], "healed": [], "strangers": []}


def test_what_belongs_to_nobody_is_told_with_the_healing_and_with_its_node(cli: OvcCliServer) -> None:
    id_ = cli.item("node/n1")["id"]
    stray = OrphanId("machine", "vm-of-nobody-12345678")
    cli.ask(cli.engine.store.transact(lambda tx: record_orphans(tx, Key("default", id_), [stray], complete=True)))
    for told in (cli.done("healing"), cli.done("show", "node/n1")):
        assert "vm-of-nobody-12345678" in told
    assert "1 orphan" in cli.done("list", "nodes")
    cli.ask(cli.engine.store.transact(lambda tx: record_orphans(tx, Key("default", id_), [], complete=True)))
    assert cli.json("ovc", "healing", "--hours", "1")["strangers"] == []


def test_whoever_believes_in_another_state_is_told(cli: OvcCliServer) -> None:
    vm = machine(cli, "believed")
    refused = cli.run("ovc", "stop", vm, "--status", "PAUSED")
    assert (refused.exit_code != 0, "Other action currently happening" in refused.output) == (True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "machine/nobody"), "there is no machine 'nobody'"),
        (("show", "ship/titanic"), "KIND/NAME"),
        (("show", "titanic"), "KIND/NAME"),
        (("list", "ships"), "one of accounts"),
        (("show", "vm-000000000000"), "there is no object"),
    ],
)
def test_names_that_lead_nowhere_are_told(cli: OvcCliServer, words: tuple[str, ...], said: str) -> None:
    result = cli.run("ovc", *words)
    assert (result.exit_code != 0, said in result.output) == (True, True), result.output


def test_an_empty_namespace_says_so(cli: OvcCliServer) -> None:
    before = cli.ns
    cli.use_namespace("empty")
    try:
        assert "No machines in namespace empty" in cli.run("ovc", "list", "machines").stderr
    finally:
        cli.ns = before
