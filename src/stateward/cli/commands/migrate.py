"""`stateward migrate`: bring the schema of a database and the states of its objects to this version."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer

from stateward.client.output import Json, out, print_json
from stateward.engine import Kind
from stateward.engine.kinds import Kinds
from stateward.engine.maintenance.state_migration import UnknownState, migrate_states, refuse_unknown_states
from stateward.errors import BadInput
from stateward.plugin.registry import installed
from stateward.store import open_store
from stateward.store.migrations import newest
from stateward.store.port import Store

Database = Annotated[
    str,
    typer.Option("--database", envvar="STATEWARD_DATABASE", help="A path, sqlite:///path or postgresql://..."),
]
DirectUrl = Annotated[
    str,
    typer.Option(envvar="STATEWARD_DIRECT_URL", metavar="URL", help="Used instead where the database is a pooler."),
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="KIND:OLD=NEW", help="What a state of the former version is in this one."),
]


def migrate(
    database: Database,
    direct_url: DirectUrl = "",
    map: Map = None,  # noqa: A002 - the option's name
    json: Json = False,
) -> None:
    """Bring a database to this program's version; several at once do no harm, and a newer one is refused.

    Where a lifecycle has changed, objects may be in states that it does not have any more. They are refused, until
    `--map` says what each of those states is now; stop all workers before that.
    """
    mapped = _mapped(map or ())
    done = asyncio.run(_run(open_store(direct_url or database, migrate=True), mapped))
    version = newest("postgres" if database.startswith("postgres") else "sqlite")
    if json:
        moved = [{"kind": kind, "state": state, "objects": number} for (kind, state), number in sorted(done.items())]
        print_json({"version": version, "moved": moved} if mapped else {"version": version})
        return
    out().print(f"The database is at version {version}.")
    for (kind, state), number in sorted(done.items()):
        out().print(f"{number} of {kind}: {state} is {mapped[kind][state]} now.")


async def _run(store: Store, mapped: dict[str, dict[str, str]]) -> Counter[UnknownState]:
    kinds = Kinds(map(Kind, installed().lifecycles))
    await store.open()
    try:
        if mapped:
            return await migrate_states(store, kinds, mapped, "stateward migrate")
        await refuse_unknown_states(store.reader, kinds)
        return Counter()
    finally:
        await store.close()


def _mapped(words: Iterable[str]) -> dict[str, dict[str, str]]:
    mapped: dict[str, dict[str, str]] = {}
    for word in words:
        kind, colon, states = word.partition(":")
        old, equals, new = states.partition("=")
        if not (kind and colon and old and equals and new):
            raise BadInput("--map", word, "KIND:OLD=NEW, as in mci.vm:Paused=Suspended")
        mapped.setdefault(kind, {})[old] = new
    return mapped
