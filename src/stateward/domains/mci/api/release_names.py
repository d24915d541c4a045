"""Names of Tumblebug's present release: an MCI is an `infra`, a VM is a `node`, a subgroup is a `nodegroup`.

Tumblebug has renamed these objects in its paths and in the fields of its bodies. Clients of both releases are in use. A
route is written once, with the older names. A request with the newer names gets the older path before it is routed, and
the fields of its response are renamed. Fields of requests are read under both names.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec
from litestar.types import Message, Send

SEGMENTS = {
    "mci": "infra",
    "mciDynamic": "infraDynamic",
    "mciDynamicReview": "infraDynamicReview",
    "mciDynamicCheckRequest": "infraDynamicCheckRequest",
    "vm": "node",
    "subgroup": "nodegroup",
    "subGroupDynamic": "nodeGroupDynamic",
    "subGroupDynamicReview": "nodeGroupDynamicReview",
    "registerCspVm": "registerCspNode",
    "systemMci": "systemInfra",
    "recommendAlternativeVmConfig": "recommendAlternativeNodeConfig",
    "mciAutopilot": "infraAutopilot",
    "mciAutopilotReview": "infraAutopilotReview",
}
"""The segments of paths, in the older and in the present release."""

FIELDS = {
    "mci": "infra",
    "mciId": "infraId",
    "MciId": "InfraId",
    "mciFlag": "infraFlag",
    "mciName": "infraName",
    "mciNamePrefix": "infraNamePrefix",
    "mciDynamicReq": "infraDynamicReq",
    "MciSubGroupAccessInfo": "InfraNodeGroupAccessInfo",
    "MciVmAccessInfo": "NodeAccessInfo",
    "BastionVmId": "BastionNodeId",
    "bastionVmId": "bastionNodeId",
    "SubGroupId": "NodeGroupId",
    "subGroups": "nodeGroups",
    "subGroupId": "nodeGroupId",
    "subGroupIds": "nodeGroupIds",
    "subGroupSize": "nodeGroupSize",
    "vm": "node",
    "vms": "nodes",
    "vmId": "nodeId",
    "vmIds": "nodeIds",
    "vmIp": "nodeIp",
    "vmName": "nodeName",
    "vmReviews": "nodeReviews",
    "vmUserName": "nodeUserName",
    "vmUserPassword": "nodeUserPassword",
    "cspVmIds": "cspNodeIds",
    "cspVmNames": "cspNodeNames",
    "masterVmId": "masterNodeId",
    "newVmList": "newNodeList",
    "numVMsToAdd": "numNodesToAdd",
    "numVMsToRemove": "numNodesToRemove",
    "targetVmCount": "targetNodeCount",
    "completedVmCount": "completedNodeCount",
    "totalVmCount": "totalNodeCount",
    "successfulVmCount": "successfulNodeCount",
    "failedVmCount": "failedNodeCount",
    "vmCreationErrors": "nodeCreationErrors",
    "vmObjectCreationErrors": "nodeObjectCreationErrors",
    "vmHandlingCounts": "nodeHandlingCounts",
}
"""The fields of bodies, in the older and in the present release."""

OLDER_FIELDS = {new.lower(): old.lower() for old, new in FIELDS.items()}
"""The older name of each renamed field, in lower case: fields of requests are read in any case."""

OLDER_NAMES = {new: old for old, new in FIELDS.items()}

OBJECT_TYPES = {"mci": "infra", "vm": "node", "subGroup": "nodeGroup"}
"""The values of `resourceType`, in the older and in the present release."""

USER_MAPS = frozenset({"label", "labels"})
"""The fields whose keys are the users' own words."""

ERROR_TEXTS = frozenset({"field", "message", "detail"})
"""The fields of an error that name fields of the request."""

SUGGESTIONS = frozenset({"known", "nearest"})
"""The fields of an error about an unknown field that have the names of known ones."""

_LOWER, _CAMEL = ("|".join(name for name in FIELDS if name.islower() is lower) for lower in (True, False))
FIELD_WORDS = re.compile(rf"(?<![-\w])(?:({_CAMEL})(?![-\w])|(?<!mci\.)(?!mci\.[a-z])({_LOWER})(?=[\[.:]|$))")
"""The fields in a text: a word such as `vm` only where a path goes on or ends, and never in a kind such as `mci.vm`."""

JSON_TYPE = b"application/json"


def present_path(path: str) -> str:
    """Return the path of a route in the present release; most are the same in both."""
    return "/".join(SEGMENTS.get(segment, segment) for segment in path.split("/"))


def with_older_parameters(query: bytes) -> bytes:
    """Return a query string with the older names of parameters, and of the field in `filterKey`."""
    if not query:
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="utf-8")
    older = [
        (OLDER_NAMES.get(name, name), OLDER_NAMES.get(value, value) if name == "filterKey" else value)
        for name, value in pairs
    ]
    return query if older == pairs else urlencode(older).encode()


def rename_fields(value: Any, *, error: bool = False) -> Any:  # noqa: ANN401 - any JSON
    """Return a response with the names of the present release; the texts of an `error` name fields, too."""
    if isinstance(value, list):
        return [rename_fields(element, error=error) for element in value]
    if not isinstance(value, Mapping):
        return value
    renamed = {FIELDS.get(name, name): _renamed_value(name, member, error=error) for name, member in value.items()}
    for name in SUGGESTIONS & value.keys() if error and "field" in value else ():
        renamed[name] = _renamed_names(value[name])
    return renamed


def _renamed_names(names: Any) -> Any:  # noqa: ANN401 - a text, texts or nothing
    return [FIELDS.get(name, name) for name in names] if isinstance(names, list) else FIELDS.get(names, names)


def _renamed_value(name: str, value: Any, *, error: bool) -> Any:  # noqa: ANN401 - any JSON
    if name in USER_MAPS:
        return value
    if isinstance(value, str):
        if name == "resourceType":
            return OBJECT_TYPES.get(value, value)
        return FIELD_WORDS.sub(lambda word: FIELDS[word[0]], value) if error and name in ERROR_TEXTS else value
    return rename_fields(value, error=error)


class RenamedResponse:
    """The `send` of a request with the newer names: renames the fields of a JSON response; streams pass unchanged."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._parts: list[bytes] = []  # bounded by: one response

    async def __call__(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start" and _is_json(message):
            self._start = message
        elif message["type"] == "http.response.body" and self._start is not None:
            self._parts.append(message.get("body", b""))
            if not message.get("more_body"):
                await _send_renamed(self._start, b"".join(self._parts), self._send)
        else:
            await self._send(message)


def _is_json(start: Any) -> bool:  # noqa: ANN401 - a message
    kind = next((value for name, value in start["headers"] if name.lower() == b"content-type"), b"")
    return bool(kind.split(b";")[0].strip() == JSON_TYPE)


async def _send_renamed(start: Any, body: bytes, send: Send) -> None:  # noqa: ANN401 - a message
    is_error = start["status"] >= HTTPStatus.BAD_REQUEST
    renamed_body = msgspec.json.encode(rename_fields(msgspec.json.decode(body), error=is_error)) if body else b""
    others = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    start["headers"] = [*others, (b"content-length", b"%d" % len(renamed_body))]
    await send(start)
    await send({"type": "http.response.body", "body": renamed_body, "more_body": False})
