"""Settings of the domain: `systems_...` in a file, or `STATEWARD_SYSTEMS_...` in the environment."""

from typing import Annotated

from msgspec import Struct

from stateward.config import about


class SystemsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the domain."""

    local_namespaces: Annotated[
        str, about("namespaces that may deploy on this host, with commas between them; *: all; empty: none")
    ] = "default"
    secrets_key_file: Annotated[
        str,
        about("file with the keys of secrets, one per line; empty: made in the data folder if embedded", hidden=True),
    ] = ""

    def may_use_host(self, ns: str) -> bool:
        """Tell whether a namespace may run programs on this host."""
        granted = {name.strip() for name in self.local_namespaces.split(",")}
        return "*" in granted or ns in granted
