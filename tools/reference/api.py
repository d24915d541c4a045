"""The pages of the API, from the description that the server gives of itself."""

import asyncio
from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import httpx

from stateward.config import Config
from stateward.server.run import open_application
from tools.reference.markdown import code, joined, table

Doc: TypeAlias = dict[str, Any]

RECORDS = "records"
ABOUT = """Every server describes its API itself: `/docs` is a page to read and to try it, `/docs/openapi.json` the
description in OpenAPI. A call carries a token: as `Authorization: Bearer TOKEN`, as the password of HTTP Basic, or in
`X-Auth-Token`. A problem is answered as `application/problem+json` (RFC 9457), with its facts as fields."""


def description() -> Doc:
    """Return what a server with all domains says of its API."""
    return asyncio.run(_asked())


async def _asked() -> Doc:
    with TemporaryDirectory() as folder:
        async with open_application(Config(data=folder, worker=False)) as parts:
            transport = httpx.ASGITransport(parts.app)  # type: ignore[arg-type]
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                answer = await client.get("/docs/openapi.json")
    found: Doc = answer.raise_for_status().json()
    return found


def pages(doc: Doc) -> Iterator[tuple[str, str]]:
    """Yield a page for each group of calls, and one for the records that they carry."""
    told = {one["name"]: one["description"] for one in doc.get("tags", ())}
    tags = dict.fromkeys([*told, *(tag for _, one in _calls(doc) for tag in one["tags"])])
    yield (
        "README",
        joined("# API", ABOUT, table(("calls", ""), [(f"[{tag}]({tag}.md)", told.get(tag, "")) for tag in tags])),
    )
    for tag in tags:
        calls = [_call(name, one) for name, one in _calls(doc) if tag in one["tags"]]
        yield tag, joined(f"# Calls: {tag}", told.get(tag, ""), *calls)
    schemas = doc["components"]["schemas"].items()
    yield RECORDS, joined("# Records", *(_record(name, schema) for name, schema in sorted(schemas)))


def _calls(doc: Doc) -> Iterator[tuple[str, Doc]]:
    for path, item in doc["paths"].items():
        for method, call in item.items():
            yield f"{method.upper()} {path}", call


# --- calls -----------------------------------------------------------------------------------------------------------


def _call(name: str, call: Doc) -> str:
    given = [
        (code(one["name"]), one["in"], _type(one["schema"]), one.get("description") or "")
        for one in call.get("parameters", ())
    ]
    return joined(
        f"## {code(name)}",
        f"**{call['summary']}.** {_flat(call.get('description', ''), call['summary'])}",
        table(("given", "in", "type", "meaning"), given),
        _body(call),
        "Answers: " + ", ".join(_answer(status, one) for status, one in sorted(call["responses"].items())) + ".",
    )


def _flat(text: str, summary: str) -> str:
    """Return a description in paragraphs of one line; one that only repeats the summary says nothing."""
    flat = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    return "" if flat.rstrip(".").casefold() == summary.rstrip(".").casefold() else flat


def _body(call: Doc) -> str:
    body = call.get("requestBody")
    if body is None:
        return ""
    kinds = [_type(one.get("schema", {})) for one in body["content"].values()]
    return f"Body{'' if body.get('required') else ', if there is one'}: {kinds[0]}."


def _answer(status: str, answer: Doc) -> str:
    kinds = [_type(one.get("schema", {})) for one in answer.get("content", {}).values()]
    return status if not kinds or int(status) >= 400 else f"{status} ({kinds[0]})"


# --- records ---------------------------------------------------------------------------------------------------------


def _record(name: str, schema: Doc) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        (code(field), _type(one), _meaning(one, field in needed)) for field, one in schema.get("properties", {}).items()
    ]
    values = "" if "enum" not in schema else "One of " + ", ".join(code(one) for one in schema["enum"]) + "."
    about = schema.get("description", "")
    return joined(f"({_anchor(name)})=\n## {name}", about, values, table(("field", "type", "meaning"), rows))


def _meaning(field: Doc, needed: bool) -> str:
    return " ".join(part for part in (field.get("description", ""), "Required." if needed else "") if part)


def _anchor(name: str) -> str:
    return "record-" + "".join(one if one.isalnum() else "-" for one in name).casefold()


def _type(schema: Doc) -> str:
    """Say in a few words what a value is."""
    match schema:
        case {"$ref": str(ref)}:
            name = ref.rsplit("/", 1)[-1]
            return f"[{name}](#{_anchor(name)})"
        case {"anyOf": list(ways)} | {"oneOf": list(ways)}:
            return " or ".join(dict.fromkeys(_type(one) for one in ways))
        case {"type": "array", **more}:
            return f"list of {_type(more.get('items', {}))}"
        case {"enum": list(values)}:
            return " or ".join(code(one) for one in values)
        case {"type": str(name)}:
            return name
        case _:
            return "any"
