"""Completion of the OpenAPI document.

The framework describes routes and parameters. msgspec, which decodes and encodes the records, describes the records, so
that the document says exactly what is accepted. Responses that a handler's signature does not show are added: routes of
domains get the problems that any route can respond with.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from copy import deepcopy
from types import UnionType
from typing import Any, TypeAlias, get_args, get_origin

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.response import Response
from litestar.routes import BaseRoute, HTTPRoute

from stateward.naming import IDEMPOTENCY_HEADER, IDEMPOTENCY_KEY
from stateward.plugin.registry import Plugins
from stateward.plugin.request_params import KEY_MEANS
from stateward.plugin.route_options import BODY, MESSAGES, PLAIN_PROBLEMS, RIGHT
from stateward.schemas.problems import Problem
from stateward.server.auth.guards import OpenRoute, RequiresRight
from stateward.server.auth.middleware import guard_of
from stateward.server.http.keyed_calls import is_covered
from stateward.server.http.problem_details import MEDIA_TYPE
from stateward.server.openapi.examples import EXAMPLES
from stateward.server.openapi.problem_responses import example_of, texts_of

Doc: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, str]

CONTENTS = "contents"
"""The option of a route for the further media types of its response."""

RETRY_AFTER = {"description": "seconds to wait", "required": False, "schema": {"type": "string"}}
JSON = "application/json"
REF = "#/components/schemas/"
LONG = re.compile(r"stateward\.(?:domains\.)?(\w+)\.[\w.]*?(\w+)$")
"""The name of a record that shares its short name with a record of another package."""

OWN_PACKAGES = frozenset({"server", "schemas"})
"""The packages of the generic API: their records keep the short name."""

PUBLISHED_NAMES = {"HealthStatus": "Health", "KindInfo": "LifecycleInfo", "StuckReason": "Why", "WaitReason": "Reason"}
"""Names of records in the document that differ from those in the code: generated clients have types of these names."""

MESSAGE = "ProblemMessage"
"""The name of the schema of problems for clients that read a field `message`."""

DOMAIN_PROBLEMS = (400, 401, 403, 404, 409, 413, 429, 503)
WITHOUT_BODY = frozenset({"get", "delete", "head"})


def complete_document(drawn: Doc, routes: Iterable[BaseRoute], plugins: Plugins) -> Doc:
    """Return the complete document of an application with these routes."""
    doc = deepcopy(drawn)
    handlers = dict(_handlers(routes))
    records = RecordSchemas(handlers.values(), plugins)
    doc["components"]["schemas"] = records.schemas
    for path, item in doc["paths"].items():
        for method, operation in item.items():
            handler = handlers.get((path, method))
            if handler is not None:
                _complete(operation, handler, records, method)
    return doc


def _handlers(routes: Iterable[BaseRoute]) -> Iterator[tuple[Place, HTTPRouteHandler]]:
    for route in routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                for method in handler.http_methods:
                    yield (route.path_format, method.lower()), handler


# --- records ---------------------------------------------------------------------------------------------------------


class RecordSchemas:
    """The schemas of request and response bodies."""

    def __init__(self, handlers: Collection[HTTPRouteHandler], plugins: Plugins) -> None:
        self._names = PUBLISHED_NAMES | plugins.published_names
        described = dict.fromkeys(way for handler in handlers for kind in _types(handler) for way in _ways(kind))
        kinds = [Problem, *(kind for kind in described if kind is not Problem)]
        drawn, schemas = msgspec.json.schema_components(kinds, ref_template=REF + "{name}")
        self._drawn: dict[Any, Doc] = {kind: self._shortened(doc) for kind, doc in zip(kinds, drawn, strict=True)}
        self.schemas: Doc = {self._short(name): self._shortened(schema) for name, schema in schemas.items()}
        if any(handler.opt.get(MESSAGES) for handler in handlers):
            self.schemas[MESSAGE] = _message_schema(self.schemas["Problem"])
        examples = EXAMPLES | plugins.examples
        for name, schema in self.schemas.items():
            if "title" in schema:
                schema["title"] = self._names.get(schema["title"], schema["title"]).rpartition(".")[2]
            if name in examples:
                schema["examples"] = [examples[name]]

    def of(self, kind: Any) -> Doc | None:  # noqa: ANN401 - any annotation
        """Return the schema of a type that a handler declares; None if it has none."""
        ways = [self._drawn[way] for way in _ways(kind) if way in self._drawn]
        return (ways[0] if len(ways) == 1 else {"anyOf": ways}) if ways else None

    def _short(self, name: str) -> str:
        """Return the published name of a record; with the name of its package if another record has the same name."""
        package, _, last = LONG.sub(r"\1.\2", name).rpartition(".")
        package = package.partition(".")[0]
        short = last if not package or package in OWN_PACKAGES else f"{package}.{last}"
        return self._names.get(short, short)

    def _shortened(self, schema: Any) -> Any:  # noqa: ANN401 - JSON
        match schema:
            case {"$ref": str(ref), **more}:
                return {"$ref": REF + self._short(ref.removeprefix(REF)), **self._shortened(more)}
            case dict():
                return {name: self._shortened(part) for name, part in schema.items()}
            case list():
                return [self._shortened(part) for part in schema]
            case _:
                return schema


def _message_schema(problem: Doc) -> Doc:
    """Return the schema of a problem for clients that read a field `message`."""
    fields = {name: field for name, field in problem["properties"].items() if name != "status"}
    needed = [name for name in problem["required"] if name != "status"]
    properties = {"message": {"type": "string"}, **fields}
    return {**problem, "title": MESSAGE, "properties": properties, "required": ["message", *needed]}


def _types(handler: HTTPRouteHandler) -> Iterator[Any]:
    """Return the types of a handler's request and response bodies, if they are records."""
    for kind in (_asked(handler), _answered(handler)):
        if kind is not None and _is_record(kind):
            yield kind


