"""The fields of a fleet: an MCI in a file of the command line, or in a template of another domain.

Each field goes by a short name, or by its name in the Tumblebug API, so that the JSON body of a request is a fleet too.
"""

from collections.abc import Mapping


def _with_api_names(names: Mapping[str, str]) -> dict[str, str]:
    return {**names, **{name: name for name in names.values()}}


HEAD: Mapping[str, str] = {
    **_with_api_names(
        {
            "name": "name",
            "description": "description",
            "label": "label",
            "policy": "policyOnPartialFailure",
            "groups": "subGroups",
            "postCommand": "postCommand",
            "publicKey": "publicKey",
            "accessFrom": "accessFrom",
        }
    ),
    **{name: name for name in ("systemLabel", "installMonAgent", "placementAlgo")},
}

GROUP: Mapping[str, str] = _with_api_names(
    {
        "name": "name",
        "size": "subGroupSize",
        "spec": "specId",
        "image": "imageId",
        "connection": "connectionName",
        "zone": "zone",
        "key": "sshKeyId",
        "user": "vmUserName",
        "disk": "rootDiskSize",
        "diskType": "rootDiskType",
        "label": "label",
        "description": "description",
    }
)

COMMAND: Mapping[str, str] = {
    "command": "command",
    "user": "userName",
    "userName": "userName",
    "minutes": "timeoutMinutes",
    "timeoutMinutes": "timeoutMinutes",
}
"""The fields of an MCI, of a subgroup and of a post-command: the names in a fleet, with those in the Tumblebug API."""
