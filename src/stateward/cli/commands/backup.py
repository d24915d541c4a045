"""`stateward backup` and `stateward restore`: copies of an embedded database."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stateward.cli.commands.serve import Data, Database, File, in_force
from stateward.client.output import Json, out, print_json
from stateward.config import masked
from stateward.errors import count_text

if TYPE_CHECKING:
    from stateward.server.store_backup import BackupInfo

Target = Annotated[Path, typer.Argument(metavar="FILE", help="The new file for the copy.")]
Source = Annotated[Path, typer.Argument(metavar="FILE", help="A copy that `stateward backup` has made.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the existing database.")]


def backup(file: Target, config: File = None, data: Data = None, database: Database = None, json: Json = False) -> None:
    """Copy the embedded database into a file, while it is in use.

    stateward backup copy.db --data my-data
    """
    from stateward.server.store_backup import back_up, embedded_file

    where = in_force(config, {"data": data, "database": database}).config.store_url
    _print_copied(back_up(embedded_file(where), file), f"{masked(where)} is copied into {file}", json)


def restore(
    file: Source,
    config: File = None,
    data: Data = None,
    database: Database = None,
    replace: Replace = False,
    json: Json = False,
) -> None:
    """Put a copy of the embedded database back.

    No server may be using the database.

      stateward restore copy.db --data my-data --replace
    """
    from stateward.server.data_dir import DataDir
    from stateward.server.store_backup import embedded_file
    from stateward.server.store_backup import restore as put_back

    settings = in_force(config, {"data": data, "database": database}).config
    if not settings.database:
        DataDir(settings).create()
    copied = put_back(file, embedded_file(settings.store_url), replace=replace)
    _print_copied(copied, f"{file} is restored into {settings.store_url}", json)


def _print_copied(copied: "BackupInfo", text: str, json: bool) -> None:
    if json:
        print_json(copied)
    else:
        out().print(
            f"{text}: {count_text(copied.objects, 'object')}, {count_text(copied.bytes, 'byte')}.",
            markup=False,
            highlight=False,
        )
