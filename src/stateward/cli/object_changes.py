"""The changes that make objects as their documents describe them: decided here, from documents and stored objects.

A kind may store more than a document says: defaults, and fields of its own. So a spec is as described if it contains
the described one. A document that loses a field would not be noticed that way. Therefore an object that `apply` has
made carries the digest of its document in the label `stateward.apply`. The same label tells which objects `apply` has
made: pruning removes no others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from stateward.errors import BadInput

if TYPE_CHECKING:
    from stateward.cli.commands.object_files import ObjectDocument
    from stateward.schemas.kind_info import KindInfo
    from stateward.schemas.objects import ObjectView

DIGEST_LABEL = "stateward.apply"
REWRITTEN = "~"
"""Ends the digest of an object whose kind stores another spec than it is given, such as times in another form."""

UPDATES = ("update", "change")
"""The actions by which `apply` gives an object a new spec, if its kind declares that they take one."""

MASK = "***"
"""The value of a secret in responses."""

PEOPLE = frozenset({"user", "admin"})


class Verb(StrEnum):
    """What is to be done about an object."""

    CREATE = "create"
    UPDATE = "update"
    LABEL = "label"
    KEEP = "unchanged"
    REMOVE = "remove"


class ObjectChange(Struct, frozen=True):
    """What is to be done about one object; `action` is the event by which it takes a new spec."""

    verb: Verb
    id: str
    namespace: str
    document: "ObjectDocument | None" = None
    found: "ObjectView | None" = None
    action: str = ""
    labels: dict[str, str] = {}


def decide_change(document: "ObjectDocument", view: "ObjectView | None", kind: "KindInfo | None") -> ObjectChange:
    """Return the change that makes an object as its document describes it; raises if its kind cannot do that."""
    if DIGEST_LABEL in document.labels:
        raise BadInput(f"{document.place(f'labels.{DIGEST_LABEL}')}: labels", DIGEST_LABEL, "left out: apply sets it")
    if masked := next(_masked_fields(document.spec, "spec"), None):
        raise BadInput(f"{document.place(masked)}: {masked}", MASK, "a value: a secret is shown so, and not stored so")
    if view is None:
        if kind is not None and not kind.creatable:
            where = "another command or its domain creates them; apply can only update them"
            raise BadInput(
                f"{document.place('kind')}: kind", document.kind, f"one whose objects can be created here: {where}"
            )
        labels = {**document.labels, DIGEST_LABEL: digest_of(document)}
        return ObjectChange(Verb.CREATE, document.id, document.namespace, document, labels=labels)
    if view.kind != document.kind:
        raise BadInput(f"{document.place('kind')}: kind", document.kind, f"{view.kind}, as {view.id} has it")
    if document.parent is not None and document.parent != view.parent:
        as_found = f"left out: {view.id} has none" if view.parent is None else f"{view.parent}, as {view.id} has it"
        allowed = f"{as_found}; the parent of an object cannot be changed"
        raise BadInput(f"{document.place('parent')}: parent", document.parent, allowed)
    digest, former = digest_of(document), view.labels.get(DIGEST_LABEL)
    labels = {**view.labels, **document.labels, **({} if former is None else {DIGEST_LABEL: former})}
    named = (document.id, document.namespace, document, view)
    if not differs(document, view):
        return ObjectChange(Verb.KEEP if labels == view.labels else Verb.LABEL, *named, labels=labels)
    action = update_action(kind)
    if action is None:
        what = f"as it is: {document.kind} has no action that updates the spec of {view.id}"
        raise BadInput(f"{document.place('spec')}: spec", None, f"{what}; remove it and create it anew")
    if former is not None:
        labels[DIGEST_LABEL] = digest
    return ObjectChange(Verb.UPDATE, *named, action=action, labels=labels)


def _masked_fields(value: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - plain JSON
    """Yield the fields whose value is the mask of a secret."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _masked_fields(part, f"{path}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _masked_fields(part, f"{path}[{number}]")
    elif value == MASK:
        yield path


def differs(document: "ObjectDocument", view: "ObjectView") -> bool:
    """Return whether the spec of an object is another than its document describes."""
    if document.spec is None:
        return False
    applied, digest = view.labels.get(DIGEST_LABEL), digest_of(document)
    if applied == digest + REWRITTEN:
        return False
    return (applied is not None and applied != digest) or not contains(view.spec, document.spec)


def digest_of(document: "ObjectDocument") -> str:
    """Return the digest of the spec in a document."""
    return blake2b(msgspec.json.encode(document.spec or {}, order="deterministic"), digest_size=8).hexdigest()


def contains(stored: Any, described: Any) -> bool:  # noqa: ANN401 - plain JSON
    """Return whether a stored value has all that a described one has; lists must have the same length."""
    if isinstance(described, dict):
        return isinstance(stored, dict) and all(
            (name in stored and contains(stored[name], value)) or (value is None and name not in stored)
            for name, value in described.items()
        )
    if isinstance(described, list):
        same = isinstance(stored, list) and len(stored) == len(described)
        return same and all(contains(part, other) for part, other in zip(stored, described, strict=True))
    return bool(stored == described) and isinstance(stored, bool) == isinstance(described, bool)


def update_action(kind: "KindInfo | None") -> str | None:
    """Return the event by which objects of a kind take a new spec from people; None if there is none."""
    events = set() if kind is None else {row.event for row in kind.rows if not PEOPLE.isdisjoint(row.actors)}
    return next(
        (action for action in UPDATES if kind is not None and action in events and action in kind.spec_actions), None
    )


def creating_action(kind: "KindInfo | None") -> str | None:
    """Return the event by which objects of a kind begin: `create`, or the only one; None if the server must say it."""
    events = [] if kind is None else [row.event for row in kind.rows if kind.initial in row.sources]
    if "create" in events:
        return "create"
    return events[0] if len(set(events)) == 1 else None


def parents_first(documents: Sequence["ObjectDocument"]) -> list["ObjectDocument"]:
    """Return documents in their order, but a parent before its parts."""
    by_id = {(document.namespace, document.id): document for document in documents}
    ordered: dict[tuple[str, str], ObjectDocument] = {}
    for document in documents:
        chain = [document]
        while (above := by_id.get((chain[-1].namespace, chain[-1].parent or ""))) is not None:
            if any(above is former for former in chain):
                raise BadInput(
                    f"{document.place('parent')}: parent", document.parent, "an object that is not a part of this one"
                )
            chain.append(above)
        for part in reversed(chain):
            ordered.setdefault((part.namespace, part.id), part)
    return list(ordered.values())


def decide_removals(
    documents: Iterable["ObjectDocument"], labelled: Iterable["ObjectView"], ns: str
) -> list[ObjectChange]:
    """Return the removals of objects that `apply` has made and that no document describes any more, parts first."""
    described = {(document.namespace, document.id) for document in documents}
    gone = [view for view in labelled if DIGEST_LABEL in view.labels and (ns, view.id) not in described]
    depth = _depths({view.id: view.parent for view in gone})
    gone.sort(key=lambda view: (-depth[view.id], view.id))
    return [ObjectChange(Verb.REMOVE, view.id, ns, found=view) for view in gone]


def _depths(parents: Mapping[str, str | None]) -> dict[str, int]:
    """Return how many of these objects each one is below."""
    depths: dict[str, int] = {}
    for name in parents:
        above, depth = parents[name], 0
        while above is not None and above in parents and depth < len(parents):
            above, depth = parents[above], depth + 1
        depths[name] = depth
    return depths
