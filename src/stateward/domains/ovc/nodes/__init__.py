"""Nodes as the hypervisors that they are: what VMs run on, and where their disks lie."""

from stateward.domains.ovc.nodes.disk_store import FileVault, NoVault, Vault
from stateward.domains.ovc.nodes.node_registry import Nodes
from stateward.domains.ovc.nodes.port import Hypervisor, Machine, Plugged, Power

__all__ = ["FileVault", "Hypervisor", "Machine", "NoVault", "Nodes", "Plugged", "Power", "Vault"]
