"""The plug-in of the domain: what it declares; `runtime.py` has what lives in a process."""

from stateward.domains.mci.settings import MciSettings
from stateward.plugin.domain import DomainPlugin

domain = DomainPlugin(
    "mci",
    lifecycles="stateward.domains.mci.lifecycle:LIFECYCLES",
    pictures="stateward.domains.mci:pictures",
    about="groups of VMs over many providers and regions, controlled as one",
    order=10,
    create="stateward.domains.mci.runtime:create_runtime",
    settings=MciSettings,
    cli="stateward.domains.mci.cli:app",
    console="stateward.domains.mci:console.js",
    style="stateward.domains.mci:console.css",
    published_names="stateward.domains.mci.examples:PUBLISHED_NAMES",
)
