"""Schemas of the responses about MCIs and VMs, in the format of Tumblebug."""

from typing import Any

from msgspec import Struct, field

from stateward.domains.mci.control.status_rollup import StatusCount
from stateward.domains.mci.shared_schemas import NewKeyPair

NONE = "None"
"""The target of an object without an operation."""


class Location(Struct, frozen=True):
    """A geographical location."""

    display: str
    latitude: float
    longitude: float


class RegionView(Struct, frozen=True):
    """A region and a zone of a provider."""

    region: str
    zone: str


class KeyValue(Struct, frozen=True):
    """A key with a value."""

    key: str
    value: str


class RegionZoneInfo(Struct, frozen=True, rename="camel"):
    """A connection's region and zone."""

    assigned_region: str
    assigned_zone: str


class RegionDetail(Struct, frozen=True, rename="camel"):
    """A region."""

    region_id: str
    region_name: str
    description: str
    location: Location
    zones: list[str]


class ConnectionView(Struct, frozen=True, rename="camel"):
    """A connection; its credential is a name, never a secret."""

    config_name: str
    provider_name: str
    driver_name: str
    credential_name: str
    credential_holder: str
    region_zone_info_name: str
    region_zone_info: RegionZoneInfo
    region_detail: RegionDetail
    region_representative: bool
    verified: bool


class SpecView(Struct, frozen=True, rename="camel", kw_only=True):
    """A machine size."""

    resource_type: str = "spec"
    id: str
    name: str
    connection_name: str
    provider_name: str
    region_name: str
    csp_spec_name: str
    vcpu: int = field(name="vCPU")
    memory_gib: float = field(name="memoryGiB")
    cost_per_hour: float
    description: str
    architecture: str
    disk_size_gb: float = field(name="diskSizeGB")
    accelerator_type: str
    accelerator_model: str
    accelerator_count: int
    accelerator_memory_gb: float = field(name="acceleratorMemoryGB")
    region_latitude: float
    region_longitude: float
    infra_type: str = "vm"
    order_in_filtered_result: int = 0


class ImageView(Struct, frozen=True, rename="camel", kw_only=True):
    """A machine image."""

    resource_type: str = "image"
    id: str
    name: str
    connection_name: str
    provider_name: str
    csp_image_name: str
    os_type: str
    description: str
    region_list: list[str]
    os_architecture: str
    os_distribution: str
    os_platform: str = "Linux/UNIX"
    image_status: str = "Available"
    is_gpu_image: bool = field(name="isGPUImage", default=False)
    is_kubernetes_image: bool = False
    is_basic_image: bool = True
    infra_type: str = "vm"


class VmInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """A VM with all fields."""

    resource_type: str = "vm"
    id: str
    uid: str
    csp_resource_name: str
    csp_resource_id: str
    name: str
    sub_group_id: str
    location: Location
    status: str
    target_status: str
    target_action: str
    native_status: str
    mon_agent_status: str = "notInstalled"
    network_agent_status: str = "notInstalled"
    system_message: str
    created_time: str
    label: dict[str, str]
    description: str
    region: RegionView
    public_ip: str = field(name="publicIP")
    ssh_port: int
    public_dns: str = field(name="publicDNS", default="")
    private_ip: str = field(name="privateIP")
    private_dns: str = field(name="privateDNS", default="")
    root_disk_type: str
    root_disk_size: int
    root_device_name: str = field(name="RootDeviceName", default="")
    connection_name: str
    connection_config: ConnectionView | None
    spec_id: str
    csp_spec_name: str
    spec: SpecView | None
    image_id: str
    csp_image_name: str
    image: ImageView | None
    v_net_id: str
    csp_v_net_id: str
    subnet_id: str
    csp_subnet_id: str
    network_interface: str = ""
    security_group_ids: list[str]
    data_disk_ids: list[str]
    ssh_key_id: str
    csp_ssh_key_id: str
    vm_user_name: str
    addtional_details: list[KeyValue]  # Tumblebug's spelling


class VmStatusInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The status of a VM."""

    id: str
    uid: str
    csp_resource_name: str
    name: str
    sub_group_id: str
    status: str
    target_status: str
    target_action: str
    native_status: str
    mon_agent_status: str = "notInstalled"
    system_message: str
    created_time: str
    public_ip: str
    private_ip: str
    ssh_port: int
    location: Location


class PostCommandView(Struct, frozen=True, rename="camel"):
    """Commands that run on each VM after its creation."""

    user_name: str
    command: list[str]
    timeout_minutes: int


class CommandResult(Struct, frozen=True, rename="camel"):
    """The results of the commands on a VM, each by its number; `stdout` has the output of both streams."""

    mci_id: str
    vm_id: str
    vm_ip: str
    command: dict[str, str]
    stdout: dict[str, str]
    stderr: dict[str, str]
    exit_status: dict[str, int]
    err: str


class RemoteResult(Struct, frozen=True, rename="camel"):
    """The results of a request's commands on a VM, each by its number."""

    mci_id: str
    vm_id: str
    vm_ip: str
    command: dict[str, str]
    stdout: dict[str, str]
    stderr: dict[str, str]
    exit_status: dict[str, int]
    error: str


