"""Settings of the domain: `systems_...` in a file, or `STATEWARD_SYSTEMS_...` in the environment."""

from typing import Annotated

from msgspec import Meta, Struct

from stateward.config import about
from stateward.domains.systems.backends.names import CONTAINER, LOCAL
from stateward.naming import ADDRESS_PORTS, PORT_RANGES


class SystemsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the domain."""

    local_namespaces: Annotated[
        str, about("namespaces that may deploy on this host, with commas between them; *: all; empty: none")
    ] = "default"
    address_ports: Annotated[
        str,
        Meta(pattern=PORT_RANGES),
        about("ports that services may have as their address: numbers and ranges, with commas between them"),
    ] = ADDRESS_PORTS
    instances_per_system: Annotated[
        int, Meta(ge=1, le=1_000_000), about("instances that the definition of a system can have")
    ] = 10_000
    instances_per_namespace: Annotated[
        int, Meta(ge=1, le=10_000_000), about("instances that the systems of a namespace can have")
    ] = 50_000
    secrets_key_file: Annotated[
        str,
        about("file with the keys of secrets, one per line; empty: made in the data folder if embedded", hidden=True),
    ] = ""
    node_lease: Annotated[
        float, Meta(ge=1, le=3_600), about("seconds after which a node that reaches no controller stops its instances")
    ] = 10.0
    node_margin: Annotated[
        float, Meta(ge=0.5, le=600), about("seconds after the end of a node's lease until its instances are replaced")
    ] = 5.0

    container_engine: Annotated[
        str, about("container engine, as unix:///PATH or tcp://HOST:PORT; empty: no containers")
    ] = ""
    container_namespaces: Annotated[
        str, about("namespaces that may run containers, with commas between them; *: all; empty: none")
    ] = ""
    container_open_networks: Annotated[
        bool, about("run containers of several namespaces on an engine whose networks may reach each other")
    ] = False
    registry_logins: Annotated[
        str,
        about(
            "credentials that services may name in registry_login, as NAMESPACE=REFERENCE with commas; empty: none",
            hidden=True,
        ),
    ] = ""
    container_ca_file: Annotated[str, about("file with the authority of the container engine's certificate")] = ""
    container_cert_file: Annotated[str, about("file with our certificate for the container engine")] = ""
    container_key_file: Annotated[
        str, about("file with the key of our certificate for the container engine", hidden=True)
    ] = ""

    def may_use(self, backend: str, ns: str) -> bool:
        """Tell whether a namespace may run programs on this host, or containers on the engine's."""
        lists = {LOCAL: self.local_namespaces, CONTAINER: self.container_namespaces}
        granted = {name.strip() for name in lists.get(backend, "*").split(",")}
        return "*" in granted or ns in granted

    def may_log_in(self, reference: str, ns: str) -> bool:
        """Tell whether services of a namespace may name a credential; a file without a profile has all of them."""
        granted = {tuple(login.strip().partition("=")[::2]) for login in self.registry_logins.split(",")}
        names = {reference, reference.partition("#")[0]}
        return any((who, name) in granted for who in (ns, "*") for name in names)
