"""`stateward mci` against a real server: simulated clouds, and processes of this host."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from stateward.access import Role
from stateward.client.http import HttpConnection
from stateward.domains.mci.provider.key_pairs import new_pair
from stateward.drivers import MachineSpec, ProviderRegion
from stateward.drivers.simulated import CALM
from stateward.lifecycle import USER
from stateward.schemas.caller import Caller
from tests.integration.cli.mci_cli_server import MciServer

EXAMPLES = Path(__file__).parents[3] / "examples"
NUMBERS = count(1)
SEOUL = ProviderRegion("aws", "ap-northeast-2")
FLEET = """
name: m1
groups:
  - {name: web, size: 3, spec: aws+ap-northeast-2+t3.nano, image: ubuntu22.04}
  - {name: db, size: 2, spec: gcp+us-central1+e2-micro, image: debian12}
"""


@pytest.fixture(scope="module")
def one_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MciServer]:
    cli = MciServer(tmp_path_factory.mktemp("mci"))
    with cli.opened():
        yield cli


@pytest.fixture
def cli(one_cli: MciServer) -> MciServer:
    """Return the server with a namespace of the test's own."""
    one_cli.ns = f"t{next(NUMBERS)}"
    one_cli.ask(one_cli.plugin.service.add_namespace(one_cli.ns, "", Caller(USER)))
    return one_cli


