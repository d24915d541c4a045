"""The agent killed, the controller killed, both, and the network cut, with instances in each of their states at once.

All of it is real: processes, sockets, and a proxy between them that keeps back the words that lead out of a state.
Every instance ends in the right state, nothing is made twice, and nothing is left that nobody knows of.
"""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from tests.integration.domains.edge.field import Field, open_field

MUNICH = "/cloudlets/munich"
CLUSTERS = f"{MUNICH}/clusterinsts"
FAULTS = ("controller", "agent", "cut", "both")
EXISTING = ("change", "changing", "spoilt", "leave", "leaving", "stay", "parent")


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with open_field(tmp_path_factory.mktemp("field")) as opened:
        opened.call("POST", "/cloudlets", {"name": "munich"})
        opened.call("PUT", "/apps/child", {"command": "sleep 1000", "auto_delete": True}, 200)
        opened.call("PUT", "/apps/guest", {"command": "sleep 1000"}, 200)
        opened.work()
        opened.until(MUNICH, "Ready")
        yield opened


def until(field: Field, **states: str) -> None:
    """Wait until clusters are in these states."""
    for name, state in states.items():
        field.until(f"{CLUSTERS}/{name}", state)


def create(field: Field, name: str, setup: str = "") -> None:
    field.call("POST", CLUSTERS, {"name": name, "nodes": 2, "setup": setup})


def update(field: Field, name: str) -> None:
    field.call("PATCH", f"{CLUSTERS}/{name}", {"nodes": 3})


def furnish(field: Field, waits: str, breaks: str) -> None:
    """Make what is to be changed or deleted; the commands will wait, or fail, when that is wanted."""
    setups = {"changing": waits, "spoilt": breaks}
    for name in EXISTING:
        create(field, name, setups.get(name, ""))
    until(field, **dict.fromkeys(EXISTING, "Ready"))
    field.call("POST", f"{CLUSTERS}/parent/appinsts", {"app": "child"})
    field.until(f"{CLUSTERS}/parent/appinsts/child", "Ready")


def into_every_state(field: Field, waits: str) -> None:
    """Bring an instance into each of the states, and keep it there."""
    hold = field.proxy.hold
    hold("fresh", "creating")
    create(field, "fresh")
    create(field, "growing", waits)
    hold("grown", "ready")
    create(field, "grown")
    hold("failed", "deleting")
    create(field, "failed", "false")
    hold("change", "updating")
    hold("spoilt", "updating", nth=2)
    for name in ("change", "changing", "spoilt"):
        update(field, name)
    hold("leave", "deleting")
    hold("leaving", "deleted")
    hold("parent:child", "deleted")
    for name in ("leave", "leaving", "parent"):
        field.call("DELETE", f"{CLUSTERS}/{name}")
    hold("stay", "ready")
    with_broken_disk(field, "stay")
    hold("reservable0", "creating")
    field.call("POST", f"{CLUSTERS}/autocluster/appinsts", {"app": "guest"})
    until(
        field,
        fresh="CreateRequested", growing="Creating", grown="Creating", failed="CreateError",
        change="UpdateRequested", changing="Updating", spoilt="UpdateError",
        leave="DeleteRequested", leaving="Deleting", parent="DeletePrepare", reservable0="CreateRequested",
    )  # fmt: skip
    field.until(f"{CLUSTERS}/parent/appinsts/child", "Deleting")
    field.until(f"{CLUSTERS}/autocluster/appinsts/guest", "CreatingDependencies")


def with_broken_disk(field: Field, name: str) -> None:
    """Delete a cluster while the agent cannot write it down: that fails."""
    trouble = field.folder / "site" / "things" / f"{sha256(name.encode()).hexdigest()[:32]}.new"
    trouble.mkdir()
    field.call("DELETE", f"{CLUSTERS}/{name}")
    field.until(f"{CLUSTERS}/{name}", "DeleteError")
    trouble.rmdir()


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_dies_in_whichever_state_all_ends_well_and_once(field: Field, fault: str) -> None:
    shut = field.folder / "shut"
    waits, breaks = f"while [ -e {shut} ]; do sleep 0.02; done", f"[ ! -e {shut} ]"
    furnish(field, waits, breaks)
    shut.touch()
    into_every_state(field, waits)
    field.suffer(fault)
    shut.unlink()

    until(field, **dict.fromkeys(("fresh", "growing", "grown", "change", "changing", "spoilt", "stay"), "Ready"))
    until(field, **dict.fromkeys(("failed", "leave", "leaving", "parent"), "NotPresent"))
    field.until(f"{CLUSTERS}/parent/appinsts/child", "NotPresent")
    field.until(f"{CLUSTERS}/autocluster/appinsts/guest", "Ready")
    field.until(MUNICH, "Ready", orphans=[])
    wanted = {"fresh": 2, "growing": 2, "grown": 2, "change": 3, "changing": 3, "spoilt": 2, "stay": 2}
    nothing = dict.fromkeys(("failed", "leave", "leaving", "parent"), 0)
    field.sure(lambda: {name: field.nodes(name) for name in (*wanted, *nothing)} == {**wanted, **nothing})
    assert {name: field.get(f"{CLUSTERS}/{name}")["spec"]["nodes"] for name in wanted} == wanted
    field.sure(lambda: len(field.apps("autocluster:guest")) == 1 and field.apps("parent:child") == [])
    cleared(field, [*wanted, "reservable0"])


def cleared(field: Field, names: list[str]) -> None:
    """Remove everything, and see that nothing is left: not there, not written down, not running."""
    guest = f"{CLUSTERS}/autocluster/appinsts/guest"
    field.call("DELETE", guest)
    field.until(guest, "NotPresent")
    for name in names:
        field.call("DELETE", f"{CLUSTERS}/{name}")
    until(field, **dict.fromkeys(names, "NotPresent"))
    assert field.things() == []
    field.sure(lambda: field.machines() == 0)
