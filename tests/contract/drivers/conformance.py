"""The suite that every driver runs under."""

from tests.contract.drivers.bulk import Bulk
from tests.contract.drivers.creating import Creating
from tests.contract.drivers.deeds import Deeds
from tests.contract.drivers.handing_over import HandingOver
from tests.contract.drivers.looking import Looking
from tests.contract.drivers.parts import Parts


class Conformance(Creating, Deeds, Looking, Bulk, Parts, HandingOver):
    """All that holds for every driver."""