def _asked(handler: HTTPRouteHandler) -> Any:  # noqa: ANN401 - any annotation
    field = handler.parsed_data_field
    return None if field is None else field.annotation


def _answered(handler: HTTPRouteHandler) -> Any:  # noqa: ANN401 - any annotation
    answer = handler.parsed_return_field
    if answer.is_subclass_of(Response):
        return answer.inner_types[0].annotation if answer.inner_types else None
    return answer.annotation


def _ways(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any annotation
    """Return the alternatives of a response type; a type or None is one alternative."""
    parts = get_args(kind) if get_origin(kind) is UnionType or isinstance(kind, UnionType) else ()
    records = [part for part in parts if part is not type(None)]
    return tuple(records) if len(records) > 1 else (kind,)


def _is_record(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    if get_origin(annotation) is dict:
        return True  # the framework's schema for values of several types is wrong for each of them
    inner = get_args(annotation) or (annotation,)
    return any(_is_record(argument) if get_args(argument) else _is_struct(argument) for argument in inner)


def _is_struct(annotation: Any) -> bool:  # noqa: ANN401 - any annotation
    return isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)


# --- operations ------------------------------------------------------------------------------------------------------


def _complete(operation: Doc, handler: HTTPRouteHandler, records: RecordSchemas, method: str) -> None:
    if isinstance(guard_of(handler), OpenRoute):
        operation["security"] = []
    if handler.summary is None and operation.get("description"):
        operation["summary"] = re.split(r"[.;](?:\s|$)", operation["description"], maxsplit=1)[0]
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _given(parameter["schema"])
        if parameter["name"] == "ns":
            parameter.setdefault("description", "the namespace")  # a prefix of routes that do not declare it
    guard = guard_of(handler)
    if isinstance(guard, RequiresRight) and is_covered(handler, guard.right, method.upper()):
        _describe_key(operation)
        operation["responses"].setdefault("409", _problem(handler, 409))  # the key was used before
    _describe_body(operation, handler, records, method)
    if RIGHT in handler.opt:
        operation["responses"] |= {str(status): _problem(handler, status) for status in DOMAIN_PROBLEMS}
    for status, answer in operation["responses"].items():
        for header in answer.get("headers", {}).values():
            header.setdefault("schema", {"type": "string"})
        if status in ("429", "503"):
            answer["headers"] = {"Retry-After": RETRY_AFTER}
        schema = records.of(_answered(handler)) if status.startswith("2") else None
        if schema is not None and JSON in answer.get("content", {}):
            answer["content"][JSON]["schema"] = schema
    also = {media_type: {"schema": {"type": "string"}} for media_type in handler.opt.get(CONTENTS, ())}
    if also:
        operation["responses"]["200"]["content"] |= also


def _describe_key(operation: Doc) -> None:
    """Describe the idempotency key of a route whose answers are kept, unless the route takes the key itself."""
    parameters = operation.setdefault("parameters", [])
    if all(parameter["name"] != IDEMPOTENCY_HEADER for parameter in parameters):
        schema = {"type": "string", "pattern": IDEMPOTENCY_KEY}
        described = {"description": KEY_MEANS, "required": False, "schema": schema}
        parameters.append({"name": IDEMPOTENCY_HEADER, "in": "header", **described})


def _describe_body(operation: Doc, handler: HTTPRouteHandler, records: RecordSchemas, method: str) -> None:
    if handler.parsed_data_field is not None:
        operation["requestBody"]["required"] = not handler.parsed_data_field.has_default
        schema = records.of(handler.parsed_data_field.annotation)
        for content in operation["requestBody"]["content"].values() if schema is not None else ():
            content["schema"] = schema
        for content in operation["requestBody"]["content"].values() if BODY in handler.opt else ():
            content["examples"] = {"example": {"value": handler.opt[BODY]}}
    elif BODY in handler.opt and method not in WITHOUT_BODY:
        content = {"schema": {"type": "object"}, "examples": {"example": {"value": handler.opt[BODY]}}}
        operation["requestBody"] = {"required": True, "content": {JSON: content}}


def _problem(handler: HTTPRouteHandler, status: int) -> Doc:
    """Return the description of a problem in the form of the domain's API."""
    code, text, detail = texts_of(status)
    schema, value, media_type = "Problem", example_of(status), MEDIA_TYPE
    if handler.opt.get(MESSAGES):
        facts = {name: fact for name, fact in value.items() if name != "status"}
        schema, value, media_type = MESSAGE, {"message": detail, **facts}, JSON
    elif handler.opt.get(PLAIN_PROBLEMS):
        media_type = JSON
    content = {"schema": {"$ref": REF + schema}, "examples": {code: {"summary": code, "value": value}}}
    return {"description": text, "content": {media_type: content}}


def _given(schema: Doc) -> Doc:
    """Return the schema of a given parameter: one that is left out is absent, and not null."""
    ways = [way for way in schema.get("oneOf", ()) if way.get("type") != "null"]
    if len(ways) != 1:
        return schema
    return {**ways[0], **{name: value for name, value in schema.items() if name not in ("oneOf", "default")}}
