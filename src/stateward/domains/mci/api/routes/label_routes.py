"""Routes of labels: those of an object, and the objects that have some."""

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
from litestar import get
from litestar.params import QueryParameter

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.tumblebug_params import READ, TEXT, Name, check_choice
from stateward.domains.mci.lifecycle import MCI, SECURITY_GROUP, SSH_KEY, VM, VNET
from stateward.domains.mci.model import mci_of, resource_identity, vm_of
from stateward.engine import NotFound
from stateward.engine.queries import list_all
from stateward.errors import BadInput
from stateward.plugin.route_options import grant_of
from stateward.store.filters import Selector
from stateward.store.records import Object

Labels = dict[str, str]
LabelSelector = Annotated[
    str | None,
    QueryParameter(name="labelSelector", pattern=TEXT, description="`a=b`, `a!=b`, `a` or `!a`, with commas between"),
]
KINDS = {
    "mci": MCI.kind,
    "vm": VM.kind,
    "vNet": VNET.kind,
    "securityGroup": SECURITY_GROUP.kind,
    "sshKey": SSH_KEY.kind,
}
"""The kinds of objects with labels, by their types in the API."""

PRESENT_TYPES = {"infra": "mci", "node": "vm"}
SYSTEM_LABELS = {
    "sys.id": "the object's id",
    "sys.namespace": "its namespace",
    "sys.uid": "its uid, which is its name at the provider",
    "sys.labelType": "its type",
}


@get("/label/{label_type:str}/{uid:str}", opt=READ)
async def get_labels(request: TumblebugRequest, label_type: Name, uid: Name) -> dict[str, Any]:
    """Return the labels of an object, by its uid."""
    word = _type(label_type)
    async for found in _objects(request, word):
        labels = _labels(word, found)
        if labels["sys.uid"] == uid:
            return {"resourceKey": f"/ns/{found.ns}/{word}/{found.id}", "labels": labels}
    raise NotFound("label", uid)


@get("/resources/{label_type:str}", opt=READ)
async def find_by_labels(
    request: TumblebugRequest, label_type: Name, selector: LabelSelector = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of a type in the caller's namespaces that have some labels."""
    word, fits = _type(label_type), parse_selector(selector or "")
    found = [(one, _labels(word, one)) async for one in _objects(request, word)]
    return {
        "results": [
            {"resourceType": word, "id": labels["sys.id"], "uid": labels["sys.uid"], "nsId": one.ns, "label": labels}
            for one, labels in found
            if fits(labels)
        ]
    }


@get("/labelInfo", opt=READ)
async def label_info() -> dict[str, Any]:
    """Return the types of objects that have labels, and the labels that all of them have."""
    return {"labelTypes": list(KINDS), "systemLabels": SYSTEM_LABELS}


def parse_selector(text: str) -> Callable[[Labels], bool]:
    """Return a function that tells whether labels fit a selector; an empty selector fits all."""
    tests = [_test(one.strip()) for one in text.split(",") if one.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _test(text: str) -> Callable[[Labels], bool]:
    for sign in ("!=", "==", "="):
        name, found, value = (part.strip() for part in text.partition(sign))
        if found:
            if not name:
                raise BadInput("labelSelector", text, "the name of a label before the sign")
            return lambda labels: (labels.get(name) == value) is (sign != "!=")
    if text.startswith("!"):
        return lambda labels: text[1:].strip() not in labels
    return lambda labels: text in labels


def _type(word: str) -> str:
    return check_choice("labelType", PRESENT_TYPES.get(word, word), *KINDS)


async def _objects(request: TumblebugRequest, word: str) -> AsyncIterator[Object]:
    reader, covered = request.service.engine.store.reader, grant_of(request).namespace_filter
    for ns in await reader.namespaces() if covered is None else sorted(covered):
        async for one in list_all(reader, Selector(ns, KINDS[word])):
            yield one


def _labels(word: str, found: Object) -> Labels:
    """Return the labels of an object: those that its creator gave, and those that all objects have."""
    match word:
        case "mci":
            spec = mci_of(found)
            own, name, uid = spec.label, spec.name, spec.uid
        case "vm":
            vm = vm_of(found)
            own, name, uid = vm.label, vm.name, vm.uid
        case _:
            resource = resource_identity(found)
            own = msgspec.json.decode(found.labels, type=Labels)
            name, uid = resource.name, resource.uid
    return {**own, "sys.id": name, "sys.namespace": found.ns, "sys.uid": uid, "sys.labelType": word}


ROUTES = (get_labels, find_by_labels, label_info)
