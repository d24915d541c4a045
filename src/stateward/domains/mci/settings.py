"""Settings of the domain, such as `mci_access_secret` in a file, or `STATEWARD_MCI_ACCESS_SECRET`."""

from typing import Annotated

from msgspec import Struct

from stateward.config import about

SERVER = "server"
"""Stands for the address of the server, in `access_from`."""


class MciSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the domain."""

    access_secret: Annotated[
        str,
        about(
            "file of the secret that the keys for commands on VMs come from, the same for all processes;"
            " empty: beside the embedded database",
            hidden=True,
        ),
    ] = ""
    access_from: Annotated[
        str,
        about(
            "from where VMs let in SSH if a request has no accessFrom: ranges of addresses with commas between them;"
            " server: the address of this server; empty: nowhere"
        ),
    ] = SERVER
