"""DNS zones and records for Stateward: what the plug-in declares. `runtime.py` has what lives in a process."""

from stateward.plugin import DomainPlugin
from stateward_dns.lifecycle import RECORD, ZONE
from stateward_dns.settings import DnsSettings

domain = DomainPlugin(
    "dns",
    lifecycles=(ZONE, RECORD),
    about="zones and records on an authoritative DNS server",
    version="1.0",
    requires=">=0.2,<0.3",
    create="stateward_dns.runtime:create_runtime",
    settings=DnsSettings,
    cli="stateward_dns.cli:app",
    console="stateward_dns:console.js",
    style="stateward_dns:console.css",
    docs="stateward_dns:docs.md",
    examples={
        "dns.zone.spec": {"about": "the shop's own domain"},
        "dns.record.spec": {"zone": "example.org", "name": "www", "type": "A", "values": ["192.0.2.1"]},
        "dns.record.change.args": {"values": ["192.0.2.2"], "ttl": 60},
    },
)
