"""Nodes as the hypervisors that they are: what VMs run on, and where their disks lie."""

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
