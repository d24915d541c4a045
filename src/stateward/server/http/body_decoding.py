"""Strict decoding of request bodies: directly into records, without conversion, and without unknown fields."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from stateward.engine.typed_values import refuse_unknown_fields
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


class BodyDecoder:
    """Decodes bodies of one type; a body that has no unknown fields has none in the records inside it either.

    Such records may be read leniently elsewhere, because they are stored too, and another version may have stored them.
    """

    def __init__(self, form: Any) -> None:  # noqa: ANN401 - what the handler declares
        self.type, self._decoder = form, msgspec.json.Decoder(form)
        self._is_deep: bool | None = None

    def decode(self, body: bytes) -> Any:  # noqa: ANN401 - what the handler declares
        """Return a decoded body; raises what msgspec does, or `UnknownField`."""
        decoded = self._decoder.decode(body)
        if self._is_deep is None:
            self._is_deep = _has_lenient_records(self.type)
        if self._is_deep:
            refuse_unknown_fields(msgspec.json.decode(body), decoded, "", None)
        return decoded


def _has_lenient_records(form: Any) -> bool:  # noqa: ANN401 - what a handler declares
    """Tell whether a record forbids unknown fields, and one inside it does not."""
    is_record = isinstance(form, type) and issubclass(form, msgspec.Struct)
    if not is_record or not form.__struct_config__.forbid_unknown_fields:
        return False
    _, records = msgspec.json.schema_components([form])
    return any(
        "properties" in record and record.get("additionalProperties") is not False for record in records.values()
    )


class StrictJson(AbstractDTO[Any]):
    """Decodes every body as the type that its handler declares."""

    _decoders: ClassVar[dict[str, BodyDecoder]] = {}  # bounded by: the routes

    @classmethod
    def create_for_field_definition(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        backend_cls: object = None,  # noqa: ARG003
    ) -> None:
        """Create the decoder for a handler's body."""
        cls._decoders[handler_id] = BodyDecoder(field_definition.annotation)

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
    explanation = explain(error, expected)
    if explanation.known is not None:
        return UnknownField(explanation.place, explanation.known)
    return BadBody(explanation.place or "body", f"must be {explanation.allowed}")
