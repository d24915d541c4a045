"""Files that describe objects: one or several YAML documents, or JSON; a document may be a list.

    kind: dns.record
    name: www                     # or `id`
    namespace: shop               # that of the command, if it is left out
    spec: {address: 192.0.2.1}
    labels: {team: shop}

`create -f`, `apply`, `diff` and `edit` read them. All documents are read before anything is changed, and an error names
the file, the line and the field.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from msgspec import Struct

from stateward.client.arguments import read_source
from stateward.documents import MarkedValue, load_marked
from stateward.errors import BadInput, UnknownName
from stateward.validation_texts import explain

if TYPE_CHECKING:
    from stateward.client.session import Session
    from stateward.schemas.kind_info import KindInfo

NAMES = ("id", "name")
FIELDS = ("kind", *NAMES, "namespace", "spec", "labels", "parent", "action", "args", "facts", "priority")
ENDINGS = (".yaml", ".yml", ".json")


class ObjectDocument(Struct, frozen=True, kw_only=True):
    """An object as a file describes it, and the place of the description."""

    kind: str
    id: str
    namespace: str
    spec: dict[str, Any] | None = None
    labels: dict[str, str] = {}
    parent: str | None = None
    action: str | None = None
    args: dict[str, Any] = {}
    facts: list[str] = []
    priority: int = 0
    file: str = ""
    marks: MarkedValue | None = None

    def place(self, field: str = "") -> str:
        """Return the file and the line of a field."""
        if self.marks is None:
            return self.file
        written = "name" if field == "id" and "name" in self.marks.lines else field
        return f"{self.file}, line {self.marks.line(written)}"

    @property
    def body(self) -> dict[str, Any]:
        """The body of the request that creates the object."""
        names = ("kind", "id", "spec", "labels", "parent", "action", "args", "facts", "priority")
        return {name: value for name in names if (value := getattr(self, name))}


def read_documents(session: "Session", sources: Sequence[str]) -> list[ObjectDocument]:
    """Return the objects that files, folders or standard input (`-`) describe; each is described once."""
    files = [file for source in sources for file in _files(source)]
    documents = [document for file in files for document in _documents(session, file)]
    if not documents:
        raise BadInput("--file", ", ".join(sources), "given with at least one object: kind, name and spec")
    first: dict[tuple[str, str], ObjectDocument] = {}
    for document in documents:
        other = first.setdefault((document.namespace, document.id), document)
        if other is not document:
            raise BadInput(document.place("id"), document.id, f"described once: {other.place('id')} describes it, too")
    return documents


def _files(source: str) -> list[str]:
    folder = Path(source)
    if source == "-" or not folder.is_dir():
        return [source]
    return [str(path) for path in sorted(folder.rglob("*")) if path.suffix in ENDINGS and path.is_file()]


def _documents(session: "Session", file: str) -> Iterator[ObjectDocument]:
    for marked in read_marked(read_source("--file", file), file):
        if marked.value is not None:
            yield read_document(session, marked, file)


def read_marked(content: bytes, file: str) -> list[MarkedValue]:
    """Return the documents of a file as plain values with their lines."""
    try:
        return load_marked(content.decode())
    except (yaml.YAMLError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        at = "" if mark is None else f", line {mark.line + 1}"
        raise BadInput("--file", f"{file}{at}", f"YAML or JSON: {problem or str(error).splitlines()[0]}") from error
    except UnicodeDecodeError as error:
        raise BadInput("--file", file, "UTF-8") from error


def read_document(session: "Session", marked: MarkedValue, file: str) -> ObjectDocument:
    """Return the object that a document describes; an error names the file, the line and the field."""
    value = marked.value
    place = f"{file}, line {marked.line('')}"
    if not isinstance(value, dict):
        raise BadInput("--file", place, "fields with values, such as `kind: dns.record`")
    for name in value:
        if name not in FIELDS:
            raise UnknownName(f"field in {file}, line {marked.line(name)}:", name, FIELDS)
    ids = [name for name in NAMES if name in value]
    if len(ids) != 1:
        raise BadInput(f"{place}: name", None, "given, once: `name` or `id`")
    for name in ("kind", *ids):
        if not isinstance(value.get(name), str):
            raise BadInput(f"{file}, line {marked.line(name)}: {name}", value.get(name), "a text")
    plain = {name: given for name, given in value.items() if name not in NAMES and given is not None}
    plain = {"namespace": session.ns, **plain, "id": value[ids[0]]}
    try:
        document = msgspec.convert(plain, ObjectDocument)
    except msgspec.ValidationError as error:
        why = explain(error, ObjectDocument)
        field = why.place.replace("[...]", "")
        raise BadInput(f"{file}, line {marked.line(field)}: {field}", None, why.allowed) from None
    document = msgspec.structs.replace(document, kind=session.kind(document.kind), file=file, marks=marked)
    check_spec_names(session.kinds.get(document.kind), document)
    return document


def check_spec_names(kind: "KindInfo | None", document: ObjectDocument) -> None:
    """Raise if a spec has a field that its kind does not have, or lacks one that it needs; the server checks values."""
    schema = None if kind is None else kind.spec
    known = {} if schema is None else schema.get("properties", {})
    if schema is None or not known or schema.get("additionalProperties"):
        return
    given = document.spec or {}
    for name in given:
        if name not in known:
            raise UnknownName(f"field of {document.kind} in {document.place(f'spec.{name}')}:", name, sorted(known))
    for name in schema.get("required", ()):
        if name not in given:
            raise BadInput(f"{document.place('spec')}: spec.{name}", None, "given")


def to_yaml(value: Any) -> str:  # noqa: ANN401 - plain JSON
    """Return a value as YAML that reads back as the same value."""
    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120))
