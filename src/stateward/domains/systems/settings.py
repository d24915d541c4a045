"""Settings of the domain: `systems_local_namespaces` in a file, `STATEWARD_SYSTEMS_LOCAL_NAMESPACES`, and so on."""

from typing import Annotated

from msgspec import Struct

from stateward.config import about


class SystemsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be set; one line each, with what it means."""

    local_namespaces: Annotated[
        str, about("namespaces that may deploy on this host, with commas between them; *: all; empty: none")
    ] = "default"

    def may_use_host(self, ns: str) -> bool:
        """Tell whether a namespace may have programs on this host."""
        granted = {name.strip() for name in self.local_namespaces.split(",")}
        return "*" in granted or ns in granted
