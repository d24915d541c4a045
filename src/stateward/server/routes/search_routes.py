"""The route `search`: suggestions for a text that somebody types.

The store finds candidates by id, label, error and operation id; kinds, states and namespaces are in memory. Every
candidate is checked again as the caller sees it, so an error or an operation that is hidden from the caller is not
found by its text either.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter
from msgspec.structs import replace

from stateward.access import Right
from stateward.engine.kinds import Kind
from stateward.naming import PATH_PART
from stateward.schemas.params import TEXT
from stateward.schemas.suggestions import Suggestion, SuggestionType
from stateward.server.auth.guards import require
from stateward.server.presenter import Presenter
from stateward.server.routes.declare import api_route
from stateward.server.routes.kind_routes import public_kinds
from stateward.server.routes.object_routes import TAG, readable_namespaces
from stateward.server.service import ApiRequest
from stateward.store.filters import SearchText
from stateward.store.port import SearchHits
from stateward.store.records import Object, shown_labels

MAX_LABEL_SETS = 50
"""So many different sets of labels are looked through for the matching pairs."""

ASCII_LOWER = str.maketrans({chr(upper): chr(upper + 32) for upper in range(ord("A"), ord("Z") + 1)})

Searched = Annotated[
    str,
    QueryParameter(
        pattern=TEXT,
        description="a part of an id, a label, a kind, a state, an error or a namespace,"
        " or the beginning of an operation's id",
    ),
]
SearchedNs = Annotated[str | None, QueryParameter(pattern=PATH_PART, description="only in this namespace")]
MostOfEach = Annotated[int, QueryParameter(ge=1, le=50, description="most suggestions of each type")]


@api_route(get, "/search", Right.READ, TAG, "Search by a text", 404)
async def search(request: ApiRequest, q: Searched, ns: SearchedNs = None, limit: MostOfEach = 5) -> list[Suggestion]:
    """Return what has a text in its id, label, kind, state or error, by type; letters match in both cases.

    Only what the token may read, the best of each type first: equal, then beginning with the text, then containing it.
    """
    if ns is not None:
        require(request.grant, Right.READ, ns)
    namespaces = [ns] if ns is not None else await readable_namespaces(request)
    hits = await request.service.reader.search(namespaces, SearchText(q), max(limit, MAX_LABEL_SETS))
    suggestions = [*_stored(hits, request.presenter, q), *_named(public_kinds(request.service.engine), namespaces, q)]
    return [suggestion for type_ in SuggestionType for suggestion in _best(suggestions, type_, q)[:limit]]


def _best(suggestions: Iterable[Suggestion], type_: SuggestionType, q: str) -> list[Suggestion]:
    """Return the suggestions of a type, each once, the best first."""
    mine = dict.fromkeys(suggestion for suggestion in suggestions if suggestion.type is type_)
    return sorted(mine, key=lambda suggestion: _distance(suggestion.id or suggestion.text, q))


def _distance(text: str, q: str) -> tuple[bool, bool, bool, str]:
    place = fold_case(text).find(fold_case(q))
    return place < 0, place > 0, len(text) > len(q), text


def _stored(hits: SearchHits, presenter: Presenter, q: str) -> Iterator[Suggestion]:
    """Yield what the caller may see of the stored candidates, and has the text."""
    for record in hits.objects:
        yield from _matching(_of_object(record, record.id), q)
    for record in hits.failed:
        yield from _matching(_of_object(record, presenter.object(record).error or ""), q)
    for pair in _label_pairs(hits.labels):
        yield from _matching(Suggestion(SuggestionType.LABEL, pair), q)
    for operation in presenter.operations(hits.operations):
        text = f"{operation.id}  {operation.action} {operation.object}"
        yield from _matching(
            Suggestion(
                SuggestionType.OPERATION, text, "", operation.ns, operation.id, operation.kind, operation.status
            ),
            q,
        )


def _of_object(record: Object, text: str) -> Suggestion:
    return Suggestion(SuggestionType.OBJECT, text, "", record.ns, record.id, record.kind, record.state)


def _label_pairs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        labels = shown_labels(msgspec.json.decode(text, type=dict[str, str]))
        yield from (f"{name}={value}" for name, value in labels.items())


def _named(kinds: Iterable[Kind], namespaces: Iterable[str], q: str) -> Iterator[Suggestion]:
    """Yield the kinds, states and namespaces whose names have the text."""
    for kind in kinds:
        yield from _matching(Suggestion(SuggestionType.KIND, kind.name, kind=kind.name), q)
        for state in kind.lifecycle.states:
            yield from _matching(Suggestion(SuggestionType.STATE, state.word, kind=kind.name, state=state.word), q)
    for ns in namespaces:
        yield from _matching(Suggestion(SuggestionType.NAMESPACE, ns, ns=ns), q)


def _matching(suggestion: Suggestion, q: str) -> Iterator[Suggestion]:
    """Yield a suggestion with its matched part, if its text has the searched one."""
    place = fold_case(suggestion.text).find(fold_case(q))
    if place >= 0:
        yield replace(suggestion, matched=suggestion.text[place : place + len(q)])


def fold_case(text: str) -> str:
    """Return a text with its ASCII letters in lower case, as the stores compare; its length stays."""
    return text.translate(ASCII_LOWER)


ROUTES = (search,)
