"""The agent killed, the controller killed, both, and the network cut, with instances in each of their states at once.

All of it is real: processes, sockets, and a proxy between them that keeps back the words that lead out of a state.
Every cluster and every app ends in the right state, nothing is made twice, and nothing is left that nobody knows of.
"""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.integration.domains.edge.process_deployment import NS, ProcessDeployment, open_deployment
from tests.long_forms import in_long_form

MUNICH = "/cloudlets/munich"
CLUSTERS = f"{MUNICH}/clusterinsts"
CHILD, GUEST = f"{CLUSTERS}/parent/appinsts/child", f"{CLUSTERS}/autocluster/appinsts/guest"
FAULTS = ("controller", "agent", "cut", "both")

STATES = {
    "fresh":    "CreateRequested",
    "growing":  "Creating",
    "grown":    "Creating",
    "failed":   "CreateError",
    "change":   "UpdateRequested",
    "changing": "Updating",
    "spoilt":   "UpdateError",
    "leave":    "DeleteRequested",
    "leaving":  "Deleting",
    "stay":     "DeleteError",
}  # fmt: skip
"""In which state each instance is kept; what was grown has been made, and its agent could not say so."""

EXISTING = ("change", "changing", "spoilt", "leave", "leaving", "stay")
SIZES = {"fresh": 1, "growing": 1, "grown": 1, "change": 2, "changing": 2, "spoilt": 1, "stay": 1}
"""How many nodes, or processes, there are in the end of what is there in the end; of the others there is nothing."""


class InstanceKind:
    """Clusters, or the apps in one of them: they have the same states."""

    def __init__(self, deployment: ProcessDeployment, home: str = "") -> None:
        self.deployment, self.home = deployment, home
        self.things = f"{home}:" if home else ""
        self.base = f"{CLUSTERS}/{home}/appinsts" if home else CLUSTERS

    def create(self, name: str) -> None:
        setup = {"setup": setups(self.deployment).get(name, "")}
        self.deployment.call("POST", self.base, {"app": name} if self.home else {"name": name, **setup})

    def update(self, name: str) -> None:
        self.deployment.call("PATCH", f"{self.base}/{name}", {"count" if self.home else "nodes": 2})

    def delete(self, name: str) -> None:
        self.deployment.call("DELETE", f"{self.base}/{name}")

    def hold(self, name: str, event: str, nth: int = 1) -> None:
        self.deployment.proxy.hold(f"{self.things}{name}", event, nth)

    def until(self, **states: str) -> None:
        for name, state in states.items():
            self.deployment.until(f"{self.base}/{name}", state)

    def running(self, name: str) -> int:
        return len(self.deployment.apps(f"{self.things}{name}")) if self.home else self.deployment.nodes(name)

    def wanted(self, name: str) -> int:
        return int(self.deployment.get(f"{self.base}/{name}")["spec"]["count" if self.home else "nodes"])


