"""The processes behind the VMs of real nodes; the firewalls of cloudspaces, which are machines too, left aside."""

from pathlib import Path

from stateward.procfs import find_marked
from stateward.workloads.spawn import reap_children
from tests.integration.drivers.local.host_machines import records_in


def nodes_in(folder: Path) -> list[Path]:
    """Return the folders of all nodes of a data folder."""
    return sorted((folder / "ovc" / "nodes").glob("*"))


def vms_of(node: Path) -> list[int]:
    """Return the processes of the VMs of a node, of whatever boot."""
    reap_children()
    ours = [one for one in records_in(node) if one.key.startswith("vm-")]
    marks = {f"{one.native_id}/{boot}" for one in ours for boot in range(1, one.boot + 2)}
    return sorted(set(find_marked(marks | {one.native_id for one in ours}).values()))


def vms_in(folder: Path) -> list[int]:
    """Return the processes of the VMs of all nodes of a data folder."""
    return sorted(pid for node in nodes_in(folder) for pid in vms_of(node))
