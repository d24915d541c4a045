"""Settings of the domain: `mci_access_secret` in a file, or `STATEWARD_MCI_ACCESS_SECRET`."""

from typing import Annotated

from msgspec import Struct

from stateward.config import about


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
