"""Routes of labels: those of an object, and the objects that have some."""

import re
from collections.abc import AsyncIterator, Callable, Collection
from typing import Annotated, Any

from litestar import delete, get, put
from litestar.params import PathParameter, QueryParameter

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.tumblebug_params import ACT, READ, TEXT, Name, check_choice
from stateward.domains.mci.errors import NoSuchUid
from stateward.domains.mci.object_labels import LABELED_KINDS, Labels, change_labels, labels_of
from stateward.domains.mci.tumblebug_keys import present_key, tumblebug_key
from stateward.engine.queries import list_all
from stateward.errors import BadInput
from stateward.plugin.route_options import grant_of, reads
from stateward.store.filters import Selector
from stateward.store.records import Object

# --- selectors -------------------------------------------------------------------------------------------------------

# The forms of Kubernetes, and the words `exists` and `!exists` of CB-Tumblebug: conditions with commas between, all of
# which must hold. Where a label is missing, `!=` and `notin` hold, as in Kubernetes. A text in no known form is
# refused: it would select nothing, or everything.

LabelTest = Callable[[Labels], bool]

GRAMMAR = "`a=b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a` or `!a`, with commas between"

NAME = r"(?P<name>[^\s,()=!]+)"
CONDITIONS = (
    re.compile(rf"{NAME}\s*(?P<sign>!=|==?)\s*(?P<value>[^=,][^,]*|)\Z"),
    re.compile(rf"{NAME}\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)\Z"),
    re.compile(rf"{NAME}\s+(?P<sign>!?exists)\Z"),
    re.compile(rf"(?P<sign>!?)\s*{NAME}\Z"),
)
"""The forms of a condition."""

COMMA = re.compile(r",(?![^()]*\))")
"""A comma that ends a condition: one within parentheses does not."""


def parse_selector(text: str) -> LabelTest:
    """Return a function that tells whether labels fit a selector; an empty selector fits all."""
    tests = [_parse_condition(text, condition.strip()) for condition in COMMA.split(text) if condition.strip()]
    return lambda labels: all(test(labels) for test in tests)


def _parse_condition(text: str, condition: str) -> LabelTest:
    match = next(filter(None, (form.match(condition) for form in CONDITIONS)), None)
    if match is None:
        raise BadInput("labelSelector", text, GRAMMAR)
    parts = match.groupdict()
    name: str = parts["name"]
    match parts["sign"]:
        case "" | "exists":
            return lambda labels: name in labels
        case "!" | "!exists":
            return lambda labels: name not in labels
        case "=" | "==":
            return lambda labels: labels.get(name) == parts["value"].strip()
        case "!=":
            return lambda labels: labels.get(name) != parts["value"].strip()
    values = frozenset(value.strip() for value in parts["values"].split(","))
    return lambda labels: (labels.get(name) in values) is (parts["sign"] == "in")


LabelKey = Annotated[str, PathParameter(pattern=TEXT, description="the name of a label")]
LabelSelector = Annotated[
    str | None,
    QueryParameter(name="labelSelector", pattern=TEXT, description=GRAMMAR),
]
PRESENT_TYPES = {"infra": "mci", "node": "vm"}
"""The types of objects in Tumblebug's present release, with their older names."""

TYPE_LABEL = "sys.labelType"
SYSTEM_LABELS = {
    "sys.id": "the object's id",
    "sys.namespace": "its namespace",
    "sys.uid": "its uid, which is its name at the provider",
    TYPE_LABEL: "its type",
}


@get("/label/{label_type:str}/{uid:str}", opt=READ)
async def get_labels(request: TumblebugRequest, label_type: Name, uid: Name) -> dict[str, Any]:
    """Return the labels of an object, by its uid."""
    record = await _find(request, label_type, uid)
    key = tumblebug_key(record)
    is_present = label_type in PRESENT_TYPES
    return {"resourceKey": present_key(key) if is_present else key, "labels": _labels(record, label_type)}


@put("/label/{label_type:str}/{uid:str}", opt=ACT | reads({"labels": {"team": "shop"}}))
async def set_labels(request: TumblebugRequest, label_type: Name, uid: Name) -> OperationReply:
    """Add labels to an object, or replace their values; the other labels stay, and so do the tags at the provider."""
    given = (await request.fields()).labels("labels")
    if given.get(TYPE_LABEL) == label_type:  # as this API shows it
        del given[TYPE_LABEL]
    if not given:
        raise BadInput("labels", None, 'given: an object with at least one label, such as {"team": "shop"}')
    await _change(request, await _find(request, label_type, uid), given)
    return OperationReply(f"The labels of {uid} have been changed")


@delete("/label/{label_type:str}/{uid:str}/{key:path}", opt=ACT, status_code=200)
async def remove_label(request: TumblebugRequest, label_type: Name, uid: Name, key: LabelKey) -> OperationReply:
    """Remove a label from an object."""
    name = key.removeprefix("/")
    await _change(request, await _find(request, label_type, uid), {}, (name,))
    return OperationReply(f"The label {name} has been removed")


@get("/resources/{label_type:str}", opt=READ)
async def find_by_labels(
    request: TumblebugRequest, label_type: Name, selector: LabelSelector = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the objects of a type in the caller's namespaces that have some labels."""
    word, fits = _type(label_type), parse_selector(selector or "")
    labeled = [(record, _labels(record, label_type)) async for record in _objects(request, word)]
    return {
        "results": [
            {
                "resourceType": label_type,
                "id": labels["sys.id"],
                "uid": labels["sys.uid"],
                "nsId": record.ns,
                "label": labels,
            }
            for record, labels in labeled
            if fits(labels)
        ]
    }


@get("/labelInfo", opt=READ)
async def label_info() -> dict[str, Any]:
    """Return the types of objects that have labels, and the labels that all of them have."""
    return {"labelTypes": [*LABELED_KINDS, *PRESENT_TYPES], "systemLabels": SYSTEM_LABELS}


def _labels(record: Object, label_type: str) -> Labels:
    """Return the labels of an object; its type has the name of the release by which the caller asks."""
    return {**labels_of(record), TYPE_LABEL: label_type}


def _type(word: str) -> str:
    return check_choice("labelType", PRESENT_TYPES.get(word, word), *LABELED_KINDS)


async def _objects(request: TumblebugRequest, word: str) -> AsyncIterator[Object]:
    reader, covered = request.service.engine.store.reader, grant_of(request).namespace_filter
    for ns in await reader.namespaces() if covered is None else sorted(covered):
        async for record in list_all(reader, Selector(ns, LABELED_KINDS[word])):
            yield record


async def _find(request: TumblebugRequest, label_type: str, uid: str) -> Object:
    """Return the object with a uid, in the caller's namespaces."""
    async for record in _objects(request, _type(label_type)):
        if labels_of(record)["sys.uid"] == uid:
            return record
    raise NoSuchUid("", uid)


async def _change(request: TumblebugRequest, record: Object, added: Labels, removed: Collection[str] = ()) -> None:
    engine, by = request.service.engine, request.caller
    await engine.store.transact(lambda tx: change_labels(tx, engine.kinds, record.key, added, removed, by))


ROUTES = (get_labels, set_labels, remove_label, find_by_labels, label_info)