def states(told: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    return {one["id"]: one["status"] for one in told["vm"]}


def test_a_fleet_is_made_and_seen(cli: MciServer) -> None:
    told = cli.made(FLEET)
    assert told["operation"]["status"] == "succeeded"
    assert told["mci"]["status"] == "Running:5 (R:5/5)"
    shown = cli.run("mci", "status", "m1").stdout
    assert "Running:5 (R:5/5)" in shown
    assert "web-3" in shown
    assert "m1" in cli.run("mci", "list").stdout
    assert [one["id"] for one in cli.json("mci", "list")] == ["m1"]


def test_an_mci_in_a_file_of_objects_is_refused_with_the_command_that_creates_one(
    cli: MciServer, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text("kind: mci.mci\nname: web\nspec: {name: web}\n")
    done = cli.run("apply", "-f", str(tmp_path))
    assert done.exit_code == 2
    assert "web.yaml, line 3: web: spec.uid: must be given; `stateward mci create -f FILE` creates" in done.stderr


def test_what_is_done_to_an_mci_by_the_generic_command_is_done_to_its_vms(cli: MciServer) -> None:
    cli.made(FLEET)
    done = cli.json("do", "suspend", "mci/m1", "--wait")
    assert {one["operation"]["status"] for one in done} == {"succeeded"}
    assert len(done) == 6
    assert set(states(cli.json("mci", "status", "m1")).values()) == {"Suspended"}


def test_what_no_vm_of_an_mci_allows_is_refused_by_the_generic_command_too(cli: MciServer) -> None:
    cli.made(FLEET)
    refused = cli.run("do", "resume", "mci/m1")
    assert refused.exit_code == 1
    assert "refused" in refused.stdout + refused.stderr


def test_the_private_key_of_its_vms_is_written_to_a_new_file_and_nowhere_else(cli: MciServer, tmp_path: Path) -> None:
    file = tmp_path / "m1.key"
    made = cli.run("mci", "create", "-f", "-", "--key", str(file), "--json", stdin=FLEET)
    assert made.exit_code == 0, made.output
    assert file.read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "PRIVATE" not in made.output
    again = cli.run("mci", "create", "-f", "-", "--name", "m2", "--key", str(file), stdin=FLEET)
    assert (again.exit_code, "--key" in again.stderr) == (2, True)
    slip = ("--key", str(tmp_path / "m2.key"), "--encrypt-for", str(file))
    private = cli.run("mci", "create", "-f", "-", "--name", "m2", *slip, stdin=FLEET)
    assert (private.exit_code, "this one has a private key" in private.stderr) == (2, True)
    assert [one["id"] for one in cli.json("mci", "list")] == ["m1"]


def test_where_no_key_is_made_no_file_is_left(cli: MciServer, tmp_path: Path) -> None:
    file = tmp_path / "m1.key"
    own = f"publicKey: {new_pair().public}\n{FLEET}"
    assert cli.run("mci", "create", "-f", "-", "--key", str(file), stdin=own).exit_code == 0
    assert cli.run("mci", "create", "-f", "-", "--key", str(file), stdin=FLEET).exit_code == 1
    assert not file.exists()


def test_who_gives_no_file_is_told_that_nobody_keeps_the_key(cli: MciServer) -> None:
    made = cli.run("mci", "create", "-f", "-", stdin=FLEET)
    assert "--key FILE" in made.stderr
    lost = cli.run("mci", "create", "-f", "-", "--name", "m9", "--encrypt-for", "rsa.pub", stdin=FLEET)
    assert (lost.exit_code, "with --key FILE" in lost.stderr) == (2, True)
    assert cli.run("mci", "show", "m9").exit_code == 2


def test_without_waiting_the_operation_is_named(cli: MciServer) -> None:
    told = cli.json("mci", "create", "-f", "-", stdin=FLEET)
    assert told["operation"]["action"] == "create"
    assert cli.run("wait", told["operation"]["id"]).exit_code == 0


def test_the_name_of_the_file_can_be_another(cli: MciServer) -> None:
    assert cli.json("mci", "create", "-f", "-", "--name", "m2", "--wait", stdin=FLEET)["mci"]["id"] == "m2"


@pytest.mark.parametrize(("action", "state"), [("suspend", "Suspended"), ("reboot", "Running")])
def test_all_vms_do_as_they_are_told(cli: MciServer, action: str, state: str) -> None:
    cli.made(FLEET)
    done = cli.run("mci", "do", action, "m1", "--wait")
    assert done.exit_code == 0, done.output
    assert "succeeded" in done.stdout
    assert set(states(cli.json("mci", "status", "m1")).values()) == {state}


def test_one_vm_does_as_it_is_told_and_later_only_the_others_do(cli: MciServer) -> None:
    cli.made(FLEET)
    assert cli.run("mci", "do", "suspend", "m1/web-2", "--wait").exit_code == 0
    assert cli.json("mci", "status", "m1")["status"] == "Partial-Running:4 (R:4/5)"
    told = cli.json("mci", "do", "suspend", "m1", "--wait")
    assert [one["vm"] for one in told["skipped"]] == ["web-2"]
    assert "web-2" in cli.run("mci", "do", "resume", "m1", "--wait").stdout


def test_a_terminal_sees_a_bar_for_each_provider_and_region(cli: MciServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    for words in (["create", "-f", "-"], ["do", "suspend", "m1"], ["delete", "m1", "--terminate"]):
        done = cli.run("mci", *words, "--wait", stdin=FLEET)
        assert done.exit_code == 0, done.output
        assert "aws/ap-northeast-2" in done.stderr
        assert "gcp/us-central1" in done.stderr


def test_what_takes_longer_than_allowed_exits_with_1_and_goes_on(
    cli: MciServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for terminal in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", terminal)
        name = f"m{terminal}"
        cli.cloud.set_profile(SEOUL, replace(CALM, dead=True, patience=0.05))
        done = cli.run("mci", "create", "-f", "-", "--name", name, "--wait", "--timeout", "0", stdin=FLEET)
        cli.cloud.set_profile(SEOUL, CALM)
        assert done.exit_code == 1, done.output
        assert "it goes on" in done.stderr
        cli.run("wait", name)
        assert cli.json("mci", "status", name)["status"] == "Running:5 (R:5/5)"


def test_what_no_state_allows_exits_with_1_and_says_why(cli: MciServer) -> None:
    cli.made(FLEET)
    done = cli.run("mci", "do", "resume", "m1")
    assert done.exit_code == 1
    assert "resume" in done.stderr


def test_a_subgroup_grows_and_shrinks(cli: MciServer) -> None:
    cli.made(FLEET)
    grown = cli.json("mci", "scale", "m1", "web", "--add", "2", "--wait")["mci"]
    assert sum(name.startswith("web") for name in states(grown)) == 5
    shrunk = cli.json("mci", "scale", "m1", "web", "--size", "1", "--wait")["mci"]
    assert [name for name in states(shrunk) if name.startswith("web")] == ["web-1"]
    assert cli.run("mci", "scale", "m1", "web").exit_code == 2
    assert cli.run("mci", "scale", "m1", "nothing", "--add", "1").exit_code == 2


def test_a_held_creation_goes_on_when_told(cli: MciServer) -> None:
    told = cli.json("mci", "create", "-f", "-", "--hold", "--wait", stdin=FLEET)
    assert told["mci"]["status"] == "Prepared"
    assert cli.json("mci", "do", "continue", "m1", "--wait")["mci"]["status"] == "Running:5 (R:5/5)"
    assert cli.run("mci", "do", "continue", "m1").exit_code == 1


def test_a_held_creation_is_withdrawn(cli: MciServer) -> None:
    cli.json("mci", "create", "-f", "-", "--hold", "--wait", stdin=FLEET)
    done = cli.run("mci", "do", "withdraw", "m1", "--wait")
    assert done.exit_code == 0, done.output
    assert cli.run("mci", "status", "m1").exit_code == 2


def test_a_review_makes_nothing_and_tells_the_cost(cli: MciServer) -> None:
    told = cli.json("mci", "review", "-f", "-", stdin=FLEET)
    assert told["creationViable"]
    assert told["estimatedCost"] == "$0.0324/hour"
    assert "yes" in cli.run("mci", "review", "-f", "-", stdin=FLEET).stdout
    assert cli.json("mci", "list") == []


def test_a_review_of_what_cannot_be_made_exits_with_1_and_says_why(cli: MciServer) -> None:
    done = cli.run("mci", "review", "-f", "-", stdin=FLEET.replace("t3.nano", "t3.giant"))
    assert done.exit_code == 1
    assert "t3.giant" in done.stdout


def test_a_creation_that_fails_exits_with_1(cli: MciServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.cloud, "spec_problem", lambda *_: "sold out")
    done = cli.run("mci", "create", "-f", "-", "--wait", stdin=FLEET)
    assert done.exit_code == 1
    assert "sold out" in done.stdout


def test_a_creation_that_names_an_unknown_spec_is_bad_use_and_makes_nothing(cli: MciServer) -> None:
    done = cli.run("mci", "create", "-f", "-", "--wait", stdin=FLEET.replace("t3.nano", "t3.giant"))
    assert (done.exit_code, "subGroups[0].specId" in done.stderr) == (2, True)
    assert cli.json("mci", "list") == []


def test_an_mci_is_deleted_with_its_vms_only_when_that_is_said(cli: MciServer) -> None:
    cli.made(FLEET)
    refused = cli.run("mci", "delete", "m1")
    assert refused.exit_code == 1
    done = cli.run("mci", "delete", "m1", "--terminate", "--wait")
    assert done.exit_code == 0, done.output
    assert "gone" in done.stdout
    assert cli.run("mci", "delete", "m1").exit_code == 2


def test_a_forgotten_mci_leaves_orphans_that_are_found_and_ended(cli: MciServer) -> None:
    cli.made(FLEET)
    told = cli.json("mci", "delete", "m1", "--force")
    assert len(told["remains"]) == 5
    found = cli.json("mci", "orphans", code=1)["orphans"]
    assert {one["key"] for one in found} >= set(told["remains"])
    assert cli.run("mci", "orphans", "--terminate").exit_code == 0
    assert cli.json("mci", "orphans")["orphans"] == []


def test_a_vm_is_deregistered_and_its_machine_adopted_again(cli: MciServer) -> None:
    place = ("--provider", "aws", "--region", "eu-central-1", "--driver", "simulated", "--option", f"adopt={cli.ns}")
    cli.json("mci", "connection", "add", "account", *place)
    spec = MachineSpec(f"theirs-{cli.ns}", "old", "t3.nano", "ubuntu22.04")
    native = cli.cloud.create_unmarked(ProviderRegion("aws", "eu-central-1"), spec)
    assert native in cli.run("mci", "adopt", "m1", "account").stdout
    told = cli.json("mci", "adopt", "m1", "account", native, "--group", "db", "--wait")
    assert (told["operation"]["status"], states(told["mci"])) == ("succeeded", {"db-1": "Running"})
    told = cli.json("mci", "deregister", "m1/db-1", "--wait", "--yes")
    assert (told["operation"]["status"], states(told["mci"])) == ("succeeded", {})
    assert [one["native_id"] for one in cli.json("mci", "adopt", "m1", "account")["machines"]] == [native]
    own = "name: m2\ngroups:\n  - {name: web, spec: aws+eu-central-1+t3.nano, image: ubuntu22.04}\n"
    assert cli.made(own)["operation"]["status"] == "succeeded"
    cli.json("mci", "deregister", "m2/web-1", "--wait", "--yes")
    assert len(cli.json("mci", "adopt", "m1", "account")["machines"]) == 2


def test_a_machine_that_nobody_asked_for_is_an_orphan(cli: MciServer) -> None:
    place = ProviderRegion("aws", "eu-central-1")
    cli.do(lambda: cli.cloud.create_orphan(place, MachineSpec("stray", "stray", "t3.nano", "ubuntu22.04")))
    done = cli.run("mci", "orphans", "--connection", "aws-eu-central-1")
    assert done.exit_code == 1
    assert "stray" in done.stdout
    for told in ("Terminated 1 of 1 machine.", "Nothing was terminated."):
        done = cli.run("mci", "orphans", "--connection", "aws-eu-central-1", "--terminate")
        assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, told)


def test_a_connection_is_added_listed_and_removed(cli: MciServer) -> None:
    words = ["--provider", "aws", "--region", "moon", "--driver", "simulated", "--option", "latency=0.01"]
    assert cli.json("mci", "connection", "add", "moon", *words)["options"] == {"latency": "0.01"}
    names = [one["name"] for one in cli.json("mci", "connection", "list")]
    assert {"local", "moon", "aws-ap-northeast-2"} <= set(names)
    assert "moon" in cli.run("mci", "connection", "list").stdout
    assert cli.run("mci", "connection", "remove", "moon").exit_code == 0
    assert cli.run("mci", "connection", "remove", "moon").exit_code == 2


def test_specs_and_images_are_added_used_listed_and_removed(cli: MciServer) -> None:
    at = ["--connection", "aws-ap-northeast-2", "--native"]
    spec = cli.json("mci", "spec", "add", "little", *at, "t3.nano", "--vcpu", "2", "--memory", "0.5", "--cost", "0.01")
    assert (spec["vCPU"], spec["memoryGiB"], spec["costPerHour"]) == (2, 0.5, 0.01)
    assert cli.json("mci", "image", "add", "linux", *at, "ubuntu22.04", "--system", "Ubuntu")["osType"] == "Ubuntu"
    for kind, name in (("spec", "little"), ("image", "linux")):
        assert [one["name"] for one in cli.json("mci", kind, "list")] == [name]
        assert name in cli.run("mci", kind, "list").stdout
        assert cli.run("mci", kind, "remove", name).exit_code == 0
        assert cli.run("mci", kind, "remove", name).exit_code == 2


def test_a_secret_in_place_of_a_reference_is_refused_before_it_is_sent(
    cli: MciServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpConnection, "call", None)
    words = ["--provider", "aws", "--region", "r", "--driver", "aws", "--credential", "AKIA1:SECRETWORD"]
    done = cli.run("mci", "connection", "add", "x", *words)
    assert (done.exit_code, "SECRETWORD" in done.output) == (2, False)
    assert "credential: must be env:PREFIX, file:PATH or file:PATH#PROFILE" in " ".join(done.stderr.split())


def test_grants_are_shown_only_to_who_knows_them(cli: MciServer) -> None:
    viewer, _ = cli.ask(cli.tokens.issue("a viewer", Role.VIEWER, ["*"]))
    assert "granted to" in cli.run("mci", "connection", "list").stdout
    shown = cli.run("mci", "connection", "list", token=viewer).stdout
    assert "aws-us-east-1" in shown
    assert not [one for one in ("granted to", "(none)") if one in shown]


def test_a_namespace_is_created_listed_and_deleted_and_a_missing_one_names_the_command(cli: MciServer) -> None:
    refused = cli.run("mci", "create", "-f", "-", "-n", "shop", stdin=FLEET)
    assert refused.exit_code == 2
    assert "create it: stateward mci namespace create shop" in " ".join(refused.stderr.split())
    elsewhere = cli.run("create", "mci.namespace", "shop")
    assert "are made by `stateward mci namespace create NAME`" in " ".join(elsewhere.stderr.split())
    made = cli.json("mci", "namespace", "create", "shop", "--description", "all that sells")
    assert made == {"name": "shop", "description": "all that sells"}
    assert made in cli.json("mci", "namespace", "list")
    assert "all that sells" in cli.run("mci", "namespace", "list").stdout
    assert cli.run("mci", "create", "-f", "-", "-n", "shop", "--wait", stdin=FLEET).exit_code == 0
    assert cli.run("mci", "namespace", "delete", "shop").exit_code == 1  # it is in use
    assert cli.run("mci", "namespace", "create", "empty").exit_code == 0
    assert "Namespace empty is deleted." in cli.run("mci", "namespace", "delete", "empty").stdout
    assert cli.run("mci", "namespace", "delete", "empty").exit_code == 2
    assert cli.run("mci", "namespace", "create", "a b").exit_code == 2


def test_a_driver_that_does_not_exist_is_refused(cli: MciServer) -> None:
    done = cli.run("mci", "connection", "add", "x", "--provider", "p", "--region", "r", "--driver", "magic")
    assert done.exit_code == 2
    assert "aws, azure, container, gcp, openstack, process, qemu, simulated" in done.stderr


def test_the_example_of_this_host_runs_real_processes(cli: MciServer) -> None:
    refused = cli.run("mci", "create", "-f", str(EXAMPLES / "fleet.yaml"))
    assert refused.exit_code == 4
    assert f"stateward mci connection grant local {cli.ns}" in " ".join(refused.stderr.split())
    assert cli.ns in cli.json("mci", "connection", "grant", "local", cli.ns)["namespaces"]
    told = cli.json("mci", "create", "-f", str(EXAMPLES / "fleet.yaml"), "--wait")
    assert told["mci"]["status"] == "Running:3 (R:3/3)"
    fresh = cli.json("mci", "status", "workshop", "--fresh")
    assert {one["nativeStatus"] for one in fresh["vm"]} <= {"process: sleeping", "process: running"}
    assert cli.run("mci", "do", "suspend", "workshop", "--wait").exit_code == 0
    assert cli.run("mci", "delete", "workshop", "--terminate", "--wait").exit_code == 0


def test_the_example_of_five_clouds_can_be_made(cli: MciServer) -> None:
    file = str(EXAMPLES / "fleet-five-clouds.yaml")
    assert cli.json("mci", "review", "-f", file)["creationViable"]
    assert cli.json("mci", "create", "-f", file, "--wait")["mci"]["status"] == "Running:30 (R:30/30)"


def test_a_file_that_is_wrong_exits_with_2_and_names_the_line(cli: MciServer, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.replace("size: 3", "size: many"))
    done = cli.run("mci", "create", "-f", str(file))
    assert done.exit_code == 2
    assert "fleet.yaml, line 4, groups.0.size" in done.stderr
    told = cli.json("mci", "create", "-f", str(file), code=2)
    assert (told["line"], told["path"]) == (4, "groups.0.size")


@pytest.mark.parametrize(
    "words",
    [
        ["mci", "create", "-f", "/nowhere"],
        ["mci", "do", "dance", "m1"],
        ["mci", "do", "suspend", "nothing"],
        ["mci", "status", "nothing"],
        ["mci", "delete", "m1", "--terminate", "--force"],
        ["mci", "connection", "add", "x", "--provider", "p", "--region", "r", "--driver", "simulated", "--option", "y"],
    ],
)
def test_what_is_not_understood_exits_with_2(cli: MciServer, words: list[str]) -> None:
    done = cli.run(*words)
    assert done.exit_code == 2, done.output
    assert done.stderr


def test_who_may_only_look_may_not_control(cli: MciServer) -> None:
    cli.made(FLEET)
    viewer, _ = cli.ask(cli.tokens.issue("a viewer", Role.VIEWER, [cli.ns]))
    assert cli.run("mci", "status", "m1", token=viewer).exit_code == 0
    assert cli.run("mci", "do", "suspend", "m1", token=viewer).exit_code == 4
