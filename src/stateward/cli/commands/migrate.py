"""`stateward migrate`: bring the schema of a database and the states of its objects to this version."""

import asyncio
from collections import Counter
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
    typer.Option(
        "--database", envvar="STATEWARD_DATABASE", help="The database: a path, sqlite:///path or postgresql://..."
    ),
]
DirectUrl = Annotated[
    str,
    typer.Option(
        envvar="STATEWARD_DIRECT_URL",
        metavar="URL",
        help="Address of the database itself, if --database is a connection pooler.",
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="KIND:OLD=NEW", help="The state that replaces one which the lifecycle has lost. Repeatable."
    ),
]


def migrate(
    database: Database,
    direct_url: DirectUrl = "",
    map: Map = None,  # noqa: A002 - the option's name
    json: Json = False,
) -> None:
    """Migrate a database to this version.

    Servers migrate the embedded database when they start; a PostgreSQL database is migrated by this command. It may run
    several times, and at once in several places. A database of a newer version is refused.

    If a lifecycle has lost a state that objects are in, the command stops and names it. Stop all workers then, and
    say with --map which state replaces it.

      stateward migrate --database postgresql://db/stateward
      stateward migrate --database stateward-data/stateward.db --map mci.vm:Paused=Suspended
    """
    mapped: dict[str, dict[str, str]] = {}
    for word in map or ():
        kind, colon, states = word.partition(":")
        old, equals, new = states.partition("=")
        if not (kind and colon and old and equals and new):
            raise BadInput("--map", word, "KIND:OLD=NEW, as in mci.vm:Paused=Suspended")
        mapped.setdefault(kind, {})[old] = new
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
