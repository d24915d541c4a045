"""The agent killed, the controller killed, both, and the network cut, with instances in each of their states at once.

All of it is real: processes, sockets, and a proxy between them that keeps back the words that lead out of a state.
Every cluster and every app ends in the right state, nothing is made twice, and nothing is left that nobody knows of.
"""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.integration.domains.edge.field import NS, Field, open_field

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


class Sort:
    """Clusters, or the apps in one of them: they have the same states."""

    def __init__(self, field: Field, home: str = "") -> None:
        self.field, self.home = field, home
        self.things = f"{home}:" if home else ""
        self.base = f"{CLUSTERS}/{home}/appinsts" if home else CLUSTERS

    def create(self, name: str) -> None:
        setup = {"setup": setups(self.field).get(name, "")}
        self.field.call("POST", self.base, {"app": name} if self.home else {"name": name, **setup})

    def update(self, name: str) -> None:
        self.field.call("PATCH", f"{self.base}/{name}", {"count" if self.home else "nodes": 2})

    def delete(self, name: str) -> None:
        self.field.call("DELETE", f"{self.base}/{name}")

    def hold(self, name: str, event: str, nth: int = 1) -> None:
        self.field.proxy.hold(f"{self.things}{name}", event, nth)

    def until(self, **states: str) -> None:
        for name, state in states.items():
            self.field.until(f"{self.base}/{name}", state)

    def running(self, name: str) -> int:
        return len(self.field.apps(f"{self.things}{name}")) if self.home else self.field.nodes(name)

    def wanted(self, name: str) -> int:
        return int(self.field.get(f"{self.base}/{name}")["spec"]["count" if self.home else "nodes"])


def setups(field: Field) -> dict[str, str]:
    """Return the commands by which a thing is set up: some wait, and some fail, while a file is there."""
    waits, breaks = f"while [ -e {field.shown}/shut ]; do sleep 0.02; done", f"[ ! -e {field.shown}/shut ]"
    return {"growing": waits, "changing": waits, "spoilt": breaks, "failed": "false"}


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_field(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.call("PUT", "/apps/child", {"command": "sleep 1000", "auto_delete": True}, 200)
        for name in ("guest", *STATES):
            app = {"command": "sleep 1000", "setup": setups(opened).get(name, "")}
            opened.call("PUT", f"/apps/{name}", app, 200)
        opened.work()
        opened.until(MUNICH, "Ready")
        yield opened


def furnish(field: Field, clusters: Sort, apps: Sort) -> None:
    """Make what is to be changed or deleted."""
    for name in ("home", "parent", *EXISTING):
        clusters.create(name)
    clusters.until(home="Ready", parent="Ready")
    field.call("POST", f"{CLUSTERS}/parent/appinsts", {"app": "child"})
    for name in EXISTING:
        apps.create(name)
    for sort in (clusters, apps):
        sort.until(**dict.fromkeys(EXISTING, "Ready"))
    field.until(CHILD, "Ready")


def into_every_state(sort: Sort) -> None:
    """Bring an instance into each of the states, and keep it there."""
    for name, event, nth in (
        ("fresh", "creating", 1), ("grown", "ready", 1), ("failed", "deleting", 1), ("change", "updating", 1),
        ("spoilt", "updating", 2), ("leave", "deleting", 1), ("leaving", "deleted", 1), ("stay", "ready", 1),
    ):  # fmt: skip
        sort.hold(name, event, nth)
    for name in ("fresh", "growing", "grown", "failed"):
        sort.create(name)
    for name in ("change", "changing", "spoilt"):
        sort.update(name)
    for name in ("leave", "leaving"):
        sort.delete(name)
    with_broken_disk(sort, "stay")
    sort.until(**STATES)


def with_broken_disk(sort: Sort, name: str) -> None:
    """Delete something while the agent cannot write it down: that fails."""
    file = sha256(f"{sort.things}{name}".encode()).hexdigest()[:32]
    trouble = sort.field.folder / "site" / "things" / f"{file}.new"
    trouble.mkdir()
    sort.delete(name)
    sort.until(**{name: "DeleteError"})
    trouble.rmdir()


def depending(field: Field) -> None:
    """Keep one that waits until those that need it are gone, and one that waits for what it needs."""
    field.proxy.hold("parent:child", "deleted")
    field.call("DELETE", f"{CLUSTERS}/parent")
    field.proxy.hold("reservable0", "creating")
    field.call("POST", f"{CLUSTERS}/autocluster/appinsts", {"app": "guest"})
    field.until(f"{CLUSTERS}/parent", "DeletePrepare")
    field.until(CHILD, "Deleting")
    field.until(f"{CLUSTERS}/reservable0", "CreateRequested")
    field.until(GUEST, "CreatingDependencies")


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_dies_in_whichever_state_all_ends_well_and_once(field: Field, fault: str) -> None:
    clusters, apps = Sort(field), Sort(field, "home")
    furnish(field, clusters, apps)
    shut = field.shown / "shut"
    shut.touch()
    for sort in (clusters, apps):
        into_every_state(sort)
    depending(field)
    field.suffer(fault)
    shut.unlink()

    for sort in (clusters, apps):
        sort.until(**{name: "Ready" if name in SIZES else "NotPresent" for name in STATES})
    field.until(f"{CLUSTERS}/parent", "NotPresent")
    field.until(CHILD, "NotPresent")
    field.until(GUEST, "Ready")
    field.until(MUNICH, "Ready", orphans=[])
    for sort in (clusters, apps):
        assert {name: sort.wanted(name) for name in SIZES} == SIZES
        right(sort)
    field.sure(lambda: len(field.apps("autocluster:guest")) == 1 and field.apps("parent:child") == [])
    cleared(field, clusters, apps)


def right(sort: Sort) -> None:
    """See that as much runs as there should be, and no more."""
    sort.field.sure(lambda: {name: sort.running(name) for name in STATES} == {**dict.fromkeys(STATES, 0), **SIZES})


def cleared(field: Field, clusters: Sort, apps: Sort) -> None:
    """Remove everything, and see that nothing is left: not there, not written down, not running."""
    for name in SIZES:
        apps.delete(name)
    field.call("DELETE", GUEST)
    field.until(GUEST, "NotPresent")
    apps.until(**dict.fromkeys(SIZES, "NotPresent"))
    for name in ("home", "reservable0", *SIZES):
        clusters.delete(name)
    clusters.until(**dict.fromkeys(("home", "reservable0", *SIZES), "NotPresent"))
    assert field.things() == []
    field.sure(lambda: field.machines() == 0)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_cloudlet_that_is_being_deleted_is_gone_in_the_end_with_all_it_had(field: Field, fault: str) -> None:
    child = f"{CLUSTERS}/autocluster/appinsts/child"
    field.call("POST", f"{CLUSTERS}/autocluster/appinsts", {"app": "child"})
    field.until(child, "Ready")
    field.proxy.hold("autocluster:child", "deleted")
    field.call("DELETE", MUNICH)
    field.until(MUNICH, "DeletePrepare")
    field.until(child, "Deleting")
    field.suffer(fault)
    field.sure(lambda: field.client.get(f"/api/v1/edge/ns/{NS}{MUNICH}").status_code == 404)
    field.sure(lambda: field.agents() == [] and field.machines() == 0)
    assert field.things() == []
    field.call("POST", "/cloudlets", {"name": "munich"})
    field.work()
    field.until(MUNICH, "Ready")