def setups(deployment: ProcessDeployment) -> dict[str, str]:
    """Return the commands by which a thing is set up: some wait, and some fail, while a file is there."""
    waits, breaks = f"while [ -e {deployment.shown}/shut ]; do sleep 0.02; done", f"[ ! -e {deployment.shown}/shut ]"
    return {"growing": waits, "changing": waits, "spoilt": breaks, "failed": "false"}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessDeployment]:
    with open_deployment(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.call("PUT", "/apps/child", {"command": "sleep 1000", "auto_delete": True}, 200)
        for name in ("guest", *STATES):
            app = {"command": "sleep 1000", "setup": setups(opened).get(name, "")}
            opened.call("PUT", f"/apps/{name}", app, 200)
        opened.work()
        opened.until(MUNICH, "Ready")
        yield opened


def set_up(deployment: ProcessDeployment, clusters: InstanceKind, apps: InstanceKind) -> None:
    """Make what is to be changed or deleted."""
    for name in ("home", "parent", *EXISTING):
        clusters.create(name)
    clusters.until(home="Ready", parent="Ready")
    deployment.call("POST", f"{CLUSTERS}/parent/appinsts", {"app": "child"})
    for name in EXISTING:
        apps.create(name)
    for kind in (clusters, apps):
        kind.until(**dict.fromkeys(EXISTING, "Ready"))
    deployment.until(CHILD, "Ready")


def into_every_state(kind: InstanceKind) -> None:
    """Bring an instance into each of the states, and keep it there."""
    for name, event, nth in (
        ("fresh", "creating", 1), ("grown", "ready", 1), ("failed", "deleting", 1), ("change", "updating", 1),
        ("spoilt", "updating", 2), ("leave", "deleting", 1), ("leaving", "deleted", 1), ("stay", "ready", 1),
    ):  # fmt: skip
        kind.hold(name, event, nth)
    for name in ("fresh", "growing", "grown", "failed"):
        kind.create(name)
    for name in ("change", "changing", "spoilt"):
        kind.update(name)
    for name in ("leave", "leaving"):
        kind.delete(name)
    with_broken_disk(kind, "stay")
    kind.until(**STATES)


def with_broken_disk(kind: InstanceKind, name: str) -> None:
    """Delete something while the agent cannot write it down: that fails."""
    file = sha256(f"{kind.things}{name}".encode()).hexdigest()[:32]
    trouble = kind.deployment.folder / "site" / "things" / f"{file}.new"
    trouble.mkdir()
    kind.delete(name)
    kind.until(**{name: "DeleteError"})
    trouble.rmdir()


def hold_dependents(deployment: ProcessDeployment) -> None:
    """Keep one that waits until those that need it are gone, and one that waits for what it needs."""
    deployment.proxy.hold("parent:child", "deleted")
    deployment.call("DELETE", f"{CLUSTERS}/parent")
    deployment.proxy.hold("reservable0", "creating")
    deployment.call("POST", f"{CLUSTERS}/autocluster/appinsts", {"app": "guest"})
    deployment.until(f"{CLUSTERS}/parent", "DeletePrepare")
    deployment.until(CHILD, "Deleting")
    deployment.until(f"{CLUSTERS}/reservable0", "CreateRequested")
    deployment.until(GUEST, "CreatingDependencies")


@pytest.mark.parametrize("fault", in_long_form(FAULTS, short=("both",)))
def test_whatever_dies_in_whichever_state_all_ends_well_and_once(deployment: ProcessDeployment, fault: str) -> None:
    clusters, apps = InstanceKind(deployment), InstanceKind(deployment, "home")
    set_up(deployment, clusters, apps)
    shut = deployment.shown / "shut"
    shut.touch()
    for kind in (clusters, apps):
        into_every_state(kind)
    hold_dependents(deployment)
    deployment.inject_fault(fault)
    shut.unlink()

    for kind in (clusters, apps):
        kind.until(**{name: "Ready" if name in SIZES else "NotPresent" for name in STATES})
    deployment.until(f"{CLUSTERS}/parent", "NotPresent")
    deployment.until(CHILD, "NotPresent")
    deployment.until(GUEST, "Ready")
    deployment.until(MUNICH, "Ready", orphans=[])
    for kind in (clusters, apps):
        assert {name: kind.wanted(name) for name in SIZES} == SIZES
        assert_runs_once(kind)
    deployment.until_true(
        lambda: len(deployment.apps("autocluster:guest")) == 1 and deployment.apps("parent:child") == []
    )
    remove_everything(deployment, clusters, apps)


def assert_runs_once(kind: InstanceKind) -> None:
    """See that as much runs as there should be, and no more."""
    kind.deployment.until_true(
        lambda: {name: kind.running(name) for name in STATES} == {**dict.fromkeys(STATES, 0), **SIZES}
    )


def remove_everything(deployment: ProcessDeployment, clusters: InstanceKind, apps: InstanceKind) -> None:
    """Remove everything, and see that nothing is left: not there, not written down, not running."""
    for name in SIZES:
        apps.delete(name)
    deployment.call("DELETE", GUEST)
    deployment.until(GUEST, "NotPresent")
    apps.until(**dict.fromkeys(SIZES, "NotPresent"))
    for name in ("home", "reservable0", *SIZES):
        clusters.delete(name)
    clusters.until(**dict.fromkeys(("home", "reservable0", *SIZES), "NotPresent"))
    assert deployment.things() == []
    deployment.until_true(lambda: deployment.machines() == 0)


@pytest.mark.parametrize("fault", in_long_form(FAULTS, short=("cut",)))
def test_a_cloudlet_that_is_being_deleted_is_gone_in_the_end_with_all_it_had(
    deployment: ProcessDeployment, fault: str
) -> None:
    child = f"{CLUSTERS}/autocluster/appinsts/child"
    deployment.call("POST", f"{CLUSTERS}/autocluster/appinsts", {"app": "child"})
    deployment.until(child, "Ready")
    deployment.proxy.hold("autocluster:child", "deleted")
    deployment.call("DELETE", MUNICH)
    deployment.until(MUNICH, "DeletePrepare")
    deployment.until(child, "Deleting")
    deployment.inject_fault(fault)
    deployment.until_true(lambda: deployment.client.get(f"/api/v1/edge/ns/{NS}{MUNICH}").status_code == 404)
    deployment.until_true(lambda: deployment.agents() == [] and deployment.machines() == 0)
    assert deployment.things() == []
    deployment.call("POST", "/cloudlets", {"name": "munich"})
    deployment.work()
    deployment.until(MUNICH, "Ready")
