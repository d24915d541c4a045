"""The domains that simulations run, with their real handlers and guards."""

from tests.simulation.domain_case import DomainCase
from tests.simulation.edge_case import EdgeCase
from tests.simulation.leases_case import LeasesCase
from tests.simulation.mci_case import MciCase
from tests.simulation.ovc_case import OvcCase
from tests.simulation.systems_case import SystemsCase

CASES: dict[str, type[DomainCase]] = {one.name: one for one in (MciCase, LeasesCase, EdgeCase, OvcCase, SystemsCase)}
