"""The plug-in of the domain: what it declares; `runtime.py` has what lives in a process."""

from stateward.domains.leases.settings import Settings
from stateward.plugin.domain import DomainPlugin

domain = DomainPlugin(
    "leases",
    lifecycles="stateward.domains.leases.lifecycle:LIFECYCLES",
    pictures="stateward.domains.leases:pictures",
    about="resources reserved for a span of time, started and ended by the clock",
    order=40,
    create="stateward.domains.leases.runtime:create_runtime",
    settings=Settings,
    cli="stateward.domains.leases.cli:app",
    command="lease",
    console="stateward.domains.leases:console.js",
    style="stateward.domains.leases:console.css",
    examples="stateward.domains.leases.examples:EXAMPLES",
)
