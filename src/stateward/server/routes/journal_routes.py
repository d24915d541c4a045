"""The routes of the journal: pages of entries, or an export as newline-delimited JSON or as CSV."""

import csv
from collections.abc import AsyncIterator, Iterable
from io import StringIO
from operator import attrgetter
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.datastructures import ResponseHeader
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream
from msgspec.structs import astuple, replace

from stateward.access import Grant, Right
from stateward.access.tokens import ANY
from stateward.engine import bounded_reads
from stateward.engine.bounded_reads import JournalRead, journal_bounds, read_between
from stateward.engine.maintenance.horizon import horizon
from stateward.schemas.journal import LinePage, LineView, TransitionCounts
from stateward.schemas.params import TEXT
from stateward.server.auth.guards import require
from stateward.server.http import parameters
from stateward.server.openapi.description import CONTENTS
from stateward.server.presenter import Presenter
from stateward.server.routes.declare import api_route
from stateward.server.service import ApiRequest
from stateward.store.filters import JournalFilter
from stateward.store.port import Reader
from stateward.store.records import JournalEntry

TAG = "journal"
NDJSON, CSV = "application/x-ndjson", "text/csv"
PRUNED = ResponseHeader(
    name="Stateward-Pruned",
    description="of an export: the horizon, where it begins before it; of the lines up to this number some are gone",
    documentation_only=True,
)
CHUNK_ENTRIES = 1_000
"""How many entries an export reads at once."""

About = Annotated[str | None, QueryParameter(name="object", pattern=TEXT, description="only lines about this object")]
Accept = Annotated[str | None, HeaderParameter(name="Accept", include_in_schema=False)]


class JournalQuery:
    """The journal entries that match a filter, in the namespaces of a grant."""

    def __init__(self, reader: Reader, grant: Grant, only: JournalFilter) -> None:
        self._reader = reader
        self._grant = grant
        self._only = only
        self._filters = _filters(grant, only)
        self._last: int | None = None

    async def page(self, after: int, limit: int) -> JournalRead:
        """Return entries after a number, and up to which number this covers the journal as it was at the first call.

        A page has no entries if none of the many that were looked at matches; that needs not be the end.
        """
        if self._last is None:
            after, self._last = await journal_bounds(self._reader, after, self._only)
        rows = bounded_reads.READ_ROWS // max(len(self._filters), 1) + limit
        reads = [await read_between(self._reader, after, self._last, limit, only, rows) for only in self._filters]
        upto = min((read.upto for read in reads), default=self._last)
        entries = [entry for read in reads for entry in read.entries if entry.seq <= upto]
        entries = sorted(entries, key=attrgetter("seq"))[:limit]
        is_full = len(entries) == limit
        return JournalRead(
            [entry for entry in entries if self._grant.opens(entry.ns)],
            entries[-1].seq if is_full else upto,
            is_end=not is_full and all(read.is_end for read in reads),
        )

    async def all(self, after: int) -> AsyncIterator[JournalEntry]:
        """Yield all entries after a number."""
        is_end = False
        while not is_end:
            read = await self.page(after, CHUNK_ENTRIES)
            for entry in read.entries:
                yield entry
            after, is_end = read.upto, read.is_end


def _filters(grant: Grant, only: JournalFilter) -> list[JournalFilter]:
    """Return one filter for each namespace of the grant, or a single one if the grant is for all."""
    if only.ns is not None:
        require(grant, Right.READ, only.ns)
        return [only]
    if ANY in grant.namespaces:
        return [only]
    return [replace(only, ns=ns) for ns in sorted(grant.namespaces)]


@api_route(
    get, "/journal", Right.READ, TAG, "Read the journal", 404, opt={CONTENTS: [NDJSON, CSV]}, response_headers=[PRUNED]
)
async def read_journal(
    request: ApiRequest,
    ns: parameters.NsFilter = None,
    about: About = None,
    kind: parameters.KindFilter = None,
    op: parameters.OpFilter = None,
    actor: parameters.ActorFilter = None,
    since: parameters.TimeOrNone = None,
    until: parameters.TimeOrNone = None,
    after: parameters.AfterNumber = 0,
    limit: parameters.Limit = 100,
    accept: Accept = None,
) -> Response[LinePage]:
    """Return a page of the journal, or all lines that fit, as they are read.

    A page looks at a limited number of lines, so it can be empty and have a `next`: more lines may fit.

    With `Accept: application/x-ndjson` each line is a JSON object, with `Accept: text/csv` a row of a table.
    """
    only = JournalFilter(ns, about, kind, op, actor, parameters.first_moment(since), parameters.first_moment(until))
    query, presenter = JournalQuery(request.service.reader, request.grant, only), request.presenter
    for media_type, encode in EXPORTS.items():
        if accept is not None and media_type in accept:
            pruned = await pruned_after(request.service.reader, after)
            headers = {} if pruned is None else {PRUNED.name: str(pruned)}
            return Stream(encode(query, presenter, after), media_type=media_type, headers=headers)  # type: ignore[return-value]
    read = await query.page(after, request.service.page_size(limit))
    pruned = await pruned_after(request.service.reader, after)
    more = None if read.is_end else str(read.upto)
    return Response(LinePage(presenter.entries(read.entries), more, pruned, read.upto))


@api_route(get, "/journal/counts", Right.READ, TAG, "Count the transitions of the last hour", 404)
async def count_transitions(request: ApiRequest, ns: parameters.NsFilter = None) -> TransitionCounts:
    """Return how many changes of state there were in each minute of the last hour, of one namespace or of all."""
    if ns is not None:
        require(request.grant, Right.READ, ns)
    grant = request.grant
    return await request.service.history.counts(
        lambda name: name == ns if ns else (grant.opens(name) and not name.startswith("("))
    )


async def pruned_after(reader: Reader, after: int) -> int | None:
    """Return the horizon if entries after a number may have been pruned; call it after the entries were read."""
    kept = await horizon(reader)
    return kept.seq if after < kept.seq else None


async def _ndjson(query: JournalQuery, presenter: Presenter, after: int) -> AsyncIterator[bytes]:
    async for entry in query.all(after):
        for shown in presenter.entries([entry]):
            yield msgspec.json.encode(shown) + b"\n"


async def _csv(query: JournalQuery, presenter: Presenter, after: int) -> AsyncIterator[bytes]:
    yield _csv_row(LineView.__struct_fields__)
    async for entry in query.all(after):
        for shown in presenter.entries([entry]):
            yield _csv_row(_csv_cell(value) for value in astuple(shown))


def _csv_row(cells: Iterable[str]) -> bytes:
    text = StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _csv_cell(value: object) -> str:
    """Return a value as text that a spreadsheet does not take for a formula: those begin with one of these signs."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


EXPORTS = {NDJSON: _ndjson, CSV: _csv}
"""The forms of an export, by their media types."""


ROUTES = (read_journal, count_transitions)
