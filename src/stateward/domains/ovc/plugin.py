"""The plug-in of the domain: what it declares; `runtime.py` has what lives in a process."""

from stateward.plugin.domain import DomainPlugin

domain = DomainPlugin(
    "ovc",
    lifecycles="stateward.domains.ovc.lifecycle:LIFECYCLES",
    pictures="stateward.domains.ovc:pictures",
    about="one action at a time, durable queues, a recycle bin",
    order=30,
    create="stateward.domains.ovc.runtime:create_runtime",
    cli="stateward.domains.ovc.cli:app",
    console="stateward.domains.ovc:console.js",
    examples="stateward.domains.ovc.examples:EXAMPLES",
    published_names="stateward.domains.ovc.examples:PUBLISHED_NAMES",
)
