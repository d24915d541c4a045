"""Strict decoding of request bodies: directly into records, without conversion, and without unknown fields."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from stateward.errors import StatewardError, UnknownField
from stateward.validation_texts import explain

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator


DECODER = "decoder"
"""The option of a route that caches its decoder."""


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
    found = explain(error, expected)
    if found.known is not None:
        return UnknownField(found.place, found.known)
    return BadBody(found.place or "body", f"must be {found.allowed}")
