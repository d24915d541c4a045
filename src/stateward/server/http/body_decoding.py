"""Strict decoding of request bodies: directly into records, without conversion, and without unknown fields."""

import re
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import msgspec.inspect
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from stateward.errors import StatewardError, UnknownField

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator


DECODER = "decoder"
"""The option of a route that caches its decoder."""


UNKNOWN = "unknown field `"
STEP = re.compile(r"([^.\[\]]+)|(\[\.\.\.\])")
"""A step of a path in msgspec's messages: a field, or any item of a list."""


class BadBody(StatewardError):
    """A request's body cannot be decoded; `field` is the place in it, if the reason concerns one."""

    field: str
    why: str
    text = "{field}: {why}"


class StrictJson(AbstractDTO[Any]):
    """Decodes every body as the type that its handler declares."""

    _decoders: ClassVar[dict[str, msgspec.json.Decoder[Any]]] = {}

    @classmethod
    def create_for_field_definition(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        backend_cls: object = None,  # noqa: ARG003
    ) -> None:
        """Create the decoder for a handler's body."""
        cls._decoders[handler_id] = msgspec.json.Decoder(field_definition.annotation)

    @classmethod
    def create_openapi_schema(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,  # noqa: ARG003
        schema_creator: "SchemaCreator",
    ) -> Reference | Schema:
        """Describe a handler's body."""
        return schema_creator.for_field_definition(field_definition)

    def decode_bytes(self, value: bytes) -> Any:  # noqa: ANN401 - what the handler declares
        """Decode a body; the error names the field."""
        handler = self.asgi_connection.route_handler
        decoder = handler.opt.get(DECODER)
        if decoder is None:  # computing `handler_id` is slow
            decoder = handler.opt[DECODER] = self._decoders[handler.handler_id]
        try:
            return decoder.decode(value)
        except msgspec.ValidationError as error:
            raise bad_body(error, decoder.type) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadBody("body", "is not JSON") from error
        except RecursionError as error:
            raise BadBody("body", "is nested too deeply") from error

    @classmethod
    def generate_field_definitions(cls, _: type[Any]) -> Generator[DTOFieldDefinition, None, None]:
        """Return no fields: msgspec has them."""
        yield from ()

    @classmethod
    def detect_nested_field(cls, _: FieldDefinition) -> bool:
        """Return False: msgspec decodes nested records."""
        return False


def bad_body(error: msgspec.ValidationError, expected: object = None) -> BadBody | UnknownField:
    """Return the error for a body, with the path of the field; `expected` is the type of the body."""
    why, _, path = str(error).partition(" - at `")
    place = path.removesuffix("`").removeprefix("$").removeprefix(".")
    for opening in (UNKNOWN, "missing required field `"):
        _, found, name = why.partition(opening)
        field = f"{place}.{name.removesuffix('`')}".removeprefix(".")
        if found and opening is UNKNOWN:
            return UnknownField(field or '""', known_fields(expected, place))  # a field's name may be empty
        if found:
            return BadBody(field, _lowered(why))
    return BadBody(place or "body", _lowered(why))


def _lowered(why: str) -> str:
    return why[:1].lower() + why[1:]


def known_fields(expected: object, place: str) -> list[str]:
    """Return the names of the fields that the object at a place of a body may have; `place` is as msgspec tells it."""
    found = [msgspec.inspect.type_info(expected)]
    for name, inside in STEP.findall(place):
        found = [inner for one in found for inner in _within(one, name or inside)]
    structs = [one for one in _unwrapped(found) if isinstance(one, msgspec.inspect.StructType)]
    return [field.encode_name for one in structs for field in one.fields]


def _within(node: msgspec.inspect.Type, step: str) -> list[msgspec.inspect.Type]:
    """Return the types of a field, or of the items, of a value."""
    inner: list[msgspec.inspect.Type] = []
    for one in _unwrapped([node]):
        match one:
            case msgspec.inspect.StructType():
                inner += [field.type for field in one.fields if field.encode_name == step]
            case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
                inner.append(one.item_type)
            case msgspec.inspect.DictType():
                inner.append(one.value_type)
    return inner


def _unwrapped(nodes: Iterable[msgspec.inspect.Type]) -> Iterator[msgspec.inspect.Type]:
    """Yield types without the unions and metadata around them."""
    for node in nodes:
        match node:
            case msgspec.inspect.UnionType():
                yield from _unwrapped(node.types)
            case msgspec.inspect.Metadata():
                yield from _unwrapped([node.type])
            case _:
                yield node
