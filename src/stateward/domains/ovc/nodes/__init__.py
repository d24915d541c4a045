"""Nodes as hypervisors: the port, its implementations by driver, and the store of disks."""

from stateward.domains.ovc.nodes.disk_store import DiskStore, FileDiskStore, NoDiskStore
from stateward.domains.ovc.nodes.node_registry import NodeRegistry
from stateward.domains.ovc.nodes.port import AttachedDisk, Hypervisor, NodeMachine, Power

__all__ = [
    "AttachedDisk",
    "DiskStore",
    "FileDiskStore",
    "Hypervisor",
    "NoDiskStore",
    "NodeMachine",
    "NodeRegistry",
    "Power",
]
