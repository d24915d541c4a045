"""The plug-in of the domain: what it declares; `runtime.py` has what lives in a process."""

from stateward.domains.systems.settings import SystemsSettings
from stateward.plugin.domain import DomainPlugin

domain = DomainPlugin(
    "systems",
    lifecycles="stateward.domains.systems.lifecycle:LIFECYCLES",
    pictures="stateward.domains.systems:pictures",
    about="trees of services, deployed and torn down under intention locks",
    order=50,
    create="stateward.domains.systems.runtime:create_runtime",
    settings=SystemsSettings,
    cli="stateward.domains.systems.cli:app",
    command="system",
    console="stateward.domains.systems:console.js",
    style="stateward.domains.systems:console.css",
    examples="stateward.domains.systems.examples:EXAMPLES",
    published_names="stateward.domains.systems.examples:PUBLISHED_NAMES",
)
