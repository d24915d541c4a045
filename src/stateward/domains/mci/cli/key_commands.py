"""`stateward mci key ...`: private keys that a server has encrypted for the caller."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from stateward.domains.mci.cli.key_file import read_file

app = typer.Typer(no_args_is_help=True, help="Open private keys that were encrypted.")

Encrypted = Annotated[Path, typer.Argument(metavar="FILE", help="The encrypted private key, as the server gave it.")]
Identity = Annotated[
    Path,
    typer.Option("--identity", "-i", metavar="FILE", help="The RSA private key that it was encrypted for, in PEM."),
]


@app.command("open")
def open_(file: Encrypted, identity: Identity) -> None:
    """Print a private key that was encrypted by `mci create --encrypt-for`."""
    from stateward.domains.mci.provider.encrypted_keys import open_encrypted  # most commands need no cryptography

    encrypted = read_file("FILE", file).encode()
    sys.stdout.write(open_encrypted(encrypted, read_file("--identity", identity).encode()))
