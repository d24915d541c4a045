"""Nodes as the hypervisors that they are: what VMs run on, and where their disks lie."""

from stateward.domains.ovc.nodes.port import Hypervisor, Machine, Plugged, Power
from stateward.domains.ovc.nodes.registry import Nodes
from stateward.domains.ovc.nodes.vault import FileVault, NoVault, Vault

__all__ = ["FileVault", "Hypervisor", "Machine", "NoVault", "Nodes", "Plugged", "Power", "Vault"]
