"""`stateward migrate`: bring a database up to date."""

import asyncio
from typing import Annotated

import typer

from stateward.cli.output import Json, out, print_json
from stateward.store import open_store
from stateward.store.migrations import newest

Database = Annotated[
    str,
    typer.Option("--database", envvar="STATEWARD_DATABASE", help="A path, sqlite:///path or postgresql://..."),
]


def migrate(database: Database, json: Json = False) -> None:
    """Bring a database to this program's version; several at once do no harm, and a newer one is refused."""
    store = open_store(database, migrate=True)

    async def run() -> None:
        await store.open()
        await store.close()

    asyncio.run(run())
    version = newest("postgres" if database.startswith("postgres") else "sqlite")
    if json:
        print_json({"version": version})
    else:
        out().print(f"The database is at version {version}.")
