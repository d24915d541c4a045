"""The plug-in of the domain: what it declares; `runtime.py` has what lives in a process."""

from stateward.domains.edge.settings import EdgeSettings
from stateward.plugin.domain import DomainPlugin

domain = DomainPlugin(
    "edge",
    lifecycles="stateward.domains.edge.lifecycle:LIFECYCLES",
    pictures="stateward.domains.edge:pictures",
    about="clusters, apps and cloudlets, worked by remote agents",
    order=20,
    create="stateward.domains.edge.runtime:create_runtime",
    settings=EdgeSettings,
    cli="stateward.domains.edge.cli:app",
    programs={
        "agent": ("Run the agent of a cloudlet on this machine.", "stateward.domains.edge.sites.agent_command:agent")
    },
    console="stateward.domains.edge:console.js",
    style="stateward.domains.edge:console.css",
    examples="stateward.domains.edge.examples:EXAMPLES",
    published_names="stateward.domains.edge.examples:PUBLISHED_NAMES",
)
