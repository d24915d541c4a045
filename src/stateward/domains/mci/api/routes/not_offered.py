"""Endpoints of Tumblebug that this server does not offer: each answers 501 with the reason.

A client that uses them gets a clear answer instead of a 404, which could also mean a wrong name. `docs/tumblebug.md`
lists all endpoints; a test compares the page with the routes.
"""

from litestar import HttpMethod, route
from msgspec import Struct

from stateward.access import Right
from stateward.domains.mci.api.before_routing import ORIGINAL_PATH, REASON, Endpoint
from stateward.domains.mci.api.context import TumblebugRequest
from stateward.engine import NotFound
from stateward.errors import BadInput, NotOffered
from stateward.plugin.route_options import needs

PATH = "/not-offered"
METHODS = [HttpMethod.GET, HttpMethod.POST, HttpMethod.PUT, HttpMethod.DELETE, HttpMethod.HEAD]


class Missing(Struct, frozen=True):
    """Endpoints that are not offered for one reason: lines of methods with a path."""

    reason: str
    lines: tuple[str, ...]

    @property
    def endpoints(self) -> list[Endpoint]:
        """The endpoints."""
        split = [line.split() for line in self.lines]
        return [(method, path) for *methods, path in split for method in methods]


MISSING = (
    Missing(
        "load balancers are no part of the lifecycle of VMs",
        (
            "GET /nlb/support",
            "POST /ns/{ns}/mci/{mci_id}/mcSwNlb",
            "DELETE GET POST /ns/{ns}/mci/{mci_id}/nlb",
            "DELETE GET /ns/{ns}/mci/{mci_id}/nlb/{nlb_id}",
            "GET /ns/{ns}/mci/{mci_id}/nlb/{nlb_id}/healthz",
            "DELETE POST /ns/{ns}/mci/{mci_id}/nlb/{nlb_id}/vm",
            "GET /ns/{ns}/resources/nlb",
        ),
    ),
    Missing(
        "Kubernetes clusters are no part of the lifecycle of VMs",
        (
            "GET /availableK8sNodeImage",
            "GET /availableK8sVersion",
            "GET /checkK8sNodeGroupsOnK8sCreation",
            "GET /checkK8sNodeImageDesignation",
            "POST /k8sClusterDynamicCheckRequest",
            "GET /k8sClusterInfo",
            "POST /k8sClusterRecommendNode",
            "POST /ns/{ns}/cmd/k8sCluster/{k8s_cluster_id}",
            "GET /ns/{ns}/control/k8sCluster/{k8s_cluster_id}",
            "DELETE GET POST /ns/{ns}/k8sCluster",
            "DELETE GET /ns/{ns}/k8sCluster/{k8s_cluster_id}",
            "POST /ns/{ns}/k8sCluster/{k8s_cluster_id}/k8sNodeGroup",
            "DELETE /ns/{ns}/k8sCluster/{k8s_cluster_id}/k8sNodeGroup/{k8s_vm_group_name}",
            "PUT /ns/{ns}/k8sCluster/{k8s_cluster_id}/k8sNodeGroup/{k8s_vm_group_name}/autoscaleSize",
            "PUT /ns/{ns}/k8sCluster/{k8s_cluster_id}/k8sNodeGroup/{k8s_vm_group_name}/onAutoscaling",
            "POST /ns/{ns}/k8sCluster/{k8s_cluster_id}/k8sNodeGroupDynamic",
            "GET /ns/{ns}/k8sCluster/{k8s_cluster_id}/kubeconfig",
            "GET /ns/{ns}/k8sCluster/{k8s_cluster_id}/token",
            "PUT /ns/{ns}/k8sCluster/{k8s_cluster_id}/upgrade",
            "POST /ns/{ns}/k8sClusterDynamic",
            "POST /ns/{ns}/k8sMultiClusterDynamic",
            "POST /ns/{ns}/transferFile/k8sCluster/{k8s_cluster_id}",
            "GET /requiredK8sSubnetCount",
        ),
    ),
    Missing(
        "data disks are no part of the lifecycle of VMs: a VM has its root disk",
        (
            "GET POST PUT /ns/{ns}/mci/{mci_id}/vm/{vm_id}/dataDisk",
            "DELETE GET POST /ns/{ns}/resources/dataDisk",
            "DELETE GET PUT /ns/{ns}/resources/dataDisk/{data_disk_id}",
        ),
    ),
    Missing(
        "custom images and snapshots are no part of the lifecycle of VMs: register an image of the provider instead",
        (
            "POST /ns/{ns}/buildAgnosticImage",
            "POST /ns/{ns}/mci/{mci_id}/vm/{vm_id}/snapshot",
            "POST /ns/{ns}/mci/{mci_id}/snapshot",
            "DELETE GET POST /ns/{ns}/resources/customImage",
            "DELETE GET /ns/{ns}/resources/customImage/{custom_image_id}",
        ),
    ),
    Missing(
        "VPNs between clouds are no part of the lifecycle of VMs",
        (
            "GET POST /ns/{ns}/mci/{mci_id}/vpn",
            "DELETE GET /ns/{ns}/mci/{mci_id}/vpn/{vpn_id}",
            "POST /ns/{ns}/mci/{mci_id}/vpn/{vpn_id}/health",
            "GET /ns/{ns}/mci/{mci_id}/vpn/{vpn_id}/request/{request_id}",
        ),
    ),
    Missing(
        "templates are not stored here: a fleet file or the body of a request is one",
        (
            "POST /ns/{ns}/mci/template/{template_id}",
            "POST /ns/{ns}/k8sCluster/template/{template_id}",
            "POST /ns/{ns}/k8sCluster/{k8s_cluster_id}/extractTemplate",
            "POST /ns/{ns}/resources/securityGroup/template/{template_id}",
            "POST /ns/{ns}/resources/vNet/template/{template_id}",
            "DELETE GET POST /ns/{ns}/template/mci",
            "DELETE GET PUT /ns/{ns}/template/mci/{template_id}",
            "DELETE GET POST /ns/{ns}/template/k8sCluster",
            "DELETE GET PUT /ns/{ns}/template/k8sCluster/{template_id}",
            "DELETE GET POST /ns/{ns}/template/securityGroup",
            "DELETE GET PUT /ns/{ns}/template/securityGroup/{template_id}",
            "DELETE GET POST /ns/{ns}/template/vNet",
            "DELETE GET PUT /ns/{ns}/template/vNet/{template_id}",
        ),
    ),
    Missing(
        "object storage is no part of the lifecycle of VMs",
        (
            "GET PUT /ns/{ns}/resources/objectStorage",
            "PUT /ns/{ns}/resources/objectStorage/reconcile",
            "POST /ns/{ns}/resources/objectStorage/reconcile/prune",
            "DELETE GET HEAD /ns/{ns}/resources/objectStorage/{os_id}",
            "DELETE GET PUT /ns/{ns}/resources/objectStorage/{os_id}/cors",
            "GET /ns/{ns}/resources/objectStorage/{os_id}/location",
            "GET /ns/{ns}/resources/objectStorage/{os_id}/object",
            "DELETE HEAD /ns/{ns}/resources/objectStorage/{os_id}/object/{object_key}",
            "POST /ns/{ns}/resources/objectStorage/{os_id}/object/{object_key}/presignedUrl",
            "PUT /ns/{ns}/resources/objectStorage/{os_id}/reconcile",
            "GET PUT /ns/{ns}/resources/objectStorage/{os_id}/versioning",
            "GET /ns/{ns}/resources/objectStorage/{os_id}/versions",
            "DELETE /ns/{ns}/resources/objectStorage/{os_id}/versions/{object_key}",
            "GET /objectStorage/support",
        ),
    ),
    Missing(
        "databases are no part of the lifecycle of VMs",
        (
            "GET POST /ns/{ns}/resources/rdbms",
            "PUT /ns/{ns}/resources/rdbms/reconcile",
            "POST /ns/{ns}/resources/rdbms/reconcile/prune",
            "POST /ns/{ns}/resources/rdbms/validate",
            "DELETE GET /ns/{ns}/resources/rdbms/{rdbms_id}",
            "GET POST /ns/{ns}/resources/rdbms/{rdbms_id}/database",
            "DELETE /ns/{ns}/resources/rdbms/{rdbms_id}/database/{db_name}",
            "PUT /ns/{ns}/resources/rdbms/{rdbms_id}/reconcile",
            "GET /rdbms/capability",
            "GET /rdbms/support",
        ),
    ),
    Missing(
        "DNS records are no part of the lifecycle of VMs",
        (
            "GET /resources/globalDns/hostedZone",
            "DELETE GET PUT /resources/globalDns/record",
            "DELETE /resources/globalDns/records",
        ),
    ),
    Missing(
        "no agents are installed on VMs: monitoring and benchmarks are for other programs",
        (
            "POST /ns/{ns}/benchmark/mci/{mci_id}",
            "POST /ns/{ns}/benchmarkAll/mci/{mci_id}",
            "GET /ns/{ns}/benchmarkLatency/mci/{mci_id}",
            "GET /ns/{ns}/mci/{mci_id}/cluster",
            "GET /ns/{ns}/mci/{mci_id}/cluster/{cluster_id}",
            "POST /ns/{ns}/installBenchmarkAgent/mci/{mci_id}",
            "GET /ns/{ns}/monitoring/mci/{mci_id}/metric/{metric}",
            "POST /ns/{ns}/monitoring/install/mci/{mci_id}",
            "PUT /ns/{ns}/monitoring/status/mci/{mci_id}/vm/{vm_id}",
        ),
    ),
    Missing(
        "VMs are scaled by requests: this server has no policies that do it by themselves",
        (
            "POST /ns/{ns}/mciAutopilot",
            "GET /ns/{ns}/mciAutopilot/{mci_id}/status",
            "POST /ns/{ns}/mciAutopilotReview",
            "DELETE GET /ns/{ns}/policy/mci",
            "DELETE GET POST /ns/{ns}/policy/mci/{mci_id}",
            "POST /recommendAlternativeVmConfig",
        ),
    ),
    Missing(
        "credentials are never sent over this API: a connection names them, `stateward mci connection add`",
        (
            "DELETE POST /cloudInfo/{provider_name}",
            "POST /credential",
            "GET /credential/openbaoStatus",
            "GET /credential/publicKey",
        ),
    ),
    Missing(
        "networks are not designed here: a shared one is created for each connection",
        (
            "PUT /ns/{ns}/mci/{mci_id}/associatedSecurityGroups",
            "PUT /ns/{ns}/resources/vNet/reconcile",
            "POST /ns/{ns}/resources/vNet/reconcile/prune",
            "PUT /ns/{ns}/resources/vNet/{v_net_id}/reconcile",
            "POST /ns/{ns}/sharedResource",
            "POST /ns/{ns}/sharedResources/recoverDependencies",
            "POST /util/net/design",
            "POST /util/net/validate",
            "POST /util/vNet/design",
        ),
    ),
    Missing(
        "registration has no schedule: the reconciler finds drift by itself",
        (
            "DELETE GET POST /registerCspResources/schedule",
            "DELETE GET PUT /registerCspResources/schedule/{job_id}",
            "PUT /registerCspResources/schedule/{job_id}/pause",
            "PUT /registerCspResources/schedule/{job_id}/resume",
        ),
    ),
    Missing(
        "it administers the original's own server: its database, its assets, its forwarding to CB-Spider",
        (
            "GET /assetsSummary",
            "GET /auth/test",
            "POST /forward/{path}",
            "GET /httpVersion",
            "GET /loadAssets",
            "DELETE /ns",
            "GET /ns/{ns}/mci/{mci_id}/configCopy",
            "GET /ns/{ns}/mci/{mci_id}/site",
            "POST /provisioning/event",
            "DELETE /provisioning/log/{spec_id}",
            "DELETE PUT /readyz/init",
            "DELETE /request/{req_id}",
            "DELETE /requests",
            "POST /systemMci",
            "POST /testStreamResponse",
            "POST /updateImagesFromAsset",
        ),
    ),
    Missing(
        "a record without its object at the provider is removed by DELETE with force=true",
        (
            "DELETE /ns/{ns}/deregisterResource/customImage/{custom_image_id}",
            "DELETE /ns/{ns}/deregisterResource/dataDisk/{data_disk_id}",
            "DELETE /ns/{ns}/deregisterResource/securityGroup/{security_group_id}",
            "DELETE /ns/{ns}/deregisterResource/sshKey/{ssh_key_id}",
            "DELETE /ns/{ns}/deregisterResource/vNet/{v_net_id}",
            "DELETE /ns/{ns}/deregisterResource/vNet/{v_net_id}/subnet/{subnet_id}",
        ),
    ),
    Missing(
        "commands are objects with operations: `/api/v1` shows, follows and cancels them; a bastion is a VM of the MCI",
        (
            "GET /ns/{ns}/cmd/mci/{mci_id}/task",
            "GET /ns/{ns}/cmd/mci/{mci_id}/task/{task_id}",
            "POST /ns/{ns}/cmd/mci/{mci_id}/task/{task_id}/cancel",
            "POST /ns/{ns}/downloadFile/mci/{mci_id}/vm/{vm_id}",
            "DELETE /ns/{ns}/mci/{mci_id}/bastion/{bastion_mci_id}/{bastion_vm_id}",
            "DELETE /ns/{ns}/mci/{mci_id}/bastion/{bastion_ns_id}/{bastion_mci_id}/{bastion_vm_id}",
            "GET /ns/{ns}/mci/{mci_id}/handlingCount",
            "DELETE GET /ns/{ns}/mci/{mci_id}/vm/{vm_id}/commandStatus",
            "DELETE GET /ns/{ns}/mci/{mci_id}/vm/{vm_id}/commandStatus/{index}",
            "DELETE /ns/{ns}/mci/{mci_id}/vm/{vm_id}/commandStatusAll",
            "GET /ns/{ns}/mci/{mci_id}/vm/{vm_id}/handlingCount",
            "DELETE GET /ns/{ns}/mci/{mci_id}/vm/{vm_id}/sshHostKey",
            "PUT /ns/{ns}/mci/{mci_id}/vm/{target_vm_id}/bastion/{bastion_mci_id}/{bastion_vm_id}",
            "PUT /ns/{ns}/mci/{mci_id}/vm/{target_vm_id}/bastion/{bastion_ns_id}/{bastion_mci_id}/{bastion_vm_id}",
            "PUT /ns/{ns}/resources/sshKey/{ssh_key_id}/complement",
            "POST /ns/{ns}/transferFileAndCmd/mci/{mci_id}",
        ),
    ),
    Missing(
        "a spec is offered in all zones of its region here",
        (
            "POST /availableRegionZonesForSpec",
            "POST /availableRegionZonesForSpecList",
            "GET /availableZonesForSpec",
            "POST /ns/{ns}/updateExistingSpecListByAvailableRegionZones",
        ),
    ),
    Missing(
        "machines are adopted, and their networks, security groups and keys stay as they are, without records",
        (
            "POST /ns/{ns}/registerCspResource/vNet",
            "POST /ns/{ns}/registerCspResource/vNet/{v_net_id}/subnet",
        ),
    ),
    Missing(
        "the tags of an object at its provider are those of its creation: labels are kept here alone",
        ("PUT /mergeCSPLabel/{label_type}/{uid}",),
    ),
)
"""All endpoints that are not offered, by their reasons; the paths have the older names."""

REASONS = {endpoint: missing.reason for missing in MISSING for endpoint in missing.endpoints}


@route(PATH, http_method=METHODS, opt=needs(Right.READ, messages=True), include_in_schema=False, status_code=501)
async def refuse(request: TumblebugRequest) -> None:
    """Refuse a request that is not offered, with the reason."""
    given: str = request.scope[ORIGINAL_PATH]  # type: ignore[literal-required]
    if "//" in given:
        raise BadInput("path", given, "a path without empty parts: a name is missing")
    if REASON not in request.scope:
        raise NotFound("tumblebug", PATH)
    raise NotOffered(f"{request.method} {given}", request.scope[REASON])  # type: ignore[literal-required]


ROUTES = (refuse,)
