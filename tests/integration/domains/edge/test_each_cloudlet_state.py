"""The agent killed, the controller killed, both, and the network cut, with the cloudlet in each of its states.

All of it is real: processes of several versions, sockets, and a proxy between them that keeps back the words that lead
out of a state. In the end one agent serves, of the right version, and what it looks after has not noticed anything.
The states in which nothing of this can happen are left out: with nobody connected (Init, Offline) there is only the
controller to be killed, and Ready is where `test_each_state` begins.
"""

from collections.abc import Iterator

import pytest

from tests.integration.domains.edge.process_deployment import (
    ProcessDeployment,
    install_gated_release,
    open_deployment,
    program,
    release,
    until_serving,
)
from tests.long_forms import in_long_form

HERE = "/cloudlets/munich"
CLUSTER = f"{HERE}/clusterinsts/c1"
APP = f"{CLUSTER}/appinsts/web"
FAULTS = ("controller", "agent", "cut", "both")


def every_fault(short: str) -> pytest.MarkDecorator:
    """Run a test with every fault; in the suite, with the one that its state has most to do with."""
    return pytest.mark.parametrize("fault", in_long_form(FAULTS, short=(short,)))


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    """A cloudlet on which an app runs; while nobody was there yet, its controller has died."""
    with open_deployment(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.until(HERE, "Init")
        opened.inject_fault("controller")
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
def undisturbed(deployment: ProcessDeployment) -> Iterator[None]:
    """See that the same process of the app runs before and after."""
    deployment.until_true(lambda: len(deployment.apps("c1:web")) == 1)
    before = deployment.apps("c1:web")
    yield
    assert deployment.apps("c1:web") == before


@every_fault(short="both")
def test_an_upgrade_that_was_asked_for_is_asked_for_again(deployment: ProcessDeployment, fault: str) -> None:
    version, before = f"1{FAULTS.index(fault)}.1", deployment.holder.version
    gate = install_gated_release(deployment, version)
    deployment.proxy.hold("", "upgrading")
    deployment.call("POST", f"{HERE}/upgrade", {"version": version})
    deployment.until(HERE, "UpdateRequested")
    deployment.inject_fault(fault, before)
    gate.touch()
    until_serving(deployment, version)


@every_fault(short="agent")
def test_a_successor_that_comes_up_is_let_in(deployment: ProcessDeployment, fault: str) -> None:
    version, before = f"1{FAULTS.index(fault)}.2", deployment.holder.version
    gate = install_gated_release(deployment, version)
    deployment.call("POST", f"{HERE}/upgrade", {"version": version})
    deployment.until(HERE, "Updating")
    deployment.inject_fault(fault, before)
    gate.touch()
    until_serving(deployment, version)


@every_fault(short="cut")
def test_a_successor_that_has_taken_over_and_could_not_say_so_serves_all_the_same(
    deployment: ProcessDeployment, fault: str
) -> None:
    version = f"1{FAULTS.index(fault)}.3"
    release(deployment.releases, version)
    deployment.proxy.hold("", "end")
    deployment.call("POST", f"{HERE}/upgrade", {"version": version})
    deployment.until(HERE, "InitOk")
    deployment.until_true(
        lambda: deployment.agents() == [deployment.holder.pid] and deployment.holder.version == version
    )
    deployment.inject_fault(fault, version)
    until_serving(deployment, version)


@every_fault(short="controller")
def test_an_agent_that_starts_is_ready_in_the_end(deployment: ProcessDeployment, fault: str) -> None:
    version = deployment.holder.version
    deployment.kill_agent()
    deployment.until(HERE, "Offline")
    deployment.proxy.hold("", "end")
    deployment.work(version)
    deployment.until(HERE, "InitOk")
    deployment.inject_fault(fault, version)
    until_serving(deployment, version)


@every_fault(short="both")
def test_a_failed_upgrade_stays_failed_until_somebody_settles_it(deployment: ProcessDeployment, fault: str) -> None:
    serves = deployment.holder.version
    program(deployment.releases, "99.0", "exit 7")
    deployment.call("POST", f"{HERE}/upgrade", {"version": "99.0"})
    deployment.until(HERE, "UpdateError")
    deployment.inject_fault(fault, serves)
    deployment.until_true(lambda: [one["cloudlet"] for one in deployment.get("/agents")["agents"]] == ["munich"])
    deployment.until(HERE, "UpdateError", version=serves, online=True)
    change = {"nodes": 3 - deployment.get(CLUSTER)["spec"]["nodes"]}
    assert "upgrade has failed" in deployment.call("PATCH", CLUSTER, change, 409)["detail"]
    assert deployment.call("POST", f"{HERE}/fix")["object"]["state"] == "Ready"
    until_serving(deployment, serves)
    deployment.call("PATCH", CLUSTER, change)
    deployment.until(CLUSTER, "Ready")
