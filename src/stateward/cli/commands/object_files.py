"""Files that describe objects to be created: one or several YAML documents, or JSON; a document may be a list.

    kind: dns.record
    id: www
    spec: {address: 192.0.2.1}
    labels: {team: shop}

All documents are read before the first object is created, so that a mistyped field creates nothing.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from stateward.client.session import Session
from stateward.documents import load_all
from stateward.errors import BadInput, UnknownName

FIELDS = ("kind", "id", "spec", "labels", "parent", "action", "args", "facts", "priority")


def read_objects(session: Session, file: str) -> list[dict[str, Any]]:
    """Return the bodies of the requests that create the objects of a file."""
    try:
        read = [one for one in load_all(read_source("--file", file).decode()) if one is not None]
    except (yaml.YAMLError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        at = "" if mark is None else f", line {mark.line + 1}"
        raise BadInput("--file", f"{file}{at}", f"YAML or JSON: {problem or str(error).splitlines()[0]}") from error
    except UnicodeDecodeError as error:
        raise BadInput("--file", file, "UTF-8") from error
    documents = [one for document in read for one in (document if isinstance(document, list) else [document])]
    if not documents:
        raise BadInput("--file", file, "given with at least one object: kind, id and spec")
    return [_body(session, one, f"{file}, object {number}") for number, one in enumerate(documents, 1)]


def _body(session: Session, document: Any, place: str) -> dict[str, Any]:  # noqa: ANN401 - what YAML can say
    if not isinstance(document, dict):
        raise BadInput("--file", place, "fields with values, such as `kind: dns.record`")
    for name in document:
        if name not in FIELDS:
            raise UnknownName(f"field in {place}:", name, FIELDS)
    for name in ("kind", "id"):
        if not isinstance(document.get(name), str):
            raise BadInput(f"{place}: {name}", document.get(name), "a text")
    return {**document, "kind": session.kind(document["kind"])}


def read_source(option: str, file: str) -> bytes:
    """Return the content of a file, or of standard input (`-`)."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise BadInput(option, file, f"a file that can be read ({error.strerror})") from error
