"""The agent killed, the controller killed, both, and the network cut, with the cloudlet in each of its states.

All of it is real: processes of several versions, sockets, and a proxy between them that keeps back the words that lead
out of a state. In the end one agent serves, of the right version, and what it looks after has not noticed anything.
The states in which nothing of this can happen are left out: with nobody connected (Init, Offline) there is only the
controller to be killed, and Ready is where `test_each_state` begins.
"""

from collections.abc import Iterator

import pytest

from tests.integration.domains.edge.field import Field, gated, let_in, open_field, program, release

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"
FAULTS = ("controller", "agent", "cut", "both")
every_fault = pytest.mark.parametrize("fault", FAULTS)


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """A cloudlet on which an app runs; while nobody was there yet, its controller has died."""
    with open_field(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.until(HERE, "Init")
        opened.suffer("controller")
        opened.until(HERE, "Init")
        opened.work()
        opened.until(HERE, "Ready")
        opened.call("PUT", "/apps/web", {"command": "sleep 1000"}, 200)
        opened.call("POST", f"{HERE}/clusterinsts", {"name": "c1"})
        opened.until(CLUSTER, "Ready")
        opened.call("POST", f"{CLUSTER}/appinsts", {"app": "web"})
        opened.until(APP, "Ready")
        yield opened


@pytest.fixture(autouse=True)
def undisturbed(field: Field) -> Iterator[None]:
    """See that the same process of the app runs before and after."""
    field.sure(lambda: len(field.apps("c1:web")) == 1)
    before = field.apps("c1:web")
    yield
    assert field.apps("c1:web") == before


@every_fault
def test_an_upgrade_that_was_asked_for_is_asked_for_again(field: Field, fault: str) -> None:
    version, before = f"1{FAULTS.index(fault)}.1", field.holder.version
    gate = gated(field, version)
    field.proxy.hold("", "upgrading")
    field.call("POST", f"{HERE}/upgrade", {"version": version})
    field.until(HERE, "UpdateRequested")
    field.suffer(fault, before)
    gate.touch()
    let_in(field, version)


@every_fault
def test_a_successor_that_comes_up_is_let_in(field: Field, fault: str) -> None:
    version, before = f"1{FAULTS.index(fault)}.2", field.holder.version
    gate = gated(field, version)
    field.call("POST", f"{HERE}/upgrade", {"version": version})
    field.until(HERE, "Updating")
    field.suffer(fault, before)
    gate.touch()
    let_in(field, version)


@every_fault
def test_a_successor_that_has_taken_over_and_could_not_say_so_serves_all_the_same(field: Field, fault: str) -> None:
    version = f"1{FAULTS.index(fault)}.3"
    release(field.releases, version)
    field.proxy.hold("", "end")
    field.call("POST", f"{HERE}/upgrade", {"version": version})
    field.until(HERE, "InitOk")
    field.sure(lambda: field.agents() == [field.holder.pid] and field.holder.version == version)
    field.suffer(fault, version)
    let_in(field, version)


@every_fault
def test_an_agent_that_starts_is_ready_in_the_end(field: Field, fault: str) -> None:
    version = field.holder.version
    field.kill_agent()
    field.until(HERE, "Offline")
    field.proxy.hold("", "end")
    field.work(version)
    field.until(HERE, "InitOk")
    field.suffer(fault, version)
    let_in(field, version)


@every_fault
def test_a_failed_upgrade_stays_failed_until_somebody_settles_it(field: Field, fault: str) -> None:
    serves = field.holder.version
    program(field.releases, "99.0", "exit 7")
    field.call("POST", f"{HERE}/upgrade", {"version": "99.0"})
    field.until(HERE, "UpdateError")
    field.suffer(fault, serves)
    field.sure(lambda: [one["cloudlet"] for one in field.get("/agents")["agents"]] == ["munich"])
    field.until(HERE, "UpdateError", version=serves, online=True)
    change = {"nodes": 3 - field.get(CLUSTER)["spec"]["nodes"]}
    assert "upgrade has failed" in field.call("PATCH", CLUSTER, change, 409)["detail"]
    assert field.call("POST", f"{HERE}/fix")["object"]["state"] == "Ready"
    let_in(field, serves)
    field.call("PATCH", CLUSTER, change)
    field.until(CLUSTER, "Ready")