class RemoteResults(Struct, frozen=True):
    """The results of a request's commands on all VMs; `operation` is the operation, `command` its record."""

    results: list[RemoteResult]
    command: str
    operation: str


class BastionView(Struct, frozen=True, rename="camel"):
    """The VM through which another one is reached, and whether somebody has chosen it."""

    ns_id: str
    mci_id: str
    vm_id: str
    assigned: str


class CommandResults(Struct, frozen=True):
    """The results of the commands on all VMs."""

    results: list[CommandResult]


class VmCreationError(Struct, frozen=True, rename="camel"):
    """The reason why a VM or a subgroup could not be created."""

    vm_name: str
    error: str
    phase: str


class CreationErrors(Struct, frozen=True, rename="camel"):
    """The failures of a creation, and how they were handled."""

    vm_object_creation_errors: list[VmCreationError]
    vm_creation_errors: list[VmCreationError]
    total_vm_count: int
    successful_vm_count: int
    failed_vm_count: int
    failure_handling_strategy: str


class PostPhaseView(Struct, frozen=True, rename="camel"):
    """A phase of the post-commands."""

    user_name: str
    command: list[str]
    timeout_minutes: int
    sub_group_id: str
    vm_id: str
    label_selector: str
    continue_on_error: bool


class PostPhaseOutput(Struct, frozen=True):
    """The results of a phase, by VM."""

    results: list[RemoteResult]


class PostPhaseResult(Struct, frozen=True):
    """The outcome of a phase: Completed, CompletedWithErrors, Failed, or Skipped because an earlier one failed."""

    phase: int
    target: str
    status: str
    results: PostPhaseOutput


class MciInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """An MCI with all fields; `operation` is the operation that the request has started."""

    resource_type: str = "mci"
    id: str
    uid: str
    name: str
    status: str
    status_count: StatusCount
    target_status: str
    target_action: str
    install_mon_agent: str
    configure_cloud_adaptive_network: str = "no"
    label: dict[str, str]
    system_label: str
    system_message: list[str]
    description: str
    vm: list[VmInfo]
    new_vm_list: list[str]
    post_command: PostCommandView
    post_command_result: CommandResults
    post_commands: list[PostPhaseView]
    post_command_status: str
    post_command_results: list[PostPhaseResult]
    creation_errors: CreationErrors | None = None
    new_key_pair: NewKeyPair | None = None
    operation: str | None = None


class MciStatusInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """The status of an MCI."""

    id: str
    uid: str
    name: str
    status: str
    status_count: StatusCount
    target_status: str
    target_action: str
    install_mon_agent: str
    master_vm_id: str
    master_ip: str
    master_ssh_port: int = field(name="masterSSHPort")
    label: dict[str, str]
    system_label: str
    system_message: list[str]
    vm: list[VmStatusInfo]


class VmAccess(Struct, frozen=True, rename="camel"):
    """The access data of a VM; its private key is with the creator of the pair."""

    vm_id: str
    public_ip: str = field(name="publicIP")
    private_ip: str = field(name="privateIP")
    ssh_port: int
    vm_user_name: str
    ssh_key_id: str
    host_key_fingerprint: str
    bastion_vm_id: str
    connection_config: ConnectionView | None
    host_key: str


class GroupAccess(Struct, frozen=True, rename="pascal"):
    """The access data of the VMs of a subgroup."""

    sub_group_id: str
    bastion_vm_id: str
    mci_vm_access_info: list[VmAccess]


class MciAccess(Struct, frozen=True, rename="pascal"):
    """The access data of the VMs of an MCI."""

    mci_id: str
    mci_sub_group_access_info: list[GroupAccess]


class VmIds(Struct, frozen=True, rename="camel"):
    """All names of a VM."""

    id_in_tb: str
    id_in_sp: str
    id_in_csp: str
    name_in_csp: str


class Associated(Struct, frozen=True, rename="camel"):
    """The names of all objects that an MCI is associated with."""

    connection_names: list[str]
    provider_names: list[str]
    sub_group_ids: list[str]
    vm_ids: list[str]
    csp_vm_names: list[str]
    csp_vm_ids: list[str]
    image_ids: list[str]
    spec_ids: list[str]
    v_net_ids: list[str]
    csp_v_net_ids: list[str]
    subnet_ids: list[str]
    csp_subnet_ids: list[str]
    security_group_ids: list[str]
    data_disk_ids: list[str]
    ssh_key_ids: list[str]


def matches_filter(shown: Struct, key: str, value: str) -> bool:
    """Tell whether a view has a value in a field; field names are case-insensitive, and a list has its items."""
    names = zip(shown.__struct_fields__, shown.__struct_encode_fields__, strict=True)
    field_name = next((name for name, encoded in names if key.lower() in (name.lower(), encoded.lower())), None)
    actual: Any = None if field_name is None else getattr(shown, field_name)
    return value in ([str(element) for element in actual] if isinstance(actual, list) else [str(actual)])
