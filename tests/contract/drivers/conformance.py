"""The contract of all drivers."""

from tests.contract.drivers.action_contract import ActionContract
from tests.contract.drivers.adoption_contract import AdoptionContract
from tests.contract.drivers.bulk_contract import BulkContract
from tests.contract.drivers.create_contract import CreateContract
from tests.contract.drivers.listing_contract import ListingContract
from tests.contract.drivers.login_contract import LoginContract
from tests.contract.drivers.resource_contract import ResourceContract
from tests.contract.drivers.takeover_contract import TakeoverContract


class Conformance(
    CreateContract,
    ActionContract,
    ListingContract,
    BulkContract,
    ResourceContract,
    TakeoverContract,
    LoginContract,
    AdoptionContract,
):
    """Everything that holds for every driver."""
