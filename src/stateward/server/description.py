"""Completing the API's description.

The framework draws routes and parameters. The records are described by the library that reads and writes them, so that
the description says exactly what is accepted; and some answers are added that cannot be seen in a handler's signature.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.response import Response
from litestar.routes import BaseRoute, HTTPRoute

from stateward.server.auth import Open
from stateward.server.entrance import guard_of
from stateward.server.examples import EXAMPLES
from stateward.server.problems import Problem

Doc: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, str]

CONTENTS = "contents"
"""The option by which a route says in what other media types it answers."""

RETRY_AFTER = {"description": "seconds to wait", "required": False, "schema": {"type": "string"}}


def completed(drawn: Doc, routes: Iterable[BaseRoute]) -> Doc:
    """Return the whole description of an application with these routes."""
    doc = deepcopy(drawn)
    handlers = dict(_handlers(routes))
    doc["components"]["schemas"] |= _schemas(handlers.values())
    for path, item in doc["paths"].items():
        for method, operation in item.items():
            handler = handlers.get((path, method))
            if handler is not None:
                _complete(operation, handler)
    return doc


def _handlers(routes: Iterable[BaseRoute]) -> Iterator[tuple[Place, HTTPRouteHandler]]:
    for route in routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in handler.http_methods:
                    yield (route.path_format, method.lower()), handler


def _schemas(handlers: Iterable[HTTPRouteHandler]) -> Doc:
    records = dict.fromkeys(record for handler in handlers for record in _records(handler))
    _, schemas = msgspec.json.schema_components([Problem, *records], ref_template="#/components/schemas/{name}")
    for name, schema in schemas.items():
        if name in EXAMPLES:
            schema["examples"] = [EXAMPLES[name]]
    return schemas


def _records(handler: HTTPRouteHandler) -> Iterator[Any]:
    """Return the types of a handler's body and answer, as far as they are records."""
    answer = handler.parsed_return_field
    if answer.is_subclass_of(Response):
        answer = answer.inner_types[0] if answer.inner_types else answer
    for field in (handler.parsed_data_field, answer):
        if field is not None and _is_record(field.annotation):
            yield field.annotation


def _is_record(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    inner = getattr(annotation, "__args__", (annotation,))
    return any(isinstance(one, type) and issubclass(one, msgspec.Struct) for one in inner)


def _complete(operation: Doc, handler: HTTPRouteHandler) -> None:
    if isinstance(guard_of(handler), Open):
        operation["security"] = []
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _given(parameter["schema"])
    if handler.parsed_data_field is not None:
        operation["requestBody"]["required"] = not handler.parsed_data_field.has_default
    for status, answer in operation["responses"].items():
        for header in answer.get("headers", {}).values():
            header.setdefault("schema", {"type": "string"})
        if status in ("429", "503"):
            answer["headers"] = {"Retry-After": RETRY_AFTER}
    also = {media_type: {"schema": {"type": "string"}} for media_type in handler.opt.get(CONTENTS, ())}
    if also:
        operation["responses"]["200"]["content"] |= also


def _given(schema: Doc) -> Doc:
    """Describe a parameter as it is when it is given: left out, it is absent and not null."""
    ways = [one for one in schema.get("oneOf", ()) if one.get("type") != "null"]
    if len(ways) != 1:
        return schema
    return {**ways[0], **{name: value for name, value in schema.items() if name not in ("oneOf", "default")}}
