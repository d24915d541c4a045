"""Bodies are read strictly: straight into their record, a number is no text, and an unknown field is refused."""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from litestar.dto import AbstractDTO, DTOFieldDefinition
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from stateward.errors import StatewardError

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator


DECODER = "decoder"
"""Where a route keeps what its bodies are read with."""


class BadBody(StatewardError):
    """A request's body that cannot be read; names the field if it is about one."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(field, why)
        self.field, self.why = field, why

    def __str__(self) -> str:
        return f"{self.field}: {self.why}"


class StrictJson(AbstractDTO[Any]):
    """Reads every body of the application as the type that its handler declares."""

    _decoders: ClassVar[dict[str, msgspec.json.Decoder[Any]]] = {}

    @classmethod
    def create_for_field_definition(
        cls,
        field_definition: FieldDefinition,
        handler_id: str,
        backend_cls: object = None,  # noqa: ARG003
    ) -> None:
        """Prepare to read a handler's body."""
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
        """Read a body, or raise with the field named."""
        handler = self.asgi_connection.route_handler
        decoder = handler.opt.get(DECODER)
        if decoder is None:  # a handler's id is put together anew each time that it is asked for
            decoder = handler.opt[DECODER] = self._decoders[handler.handler_id]
        try:
            return decoder.decode(value)
        except msgspec.ValidationError as error:
            raise bad_body(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadBody("body", "is not JSON") from error
        except RecursionError as error:
            raise BadBody("body", "is nested too deeply") from error

    @classmethod
    def generate_field_definitions(cls, _: type[Any]) -> Generator[DTOFieldDefinition, None, None]:
        """Tell of no fields: the records speak for themselves."""
        yield from ()

    @classmethod
    def detect_nested_field(cls, _: FieldDefinition) -> bool:
        """Tell that there is nothing to look into."""
        return False


def bad_body(error: msgspec.ValidationError) -> BadBody:
    """Return what is wrong with a body, by the path of the field it is about."""
    why, _, path = str(error).partition(" - at `")
    field = path.removesuffix("`").removeprefix("$").removeprefix(".")
    for opening in ("unknown field `", "missing required field `"):
        _, found, name = why.partition(opening)
        if found:
            field = f"{field}.{name.removesuffix('`')}".removeprefix(".")
    return BadBody(field or "body", why[:1].lower() + why[1:])
