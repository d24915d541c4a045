"""The registry of this process's nodes; a node is created from its object when it is first used."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from stateward.domains.ovc.lifecycle import NODE
from stateward.domains.ovc.model import NodeSpec, PlacementSeen, file_name, read_spec
from stateward.domains.ovc.nodes.driver_node import DriverNode
from stateward.domains.ovc.nodes.node_options import check_options
from stateward.domains.ovc.nodes.port import Hypervisor
from stateward.drivers import ProviderRegion
from stateward.drivers.simulated import SimulatedCloud, SimulatedDriver
from stateward.drivers.simulated.cloud_file import CloudUnavailable
from stateward.drivers.simulated.provider_catalogue import SimulatedImage, SimulatedSpec
from stateward.engine import Permanent, Temporary
from stateward.errors import StatewardError
from stateward.store.port import Reader
from stateward.store.records import Key
from stateward.workloads.confinement import Confinement

PROVIDER = "ovc"
SIMULATED_SIZE = "tiny"
"""The size that all simulated machines have."""
NodeFactory = Callable[[str, NodeSpec], Hypervisor]


class NodeRegistry:
    """All nodes by key; factories get a name that is unique over all namespaces.

    A given simulated cloud replaces the one in the data folder.
    """

    reader: Reader  # set with the engine, before the first handler runs

    def __init__(
        self,
        folder: Path,
        *,
        cloud: SimulatedCloud | None = None,
        called: Callable[[str, str], None] = lambda _provider, _call: None,
        confinement: Confinement | None = None,
    ) -> None:
        self._folder, self._cloud, self._called, self._confinement = folder, cloud, called, confinement
        self._nodes: dict[Key, Hypervisor] = {}
        self.factories: Mapping[str, NodeFactory] = {
            "simulated": self._simulated,
            "process": self._process,
            "qemu": self._qemu,
        }

    async def get(self, ns: str, node: str) -> Hypervisor:
        """Return a node; it is created on first use."""
        key = Key(ns, node)
        if key not in self._nodes:
            record = await self.reader.object(key)
            if record is None or record.kind != NODE.kind:
                raise Permanent(f"there is no node {node!r}")
            spec = read_spec(record, NodeSpec)
            try:
                check_options(spec)
                self._nodes.setdefault(key, self.factories[spec.driver](file_name(record), spec))
            except CloudUnavailable as error:
                raise Temporary(str(error)) from error
            except StatewardError as error:
                raise Permanent(str(error)) from error
        return self._nodes[key]

    async def stop_machine(self, ns: str, seen: PlacementSeen) -> None:
        """Stop the machine of a VM or a firewall, if it has power."""
        if seen.machine:
            await (await self.get(ns, seen.node)).stop(seen.machine)

    async def stop_stale(self, ns: str, seen: PlacementSeen) -> None:
        """Stop the machines that earlier failures may have left behind."""
        for left in seen.stale_machines:
            await (await self.get(ns, left.node)).stop(left.machine)

    def _count_call(self, call: str) -> None:
        self._called(PROVIDER, call)

    def _simulated(self, node: str, spec: NodeSpec) -> Hypervisor:
        if self._cloud is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._cloud = SimulatedCloud(self._folder / "simulated.db")
        self._cloud.register_image(PROVIDER, SimulatedImage("any", "none"))
        self._cloud.register_spec(PROVIDER, SimulatedSpec(SIMULATED_SIZE, 1, 1.0, 0.0))
        place = ProviderRegion(PROVIDER, node, options=spec.options)
        return DriverNode(SimulatedDriver(place, self._cloud, self._count_call), "any", SIMULATED_SIZE)

    def _process(self, node: str, spec: NodeSpec) -> Hypervisor:
        from stateward.drivers.process import ProcessDriver

        place = self._place(node, spec)
        return DriverNode(ProcessDriver(place, self._count_call, confinement=self._confinement), "sh")

    def _qemu(self, node: str, spec: NodeSpec) -> Hypervisor:
        from stateward.domains.ovc.nodes.qemu_node import QemuNode
        from stateward.drivers.qemu.host import QemuHost

        return QemuNode(QemuHost(self._place(node, spec), self._count_call))

    def _place(self, node: str, spec: NodeSpec) -> ProviderRegion:
        """Return the region of a node on this host, with the folder of its machines."""
        return ProviderRegion(PROVIDER, node, options={**spec.options, "folder": str(self._folder / "nodes" / node)})

    def without_folders(self, text: str) -> str:
        """Return an error text without the folders of this host; the names of files stay."""
        for folder in {str(self._folder.absolute()), str(self._folder)}:
            text = re.sub(rf"{re.escape(folder)}/(?:[^\s'\"]*/)?", "", text)
        return text

    async def close(self) -> None:
        """Close all nodes."""
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.close()
